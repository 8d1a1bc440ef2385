"""The state pool: sizes, where things lie, and who owns which slot."""

from __future__ import annotations

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from state_helpers import GEOMETRY

from engine.state import reserve
from engine.state.errors import SlotsExhausted, StateError
from engine.state.geometry import StateGeometry
from engine.state.reserve import SsmRollbackMode
from engine.state.state_pool import SlotClaim, SsmStatePool

SNAPSHOT, REPLAY = SsmRollbackMode.SNAPSHOT, SsmRollbackMode.REPLAY
ALIGNED = StateGeometry((0, 1), (2, 4, 8), (8, 4))


def make_pool(slots: int = 3, k: int = 4, mode: SsmRollbackMode = SNAPSHOT) -> SsmStatePool:
    return SsmStatePool(GEOMETRY, slots, k, mode)


# --------------------------------------------------------------------------------------------------------------- sizes


@pytest.mark.parametrize("geometry", [GEOMETRY, ALIGNED, StateGeometry((), (1, 2, 2), (3, 4))])
@pytest.mark.parametrize("mode", list(SsmRollbackMode))
@pytest.mark.parametrize("k", [1, 2, 4, 7])
@pytest.mark.parametrize("slots", [1, 3])
def test_bytes_equal_the_formula(geometry: StateGeometry, mode: SsmRollbackMode, k: int, slots: int) -> None:
    pool = SsmStatePool(geometry, slots, k, mode)
    assert pool.bytes == reserve.ssm_pool_bytes(geometry.layers, geometry.h_bytes, geometry.conv_bytes, slots, k, mode)


@pytest.mark.parametrize(("dtype", "width"), [(torch.bfloat16, 2), (torch.float32, 4)])
def test_recorded_rows_equal_the_formula_with_the_dummy_slot(dtype: torch.dtype, width: int) -> None:
    pool = SsmStatePool(GEOMETRY, 3, 4, REPLAY, act_dtype=dtype)
    row = reserve.ssm_replay_row_bytes(reserve.qkvz_elems(GEOMETRY), GEOMETRY.h_shape[0], width)
    assert pool.replay_bytes == reserve.ssm_replay_ring_bytes(GEOMETRY.layers, row, 4, 3 + 1)


def test_snapshot_mode_records_no_rows_and_replay_mode_keeps_no_steps() -> None:
    assert make_pool(mode=SNAPSHOT).replay_bytes == 0
    replay = make_pool(mode=REPLAY)
    assert (replay.h_steps, replay.conv_steps, replay.replay_rows) == (0, 0, 3)
    assert (make_pool().h_steps, make_pool().conv_steps, make_pool().replay_rows) == (3, 4, 0)


def test_sizes_that_are_whole_cache_lines_need_no_padding() -> None:
    assert SsmStatePool(ALIGNED, 3, 4).padding == 0


def test_padding_is_told_apart_from_the_state_bytes() -> None:
    pool = make_pool()
    held = sum(
        t.untyped_storage().nbytes() for t in (pool.h(0), pool.checkpoint_h(0), pool.step_h(0), pool.step_conv(0))
    )
    assert pool.padding > 0
    assert held == pool.bytes + pool.padding


def test_pool_without_drafts_has_no_verify_buffers() -> None:
    pool = make_pool(k=1)
    assert not pool.has_checkpoint
    assert pool.bytes == 4 * GEOMETRY.blob_bytes
    with pytest.raises(StateError, match="K = 1"):
        pool.state("checkpoint", 0)
    with pytest.raises(StateError, match="no step 0"):
        pool.state("step", 0, 0)


@pytest.mark.parametrize(("slots", "k"), [(0, 2), (2, 0)])
def test_pool_without_slots_or_window_is_refused(slots: int, k: int) -> None:
    with pytest.raises(StateError, match="at least one slot"):
        SsmStatePool(GEOMETRY, slots, k)


