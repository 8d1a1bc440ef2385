"""The decode-time snapshot ring: which ring slot a boundary snapshot goes to and which positions can be restored.

Bookkeeping only; the bytes belong to the snapshot pool. Position convention: an entry labelled ``token_position`` = p
was taken when the sequence had p outputs, the last of them (the boundary token) still pending. Its state has absorbed
prompt + p - 1 tokens, the cursor then is prompt + p - 1, and decoding goes on by feeding output p - 1.

Invariants: at most ``capacity`` live entries; no two share a slot; no two share a position.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.seams import Change, Seams
from engine.state.errors import StateError


@dataclass(frozen=True, slots=True)
class SsmRingEntry:
    """A live snapshot: outputs when it was taken, and the ring slot in 0..capacity-1 that holds its bytes."""

    token_position: int
    snapshot_slot: int


@dataclass(frozen=True, slots=True)
class RingRecorded:
    """What :meth:`SsmDecodeRing.record` did: the slot to save into, entries that went for it, the cursor afterwards."""

    slot: int
    evicted: tuple[SsmRingEntry, ...]
    next_slot: int


@dataclass(frozen=True, slots=True)
class RingTruncated:
    """What :meth:`SsmDecodeRing.truncate_after` did: positions dropped (in recording order), the cursor afterwards."""

    keep_len: int
    dropped: tuple[int, ...]
    next_slot: int


class SsmDecodeRing:
    """A bounded ring of snapshots of one sequence; ``capacity`` 0 is a disabled ring.

    Seams ``ring.slot`` (slot chosen by record), ``ring.evict`` (entries that go for it; context entries, slot,
    capacity) and ``ring.truncate_cursor`` (cursor after a truncation; context before). See ``LEGACY_RING``.
    """

    __slots__ = ("_capacity", "_entries", "_next_slot", "_seams")

    def __init__(self, capacity: int, seams: Seams | None = None) -> None:
        self._capacity = capacity
        self._entries: list[SsmRingEntry] = []
        self._next_slot = 0
        self._seams = seams if seams is not None else Seams()

    @property
    def is_enabled(self) -> bool:
        return self._capacity > 0

    @property
    def capacity(self) -> int:
        return self._capacity

    @property
    def next_slot(self) -> int:
        """Slot the next record will use."""
        return self._next_slot

    @property
    def entries(self) -> tuple[SsmRingEntry, ...]:
        """Live entries, oldest recorded first."""
        return tuple(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def record(self, token_position: int) -> RingRecorded | None:
        """Register a snapshot at ``token_position`` under the cursor's slot; None when the ring is disabled.

        Whoever owns that slot is evicted: by ownership, not by age, because a truncation may have moved the cursor. An
        older entry with the same position goes too (the seed kept it, and lookups found its stale bytes first). The
        caller must save the state into the slot, or truncate to the position before when that fails."""
        if self._capacity == 0:
            return None
        slot = self._seams("ring.slot", self._next_slot, capacity=self._capacity)
        self._next_slot = (self._next_slot + 1) % self._capacity
        evicted = tuple(e for e in self._entries if slot == e.snapshot_slot or token_position == e.token_position)
        evicted = self._seams("ring.evict", evicted, entries=self.entries, slot=slot, capacity=self._capacity)
        self._entries = [entry for entry in self._entries if entry not in evicted]
        self._entries.append(SsmRingEntry(token_position, slot))
        return RingRecorded(slot, evicted, self._next_slot)

    def slot_for_position(self, keep_len: int) -> int | None:
        """Slot of the snapshot taken at exactly ``keep_len`` outputs."""
        return next((e.snapshot_slot for e in self._entries if e.token_position == keep_len), None)

    def snapshot_positions(self) -> Iterator[int]:
        """Positions that can be restored, in recording order."""
        return (entry.token_position for entry in self._entries)

    def truncate_after(self, keep_len: int) -> RingTruncated:
        """Drop entries past ``keep_len``; the one at exactly ``keep_len`` stays.

        The cursor resumes after the newest survivor: what was dropped came after it in cursor order, so those slots
        are used up before a survivor is evicted."""
        dropped = tuple(entry.token_position for entry in self._entries if entry.token_position > keep_len)
        self._entries = [entry for entry in self._entries if entry.token_position <= keep_len]
        cursor = (self._entries[-1].snapshot_slot + 1) % self._capacity if self._entries else 0
        self._next_slot = self._seams("ring.truncate_cursor", cursor, before=self._next_slot)
        return RingTruncated(keep_len, dropped, self._next_slot)

    def save(self) -> dict[str, Any]:
        """As plain data."""
        entries = [[entry.token_position, entry.snapshot_slot] for entry in self._entries]
        return {"capacity": self._capacity, "next_slot": self._next_slot, "entries": entries}

    @classmethod
    def load(cls, data: Mapping[str, Any], seams: Seams | None = None) -> SsmDecodeRing:
        """Inverse of :meth:`save`. Raises StateError on a slot outside the ring."""
        ring = cls(int(data["capacity"]), seams)
        ring._next_slot = int(data["next_slot"])
        ring._entries = [SsmRingEntry(int(position), int(slot)) for position, slot in data["entries"]]
        if any(not 0 <= slot < ring._capacity for slot in (e.snapshot_slot for e in ring._entries)):
            raise StateError(f"ring entries {data['entries']} do not fit a ring of {ring._capacity} slots")
        return ring


def evict_oldest(
    evicted: Sequence[SsmRingEntry], *, entries: Sequence[SsmRingEntry], capacity: int, **_: Any
) -> tuple[SsmRingEntry, ...]:
    """The historic rule: only a full ring evicts, and it evicts by age."""
    return tuple(entries[:1]) if len(entries) >= capacity else ()


def keep_cursor(next_slot: int, *, before: int, **_: Any) -> int:
    """The historic rule: a truncation leaves the cursor where it was."""
    return before


# Changes that together bring back the historic ring, in which two live entries can share a slot.
LEGACY_RING: Mapping[str, Change] = {"ring.evict": evict_oldest, "ring.truncate_cursor": keep_cursor}
