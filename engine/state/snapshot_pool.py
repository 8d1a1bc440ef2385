"""Snapshots that outlive a round: the prefix region (free list) and the ring region (owned by sequence slots).

Both are separate allocations with the row layout of the state pool. Ring slot r of slot s is row ``s * depth + r``.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from engine.state.errors import SlotsExhausted, StateError
from engine.state.geometry import StateGeometry
from engine.state.rows import StateRows, StateView


class SsmSnapshotPool:
    """``prefix_slots`` prefix snapshots and ``ring_depth`` ring slots for each of ``slots`` sequences; all may be 0.

    With ``hidden`` > 0 every prefix snapshot can keep one hidden row [hidden] in ``hidden_dtype``: the row that serves
    an exact full-prompt hit without feeding the last token twice.
    """

    def __init__(
        self,
        geometry: StateGeometry,
        prefix_slots: int,
        ring_depth: int,
        slots: int,
        device: torch.device | str = "cpu",
        hidden: int = 0,
        hidden_dtype: torch.dtype = torch.float32,
    ) -> None:
        self.prefix_slots, self.ring_depth, self.slots = prefix_slots, ring_depth, slots
        where = torch.device(device)
        self._prefix = StateRows(geometry, prefix_slots, where)
        self._ring = StateRows(geometry, slots * ring_depth, where)
        self._hidden = torch.zeros(prefix_slots, hidden, dtype=hidden_dtype, device=where)
        self._has_hidden = [False] * prefix_slots
        self._free = list(range(prefix_slots))
        self._high = 0

    # ------------------------------------------------------------------------------------------------ sizes

    @property
    def prefix_bytes(self) -> int:
        """Bytes of the prefix region: ``reserve.prefix_pool_bytes``."""
        return self._prefix.bytes + self._hidden.numel() * self._hidden.itemsize

    @property
    def ring_bytes(self) -> int:
        """Bytes of the ring region: ``reserve.decode_ring_bytes``."""
        return self._ring.bytes

    @property
    def padding(self) -> int:
        return self._prefix.padding + self._ring.padding

    def occupancy(self) -> tuple[int, int] | None:
        """(used, total) prefix slots; the ring does not count. None without a prefix region."""
        if self.prefix_slots == 0:
            return None
        return self.prefix_slots - len(self._free), self.prefix_slots

    # ------------------------------------------------------------------------------------------------ places

    def ring_row(self, slot: int, ring_slot: int) -> int:
        """Row of a ring slot. Raises StateError: no ring region, slot or ring slot out of range."""
        if self.ring_depth == 0:
            raise StateError("no decode ring: the ring region was not allocated (depth 0)")
        if not 0 <= slot < self.slots:
            raise StateError(f"slot {slot} has no ring: rings are reserved for slots 0..{self.slots - 1}")
        if not 0 <= ring_slot < self.ring_depth:
            raise StateError(f"no ring slot {ring_slot}: the ring has {self.ring_depth} slots")
        return slot * self.ring_depth + ring_slot

    def state(self, kind: str, slot: int, index: int) -> StateView:
        """The state at a place of this pool: kind ring or prefix. Raises StateError for one that does not exist."""
        if kind == "ring":
            return self._ring.view(self.ring_row(slot, index))
        if kind != "prefix":
            raise StateError(f"the snapshot pool has ring and prefix places, not {kind!r}")
        self._check_prefix(index)
        return self._prefix.view(index)

    def copy_rings(self, src: int, dst: int) -> int:
        """All ring slots of slot ``src`` to slot ``dst``; bytes moved."""
        if self.ring_depth == 0:
            return 0
        a, b, depth = self.ring_row(src, 0), self.ring_row(dst, 0), self.ring_depth
        self._ring.buffer[b : b + depth].copy_(self._ring.buffer[a : a + depth])
        return depth * self._ring.bytes // self._ring.rows

    # ------------------------------------------------------------------------------------------------ prefix slots

    @property
    def prefix_free(self) -> int:
        """Number of free prefix slots."""
        return len(self._free)

    @property
    def ever_used(self) -> int:
        """Prefix slots at and above this number were never allocated: they hold zeros."""
        return self._high

    def claim_prefix(self) -> int:
        """Take the lowest free prefix slot. Raises SlotsExhausted when all are in use."""
        if not self._free:
            raise SlotsExhausted(f"all {self.prefix_slots} prefix slots are in use: evict one first")
        index = heapq.heappop(self._free)
        self._high = max(self._high, index + 1)
        return index

    def free_prefix(self, index: int) -> None:
        """Free a prefix slot; its hidden row is forgotten. Raises StateError when it is free already."""
        self._check_prefix(index)
        if index in self._free:
            raise StateError(f"prefix slot {index} is released twice")
        self._has_hidden[index] = False
        heapq.heappush(self._free, index)

    def keep_hidden(self, index: int, row: Tensor) -> int:
        """Keep a hidden row [hidden] with a snapshot; bytes moved. Raises StateError when the pool keeps none."""
        self._check_prefix(index)
        if self._hidden.shape[1] == 0 or row.shape != self._hidden.shape[1:]:
            raise StateError(f"hidden rows of {self._hidden.shape[1]} elements are kept, found {tuple(row.shape)}")
        self._hidden[index].copy_(row)
        self._has_hidden[index] = True
        return self._hidden.shape[1] * self._hidden.itemsize

    def hidden(self, index: int) -> Tensor | None:
        """View [hidden] of the row kept with a snapshot, or None."""
        self._check_prefix(index)
        return self._hidden[index] if self._has_hidden[index] else None

    def _check_prefix(self, index: int) -> None:
        if not 0 <= index < self.prefix_slots:
            raise StateError(f"no prefix slot {index}: there are {self.prefix_slots}")

    # ------------------------------------------------------------------------------------------------ save and load

    def save_slots(self) -> dict[str, Any]:
        """Free list and hidden flags as plain data."""
        return {"free": sorted(self._free), "hidden": list(self._has_hidden), "high": self._high}

    def load_slots(self, data: Mapping[str, Any]) -> None:
        """Inverse of :meth:`save_slots`. Raises StateError on data of another pool."""
        free, hidden, high = data.get("free"), data.get("hidden"), data.get("high")
        if not isinstance(free, list) or not isinstance(hidden, list) or len(hidden) != self.prefix_slots:
            raise StateError(f"prefix slot table does not fit {self.prefix_slots} prefix slots")
        if not isinstance(high, int) or not all(isinstance(i, int) and 0 <= i < self.prefix_slots for i in free):
            raise StateError("prefix slot table names slots that do not exist")
        self._free, self._has_hidden, self._high = sorted(free), [bool(flag) for flag in hidden], high

    def hidden_row(self, index: int) -> Tensor:
        """View [hidden] of the storage itself, kept or not."""
        return self._hidden[index]