# --------------------------------------------------------------------------------------------------------------- views


def test_layer_views_have_the_published_shapes() -> None:
    pool = make_pool()
    assert pool.h(2).shape == (4, 2, 3, 3)
    assert pool.conv(2).shape == (4, 5, 4)
    assert pool.checkpoint_h(0).shape == (4, 2, 3, 3)
    assert pool.checkpoint_conv(0).shape == (4, 5, 4)
    assert pool.step_h(1).shape == (4, 3, 2, 3, 3)
    assert pool.step_conv(1).shape == (4, 4, 5, 4)
    replay = make_pool(mode=REPLAY)
    assert replay.replay_qkvz(1).shape == (4, 3, 5 + 2 * 3)
    assert replay.replay_gates(1).shape == (4, 3, 4)


def test_layer_views_and_places_are_the_same_memory() -> None:
    pool = make_pool()
    number = 0.0
    expected = {}
    for slot in range(4):
        for ordinal in range(3):
            for kind, index, h, conv in (
                ("live", 0, pool.h(ordinal)[slot], pool.conv(ordinal)[slot]),
                ("checkpoint", 0, pool.checkpoint_h(ordinal)[slot], pool.checkpoint_conv(ordinal)[slot]),
                *(("step", i, pool.step_h(ordinal)[slot, i], pool.step_conv(ordinal)[slot, i]) for i in range(3)),
            ):
                number += 1
                h.fill_(number)
                conv.fill_(-number)
                expected[kind, slot, index, ordinal] = number
    for (kind, slot, index, ordinal), value in expected.items():
        view = pool.state(kind, slot, index)
        assert view.h is not None
        assert bool((view.h[ordinal] == value).all())
        assert bool((view.conv[ordinal] == -value).all())


def test_whole_state_is_one_run_of_h_then_conv() -> None:
    view = make_pool().state("live", 1)
    assert view.blob is not None and view.h is not None
    assert view.blob.is_contiguous() and view.blob.numel() * 4 == GEOMETRY.blob_bytes
    assert view.blob.data_ptr() == view.h.data_ptr()
    assert view.conv.data_ptr() == view.blob.data_ptr() + view.h.numel() * 4


def test_rows_start_at_whole_cache_lines() -> None:
    pool, replay = make_pool(), make_pool(mode=REPLAY)
    starts = []
    for slot in range(4):
        starts += [pool.state("live", slot).conv.data_ptr() - pool.state("live", 0).conv.data_ptr()]
        starts += [pool.h(0)[slot].data_ptr(), pool.checkpoint_h(0)[slot].data_ptr()]
        starts += [pool.step_h(0)[slot, i].data_ptr() for i in range(3)]
        starts += [pool.step_conv(0)[slot, i].data_ptr() for i in range(4)]
        starts += [replay.replay_qkvz(0)[slot, i].data_ptr() for i in range(3)]
        starts += [replay.replay_gates(0)[slot, i].data_ptr() for i in range(3)]
    assert all(start % 64 == 0 for start in starts)


def test_last_verify_row_has_a_conv_plane_only() -> None:
    view = make_pool().state("step", 0, 3)
    assert view.h is None and view.conv.shape == (3, 5, 4)


@pytest.mark.parametrize(("kind", "slot", "index"), [("live", 4, 0), ("live", -1, 0), ("step", 0, 4), ("ring", 0, 0)])
def test_places_that_do_not_exist_are_refused(kind: str, slot: int, index: int) -> None:
    with pytest.raises(StateError):
        make_pool().state(kind, slot, index)


def test_everything_is_zero_at_first() -> None:
    pool = make_pool()
    assert not pool.h(0).any() and not pool.step_conv(2).any() and not pool.checkpoint_conv(1).any()


