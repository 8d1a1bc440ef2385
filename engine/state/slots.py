"""Who owns which slot: claims, epochs, the free list and the plan that compacts survivors."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from engine.state.errors import SlotsExhausted, StateError


class SlotClaim:
    """Ownership of one slot. Leaving the ``with`` block gives the slot back, unless it was taken out before."""

    __slots__ = ("_held", "_table", "epoch", "slot")

    def __init__(self, table: SlotTable, slot: int, epoch: int) -> None:
        self._table = table
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

    def release(self, entries: int = 1) -> None:
        """Give the slot back (``entries``: see :meth:`SlotTable.release`). Raises StateError when this claim no longer
        holds it."""
        self._check()
        self._held = False
        self._table.release(self.slot, entries)

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
        self.epoch = self._table.occupy(slot)
        self.slot = slot
        self._table.release(old)
        return old, slot

    def _check(self) -> None:
        if not self._held:
            raise StateError(f"claim on slot {self.slot} (epoch {self.epoch}) was already given up")


class SlotTable:
    """Slots 0..slots-1, all free at first. The lowest free one is claimed first; ``epoch`` counts a slot's claims."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._free = list(range(slots))
        self._owned: set[int] = set()
        self._epochs = [0] * slots

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

    def adopt(self, slot: int, epoch: int = 0) -> SlotClaim:
        """A claim on a slot that is owned already (after :meth:`load_owners` or :meth:`SlotClaim.take`), with the
        ``epoch`` it was made in: that of the slot, unless the slot was given to two."""
        if slot not in self._owned:
            raise StateError(f"slot {slot} is not claimed")
        return SlotClaim(self, slot, epoch or self._epochs[slot])

    def occupy(self, slot: int) -> int:
        """Mark a free slot as owned and return its new epoch."""
        if slot not in self._free:
            raise StateError(f"slot {slot} is not free (free: {self.free})")
        self._free.remove(slot)
        heapq.heapify(self._free)
        self._owned.add(slot)
        self._epochs[slot] += 1
        return self._epochs[slot]

    def release(self, slot: int, entries: int = 1) -> None:
        """Put an owned slot back on the free list. Raises StateError when it is free already.

        ``entries`` other than 1 is what a list without that check ends up with: the slot stands on it more than once,
        and two claims get it."""
        if slot not in self._owned:
            raise StateError(f"slot {slot} is released twice or was never claimed")
        self._owned.remove(slot)
        for _ in range(entries):
            heapq.heappush(self._free, slot)

    def compact_plan(self) -> list[tuple[int, int]]:
        """Fewest moves (src, dst) that bring the owned slots onto the lowest numbers; each dst is free now."""
        count = len(self._owned)
        holes = [slot for slot in sorted(set(self._free) - self._owned) if slot < count]
        high = [slot for slot in self.owned if slot >= count]
        return list(zip(high, holes, strict=True))

    def save_owners(self) -> dict[str, Any]:
        """Owners and epochs as plain data, and entries of the free list that do not follow from them."""
        data: dict[str, Any] = {"owned": list(self.owned), "epochs": list(self._epochs)}
        again = Counter(self._free) - Counter(slot for slot in range(self.slots) if slot not in self._owned)
        return {**data, "again": sorted(again.elements())} if again else data

    def load_owners(self, data: Mapping[str, Any]) -> None:
        """Inverse of :meth:`save_owners`; take claims with :meth:`adopt`. Raises StateError on other data."""
        owned, epochs = data.get("owned"), data.get("epochs")
        if not isinstance(owned, list) or not isinstance(epochs, list) or len(epochs) != self.slots:
            raise StateError(f"slot table does not fit a pool of {self.slots} slots")
        if not all(isinstance(slot, int) and 0 <= slot < self.slots and epochs[slot] > 0 for slot in owned):
            raise StateError(f"slot table claims slots that do not exist or were never allocated: {owned}")
        again = data.get("again", [])
        if not isinstance(again, list) or not all(isinstance(slot, int) and 0 <= slot < self.slots for slot in again):
            raise StateError(f"slot table has slots that do not exist on its free list: {again}")
        self._owned = set(owned)
        self._epochs = [int(epoch) for epoch in epochs]
        self._free = sorted([*(slot for slot in range(self.slots) if slot not in self._owned), *again])
