"""The operations on recurrent state: which bytes go where, bit for bit, and what is refused before anything moved."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from state_helpers import GEOMETRY, content, fill, fill_all, make_memory, make_sequence, places_of, snapshot

from engine.events import LIVE, Place
from engine.state.errors import StateError
from engine.state.geometry import StateGeometry
from engine.state.memory import StateMemory
from engine.traits import ModelSsmState, Moved, SequenceState

WHOLE = GEOMETRY.blob_bytes
LAYERS = GEOMETRY.layers


@pytest.fixture
def memory() -> StateMemory:
    """Three slots whose places all hold different bytes; slots 0 and 1 are claimed by the fixture's sequences."""
    made = make_memory()
    for slot in range(3):
        fill_all(made, slot, slot + 1)
    fill(made, Place("prefix", -1, 0), 77)
    fill(made, Place("prefix", -1, 1), 78)
    return made


@pytest.fixture
def seq(memory: StateMemory) -> SequenceState:
    make_sequence(memory, req=1)
    return make_sequence(memory, req=2)


def changed(memory: StateMemory, do: Callable[[], object]) -> set[Place]:
    """Places whose bytes ``do`` changed."""
    before = snapshot(memory)
    do()
    after = snapshot(memory)
    return {place for place, value in after.items() if value != before[place]}


def step(seq: SequenceState, row: int) -> Place:
    return Place("step", seq.slot, row)


def checkpoint(seq: SequenceState) -> Place:
    return Place("checkpoint", seq.slot)


def ring(seq: SequenceState, index: int) -> Place:
    return Place("ring", seq.slot, index)


# ---------------------------------------------------------------------------------------------------------- checkpoint


def test_checkpoint_is_a_bitwise_copy_of_live_and_touches_nothing_else(memory: StateMemory, seq: SequenceState) -> None:
    moved: list[Moved] = []
    assert changed(memory, lambda: moved.append(memory.checkpoint_ssm_states(seq))) == {checkpoint(seq)}
    assert content(memory, checkpoint(seq)) == content(memory, seq.live)
    assert moved == [Moved(seq.live, checkpoint(seq), "h+conv", WHOLE, LAYERS, copy=1, op="checkpoint")]


def test_queued_checkpoint_lands_at_the_wait(memory: StateMemory, seq: SequenceState) -> None:
    expected = content(memory, seq.live)
    moved = memory.start_checkpoint_async(seq)
    assert (moved.stream, moved.landed, moved.bytes) == ("secondary", False, WHOLE)
    assert memory.pending == (moved,)
    assert content(memory, checkpoint(seq)) != expected
    assert memory.sync_secondary() == (moved._replace(landed=True),)
    assert content(memory, checkpoint(seq)) == expected
    assert memory.pending == () and memory.sync_secondary() == ()


def test_checkpoint_without_drafts_is_refused() -> None:
    memory = make_memory(k=1)
    with pytest.raises(StateError, match="K = 1"):
        memory.checkpoint_ssm_states(make_sequence(memory))


# -------------------------------------------------------------------------------------------------------- verify steps


@pytest.mark.parametrize("row", [0, 1, 2])
def test_step_planes_take_h_and_conv_of_live(memory: StateMemory, seq: SequenceState, row: int) -> None:
    assert changed(memory, lambda: memory.save_step(seq, row, 4)) == {step(seq, row)}
    assert content(memory, step(seq, row)) == content(memory, seq.live)


def test_last_row_keeps_conv_only(memory: StateMemory, seq: SequenceState) -> None:
    moved = memory.save_step(seq, 3, 4)
    assert (moved.parts, moved.bytes) == ("conv", LAYERS * GEOMETRY.conv_bytes)
    assert content(memory, step(seq, 3))[1] == content(memory, seq.live)[1]


