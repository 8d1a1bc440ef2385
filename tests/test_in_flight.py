"""Copies in flight when their places change hands, planes that outlive their round, slots counted wrongly."""

from __future__ import annotations

import pytest
from engine_helpers import live, loaded, make_engine, of, run, start, until_outputs

from engine import events as ev
from engine.engine import Engine
from engine.events import Event, Place, RunRound, SetFault
from engine.state.errors import SlotsExhausted, StateError
from inspector.trials.explained import applies, explain, unexplained
from inspector.trials.trial import Outcome, engines, run_trial
from sessions.invariants import check_all

QUEUED = ("rollback-while-pending", "moved-before-landed", "free-in-flight")


def trial(fault: str, seed: int = 0, **settings: str) -> Outcome:
    outcome = run_trial(engines(loaded("float32"), dtype="float32", **settings), fault, seed)
    outcome.settings = settings
    return outcome


def two(fault: str = "", **settings: int) -> tuple[Engine, list[Event]]:
    """An engine with two requests that have outputs, ``fault`` switched on, and everything it told."""
    engine = make_engine(**settings)
    events: list[Event] = [engine.start()]
    for prompt in (tuple(range(100, 120)), tuple(range(40, 60))):
        events += start(engine, prompt, ignore_eos=True)
    events += until_outputs(engine, 1, 8) + until_outputs(engine, 2, 8)
    if fault:
        events += run(engine, SetFault(name=fault))
    return engine, events


def names(events: list[Event]) -> list[str]:
    return [finding.name for finding in check_all(events)]


# ------------------------------------------------------------------------------------------------------- in the trial


@pytest.mark.parametrize(
    ("fault", "detector", "verdict"),
    [
        ("rollback-while-pending", "read-after-sync", "wrong position"),
        ("moved-before-landed", "read-after-sync", "wrong position"),
        ("free-in-flight", "released-at-rest", "no state concerned"),
        ("stale-plane", "digest-after-restore", "wrong position"),
        ("double-free", "pool-partition", "no state concerned"),
        ("dummy-forgotten", "pool-partition", "bitwise"),
    ],
)
def test_it_is_caught_at_once_and_judged_right(fault: str, detector: str, verdict: str) -> None:
    outcome = trial(fault)
    assert (outcome.how, outcome.detector, outcome.verdict) == ("at once", detector, verdict)
    assert outcome.verdict_right and not unexplained(outcome)


@pytest.mark.parametrize("fault", [*QUEUED, "stale-plane"])
def test_replay_mode_queues_nothing_and_keeps_no_planes(fault: str) -> None:
    outcome = trial(fault, rollback="replay")
    assert outcome.how == "idle" and explain(outcome) and not applies(outcome) and not unexplained(outcome)


def test_a_run_without_a_rollback_over_a_queued_commit_is_no_miss() -> None:
    idle = Outcome("rollback-while-pending", "idle", settings={"rollback": "snapshot"})
    assert "commit of its own is queued" in explain(idle) and not applies(idle)
    assert unexplained(Outcome("moved-before-landed", "idle", settings={"rollback": "snapshot"}))


# ----------------------------------------------------------------------------------------------- what it does to bytes


def test_the_pending_commit_lands_on_top_of_what_was_restored() -> None:
    states = {}
    for fault in ("", "rollback-while-pending"):
        engine, events = two(fault)
        events += run(engine, ev.SaveRing(req=1))
        saved = of(ev.RingSave, events)[-1]
        events += run(engine, RunRound(req=1, accept=4))
        commit = of(ev.Commit, run(engine, RunRound(req=1, accept=2)))[-1]
        step = engine.rt.memory.digests(commit.src)
        run(engine, ev.RollBack(req=1, to="length", value=saved.token_position))
        states[fault] = live(engine, 1)
    assert states[""] == saved.digests
    assert states["rollback-while-pending"] == step != saved.digests


def test_a_survivor_that_is_moved_too_early_keeps_its_rejected_drafts() -> None:
    states = {}
    for fault in ("", "moved-before-landed"):
        engine, _ = two(fault)
        told = run(engine, RunRound(req=2, accept=1))
        dirty = of(ev.VerifyRow, told)[-1].digests
        clean = engine.rt.memory.digests(of(ev.Commit, told)[0].src)
        moved = run(engine, ev.FreeRequest(req=1))
        assert [(e.src, e.dst) for e in of(ev.Compact, moved)] == [(1, 0)]
        assert bool(of(ev.Landed, moved)) is not bool(fault)
        states[fault] = live(engine, 2)
    assert states == {"": clean, "moved-before-landed": dirty} and clean != dirty


def test_who_ends_waits_for_others_unless_the_survivor_is_moved() -> None:
    """The fault acts only where a queued commit meets the move."""
    engine, _ = two("moved-before-landed")
    run(engine, RunRound(req=2, accept=1))
    told = run(engine, ev.FreeRequest(req=2))  # its own commit, and it is the last slot
    assert of(ev.Landed, told) and engine.rt.acted["moved-before-landed"] == []
    engine, _ = two("moved-before-landed")
    run(engine, RunRound(req=1, accept=1))
    told = run(engine, ev.FreeRequest(req=2))  # nobody moves
    assert of(ev.Landed, told) and engine.rt.acted["moved-before-landed"] == []