def test_copying_a_slot_takes_all_regions_and_counts_them() -> None:
    pool = make_pool()
    for tensor in (pool.h(1), pool.checkpoint_conv(0), pool.step_h(2), pool.step_conv(2)):
        tensor[2].fill_(3.0)
    moved = pool.copy_slot(2, 0)
    per_slot = (
        2 * GEOMETRY.blob_bytes + 3 * GEOMETRY.layers * GEOMETRY.h_bytes + 4 * GEOMETRY.layers * GEOMETRY.conv_bytes
    )
    assert moved == per_slot
    for tensor in (pool.h(1), pool.checkpoint_conv(0), pool.step_h(2), pool.step_conv(2)):
        assert torch.equal(tensor[0], tensor[2]) and tensor[0].any()
        assert not tensor[1].any()


# --------------------------------------------------------------------------------------------------------------- slots


def test_lowest_free_slot_is_claimed_first() -> None:
    pool = make_pool()
    first, second, _ = pool.claim(), pool.claim(), pool.claim()
    second.release()
    first.release()
    assert pool.free == (0, 1)
    assert pool.claim().slot == 0
    assert pool.claim().slot == 1


def test_full_pool_refuses_and_dummy_is_never_claimed() -> None:
    pool = make_pool()
    slots = [pool.claim().slot for _ in range(3)]
    assert pool.dummy not in slots
    with pytest.raises(SlotsExhausted, match="all 3 slots are in use"):
        pool.claim()
    with pytest.raises(StateError, match="not free"):
        pool.claim_specific(pool.dummy)


def test_epoch_counts_the_claims_of_a_slot() -> None:
    pool = make_pool()
    claim = pool.claim()
    assert (claim.slot, claim.epoch) == (0, 1)
    claim.release()
    again = pool.claim()
    assert (again.slot, again.epoch) == (0, 2)
    assert pool.claim().epoch == 1


def test_leaving_the_block_releases() -> None:
    pool = make_pool()
    with pytest.raises(RuntimeError, match="boom"), pool.claim():
        assert pool.owned == (0,)
        raise RuntimeError("boom")
    assert pool.owned == ()


def test_releasing_inside_the_block_is_enough() -> None:
    pool = make_pool()
    with pool.claim() as claim:
        claim.release()
    assert pool.free == (0, 1, 2)


def test_double_release_is_refused_and_changes_nothing() -> None:
    pool = make_pool()
    claim = pool.claim()
    claim.release()
    other = pool.claim()
    assert other.slot == claim.slot
    with pytest.raises(StateError, match="already given up"):
        claim.release()
    assert pool.owned == (0,)
    with pytest.raises(StateError, match="released twice"):
        pool.release(1)


def test_taken_and_detached_slots_stay_claimed() -> None:
    pool = make_pool()
    with pool.claim() as claim:
        slot = claim.take()
    with pool.claim() as claim:
        claim.detach()
    assert pool.owned == (0, 1)
    pool.release(slot)
    assert pool.free == (0, 2)
    adopted = pool.adopt(1)
    assert adopted.epoch == 1
    adopted.release()
    with pytest.raises(StateError, match="not claimed"):
        pool.adopt(1)


def test_migration_frees_the_old_slot_and_starts_an_epoch() -> None:
    pool = make_pool()
    first, second = pool.claim(), pool.claim()
    first.release()
    assert second.migrate(0) == (1, 0)
    assert (second.slot, second.epoch, pool.owned) == (0, 2, (0,))
    with pytest.raises(StateError, match="not free"):
        second.migrate(0)
    assert pool.owned == (0,)


@pytest.mark.parametrize(
    ("owned", "plan"),
    [
        ((), []),
        ((0, 1), []),
        ((0, 1, 3), [(3, 2)]),
        ((3, 4), [(3, 0), (4, 1)]),
        ((1, 2, 4), [(4, 0)]),
        ((4,), [(4, 0)]),
    ],
)
def test_compaction_brings_survivors_onto_the_lowest_slots(owned: tuple[int, ...], plan: list[tuple[int, int]]) -> None:
    pool = make_pool(slots=5)
    claims = {slot: pool.claim_specific(slot) for slot in owned}
    assert pool.compact_plan() == plan
    for src, dst in plan:
        claims[src].migrate(dst)
    assert pool.owned == tuple(range(len(owned)))