def test_last_row_of_a_narrower_window_leaves_its_h_plane_alone(memory: StateMemory, seq: SequenceState) -> None:
    h = content(memory, step(seq, 1))[0]
    assert memory.save_step(seq, 1, 2).parts == "conv"
    assert content(memory, step(seq, 1)) == (h, content(memory, seq.live)[1])


# ------------------------------------------------------------------------------------------------------------ rollback


def test_rollback_to_nothing_brings_the_checkpoint_back(memory: StateMemory, seq: SequenceState) -> None:
    assert changed(memory, lambda: memory.rollback_ssm_states(seq, 0)) == {seq.live}
    assert content(memory, seq.live) == content(memory, checkpoint(seq))


@pytest.mark.parametrize("accepted", [1, 2, 3])
def test_rollback_to_n_rows_brings_step_n_minus_1_back(memory: StateMemory, seq: SequenceState, accepted: int) -> None:
    moved = memory.rollback_ssm_states(seq, accepted)
    assert (moved.src, moved.dst, moved.bytes, moved.stream) == (step(seq, accepted - 1), seq.live, WHOLE, "default")
    assert content(memory, seq.live) == content(memory, step(seq, accepted - 1))


@pytest.mark.parametrize("accepted", [-1, 4, 5])
def test_rollback_without_such_a_state_is_refused_before_anything_moves(
    memory: StateMemory, seq: SequenceState, accepted: int
) -> None:
    def refused() -> None:
        with pytest.raises(StateError, match=f"{accepted} accepted rows: states after 0..3 rows are kept"):
            memory.rollback_ssm_states(seq, accepted)
        with pytest.raises(StateError):
            memory.start_rollback_and_checkpoint_async(seq, accepted)

    assert changed(memory, refused) == set()
    assert memory.pending == ()


@pytest.mark.parametrize("accepted", [0, 2])
def test_rollback_and_checkpoint_are_queued_in_order(memory: StateMemory, seq: SequenceState, accepted: int) -> None:
    source = step(seq, accepted - 1) if accepted else checkpoint(seq)
    expected = content(memory, source)
    moved: list[Moved] = []
    assert changed(memory, lambda: moved.extend(memory.start_rollback_and_checkpoint_async(seq, accepted))) == set()
    assert [(m.src, m.dst, m.landed) for m in moved] == [
        (source, seq.live, False),
        (seq.live, checkpoint(seq), False),
    ]
    assert [m.copy for m in memory.sync_secondary()] == [m.copy for m in moved]
    assert content(memory, seq.live) == content(memory, checkpoint(seq)) == expected


# -------------------------------------------------------------------------------------------------------------- commit


@pytest.mark.parametrize("accepted", [1, 2, 3])
def test_reader_that_forgets_the_wait_sees_rejected_drafts_every_time(
    memory: StateMemory, seq: SequenceState, accepted: int
) -> None:
    for attempt in range(10):
        fill(memory, seq.live, 500 + attempt)
        dirty, expected = content(memory, seq.live), content(memory, step(seq, accepted - 1))
        moved = memory.commit_accepted_prefix(seq, accepted, 4)
        assert (moved.src, moved.stream, moved.landed) == (step(seq, accepted - 1), "secondary", False)
        assert content(memory, seq.live) == dirty
        memory.sync_secondary()
        assert content(memory, seq.live) == expected


@pytest.mark.parametrize("k", [1, 2, 4])
def test_full_accept_moves_nothing(memory: StateMemory, seq: SequenceState, k: int) -> None:
    moved = memory.commit_accepted_prefix(seq, k, k)
    assert (moved.parts, moved.bytes, moved.layers, moved.copy, moved.landed) == ("", 0, 0, 0, True)
    assert memory.pending == ()


@pytest.mark.parametrize(("accepted", "k"), [(0, 4), (5, 4), (3, 2), (-1, 4), (4, 5), (5, 5)])
def test_impossible_commits_are_refused(memory: StateMemory, seq: SequenceState, accepted: int, k: int) -> None:
    def refused() -> None:
        with pytest.raises(StateError, match=f"cannot commit {accepted} of {k} rows"):
            memory.commit_accepted_prefix(seq, accepted, k)
        memory.sync_secondary()

    assert changed(memory, refused) == set()