def test_a_copy_in_flight_lands_in_the_state_of_the_next_tenant() -> None:
    engine, events = two("free-in-flight")
    told = run(engine, RunRound(req=2, accept=1))
    left = engine.rt.memory.digests(of(ev.Commit, told)[0].src)
    events += told + run(engine, ev.FreeRequest(req=2)) + run(engine, ev.NewRequest(prompt=(5, 6, 7)))
    claim, empty = of(ev.Claim, events)[-1], of(ev.Zero, events)[-1].digests
    assert (claim.req, claim.slot) == (3, 1)
    events += run(engine, ev.SyncSecondary())
    assert engine.rt.memory.digests(Place("live", 1)) == left != empty
    assert names(events)[0] == "released-at-rest" and {"read-after-sync", "one-writer"} <= set(names(events))


def test_the_plane_that_lands_was_written_by_an_older_wider_round() -> None:
    engine, _ = two("stale-plane")
    wide = run(engine, RunRound(req=1, accept=4))
    run(engine, ev.SyncSecondary())
    short = run(engine, RunRound(req=1, drafts=(7,), accept=1))
    (commit,) = of(ev.Commit, short)
    assert commit.src == Place("step", 0, 0) and of(ev.Verify, short)[0].k == 2
    landed = live(engine, 1)
    assert landed == of(ev.VerifyRow, wide)[2].digests != of(ev.VerifyRow, short)[0].digests


def test_a_plane_with_rejected_drafts_or_of_this_round_is_not_taken() -> None:
    engine, _ = two("stale-plane")
    run(engine, RunRound(req=1, accept=2))
    short = run(engine, RunRound(req=1, drafts=(7,), accept=1))
    assert live(engine, 1) == of(ev.VerifyRow, short)[0].digests and engine.rt.acted["stale-plane"] == []


def test_which_rounds_were_wide_travels_with_an_image() -> None:
    engine, _ = two("stale-plane")
    run(engine, RunRound(req=1, accept=4))
    image = engine.save()
    rest = [ev.RunRound(req=1, drafts=(7,), accept=1), ev.SyncSecondary(), ev.RunRound(req=1)]
    told = [run(engine, action) for action in rest]
    other = make_engine()
    other.load(image)
    assert [run(other, action) for action in rest] == told
    assert other.rt.acted["stale-plane"]


# ------------------------------------------------------------------------------------------------------------ accounts


@pytest.mark.parametrize("saved", [False, True])
def test_a_slot_freed_twice_goes_to_two_requests(saved: bool) -> None:
    engine, events = two("double-free", slots=4)
    events += run(engine, ev.FreeRequest(req=2))
    assert names(events) == ["pool-partition"] and of(ev.Release, events)[-1].free == 4
    if saved:
        image = engine.save()
        engine = make_engine(slots=4)
        engine.load(image)
    for _ in range(2):
        events += run(engine, ev.NewRequest(prompt=(5, 6, 7)))
    assert [claim.slot for claim in of(ev.Claim, events)] == [0, 1, 1, 1]
    assert "one-owner" in names(events)


def test_two_requests_on_one_slot_keep_their_epochs_in_an_image() -> None:
    engine, _ = two("double-free", slots=4)
    run(engine, ev.FreeRequest(req=2))
    for _ in range(2):
        run(engine, ev.NewRequest(prompt=(5, 6, 7), ignore_eos=True))
    other = make_engine(slots=4)
    other.load(engine.save())
    owners = [[(request.seq.slot, request.seq.epoch) for request in e.rt.requests.values()] for e in (engine, other)]
    assert owners[0] == owners[1] and len({epoch for slot, epoch in owners[0] if slot == 1}) == 2
    for action in (RunRound(req=3), RunRound(req=4), ev.FreeRequest(req=3)):
        assert run(engine, action) == run(other, action)


def test_a_release_of_a_slot_that_nobody_owns_any_more_is_an_error_in_words() -> None:
    engine, _ = two("double-free")
    run(engine, SetFault(name="moved-before-landed"))
    run(engine, ev.FreeRequest(req=1))
    run(engine, ev.NewRequest(prompt=(5, 6, 7)))
    run(engine, ev.FreeRequest(req=3))
    with pytest.raises(StateError, match="released twice"):
        run(engine, ev.FreeRequest(req=2))


def test_a_survivor_moved_onto_a_slot_that_is_still_on_the_list_shares_it() -> None:
    engine, events = two("double-free")
    events += run(engine, ev.FreeRequest(req=1))
    assert of(ev.Compact, events)[-1].dst == 0
    events += run(engine, ev.NewRequest(prompt=(5, 6, 7)))
    assert of(ev.Claim, events)[-1].slot == engine.rt.requests[2].seq.slot == 0
    assert "one-owner" in names(events)


def test_who_forgets_the_dummy_row_admits_one_request_too_many() -> None:
    engine, events = two("dummy-forgotten")
    events += run(engine, ev.NewRequest(prompt=(5, 6, 7)))
    assert of(ev.Claim, events)[-1].free == 1 and names(events) == ["pool-partition"]
    with pytest.raises(SlotsExhausted, match="all 3 slots are in use"):
        run(engine, ev.NewRequest(prompt=(5, 6, 7)))
    run(engine, SetFault(name="dummy-forgotten", on=False))
    with pytest.raises(ValueError, match="free one or start with --slots 4"):
        engine.perform(ev.NewRequest(prompt=(5, 6, 7)))


def test_a_healthy_engine_counts_its_slots_right() -> None:
    engine, events = two()
    events += run(engine, ev.ForkRequest(req=1)) + run(engine, ev.FreeRequest(req=1))
    told = [e.free for e in events if isinstance(e, (ev.Claim, ev.Release, ev.Compact))]
    assert told == [2, 1, 0, 1, 1] and names(events) == []