def test_a_slot_twice_on_the_free_list_is_claimed_twice_and_saved_so() -> None:
    pool = make_pool(slots=3)
    first, second = pool.claim(), pool.claim()
    first.release(2)
    assert pool.free == (0, 0, 2) and pool.compact_plan() == [(1, 0)]
    second.migrate(0)
    assert pool.free == (0, 1, 2) and pool.owned == (0,)
    twin = make_pool(slots=3)
    twin.load_owners(pool.save_owners())
    assert twin.free == pool.free and twin.claim().slot == 0 and twin.owned == (0,)


def test_owners_survive_saving() -> None:
    pool = make_pool()
    pool.claim().release()
    kept = pool.claim_specific(2)
    twin = make_pool()
    twin.load_owners(pool.save_owners())
    assert (twin.owned, twin.free, twin.epoch(0), twin.epoch(2)) == ((2,), (0, 1), 1, 1)
    assert twin.adopt(2).epoch == kept.epoch
    assert twin.claim().epoch == 2


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"owned": [0], "epochs": [1, 0]},
        {"owned": [3], "epochs": [1, 1, 1]},
        {"owned": [0], "epochs": [0, 0, 0]},
        {"owned": ["0"], "epochs": [1, 1, 1]},
        {"owned": [], "epochs": [1, 1, 1], "again": [3]},
        {"owned": [], "epochs": [1, 1, 1], "again": 1},
    ],
)
def test_owners_of_another_pool_are_refused(data: dict[str, object]) -> None:
    pool = make_pool()
    pool.claim()
    with pytest.raises(StateError):
        pool.load_owners(data)
    assert pool.owned == (0,)


class SlotMachine(RuleBasedStateMachine):
    """Against a set of owned numbers and a counter for each."""

    @initialize(slots=st.integers(1, 5))
    def start(self, slots: int) -> None:
        self.pool = make_pool(slots=slots, k=1)
        self.claims: dict[int, SlotClaim] = {}
        self.epochs = [0] * slots

    def keep(self, claim: SlotClaim) -> None:
        assert claim.slot not in self.claims
        self.epochs[claim.slot] += 1
        assert claim.epoch == self.epochs[claim.slot]
        self.claims[claim.slot] = claim

    @rule()
    def claim(self) -> None:
        free = set(range(self.pool.slots)) - set(self.claims)
        if not free:
            with pytest.raises(SlotsExhausted):
                self.pool.claim()
            return
        claim = self.pool.claim()
        assert claim.slot == min(free)
        self.keep(claim)

    @rule(slot=st.integers(0, 5))
    def claim_specific(self, slot: int) -> None:
        if slot in self.claims or slot >= self.pool.slots:
            with pytest.raises(StateError):
                self.pool.claim_specific(slot)
        else:
            self.keep(self.pool.claim_specific(slot))

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        claim = self.claims.pop(data.draw(st.sampled_from(sorted(self.claims))))
        claim.release()
        with pytest.raises(StateError):
            claim.release()

    @rule()
    def compact(self) -> None:
        for src, dst in self.pool.compact_plan():
            claim = self.claims.pop(src)
            claim.migrate(dst)
            self.keep(claim)
        assert self.pool.owned == tuple(range(len(self.claims)))

    @rule()
    def save_and_load(self) -> None:
        self.pool.load_owners(self.pool.save_owners())

    @invariant()
    def owned_and_free_make_up_the_pool(self) -> None:
        assert set(self.pool.owned) == set(self.claims)
        assert sorted((*self.pool.free, *self.pool.owned)) == list(range(self.pool.slots))


TestSlotMachine = SlotMachine.TestCase
TestSlotMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