def test_commit_of_one_sequence_leaves_the_others_alone(memory: StateMemory, seq: SequenceState) -> None:
    def commit() -> None:
        memory.commit_accepted_prefix(seq, 2, 4)
        memory.sync_secondary()

    assert changed(memory, commit) == {seq.live}


# ---------------------------------------------------------------------------------------------------------------- ring


def test_ring_save_and_restore_are_bitwise(memory: StateMemory, seq: SequenceState) -> None:
    saved = content(memory, seq.live)
    for index in range(3):
        assert changed(memory, lambda index=index: memory.save_decode_ssm_snapshot(seq, index)) == {ring(seq, index)}
        fill(memory, seq.live, 900 + index)
    moved = memory.restore_decode_ssm_snapshot(seq, 0)
    assert (moved.src, moved.dst, moved.bytes, moved.stream) == (ring(seq, 0), seq.live, WHOLE, "default")
    assert content(memory, seq.live) == saved
    assert memory.digests(seq.live) == memory.digests(ring(seq, 0)) != memory.digests(ring(seq, 1))


def test_ring_can_be_saved_from_a_step(memory: StateMemory, seq: SequenceState) -> None:
    memory.save_ring(seq, 1, step(seq, 0))
    assert content(memory, ring(seq, 1)) == content(memory, step(seq, 0))


@pytest.mark.parametrize("ring_slot", [-1, 3])
def test_ring_slot_out_of_range_is_refused(memory: StateMemory, seq: SequenceState, ring_slot: int) -> None:
    for operation in (memory.save_decode_ssm_snapshot, memory.restore_decode_ssm_snapshot):
        with pytest.raises(StateError, match="the ring has 3 slots"):
            operation(seq, ring_slot)


def test_slot_without_a_reserved_ring_is_refused(memory: StateMemory, seq: SequenceState) -> None:
    seq.slot = memory.pool.dummy
    with pytest.raises(StateError, match=r"rings are reserved for slots 0\.\.2"):
        memory.save_decode_ssm_snapshot(seq, 0)


def test_ring_region_that_was_not_allocated_is_refused() -> None:
    memory = make_memory(ring_depth=0)
    assert memory.decode_rollback_ring_slots() == 0
    with pytest.raises(StateError, match="not allocated"):
        memory.save_decode_ssm_snapshot(make_sequence(memory), 0)


# -------------------------------------------------------------------------------------------------------------- prefix


def test_prefix_save_and_restore_are_bitwise(memory: StateMemory, seq: SequenceState) -> None:
    saved = content(memory, seq.live)
    index = memory.snapshots.claim_prefix()
    assert changed(memory, lambda: memory.save_prefix(seq, index)) == {Place("prefix", -1, index)}
    fill(memory, seq.live, 900)
    assert memory.restore_prefix(seq, index).bytes == WHOLE
    assert content(memory, seq.live) == saved
    assert memory.snapshots.hidden(index) is None


def test_prefix_keeps_the_hidden_row_it_is_given() -> None:
    memory = make_memory(hidden=5)
    seq = make_sequence(memory)
    memory.save_prefix(seq, 1, torch.arange(5.0))
    kept = memory.snapshots.hidden(1)
    assert kept is not None and kept.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_decode_checkpoint_saves_when_due_and_once(memory: StateMemory, seq: SequenceState) -> None:
    seq.table.reserve(24)
    seq.table.advance(15)
    assert memory.decode_marconi_checkpoint(seq) is None
    seq.table.advance(2)
    memory.commit_accepted_prefix(seq, 2, 4)
    moved = memory.decode_marconi_checkpoint(seq)
    assert moved is not None and moved.dst == Place("prefix", -1, 0)
    assert content(memory, moved.dst) == content(memory, step(seq, 1))
    assert [m.op for m in memory.sync_secondary()] == ["commit"]
    assert seq.checkpoint_block == 4
    assert memory.decode_marconi_checkpoint(seq) is None
    assert memory.ssm_snapshot_occupancy() == (1, 2)


