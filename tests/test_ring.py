"""The decode-time snapshot ring: the thirteen published cases, what they miss, and the historic ring."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from engine.seams import Seams
from engine.state.errors import StateError
from engine.state.ring import LEGACY_RING, SsmDecodeRing, SsmRingEntry


def recorded(ring: SsmDecodeRing, *positions: int) -> list[int]:
    """Slots that recording ``positions`` used."""
    slots = []
    for position in positions:
        done = ring.record(position)
        assert done is not None
        slots.append(done.slot)
    return slots


def live(ring: SsmDecodeRing) -> dict[int, int]:
    return {entry.token_position: entry.snapshot_slot for entry in ring.entries}


# --------------------------------------------------------------------------------------- the thirteen published cases


def test_disabled_ring_records_nothing() -> None:
    ring = SsmDecodeRing(0)
    assert not ring.is_enabled
    assert ring.record(10) is None
    assert ring.slot_for_position(10) is None
    assert len(ring) == 0


def test_record_assigns_distinct_slots_until_full() -> None:
    ring = SsmDecodeRing(3)
    assert recorded(ring, 5, 12, 20) == [0, 1, 2]
    assert [ring.slot_for_position(position) for position in (5, 12, 20)] == [0, 1, 2]


def test_record_evicts_oldest_when_full_and_reuses_its_slot() -> None:
    ring = SsmDecodeRing(3)
    recorded(ring, 5, 12, 20)
    assert recorded(ring, 31) == [0]
    assert ring.slot_for_position(5) is None
    assert live(ring) == {12: 1, 20: 2, 31: 0}


def test_record_wraps_round_robin_over_capacity() -> None:
    ring = SsmDecodeRing(2)
    assert recorded(ring, 1, 2, 3, 4, 5) == [0, 1, 0, 1, 0]
    assert live(ring) == {4: 1, 5: 0}


def test_slot_for_position_requires_exact_match() -> None:
    ring = SsmDecodeRing(3)
    recorded(ring, 10, 20)
    assert ring.slot_for_position(15) is None
    assert ring.slot_for_position(20) == 1


def test_snapshot_positions_lists_live_entries_oldest_first() -> None:
    ring = SsmDecodeRing(3)
    recorded(ring, 7, 14, 21)
    assert list(ring.snapshot_positions()) == [7, 14, 21]
    recorded(ring, 28)
    assert list(ring.snapshot_positions()) == [14, 21, 28]


def test_truncate_after_drops_entries_past_keep_len() -> None:
    ring = SsmDecodeRing(3)
    recorded(ring, 10, 20, 30)
    ring.truncate_after(20)
    assert len(ring) == 2
    assert ring.slot_for_position(30) is None
    assert live(ring) == {20: 1, 10: 0}


def test_truncate_after_keeps_exact_boundary_snapshot() -> None:
    ring = SsmDecodeRing(3)
    recorded(ring, 10, 25)
    ring.truncate_after(25)
    assert ring.slot_for_position(25) == 1
    assert len(ring) == 2


def test_boundary_with_snapshot_selection_picks_latest_eligible() -> None:
    ring = SsmDecodeRing(4)
    recorded(ring, 8, 16, 40)
    chosen = next((p for p in (40, 32, 16, 8) if ring.slot_for_position(p) is not None), None)
    assert chosen == 40


def test_decline_when_no_boundary_has_snapshot() -> None:
    ring = SsmDecodeRing(4)
    recorded(ring, 5, 11)
    assert all(ring.slot_for_position(p) is None for p in (48, 36, 24))


def test_record_after_truncate_does_not_panic_or_share_slots() -> None:
    ring = SsmDecodeRing(5)
    recorded(ring, 10, 20, 30, 40, 50)
    ring.truncate_after(10)
    for position in range(60, 180, 10):
        recorded(ring, position)
        slots = [entry.snapshot_slot for entry in ring.entries]
        assert len(set(slots)) == len(slots)
    assert len(ring) == 5
    assert len(set(ring.snapshot_positions())) == 5


def test_truncate_rewinds_cursor_to_preserve_survivors() -> None:
    ring = SsmDecodeRing(3)
    recorded(ring, 10, 20, 30)
    ring.truncate_after(20)
    assert recorded(ring, 40) == [2]
    assert live(ring) == {10: 0, 20: 1, 40: 2}
    done = ring.record(50)
    assert done is not None and done.slot == 0
    assert done.evicted == (SsmRingEntry(10, 0),)


def test_truncate_to_empty_resets_cursor() -> None:
    ring = SsmDecodeRing(3)
    recorded(ring, 10, 20)
    ring.truncate_after(0)
    assert len(ring) == 0
    assert recorded(ring, 30) == [0]


# ------------------------------------------------------------------------------------------------- what events need


def test_record_tells_what_it_evicted_and_the_cursor_after_it() -> None:
    ring = SsmDecodeRing(2)
    first = ring.record(3)
    assert first is not None and (first.evicted, first.next_slot) == ((), 1)
    ring.record(6)
    third = ring.record(9)
    assert third is not None
    assert (third.slot, third.evicted, third.next_slot) == (0, (SsmRingEntry(3, 0),), 1)


def test_truncate_tells_dropped_positions_and_the_cursor_after_it() -> None:
    ring = SsmDecodeRing(4)
    recorded(ring, 3, 6, 9, 12)
    done = ring.truncate_after(7)
    assert (done.keep_len, done.dropped, done.next_slot) == (7, (9, 12), 2)


def test_truncating_a_disabled_ring_does_nothing() -> None:
    done = SsmDecodeRing(0).truncate_after(3)
    assert (done.dropped, done.next_slot) == ((), 0)


def test_failed_save_is_taken_back_by_truncating_to_the_position_before() -> None:
    ring = SsmDecodeRing(3)
    recorded(ring, 10, 20, 30, 40)
    assert ring.truncate_after(39).dropped == (40,)
    assert live(ring) == {20: 1, 30: 2}
    assert recorded(ring, 50) == [0]


def test_published_rollback_run_uses_the_published_slots() -> None:
    ring = SsmDecodeRing(8)
    assert recorded(ring, 51, 80, 100) == [0, 1, 2]
    for _ in range(2):
        assert ring.slot_for_position(51) == 0
        assert ring.truncate_after(51).next_slot == 1
        assert recorded(ring, 80, 100) == [1, 2]
    assert ring.slot_for_position(51) == 0


# ----------------------------------------------------------------------------------------------- duplicate positions


def test_recording_a_position_again_leaves_one_entry_with_the_new_slot() -> None:
    ring = SsmDecodeRing(4)
    recorded(ring, 10, 20, 30)
    ring.truncate_after(20)
    done = ring.record(20)
    assert done is not None and done.slot == 2
    assert done.evicted == (SsmRingEntry(20, 1),)
    assert live(ring) == {10: 0, 20: 2}


def test_recording_again_evicts_slot_owner_and_older_twin() -> None:
    ring = SsmDecodeRing(3)
    recorded(ring, 10, 20, 30)
    done = ring.record(30)
    assert done is not None and done.slot == 0
    assert done.evicted == (SsmRingEntry(10, 0), SsmRingEntry(30, 2))
    assert live(ring) == {20: 1, 30: 0}


# -------------------------------------------------------------------------------------------------------- properties

Steps = st.lists(st.tuples(st.sampled_from(["record", "truncate"]), st.integers(0, 60)), max_size=60)


@given(capacity=st.integers(1, 6), steps=Steps)
@settings(max_examples=200, deadline=None)
def test_slots_and_positions_are_unique_whatever_was_truncated(capacity: int, steps: list[tuple[str, int]]) -> None:
    ring = SsmDecodeRing(capacity)
    for what, position in steps:
        if what == "record":
            ring.record(position)
        else:
            ring.truncate_after(position)
        slots = [entry.snapshot_slot for entry in ring.entries]
        positions = list(ring.snapshot_positions())
        assert len(set(slots)) == len(slots) <= capacity
        assert len(set(positions)) == len(positions)
        assert all(0 <= slot < capacity for slot in slots)
        assert 0 <= ring.next_slot < capacity


@given(capacity=st.integers(1, 6), steps=Steps)
@settings(max_examples=100, deadline=None)
def test_saved_ring_goes_on_like_the_original(capacity: int, steps: list[tuple[str, int]]) -> None:
    ring = SsmDecodeRing(capacity)
    for number, (what, position) in enumerate(steps):
        if number % 5 == 0:
            ring = SsmDecodeRing.load(ring.save())
        twin = SsmDecodeRing.load(ring.save())
        step = SsmDecodeRing.record if what == "record" else SsmDecodeRing.truncate_after
        assert step(ring, position) == step(twin, position)
        assert ring.save() == twin.save()


def test_saved_ring_with_a_slot_outside_is_refused() -> None:
    with pytest.raises(StateError, match="ring of 2 slots"):
        SsmDecodeRing.load({"capacity": 2, "next_slot": 0, "entries": [[5, 2]]})


class RingMachine(RuleBasedStateMachine):
    """Against memory: what was saved for a position is what its slot holds, as long as the ring says it is there."""

    @initialize(capacity=st.integers(1, 5))
    def start(self, capacity: int) -> None:
        self.ring = SsmDecodeRing(capacity)
        self.bytes_in: dict[int, int] = {}
        self.saved: dict[int, int] = {}
        self.stamp = 0
        self.outputs = 0

    @rule(tokens=st.integers(0, 4))
    def emit_then_record(self, tokens: int) -> None:
        self.outputs += tokens
        self.stamp += 1
        done = self.ring.record(self.outputs)
        assert done is not None
        for entry in done.evicted:
            del self.saved[entry.token_position]
        self.bytes_in[done.slot] = self.saved[self.outputs] = self.stamp

    @rule(drop=st.integers(0, 12))
    def roll_back(self, drop: int) -> None:
        self.outputs = max(0, self.outputs - drop)
        dropped = self.ring.truncate_after(self.outputs).dropped
        for position in dropped:
            del self.saved[position]
        assert all(position > self.outputs for position in dropped)

    @invariant()
    def every_entry_holds_its_own_bytes(self) -> None:
        assert {p: self.bytes_in[slot] for p, slot in live(self.ring).items()} == self.saved

    @invariant()
    def newest_entries_survive(self) -> None:
        if self.saved:
            newest = max(self.saved.values())
            assert self.bytes_in[self.ring.entries[-1].snapshot_slot] == newest


TestRingMachine = RingMachine.TestCase
TestRingMachine.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


# ------------------------------------------------------------------------------------------------------ historic ring


def legacy_ring(capacity: int) -> SsmDecodeRing:
    seams = Seams()
    for point, change in LEGACY_RING.items():
        seams.add(point, change)
    return SsmDecodeRing(capacity, seams)


def test_historic_ring_lets_two_entries_share_a_slot() -> None:
    ring = legacy_ring(5)
    recorded(ring, 10, 20, 30, 40, 50)
    ring.truncate_after(10)
    recorded(ring, 60, 70)
    slots = [entry.snapshot_slot for entry in ring.entries]
    assert len(set(slots)) < len(slots)


def test_historic_ring_equals_the_ring_while_nothing_is_truncated() -> None:
    old, new = legacy_ring(3), SsmDecodeRing(3)
    for position in range(5, 50, 5):
        assert old.record(position) == new.record(position)


def test_seam_can_choose_another_slot() -> None:
    seams = Seams()
    seams.add("ring.slot", lambda slot, capacity: (slot + 1) % capacity)
    assert recorded(SsmDecodeRing(3, seams), 5, 6) == [1, 2]
