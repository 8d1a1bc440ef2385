"""Boundary rollback: the choice, the order of effects, every outcome, and the worked example of the reference."""

from __future__ import annotations

import pytest
from engine_helpers import live, make_engine, of, run, start, tokens, until_outputs

from engine.engine import Engine
from engine.events import (
    Compact,
    Emit,
    Event,
    Finish,
    FreeRequest,
    KvFree,
    KvRewind,
    Place,
    RingRestore,
    RingSave,
    RingTruncate,
    RollBack,
    Rollback,
    RunRound,
    Trouble,
    Watchdog,
)
from engine.rollback import find_last_boundary, find_last_boundary_with_snapshot
from engine.state.ring import SsmDecodeRing

END = 12
MASK = [token == END for token in range(1024)]
GOLDEN_OUTPUTS = [*range(100, 150), END, *range(151, 160), *([*range(20, 39), END] * 4)]


def ring_of(*positions: int) -> SsmDecodeRing:
    ring = SsmDecodeRing(8)
    for position in positions:
        ring.record(position)
    return ring


def scripted(**settings: object) -> Engine:
    """An engine whose only boundary is token 12; outputs are forced, so the model's opinion does not matter."""
    engine = make_engine(drafts=0, drafter="none", loop_watchdog=True, prefix_caching=False, **settings)
    engine.rt.vocabulary = type(engine.rt.vocabulary)(size=1024, boundary=MASK)
    return engine


def feed(engine: Engine, outputs: list[int]) -> list[Event]:
    """Force the next outputs of request 1, continuing where it stands."""
    events: list[Event] = []
    for token in outputs:
        if 1 in engine.rt.requests:
            events += run(engine, RunRound(req=1, token=token))
    return events


# ------------------------------------------------------------------------------------------------ the choice


def test_last_boundary_respects_the_least_number_to_drop() -> None:
    outputs = [5, END, 6, END, 7, 8]
    assert find_last_boundary(outputs, MASK, 1) == 3
    assert find_last_boundary(outputs, MASK, 3) == 1
    assert find_last_boundary(outputs, MASK, 2) == 3
    assert find_last_boundary(outputs, MASK, 5) is None
    assert find_last_boundary(outputs, MASK, 6) is None
    assert find_last_boundary([5, 6], MASK, 1) is None


def test_with_a_ring_the_latest_boundary_that_has_a_snapshot_is_chosen() -> None:
    outputs = [5, END, 6, END, 7, END, 8, 9]
    assert find_last_boundary_with_snapshot(outputs, MASK, 1, ring_of(2, 4)) == 3
    assert find_last_boundary_with_snapshot(outputs, MASK, 1, ring_of(2, 4, 6)) == 5
    assert find_last_boundary_with_snapshot(outputs, MASK, 5, ring_of(2, 4, 6)) == 1
    assert find_last_boundary_with_snapshot(outputs, MASK, 1, ring_of(3, 5)) is None
    assert find_last_boundary_with_snapshot(outputs, MASK, 1, ring_of()) is None


# ------------------------------------------------------------------------------------------------ the effects


def test_the_worked_example_of_the_reference() -> None:
    engine = scripted(ring=8, kv_tokens=16000)
    start(engine, tuple(range(40, 45)), max_tokens=1000, ignore_eos=True)
    del engine.rt.requests[1].seq.tokens[5:]  # the prefill's own output: the script replaces it
    engine.rt.requests[1].seq.tokens.append(GOLDEN_OUTPUTS[0])
    log: list[tuple[int, str, int]] = []
    produced, pending = 1, list(GOLDEN_OUTPUTS[1:])
    step = 0
    while 1 in engine.rt.requests and step < 400:
        step += 1
        events = run(engine, RunRound(req=1, token=pending.pop(0)))
        produced += len(of(Emit, events))
        for event in events:
            if isinstance(event, RingSave):
                log.append((step + 1, f"save {event.dst.index}", event.token_position))
            elif isinstance(event, RingRestore):
                log.append((step + 1, f"restore {event.src.index}", event.token_position))
                pending = list(GOLDEN_OUTPUTS[51:])
                assert engine.rt.kv.used == 8
            elif isinstance(event, Rollback) and event.outcome != "rolled_back":
                log.append((step + 1, event.outcome, event.keep_len))
    assert log == [
        (51, "save 0", 51),
        (80, "save 1", 80),
        (100, "save 2", 100),
        (119, "restore 0", 51),
        (148, "save 1", 80),
        (168, "save 2", 100),
        (187, "restore 0", 51),
        (216, "save 1", 80),
        (236, "save 2", 100),
        (255, "cap_reached", 119),
    ]
    assert engine.rt.kv.used == 0