def test_decode_checkpoint_needs_a_free_prefix_slot(memory: StateMemory, seq: SequenceState) -> None:
    memory.snapshots.claim_prefix()
    memory.snapshots.claim_prefix()
    seq.table.reserve(16)
    seq.table.advance(16)
    assert memory.decode_marconi_checkpoint(seq) is None
    assert seq.checkpoint_block == 0


# --------------------------------------------------------------------------------------------------------------- slots


def test_zero_clears_live_and_nothing_else(memory: StateMemory, seq: SequenceState) -> None:
    moved: list[Moved] = []
    assert changed(memory, lambda: moved.append(memory.zero(seq.slot))) == {seq.live}
    h, conv = content(memory, seq.live)
    assert not any(h) and not any(conv)
    assert (moved[0].bytes, moved[0].parts, moved[0].dst) == (WHOLE, "h+conv", seq.live)


def test_any_place_can_be_copied_to_any_other(memory: StateMemory) -> None:
    places = [LIVE(0), Place("checkpoint", 1), Place("step", 2, 0), Place("ring", 0, 2), Place("prefix", -1, 1)]
    for src in places:
        for dst in places:
            fill(memory, src, 4000 + places.index(src))
            expected = content(memory, src)
            assert memory.copy(src, dst).bytes == WHOLE
            assert content(memory, dst) == content(memory, src) == expected


def test_copy_to_or_from_a_place_without_h_is_refused(memory: StateMemory) -> None:
    for src, dst in ((Place("step", 0, 3), LIVE(0)), (LIVE(0), Place("step", 0, 3))):
        with pytest.raises(StateError, match="no h plane"):
            memory.copy(src, dst)


def test_compaction_takes_everything_along(memory: StateMemory) -> None:
    first, seq = make_sequence(memory, 1), make_sequence(memory, 2)
    assert first.claim is not None
    first.claim.release()
    expected = [content(memory, place) for place in places_of(memory, 1)]
    untouched = {place: content(memory, place) for place in places_of(memory, 2)}
    moved = memory.compact(seq, 0)
    assert (seq.slot, seq.epoch, memory.pool.owned) == (0, 2, (0,))
    assert [content(memory, place) for place in places_of(memory, 0)] == expected
    assert untouched == {place: content(memory, place) for place in places_of(memory, 2)}
    steps = 3 * LAYERS * GEOMETRY.h_bytes + 4 * LAYERS * GEOMETRY.conv_bytes
    assert moved.bytes == 2 * WHOLE + steps + 3 * WHOLE
    assert (moved.src, moved.dst, moved.op) == (LIVE(1), LIVE(0), "compact")


def test_compaction_takes_recorded_rows_along() -> None:
    memory = make_memory(mode="replay")
    first, seq = make_sequence(memory, 1), make_sequence(memory, 2)
    memory.pool.replay_qkvz(2)[1].fill_(3.0)
    memory.pool.replay_gates(0)[1].fill_(4.0)
    assert first.claim is not None
    first.claim.release()
    memory.compact(seq, 0)
    assert bool((memory.pool.replay_qkvz(2)[0] == 3.0).all()) and bool((memory.pool.replay_gates(0)[0] == 4.0).all())


def test_compaction_onto_a_taken_slot_is_refused(memory: StateMemory, seq: SequenceState) -> None:
    def refused() -> None:
        with pytest.raises(StateError, match="not free"):
            memory.compact(seq, 0)

    assert changed(memory, refused) == set()
    assert seq.slot == 1 and memory.pool.owned == (0, 1)


# --------------------------------------------------------------------------------------------------------- replay mode


