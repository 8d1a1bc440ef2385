"""The state pool: working states, checkpoints and verify planes of every slot, and who owns which slot.

Rows 0..slots-1 belong to sequences, row ``slots`` is the dummy for padded rows and can never be claimed. Every buffer
is allocated once; views into it stay valid for the life of the pool.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from engine.state import reserve
from engine.state.errors import SlotsExhausted, StateError
from engine.state.geometry import StateGeometry
from engine.state.reserve import SsmRollbackMode
from engine.state.rows import PlaneRows, StateRows, StateView


class SlotClaim:
    """Ownership of one slot. Leaving the ``with`` block gives the slot back, unless it was taken out before."""

    __slots__ = ("_held", "_pool", "epoch", "slot")

    def __init__(self, pool: SsmStatePool, slot: int, epoch: int) -> None:
        self._pool = pool
        self._held = True
        self.slot = slot
        self.epoch = epoch

    @property
    def held(self) -> bool:
        """False after release, take or detach."""
        return self._held

    def __enter__(self) -> SlotClaim:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._held:
            self.release()

    def release(self) -> None:
        """Give the slot back. Raises StateError when this claim no longer holds it."""
        self._check()
        self._held = False
        self._pool.release(self.slot)

    def take(self) -> int:
        """The slot number, for whoever will call ``pool.release`` himself; this claim lets go."""
        self.detach()
        return self.slot

    def detach(self) -> None:
        """Let go without giving the slot back: it stays claimed."""
        self._check()
        self._held = False

    def migrate(self, slot: int) -> tuple[int, int]:
        """Own the free ``slot`` instead: (old slot, new slot). No bytes move here; copy them first or after."""
        self._check()
        old = self.slot
        self.epoch = self._pool.occupy(slot)
        self.slot = slot
        self._pool.release(old)
        return old, slot

    def _check(self) -> None:
        if not self._held:
            raise StateError(f"claim on slot {self.slot} (epoch {self.epoch}) was already given up")


class SsmStatePool:
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
        self.geometry, self.slots, self.k, self.mode = geometry, slots, k, mode
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
        self._free = list(range(slots))
        self._owned: set[int] = set()
        self._epochs = [0] * slots

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
        regions = (self._live, self._checkpoint, self._step_h, self._step_conv, self._replay_qkvz, self._replay_gates)
        return sum(region.padding for region in regions)

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

    # ------------------------------------------------------------------------------------------------ slots

    @property
    def free(self) -> tuple[int, ...]:
        """Free slots, lowest first."""
        return tuple(sorted(self._free))

    @property
    def owned(self) -> tuple[int, ...]:
        """Claimed slots, lowest first."""
        return tuple(sorted(self._owned))

    def epoch(self, slot: int) -> int:
        """How often ``slot`` was claimed so far."""
        return self._epochs[slot]

    def claim(self) -> SlotClaim:
        """Claim the lowest free slot. Raises SlotsExhausted when there is none."""
        if not self._free:
            raise SlotsExhausted(f"all {self.slots} slots are in use: end a request or start with more slots")
        slot = self._free[0]
        return SlotClaim(self, slot, self.occupy(slot))

    def claim_specific(self, slot: int) -> SlotClaim:
        """Claim ``slot``. Raises StateError when it is not free."""
        return SlotClaim(self, slot, self.occupy(slot))

    def adopt(self, slot: int) -> SlotClaim:
        """A claim on a slot that is owned already (after :meth:`load_owners` or :meth:`SlotClaim.take`)."""
        if slot not in self._owned:
            raise StateError(f"slot {slot} is not claimed")
        return SlotClaim(self, slot, self._epochs[slot])

    def occupy(self, slot: int) -> int:
        """Mark a free slot as owned and return its new epoch."""
        if slot not in self._free:
            raise StateError(f"slot {slot} is not free (free: {self.free})")
        self._free.remove(slot)
        heapq.heapify(self._free)
        self._owned.add(slot)
        self._epochs[slot] += 1
        return self._epochs[slot]

    def release(self, slot: int) -> None:
        """Put an owned slot back on the free list. Raises StateError when it is free already."""
        if slot not in self._owned:
            raise StateError(f"slot {slot} is released twice or was never claimed")
        self._owned.remove(slot)
        heapq.heappush(self._free, slot)

    def compact_plan(self) -> list[tuple[int, int]]:
        """Fewest moves (src, dst) that bring the owned slots onto the lowest numbers; each dst is free now."""
        count = len(self._owned)
        holes = [slot for slot in self.free if slot < count]
        high = [slot for slot in self.owned if slot >= count]
        return list(zip(high, holes, strict=True))

    def save_owners(self) -> dict[str, Any]:
        """Owners and epochs as plain data."""
        return {"owned": list(self.owned), "epochs": list(self._epochs)}

    def load_owners(self, data: Mapping[str, Any]) -> None:
        """Inverse of :meth:`save_owners`; take claims with :meth:`adopt`. Raises StateError on other data."""
        owned, epochs = data.get("owned"), data.get("epochs")
        if not isinstance(owned, list) or not isinstance(epochs, list) or len(epochs) != self.slots:
            raise StateError(f"slot table does not fit a pool of {self.slots} slots")
        if not all(isinstance(slot, int) and 0 <= slot < self.slots and epochs[slot] > 0 for slot in owned):
            raise StateError(f"slot table claims slots that do not exist or were never allocated: {owned}")
        self._owned = set(owned)
        self._epochs = [int(epoch) for epoch in epochs]
        self._free = [slot for slot in range(self.slots) if slot not in self._owned]