def test_the_saved_state_has_not_absorbed_the_boundary_token() -> None:
    engine = scripted(ring=8)
    start(engine, tuple(range(40, 45)), ignore_eos=True)
    (save,) = of(RingSave, feed(engine, [100, 101, END]))
    assert save.token_position == 4
    assert save.position == 5 + 4 - 1 == engine.rt.requests[1].seq.cursor


def test_restore_comes_first_and_everything_rewinds_with_it() -> None:
    engine = scripted(ring=8)
    start(engine, tuple(range(40, 45)), ignore_eos=True)
    feed(engine, [100, 101, END])
    at_boundary, blocks = live(engine, 1), list(engine.rt.requests[1].seq.table.blocks)
    feed(engine, [200 + i for i in range(30)])
    blocks_before = list(engine.rt.requests[1].seq.table.blocks)
    free_before = engine.rt.kv.free
    events = run(engine, RollBack(req=1, to="boundary", value=1))
    kinds = [event.kind for event in events]
    assert kinds == ["decision", "ring_restore", "ring_truncate", "kv_rewind", "rollback"]
    (rewind,), (done,) = of(KvRewind, events), of(Rollback, events)
    seq = engine.rt.requests[1].seq
    assert live(engine, 1) == at_boundary == of(RingRestore, events)[0].digests
    assert (done.keep_len, done.dropped, done.pending) == (4, 30, END)
    assert (rewind.before, rewind.cursor, seq.cursor) == (38, 8, 8)
    assert seq.table.blocks == blocks_before != blocks
    assert engine.rt.kv.free == free_before
    assert not of(KvFree, events)
    assert seq.ring.slot_for_position(4) is not None


@pytest.mark.parametrize("drafts", [0, 3])
@pytest.mark.parametrize("mode", ["snapshot", "replay"])
def test_regeneration_after_a_rollback_equals_never_having_gone_past_it(drafts: int, mode: str) -> None:
    engine = make_engine(drafts=drafts, rollback=mode, ring=8, prefix_caching=False)
    start(engine, "Genesis 1\n1 In the beginning", ignore_eos=True, temperature=0.8, seed=11)
    until_outputs(engine, 1, 60)
    wanted, state, cursor = tokens(engine, 1), live(engine, 1), engine.rt.requests[1].seq.cursor
    (done,) = of(Rollback, run(engine, RollBack(req=1, to="boundary", value=5)))
    assert done.outcome == "rolled_back"
    assert done.dropped >= 5
    rounds_left = 0
    while len(tokens(engine, 1)) < len(wanted):
        run(engine, RunRound(req=1, drafts=()))
        rounds_left += 1
    assert rounds_left == done.dropped
    assert tokens(engine, 1) == wanted
    assert engine.rt.requests[1].seq.cursor == cursor
    assert live(engine, 1) == state


def test_rolling_back_twice_to_the_same_entry_is_possible() -> None:
    engine = scripted(ring=8)
    start(engine, tuple(range(40, 45)), ignore_eos=True)
    feed(engine, [100, END, 1, 2, 3])
    first = of(RingRestore, run(engine, RollBack(req=1, to="boundary", value=1)))
    feed(engine, [1, 2, 3])
    second = of(RingRestore, run(engine, RollBack(req=1, to="boundary", value=1)))
    assert first[0].digests == second[0].digests
    assert first[0].src == second[0].src