@pytest.fixture
def replay() -> StateMemory:
    made = make_memory(mode="replay")
    for slot in range(3):
        fill_all(made, slot, slot + 1)
    return made


@pytest.mark.parametrize("accepted", [1, 3])
def test_replay_commit_brings_the_checkpoint_back_and_asks_for_rows(replay: StateMemory, accepted: int) -> None:
    seq = make_sequence(replay)
    moved = replay.commit_accepted_prefix(seq, accepted, 4)
    assert (moved.src, moved.dst, moved.stream, moved.landed) == (checkpoint(seq), seq.live, "default", True)
    assert (moved.replay, moved.bytes) == (accepted, WHOLE)
    assert content(replay, seq.live) == content(replay, checkpoint(seq))


def test_replay_full_accept_moves_and_asks_for_nothing(replay: StateMemory) -> None:
    moved = replay.commit_accepted_prefix(make_sequence(replay), 4, 4)
    assert (moved.bytes, moved.replay) == (0, 0)


def test_replay_rollback_asks_for_rows_and_is_bounded_by_the_recorded_ones(replay: StateMemory) -> None:
    seq = make_sequence(replay)
    assert replay.rollback_ssm_states(seq, 0).replay == 0
    assert replay.rollback_ssm_states(seq, 3).replay == 3
    with pytest.raises(StateError, match=r"states after 0\.\.3 rows"):
        replay.rollback_ssm_states(seq, 4)


def test_replay_cannot_roll_back_and_checkpoint_at_once(replay: StateMemory) -> None:
    seq = make_sequence(replay)
    with pytest.raises(StateError, match="must run first"):
        replay.start_rollback_and_checkpoint_async(seq, 1)
    first, second = replay.start_rollback_and_checkpoint_async(seq, 0)
    assert (first.dst, second.dst) == (seq.live, checkpoint(seq))


# ------------------------------------------------------------------------------------------------------ digests, reads


def test_digests_tell_layers_and_parts_apart(memory: StateMemory) -> None:
    before = memory.digests(LIVE(0))
    assert len(before) == LAYERS and all(len(h) == len(conv) == 16 for h, conv in before)
    memory.pool.h(1)[0, 0, 0, 0] += 1.0
    after = memory.digests(LIVE(0))
    assert [a == b for a, b in zip(before, after, strict=True)] == [True, False, True]
    assert (before[1][0] == after[1][0], before[1][1] == after[1][1]) == (False, True)
    memory.pool.conv(2)[0, 0, 0] += 1.0
    assert [pair[1] for pair in memory.digests(LIVE(0))][:2] == [pair[1] for pair in before][:2]
    assert memory.digests(LIVE(0))[2][1] != before[2][1]


def test_digests_are_xxh3_of_the_bytes_that_reading_gives(memory: StateMemory) -> None:
    xxhash = pytest.importorskip("xxhash")
    for place in (LIVE(1), Place("step", 1, 0), Place("ring", 1, 2), Place("prefix", -1, 1)):
        expected = tuple(
            tuple(xxhash.xxh3_64_hexdigest(memory.read(place, ordinal, part).raw) for part in ("h", "conv"))
            for ordinal in range(LAYERS)
        )
        assert memory.digests(place) == expected


def test_negative_zero_has_another_digest_than_zero(memory: StateMemory) -> None:
    memory.zero(0)
    before = memory.digests(LIVE(0))
    memory.pool.h(0)[0, 0, 0, 0] = -0.0
    assert memory.digests(LIVE(0)) != before


def test_last_step_has_no_h_digest(memory: StateMemory) -> None:
    assert all(h == "" and len(conv) == 16 for h, conv in memory.digests(Place("step", 0, 3)))


def test_reading_gives_one_layer_as_plain_data(memory: StateMemory) -> None:
    data = memory.read(LIVE(2), 1, "conv")
    assert (data.dtype, data.shape) == ("float32", (5, 4))
    assert data.raw == memory.pool.conv(1)[2].numpy().tobytes()


