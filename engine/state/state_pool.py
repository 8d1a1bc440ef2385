"""The state pool: working states, checkpoints and verify planes of every slot.

Rows 0..slots-1 belong to sequences, row ``slots`` is the dummy for padded rows and can never be claimed. Every buffer
is allocated once; views into it stay valid for the life of the pool.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.state import reserve
from engine.state.errors import StateError
from engine.state.geometry import StateGeometry
from engine.state.reserve import SsmRollbackMode
from engine.state.rows import PlaneRows, StateRows, StateView
from engine.state.slots import SlotClaim, SlotTable

__all__ = ["SlotClaim", "SsmStatePool"]


class SsmStatePool(SlotTable):
    """States of ``slots`` sequences for verify width ``k``.

    Snapshot mode keeps K-1 h planes and K conv planes per slot, replay mode K-1 rows of recorded inputs instead.
    ``k`` = 1 has neither, and no checkpoint. ``act_dtype`` is the dtype of the recorded projections.
    """

    def __init__(
        self,
        geometry: StateGeometry,
        slots: int,
        k: int,
        mode: SsmRollbackMode = SsmRollbackMode.SNAPSHOT,
        device: torch.device | str = "cpu",
        act_dtype: torch.dtype = torch.float32,
    ) -> None:
        if slots < 1 or k < 1:
            raise StateError(f"a state pool needs at least one slot and K >= 1, found slots={slots} K={k}")
        super().__init__(slots)
        self.geometry, self.k, self.mode = geometry, k, mode
        self.device = torch.device(device)
        rows, layers, f32 = slots + 1, geometry.layers, torch.float32
        verify = rows if k > 1 else 0
        steps = verify if mode is SsmRollbackMode.SNAPSHOT else 0
        inputs = verify if mode is SsmRollbackMode.REPLAY else 0
        self._live = StateRows(geometry, rows, self.device)
        self._checkpoint = StateRows(geometry, verify, self.device)
        self._step_h = PlaneRows(layers, geometry.h_shape, steps, k - 1, f32, self.device)
        self._step_conv = PlaneRows(layers, geometry.conv_shape, steps, k, f32, self.device)
        qkvz, nv = reserve.qkvz_elems(geometry), geometry.h_shape[0]
        self._replay_qkvz = PlaneRows(layers, (qkvz,), inputs, k - 1, act_dtype, self.device)
        self._replay_gates = PlaneRows(layers, (2 * nv,), inputs, k - 1, f32, self.device)
        self._regions: tuple[StateRows | PlaneRows, ...] = (
            self._live,
            self._checkpoint,
            self._step_h,
            self._step_conv,
            self._replay_qkvz,
            self._replay_gates,
        )

    # ------------------------------------------------------------------------------------------------ sizes

    @property
    def dummy(self) -> int:
        """Row for padded rows; never claimed, never read as a state."""
        return self.slots

    @property
    def bytes(self) -> int:
        """Bytes of live, checkpoint and step regions: equal to ``reserve.ssm_pool_bytes``."""
        return sum(region.bytes for region in (self._live, self._checkpoint, self._step_h, self._step_conv))

    @property
    def replay_bytes(self) -> int:
        """Bytes of the recorded rows: ``reserve.ssm_replay_ring_bytes`` with slots + 1 (the dummy)."""
        return self._replay_qkvz.bytes + self._replay_gates.bytes

    @property
    def padding(self) -> int:
        """Bytes spent on aligning rows, not counted by the formulas."""
        return sum(region.padding for region in self._regions)

    @property
    def has_checkpoint(self) -> bool:
        return self._checkpoint.rows > 0

    @property
    def h_steps(self) -> int:
        """Number of h planes per slot: K-1, or 0 in replay mode."""
        return self._step_h.planes if self._step_h.buffer.shape[0] else 0

    @property
    def conv_steps(self) -> int:
        """Number of conv planes per slot: K, or 0 in replay mode or without verify."""
        return self._step_conv.planes if self._step_conv.buffer.shape[0] else 0

    @property
    def replay_rows(self) -> int:
        """Recorded rows per slot: K-1 in replay mode, else 0."""
        return self._replay_qkvz.planes if self._replay_qkvz.buffer.shape[0] else 0

    # ------------------------------------------------------------------------------------------------ views

    def h(self, ordinal: int) -> Tensor:
        """Live h [slots + 1, Hv, dk, dv] of recurrent layer number ``ordinal``."""
        return self._live.h(ordinal)

    def conv(self, ordinal: int) -> Tensor:
        """Live conv [slots + 1, C, kernel]."""
        return self._live.conv(ordinal)

    def checkpoint_h(self, ordinal: int) -> Tensor:
        """Checkpoint h [slots + 1, Hv, dk, dv]; no rows when K = 1."""
        return self._checkpoint.h(ordinal)

    def checkpoint_conv(self, ordinal: int) -> Tensor:
        """Checkpoint conv [slots + 1, C, kernel]; no rows when K = 1."""
        return self._checkpoint.conv(ordinal)

    def step_h(self, ordinal: int) -> Tensor:
        """h after verify row i [slots + 1, K-1, Hv, dk, dv]; no rows in replay mode."""
        return self._step_h.layer(ordinal)

    def step_conv(self, ordinal: int) -> Tensor:
        """conv after verify row i [slots + 1, K, C, kernel]; no rows in replay mode."""
        return self._step_conv.layer(ordinal)

    def replay_qkvz(self, ordinal: int) -> Tensor:
        """Recorded projections [slots + 1, K-1, Q|K|V|Z] in the activation dtype; no rows in snapshot mode."""
        return self._replay_qkvz.layer(ordinal)

    def replay_gates(self, ordinal: int) -> Tensor:
        """Recorded gates [slots + 1, K-1, g of all value heads | beta of all value heads] fp32."""
        return self._replay_gates.layer(ordinal)

    def replay_planes(self, slot: int) -> tuple[Tensor, Tensor]:
        """Everything recorded for ``slot``: projections [K-1, stride] and gates [K-1, stride], padding included."""
        return self._replay_qkvz.rows_of(slot), self._replay_gates.rows_of(slot)

    def copy_slot(self, src: int, dst: int) -> int:
        """Everything slot ``src`` holds (live, checkpoint, steps, recorded rows) to slot ``dst``; bytes moved."""
        moved = 0
        for region in self._regions:
            rows = region.buffer.shape[0]
            if rows:
                region.buffer[dst].copy_(region.buffer[src])
                moved += region.bytes // rows
        return moved

    def state(self, kind: str, slot: int, index: int = 0) -> StateView:
        """The state at a place of this pool: kind live, checkpoint or step (``index`` = verify row).

        Raises:
            StateError: no such row, or this pool has no such region.
        """
        if not 0 <= slot <= self.slots:
            raise StateError(f"no slot {slot}: the pool has {self.slots} slots and the dummy {self.dummy}")
        if kind == "live":
            return self._live.view(slot)
        if kind == "checkpoint":
            if not self.has_checkpoint:
                raise StateError("no checkpoint region: the pool was built for K = 1 (no drafts)")
            return self._checkpoint.view(slot)
        if kind != "step":
            raise StateError(f"the state pool has live, checkpoint and step places, not {kind!r}")
        if not 0 <= index < self.conv_steps:
            raise StateError(f"no step {index}: the pool has {self.conv_steps} conv and {self.h_steps} h planes")
        h = self._step_h.view(slot, index) if index < self.h_steps else None
        return StateView(h, self._step_conv.view(slot, index), None)