def test_rollback_to_a_ring_slot_and_to_a_length() -> None:
    engine = scripted(ring=8)
    start(engine, tuple(range(40, 45)), ignore_eos=True)
    feed(engine, [100, END, 101, END, 102, 103])
    (done,) = of(Rollback, run(engine, RollBack(req=1, to="ring", value=0)))
    assert done.keep_len == 3
    feed(engine, [9, END, 7])
    (done,) = of(Rollback, run(engine, RollBack(req=1, to="length", value=5)))
    assert (done.outcome, done.keep_len) == ("rolled_back", 5)
    (declined,) = of(Rollback, run(engine, RollBack(req=1, to="length", value=4)))
    assert declined.outcome == "no_ssm_snapshot"
    assert "3, 5" in declined.reason


# ------------------------------------------------------------------------------------------------ outcomes


def outcome(engine: Engine, value: int = 1) -> str:
    (done,) = of(Rollback, run(engine, RollBack(req=1, to="boundary", value=value)))
    return done.outcome


def test_every_outcome_can_be_reached_and_a_decline_touches_nothing() -> None:
    def ready(outputs: list[int], **settings: object) -> Engine:
        fields = {"streaming": settings.pop("streaming", False)}
        engine = scripted(**{"ring": 8, **settings})
        start(engine, tuple(range(40, 45)), ignore_eos=True, **fields)
        feed(engine, outputs)
        return engine

    text = [100, END, 101, 102]
    assert outcome(ready(text, rollback_resteer=False)) == "disabled"
    assert outcome(ready(text, streaming=True)) == "stream_unsafe"
    assert outcome(ready([100, 101])) == "no_boundary"
    assert outcome(ready(text, ring=0)) == "no_ssm_snapshot"
    unsupported = ready(text)
    unsupported.rt.memory.decode_rollback_unsupported = lambda: True  # type: ignore[method-assign]
    assert outcome(unsupported) == "layer_state_not_rewindable"
    capped = ready(text)
    for _ in range(2):
        assert outcome(capped) == "rolled_back"
        feed(capped, [101, 102])
    before = (tokens(capped, 1), live(capped, 1), capped.rt.requests[1].seq.cursor)
    assert outcome(capped) == "cap_reached"
    assert (tokens(capped, 1), live(capped, 1), capped.rt.requests[1].seq.cursor) == before


def test_a_failing_restore_declines_before_anything_else_is_touched() -> None:
    engine = scripted(ring=8)
    start(engine, tuple(range(40, 45)), ignore_eos=True)
    feed(engine, [100, END, 101, 102])
    engine.rt.seams.add("ring_restore.fail", lambda value, **_: "device lost")
    events = run(engine, RollBack(req=1, to="boundary", value=1))
    assert [e.outcome for e in of(Rollback, events)] == ["no_ssm_snapshot"]
    assert of(Trouble, events)
    assert not of(RingTruncate, events)
    assert len(tokens(engine, 1)) == 5


def test_a_failing_save_takes_the_entry_back() -> None:
    engine = scripted(ring=8)
    start(engine, tuple(range(40, 45)), ignore_eos=True)
    feed(engine, [100, END])
    engine.rt.seams.add("ring_save.fail", lambda value, **_: "no memory")
    events = feed(engine, [101, END])
    assert of(Trouble, events)
    assert list(engine.rt.requests[1].seq.ring.snapshot_positions()) == [3]


def test_a_declined_watchdog_ends_the_request_as_length_with_its_name() -> None:
    engine = scripted(ring=0)
    start(engine, tuple(range(40, 45)), max_tokens=1000, ignore_eos=True)
    events = feed(engine, [*range(100, 140), *([*range(200, 220)] * 4)])
    assert [e.name for e in of(Watchdog, events)] == ["fuzzy_repetition"]
    (end,) = of(Finish, events)
    assert (end.reason, end.guard) == ("length", "fuzzy_repetition")


def test_ring_entries_follow_the_ring_when_the_slot_is_compacted() -> None:
    engine = scripted(ring=4)
    start(engine, tuple(range(40, 45)), ignore_eos=True)
    start(engine, tuple(range(50, 58)), ignore_eos=True)
    for token in (100, END, 101):
        run(engine, RunRound(req=2, token=token))
    saved = engine.rt.memory.digests(Place("ring", 1, 0))
    assert of(Compact, run(engine, FreeRequest(req=1)))
    assert engine.rt.requests[2].seq.slot == 0
    (restore,) = of(RingRestore, run(engine, RollBack(req=2, to="boundary", value=1)))
    assert restore.digests == saved
