"""Prefix and ring regions: separate rows, addresses, errors, occupancy, hidden rows."""

from __future__ import annotations

import pytest
import torch
from state_helpers import GEOMETRY

from engine.state import reserve
from engine.state.errors import SlotsExhausted, StateError
from engine.state.snapshot_pool import SsmSnapshotPool


def make_pool(prefix_slots: int = 3, ring_depth: int = 4, slots: int = 2, hidden: int = 0) -> SsmSnapshotPool:
    return SsmSnapshotPool(GEOMETRY, prefix_slots, ring_depth, slots, hidden=hidden)


def test_bytes_equal_the_formulas() -> None:
    pool = make_pool(hidden=6)
    assert pool.prefix_bytes == reserve.prefix_pool_bytes(3, GEOMETRY.blob_bytes, 6, 4)
    assert pool.ring_bytes == reserve.decode_ring_bytes(4, 2, GEOMETRY.blob_bytes)
    assert pool.padding > 0


def test_ring_row_is_slot_times_depth_plus_ring_slot() -> None:
    pool = make_pool(ring_depth=4, slots=3)
    assert [pool.ring_row(slot, index) for slot in range(3) for index in range(4)] == list(range(12))


def test_every_place_has_bytes_of_its_own() -> None:
    pool = make_pool()
    places = [("ring", slot, index) for slot in range(2) for index in range(4)]
    places += [("prefix", -1, index) for index in range(3)]
    for number, (kind, slot, index) in enumerate(places):
        blob = pool.state(kind, slot, index).blob
        assert blob is not None
        blob.fill_(number)
    for number, (kind, slot, index) in enumerate(places):
        view = pool.state(kind, slot, index)
        assert view.h is not None
        assert bool((view.h == number).all()) and bool((view.conv == number).all())


@pytest.mark.parametrize(
    ("kind", "slot", "index", "text"),
    [
        ("ring", 2, 0, "rings are reserved for slots 0..1"),
        ("ring", -1, 0, "rings are reserved for slots 0..1"),
        ("ring", 0, 4, "the ring has 4 slots"),
        ("ring", 0, -1, "the ring has 4 slots"),
        ("prefix", -1, 3, "no prefix slot 3: there are 3"),
        ("live", 0, 0, "ring and prefix places"),
    ],
)
def test_places_that_do_not_exist_are_refused(kind: str, slot: int, index: int, text: str) -> None:
    with pytest.raises(StateError, match=text):
        make_pool().state(kind, slot, index)


def test_ring_that_was_not_allocated_is_refused() -> None:
    with pytest.raises(StateError, match=r"not allocated \(depth 0\)"):
        make_pool(ring_depth=0).state("ring", 0, 0)


def test_rings_move_as_a_whole_and_count_their_bytes() -> None:
    pool = make_pool(ring_depth=2, slots=3)
    for index in range(2):
        blob = pool.state("ring", 2, index).blob
        assert blob is not None
        blob.fill_(index + 1)
    assert pool.copy_rings(2, 0) == 2 * GEOMETRY.blob_bytes
    for index in range(2):
        assert bool((pool.state("ring", 0, index).conv == index + 1).all())
        assert not pool.state("ring", 1, index).conv.any()
    assert make_pool(ring_depth=0).copy_rings(1, 0) == 0


def test_lowest_prefix_slot_is_claimed_first_and_occupancy_counts_prefixes_only() -> None:
    pool = make_pool()
    assert [pool.claim_prefix() for _ in range(2)] == [0, 1]
    assert pool.occupancy() == (2, 3) and pool.prefix_free == 1
    pool.free_prefix(0)
    assert pool.occupancy() == (1, 3)
    assert pool.claim_prefix() == 0
    assert pool.ever_used == 2


def test_full_prefix_region_refuses() -> None:
    pool = make_pool(prefix_slots=1)
    pool.claim_prefix()
    with pytest.raises(SlotsExhausted, match="all 1 prefix slots"):
        pool.claim_prefix()


def test_prefix_slot_freed_twice_is_refused() -> None:
    pool = make_pool()
    pool.free_prefix(pool.claim_prefix())
    with pytest.raises(StateError, match="released twice"):
        pool.free_prefix(0)
    assert pool.prefix_free == 3


def test_no_prefix_region_has_no_occupancy() -> None:
    assert make_pool(prefix_slots=0).occupancy() is None


def test_hidden_row_is_kept_until_the_slot_is_freed() -> None:
    pool = make_pool(hidden=4)
    index = pool.claim_prefix()
    assert pool.hidden(index) is None
    row = torch.tensor([1.0, -0.0, 3.0, 4.0])
    assert pool.keep_hidden(index, row) == 16
    kept = pool.hidden(index)
    assert kept is not None and torch.equal(kept.view(torch.int32), row.view(torch.int32))
    pool.free_prefix(index)
    assert pool.hidden(pool.claim_prefix()) is None


@pytest.mark.parametrize("hidden", [0, 5])
def test_hidden_row_of_another_size_is_refused(hidden: int) -> None:
    pool = make_pool(hidden=hidden)
    with pytest.raises(StateError, match=f"hidden rows of {hidden} elements"):
        pool.keep_hidden(pool.claim_prefix(), torch.zeros(4))


def test_slot_table_survives_saving() -> None:
    pool = make_pool(hidden=4)
    for _ in range(3):
        pool.claim_prefix()
    pool.keep_hidden(2, torch.ones(4))
    pool.free_prefix(1)
    twin = make_pool(hidden=4)
    twin.load_slots(pool.save_slots())
    assert twin.occupancy() == (2, 3) and twin.ever_used == 3
    assert twin.hidden(2) is not None and twin.hidden(0) is None
    assert twin.claim_prefix() == 1


@pytest.mark.parametrize(
    "data", [{}, {"free": [0], "hidden": [False], "high": 0}, {"free": [9], "hidden": [False] * 3, "high": 1}]
)
def test_slot_table_of_another_pool_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(StateError, match="prefix slot"):
        make_pool().load_slots(data)
