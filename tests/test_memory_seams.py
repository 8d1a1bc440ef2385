"""Every published bug of the state memory can be imitated by changing a value at a seam, and only there."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from state_helpers import GEOMETRY, content, fill_all, make_memory, make_sequence, snapshot

from engine.events import LIVE, Place
from engine.state.errors import StateError
from engine.state.memory import StateMemory
from engine.traits import Moved, SequenceState

WHOLE, H, CONV = GEOMETRY.blob_bytes, GEOMETRY.layers * GEOMETRY.h_bytes, GEOMETRY.layers * GEOMETRY.conv_bytes


@pytest.fixture
def memory() -> StateMemory:
    made = make_memory()
    for slot in range(3):
        fill_all(made, slot, slot + 1)
    return made


@pytest.fixture
def seq(memory: StateMemory) -> SequenceState:
    make_sequence(memory, 1)
    return make_sequence(memory, 2)


def always(value: object) -> Any:
    return lambda _, **context: value


def commit(memory: StateMemory, seq: SequenceState, accepted: int = 2, k: int = 4) -> Moved:
    moved = memory.commit_accepted_prefix(seq, accepted, k)
    memory.sync_secondary()
    return moved


def test_inert_changes_change_nothing() -> None:
    """The path with seams active does the same as the one without."""
    results = []
    for faulty in (False, True):
        memory = make_memory()
        fill_all(memory, 0, 1)
        seq = make_sequence(memory)
        if faulty:
            memory.seams.add("unheard.of", lambda value: value)
            for op in ("checkpoint", "rollback", "commit", "ring_save", "ring_restore", "step_save", "zero", "copy"):
                for point in ("skip", "parts", "src", "dst", "src_at", "dst_at", "layers", "elems", "value", "fail"):
                    memory.seams.add(f"{op}.{point}", lambda value, **context: value)
        moves = [
            memory.checkpoint_ssm_states(seq),
            memory.save_step(seq, 1, 4),
            memory.save_step(seq, 3, 4),
            memory.commit_accepted_prefix(seq, 3, 4),
            *memory.sync_secondary(),
            memory.save_decode_ssm_snapshot(seq, 1),
            *memory.start_rollback_and_checkpoint_async(seq, 1),
            *memory.sync_secondary(),
            memory.restore_decode_ssm_snapshot(seq, 2),
            memory.copy(LIVE(0), LIVE(2)),
            memory.zero(1),
        ]
        results.append((moves, snapshot(memory), memory.digests(LIVE(0))))
    assert results[0] == results[1]


def test_removed_change_is_gone(memory: StateMemory, seq: SequenceState) -> None:
    skip = always(True)
    memory.seams.add("commit.skip", skip)
    memory.seams.remove("commit.skip", skip)
    assert commit(memory, seq).bytes == WHOLE


# ---------------------------------------------------------------------------------------------------- omitted, partial


def test_commit_skipped_leaves_rejected_drafts_live_and_claims_its_parts(
    memory: StateMemory, seq: SequenceState
) -> None:
    memory.seams.add("commit.skip", always(True))
    before = snapshot(memory)
    moved = commit(memory, seq)
    assert snapshot(memory) == before
    assert (moved.parts, moved.bytes, moved.layers) == ("h+conv", 0, 0)


@pytest.mark.parametrize("op", ["rollback", "ring_restore", "checkpoint", "ring_save"])
def test_any_operation_can_be_omitted(memory: StateMemory, seq: SequenceState, op: str) -> None:
    memory.seams.add(f"{op}.skip", always(True))
    before = snapshot(memory)
    moved = {
        "rollback": lambda: memory.rollback_ssm_states(seq, 1),
        "ring_restore": lambda: memory.restore_decode_ssm_snapshot(seq, 0),
        "checkpoint": lambda: memory.checkpoint_ssm_states(seq),
        "ring_save": lambda: memory.save_decode_ssm_snapshot(seq, 0),
    }[op]()
    assert snapshot(memory) == before and moved.bytes == 0


def test_zero_byte_copies_are_visible(memory: StateMemory, seq: SequenceState) -> None:
    memory.seams.add("rollback.elems", always(0))
    before = content(memory, seq.live)
    moved = memory.rollback_ssm_states(seq, 2)
    assert (moved.parts, moved.bytes, moved.layers) == ("h+conv", 0, 0)
    assert content(memory, seq.live) == before


def test_zero_byte_copy_of_one_part_still_claims_both(memory: StateMemory, seq: SequenceState) -> None:
    memory.seams.add("commit.elems", lambda elems, part, **context: 0 if part == "h" else elems)
    h = content(memory, seq.live)[0]
    moved = commit(memory, seq)
    assert (moved.parts, moved.bytes) == ("h+conv", CONV)
    assert content(memory, seq.live) == (h, content(memory, Place("step", 1, 1))[1])


def test_short_copy_moves_the_first_elements_of_each_layer(memory: StateMemory, seq: SequenceState) -> None:
    memory.seams.add("checkpoint.elems", lambda elems, part, **context: 5 if part == "conv" else elems)
    old = memory.pool.checkpoint_conv(2)[1].clone()
    moved = memory.checkpoint_ssm_states(seq)
    assert moved.bytes == H + 3 * 5 * 4
    new = memory.pool.checkpoint_conv(2)[1].view(-1)
    assert torch.equal(new[:5], memory.pool.conv(2)[1].view(-1)[:5])
    assert torch.equal(new[5:], old.view(-1)[5:])


@pytest.mark.parametrize(("parts", "size"), [("h", H), ("conv", CONV)])
def test_part_left_out_is_told(memory: StateMemory, seq: SequenceState, parts: str, size: int) -> None:
    memory.seams.add("ring_restore.parts", always(parts))
    h, conv = content(memory, seq.live)
    saved_h, saved_conv = content(memory, Place("ring", 1, 0))
    moved = memory.restore_decode_ssm_snapshot(seq, 0)
    assert (moved.parts, moved.bytes) == (parts, size)
    assert content(memory, seq.live) == ((saved_h, conv) if parts == "h" else (h, saved_conv))


def test_layer_left_behind(memory: StateMemory, seq: SequenceState) -> None:
    memory.seams.add("commit.layers", lambda layers, **context: layers[:-1])
    before, source = memory.digests(seq.live), memory.digests(Place("step", 1, 1))
    moved = commit(memory, seq)
    assert (moved.layers, moved.bytes) == (2, WHOLE * 2 // 3)
    assert memory.digests(seq.live) == (source[0], source[1], before[2])


# -------------------------------------------------------------------------------------------------------- wrong source


def test_wrong_step_index_is_told_as_it_is(memory: StateMemory, seq: SequenceState) -> None:
    memory.seams.add("commit.row", lambda row, accepted, **context: accepted)
    moved = commit(memory, seq, 2)
    assert moved.src == Place("step", 1, 2)
    assert content(memory, seq.live) == content(memory, Place("step", 1, 2))


def test_wrong_step_index_past_the_last_h_plane_moves_conv_only(memory: StateMemory, seq: SequenceState) -> None:
    memory.seams.add("commit.row", lambda row, accepted, **context: accepted)
    h = content(memory, seq.live)[0]
    moved = commit(memory, seq, 3)
    assert (moved.src, moved.parts, moved.bytes) == (Place("step", 1, 3), "conv", CONV)
    assert content(memory, seq.live) == (h, content(memory, Place("step", 1, 3))[1])


def test_clamped_index(memory: StateMemory, seq: SequenceState) -> None:
    memory.seams.add("rollback.row", lambda row, **context: min(row, 1))
    assert memory.rollback_ssm_states(seq, 2).src == Place("step", 1, 1)
    assert memory.rollback_ssm_states(seq, 3).src == Place("step", 1, 1)


def test_row_is_not_asked_for_when_nothing_is_copied(memory: StateMemory, seq: SequenceState) -> None:
    asked: list[int] = []
    memory.seams.add("commit.row", lambda row, **context: asked.append(row) or row)
    commit(memory, seq, 4)
    assert asked == []


# --------------------------------------------------------------------------------------------------------- wrong place


def test_overflowed_address_writes_elsewhere_and_nobody_is_told(memory: StateMemory, seq: SequenceState) -> None:
    memory.seams.add("commit.dst_at", lambda place, **context: LIVE(0))
    before = content(memory, seq.live)
    moved = commit(memory, seq)
    assert (moved.dst, moved.bytes) == (seq.live, WHOLE)
    assert content(memory, seq.live) == before
    assert content(memory, LIVE(0)) == content(memory, Place("step", 1, 1))


def test_swapped_slots_restore_another_sequence(memory: StateMemory, seq: SequenceState) -> None:
    def swapped(place: Place, **context: object) -> Place:
        return Place(place.kind, 1 - place.slot, place.index)

    memory.seams.add("ring_restore.src_at", swapped)
    moved = memory.restore_decode_ssm_snapshot(seq, 2)
    assert moved.src == Place("ring", 1, 2)
    assert content(memory, seq.live) == content(memory, Place("ring", 0, 2))


def test_wrong_ring_slot_is_told_as_it_is(memory: StateMemory, seq: SequenceState) -> None:
    memory.seams.add("ring_save.dst", lambda place, **context: Place("ring", place.slot, 0))
    moved = memory.save_decode_ssm_snapshot(seq, 2)
    assert moved.dst == Place("ring", 1, 0)
    assert content(memory, Place("ring", 1, 0)) == content(memory, seq.live)


def test_padded_row_goes_into_a_live_slot(memory: StateMemory, seq: SequenceState) -> None:
    before = snapshot(memory)
    assert memory.write_padding(seq) is None
    assert snapshot(memory) == before
    memory.seams.add("padding.slot", always(0))
    moved = memory.write_padding(seq)
    assert moved is not None and moved.dst == LIVE(0)
    assert content(memory, LIVE(0)) == content(memory, seq.live)


# --------------------------------------------------------------------------------------------------------- wrong bytes


def test_round_trip_through_bf16_loses_bits(memory: StateMemory, seq: SequenceState) -> None:
    memory.seams.add("ring_save.value", lambda value, **context: value.bfloat16().float())
    moved = memory.save_decode_ssm_snapshot(seq, 0)
    assert moved.bytes == WHOLE
    live, kept = memory.pool.h(1)[1], memory.places.tensor(Place("ring", 1, 0), 1, "h")
    assert not torch.equal(live, kept)
    assert torch.equal(kept, live.bfloat16().float())


def test_transposed_h_keeps_its_norm(memory: StateMemory, seq: SequenceState) -> None:
    memory.seams.add("rollback.value", lambda value, part, **context: value.mT if part == "h" else value)
    memory.rollback_ssm_states(seq, 1)
    step, live = memory.pool.step_h(2)[1, 0], memory.pool.h(2)[1]
    assert torch.equal(live, step.mT) and not torch.equal(live, step)
    assert torch.equal(memory.pool.conv(2)[1], memory.pool.step_conv(2)[1, 0])


def test_conv_one_column_off(memory: StateMemory, seq: SequenceState) -> None:
    memory.seams.add("commit.value", lambda value, part, **context: value.roll(1, -1) if part == "conv" else value)
    commit(memory, seq, 1)
    assert torch.equal(memory.pool.conv(0)[1], memory.pool.step_conv(0)[1, 0].roll(1, -1))
    assert torch.equal(memory.pool.h(0)[1], memory.pool.step_h(0)[1, 0])


def test_values_are_changed_when_the_copy_runs(memory: StateMemory, seq: SequenceState) -> None:
    memory.seams.add("commit.value", lambda value, **context: value * 2)
    memory.commit_accepted_prefix(seq, 1, 4)
    memory.pool.step_h(0)[1, 0] = 1.0
    memory.sync_secondary()
    assert bool((memory.pool.h(0)[1] == 2.0).all())


# ------------------------------------------------------------------------------------------------ waits, slots, errors


def test_missing_wait_never_lands_until_somebody_waits(memory: StateMemory, seq: SequenceState) -> None:
    skip = always(True)
    memory.seams.add("sync.skip", skip)
    dirty = content(memory, seq.live)
    memory.commit_accepted_prefix(seq, 2, 4)
    assert memory.sync_secondary() == ()
    assert content(memory, seq.live) == dirty and len(memory.pending) == 1
    memory.seams.remove("sync.skip", skip)
    assert len(memory.sync_secondary()) == 1
    assert content(memory, seq.live) == content(memory, Place("step", 1, 1))


def test_slot_that_is_not_zeroed_keeps_its_former_owner(memory: StateMemory, seq: SequenceState) -> None:
    memory.seams.add("zero.skip", always(True))
    before = content(memory, seq.live)
    assert memory.zero(seq.slot).bytes == 0
    assert content(memory, seq.live) == before


def test_slot_zeroed_in_one_part_only(memory: StateMemory, seq: SequenceState) -> None:
    memory.seams.add("zero.parts", always("h"))
    conv = content(memory, seq.live)[1]
    assert memory.zero(seq.slot).bytes == H
    assert content(memory, seq.live) == (bytes(H), conv)


def test_failing_save_moves_nothing_and_leaves_the_ring_entry(memory: StateMemory, seq: SequenceState) -> None:
    memory.seams.add("ring_save.fail", always("out of memory"))
    before = snapshot(memory)
    recorded = seq.ring.record(4)
    assert recorded is not None
    with pytest.raises(StateError, match="out of memory"):
        memory.save_decode_ssm_snapshot(seq, recorded.slot)
    assert snapshot(memory) == before
    assert seq.ring.slot_for_position(4) == recorded.slot


@pytest.mark.parametrize("point", ["compact.skip", "compact.rings"])
def test_survivor_moves_without_its_bytes(memory: StateMemory, point: str) -> None:
    first, seq = make_sequence(memory, 1), make_sequence(memory, 2)
    assert first.claim is not None
    first.claim.release()
    memory.seams.add(point, always(True))
    live, kept = content(memory, seq.live), content(memory, Place("ring", 0, 1))
    moved = memory.compact(seq, 0)
    assert seq.slot == 0
    assert content(memory, Place("ring", 0, 1)) == kept
    assert (content(memory, LIVE(0)) == live) == (point == "compact.rings")
    assert (moved.bytes == 0) == (point == "compact.skip")


def test_what_a_zero_writes_can_be_something_else(memory: StateMemory, seq: SequenceState) -> None:
    nan = float("nan")
    memory.seams.add("zero.value", lambda value, part, dst, **_: value * nan if part == "h" else value)
    moved = memory.zero(seq.slot)
    view = memory.places.view(seq.live)
    assert moved.bytes == WHOLE and view.h is not None
    assert bool(view.h.isnan().all()) and not view.conv.any()


def test_a_zero_of_fewer_layers_leaves_the_others(memory: StateMemory, seq: SequenceState) -> None:
    memory.seams.add("zero.layers", lambda layers, **_: layers[:1])
    memory.seams.add("zero.value", lambda value, **_: value)
    h = memory.places.view(seq.live).h
    assert h is not None
    rest = h[1:].clone()
    memory.zero(seq.slot)
    assert rest.any() and not h[0].any() and torch.equal(h[1:], rest)