@pytest.mark.parametrize(
    ("place", "ordinal", "part"),
    [
        (LIVE(9), 0, "h"),
        (Place("ring", 0, 5), 0, "h"),
        (Place("prefix", -1, 2), 0, "h"),
        (LIVE(0), 3, "h"),
        (LIVE(0), -1, "h"),
        (LIVE(0), 0, "kv"),
        (Place("step", 0, 3), 0, "h"),
    ],
)
def test_reading_what_does_not_exist_is_a_key_error(memory: StateMemory, place: Place, ordinal: int, part: str) -> None:
    with pytest.raises(KeyError):
        memory.read(place, ordinal, part)


# --------------------------------------------------------------------------------------- models without recurrent state


def test_model_without_recurrent_layers_moves_nothing() -> None:
    memory = make_memory(geometry=StateGeometry((), (2, 3, 3), (5, 4)))
    seq = make_sequence(memory)
    assert not memory.has_ssm_layers() and memory.decode_rollback_ring_slots() == 0
    for moved in (
        memory.checkpoint_ssm_states(seq),
        memory.rollback_ssm_states(seq, 2),
        memory.commit_accepted_prefix(seq, 1, 4),
        memory.zero(seq.slot),
    ):
        assert (moved.bytes, moved.parts, moved.copy) == (0, "", 0)
    assert memory.pending == () and memory.digests(seq.live) == ()
    assert memory.pool.bytes == 0


# ------------------------------------------------------------------------------------------------------ trait defaults


class Silent(ModelSsmState):
    """Implements only what must be."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def checkpoint_ssm_states(self, seq: SequenceState) -> Moved:
        self.calls.append("checkpoint")
        return Moved(seq.live, checkpoint(seq), "h+conv", 1, 1)

    def rollback_ssm_states(self, seq: SequenceState, num_accepted: int) -> Moved:
        self.calls.append(f"rollback {num_accepted}")
        return Moved(step(seq, num_accepted - 1), seq.live, "h+conv", 1, 1)


def test_defaults_of_the_trait_do_nothing_and_show_it(seq: SequenceState) -> None:
    model = Silent()
    assert not model.has_ssm_layers() and not model.decode_rollback_unsupported()
    assert model.decode_rollback_ring_slots() == 0
    assert model.ssm_snapshot_occupancy() is None
    assert model.decode_marconi_checkpoint(seq) is None
    assert model.sync_secondary() == ()
    for moved in (
        model.save_decode_ssm_snapshot(seq, 0),
        model.restore_decode_ssm_snapshot(seq, 0),
        model.commit_accepted_prefix(seq, 1, 4),
    ):
        assert (moved.bytes, moved.layers, moved.parts) == (0, 0, "")
    assert model.calls == []


def test_async_defaults_of_the_trait_are_the_synchronous_operations(seq: SequenceState) -> None:
    model = Silent()
    assert model.start_checkpoint_async(seq).landed
    model.start_rollback_and_checkpoint_async(seq, 2)
    assert model.calls == ["checkpoint", "rollback 2", "checkpoint"]


def test_trait_demands_checkpoint_and_rollback() -> None:
    with pytest.raises(TypeError, match="abstract"):
        ModelSsmState()  # type: ignore[abstract]


# ---------------------------------------------------------------------------------------------------------------- cuda


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_cuda_places_hold_the_same_bytes_and_digests_as_cpu() -> None:
    host, device = make_memory(), make_memory(device="cuda")
    seqs = make_sequence(host), make_sequence(device)
    for memory, seq in zip((host, device), seqs, strict=True):
        fill_all(memory, 0, 5)
        memory.commit_accepted_prefix(seq, 2, 4)
        memory.sync_secondary()
        memory.save_decode_ssm_snapshot(seq, 1)
        memory.checkpoint_ssm_states(seq)
    assert snapshot(host) == snapshot(device)
    assert all(host.digests(place) == device.digests(place) for place in places_of(host, 0))
