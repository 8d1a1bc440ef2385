"""The MTP head: what the end of a round tells of it, its oracle, and its three faults by what they do."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_helpers import loaded, make_engine, of, run, start
from engine_helpers import rounds as rounds_of
from judging_helpers import begin, debug, open_timeline, rounds

from engine.drafters import digest
from engine.events import (
    Accept,
    Emit,
    Event,
    ForkRequest,
    HeadRow,
    InjectToken,
    NewRequest,
    RollBack,
    RoundEnd,
    RunRound,
    SaveRing,
    SetFault,
    SetOption,
)
from engine.runtime import EngineRefusal
from inspector.judging.head import NAME, HeadOracle
from inspector.judging.oracles import Oracles
from inspector.trials.scenario import scenario
from inspector.trials.trial import engines, run_trial
from sessions.divergence import Comparison
from sessions.replay import replay
from sessions.store import Store
from sessions.timeline import Timeline

FAULTS = {
    "mtp-halves-swapped": "head-oracle",
    "mtp-positions-shifted": "drafter-input",
    "mtp-kv-not-rewound": "drafter-input",
    "pre-norm-mtp": "drafter-input",
    "mtp-stale-hidden": "drafter-input",
}
NEW = ["mtp-halves-swapped", "mtp-positions-shifted", "mtp-kv-not-rewound"]
MODES = [(verify, rollback) for verify in ("exact", "batched") for rollback in ("snapshot", "replay")]


def every_row(timeline: Timeline) -> HeadOracle:
    oracles = Oracles()
    oracles.head.every = 1
    timeline.oracle = oracles
    return oracles.head


# ------------------------------------------------------------------------------------------------------- what is told


@pytest.mark.parametrize("fields", [{}, {"accept": 1}, {"accept": 3}, {"drafts": ()}, {"drafts": (5, 6)}])
def test_each_round_tells_one_row_for_each_token_below_the_cursor(fields: dict[str, object]) -> None:
    engine = make_engine(prefill_chunk=16)
    events = start(engine, tuple(range(300, 340)), ignore_eos=True)
    events += run(engine, RunRound(**fields)) + run(engine, RunRound(**fields))  # type: ignore[arg-type]
    cursor, checked = 0, 0
    for event in events:
        cursor = getattr(event, "cursor", cursor)
        if isinstance(event, RoundEnd):
            assert (event.head_rows, event.fed_position) == (cursor, cursor - 1)
            assert event.fed == event.hidden != "" and event.head != ""
            checked += 1
    assert checked >= 5
    draft = engine.rt.requests[1].draft
    assert draft.hidden is not None and of(RoundEnd, events)[-1].head == digest(draft.hidden)


def test_nothing_is_told_of_a_head_that_is_not_used() -> None:
    engine = make_engine(drafter="lookup")
    events: list[Event] = start(engine) + run(engine, RunRound())
    assert {event.head_rows for event in of(RoundEnd, events)} == {-1}


def test_without_digests_positions_are_told_still() -> None:
    engine = make_engine(digests=False)
    (end,) = of(RoundEnd, start(engine))
    assert end.head_rows == end.fed_position + 1 > 0 and (end.fed, end.hidden, end.head) == ("", "", "")


def test_an_image_carries_what_is_told_next() -> None:
    engine = make_engine()
    start(engine, tuple(range(300, 340)), ignore_eos=True)
    run(engine, RunRound(accept=2))
    image = engine.save()
    after = run(engine, RunRound())
    other = make_engine()
    other.load(image)
    assert run(other, RunRound()) == after


def test_an_older_recording_that_tells_nothing_of_the_head_is_met_again() -> None:
    old, now = RoundEnd(seq=9, req=1), RoundEnd(seq=9, req=1, head_rows=4, fed_position=3, fed="a", hidden="a")
    for comparison in (Comparison(), Comparison(digests=False), Comparison(tolerance=1e-3)):
        assert comparison.equal(old, now) and comparison.equal(now, old)
        assert not comparison.equal(RoundEnd(seq=9, req=1, head_rows=5), now)
    assert not Comparison().equal(RoundEnd(seq=9, req=1, head_rows=4, fed_position=3, fed="b"), now)


# ----------------------------------------------------------------------------------------------------------- oracle


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("verify", "rollback"), MODES)
def test_a_healthy_head_is_met_bit_for_bit_whatever_is_done(verify: str, rollback: str, dtype: str) -> None:
    timeline = open_timeline(verify=verify, rollback=rollback, dtype=dtype)
    head = every_row(timeline)
    req = begin(timeline)
    rounds(timeline, req, None, 1, 2, 3, 4)
    rounds(timeline, req, None, drafts=())
    rounds(timeline, req, 1, 2, drafts=(5, 6))
    timeline.perform(ForkRequest(req=req))
    fork = max(timeline.view.requests)
    rounds(timeline, fork, None, 2)
    rounds(timeline, req, 1)
    entries = timeline.view.requests[req].ring.entries
    if entries:
        timeline.perform(RollBack(req=req, to="length", value=entries[0].token_position))
    timeline.perform(InjectToken(req=fork, token=200))
    rounds(timeline, fork, None, None)
    rounds(timeline, req, None, None)
    begin(timeline, (*timeline.view.requests[req].tokens[:33], 7))
    for value in ("none", "mtp"):
        timeline.perform(SetOption(name="drafter", value=value))
        rounds(timeline, req, None)
    assert timeline.findings() == [] and head.compared > 15


def test_a_look_changes_nothing_and_needs_a_row() -> None:
    engine = make_engine()
    start(engine, tuple(range(300, 340)), ignore_eos=True)
    image = engine.save()
    (data,) = engine.compute(HeadRow(req=1))
    assert data.h[0] == data.h[1] and data.tokens == 40
    assert engine.save() == image
    engine.load(image)
    with pytest.raises(EngineRefusal, match="no newest row"):
        engine.compute(HeadRow(req=1))


@pytest.mark.parametrize("kind", ["decode", "verify_row", "accept", "emit"])
def test_a_round_that_was_abandoned_does_not_switch_it_off(kind: str) -> None:
    timeline = open_timeline()
    oracles = timeline.oracle
    assert isinstance(oracles, Oracles)
    oracles.head.every = 1
    first, second = begin(timeline), begin(timeline, tuple(range(500, 520)))
    rounds(timeline, first, None)
    drafts = () if kind == "decode" else None
    timeline.perform(RunRound(req=first, drafts=drafts), pause_at=lambda event: event.kind == kind)
    timeline.abandon()
    rounds(timeline, first, None)
    compared = oracles.head.compared
    timeline.perform(SetFault(name="mtp-halves-swapped"))
    before = len(timeline.findings())
    rounds(timeline, second, None, None)
    assert oracles.head.compared > compared
    assert NAME in {finding.name for finding in timeline.findings()[before:]}


def test_it_looks_at_the_first_row_and_every_eighth_and_again_after_something_was_done_by_hand() -> None:
    timeline = open_timeline()
    oracles = timeline.oracle
    assert isinstance(oracles, Oracles)
    req = begin(timeline, tuple(range(300, 310)))
    assert oracles.head.compared == 1
    rounds(timeline, req, *[1] * 7)
    assert oracles.head.compared == 1
    rounds(timeline, req, 1)
    assert oracles.head.compared == 2
    timeline.perform(SetFault(name="mtp-halves-swapped"))
    rounds(timeline, req, 1)
    assert oracles.head.compared == 3
    (found,) = timeline.findings()
    assert (
        found.name == NAME
        and found.expected != found.found
        and f"position {timeline.view.requests[req].cursor - 1};" in found.text
    )


def test_without_digests_its_bytes_are_compared() -> None:
    timeline = open_timeline(digests=False)
    begin(timeline)
    assert timeline.findings() == []
    timeline.perform(SetFault(name="mtp-halves-swapped"))
    begin(timeline, (4, 5, 6))
    assert {found.name for found in timeline.findings()} == {NAME}


def test_the_command_switches_it_with_the_other_one() -> None:
    timeline = open_timeline()
    req = begin(timeline)
    command = debug(timeline)
    assert "of the MTP head" in command("oracle")[0]
    command("oracle off")
    timeline.perform(SetFault(name="mtp-halves-swapped"))
    rounds(timeline, req, None)
    assert timeline.findings() == []
    command("oracle on")
    rounds(timeline, req, None, None, None, None)
    assert NAME in {found.name for found in timeline.findings()}


# ----------------------------------------------------------------------------------------------------------- faults


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize(("verify", "rollback"), MODES)
def test_a_fault_of_the_head_is_caught_in_the_round_that_feeds_it(name: str, verify: str, rollback: str) -> None:
    factory = engines(loaded("float32"), dtype="float32", verify=verify, rollback=rollback)
    outcome = run_trial(factory, name)
    assert (outcome.how, outcome.detector, outcome.verdict_right) == ("at once", FAULTS[name], True)


@pytest.mark.parametrize("name", NEW)
def test_only_acceptance_suffers_from_a_fault_of_the_head(name: str) -> None:
    texts, accepted = [], []
    for on in (False, True):
        engine = make_engine(kv_tokens=2048)
        run(engine, SetFault(name=name, on=on))
        events = start(engine, ignore_eos=True) + rounds_of(engine, 60)
        texts.append([event.token for event in of(Emit, events)][:60])
        accepted.append([event.accepted for event in of(Accept, events)])
    assert texts[0] == texts[1] and accepted[0] != accepted[1]


@pytest.mark.parametrize("name", NEW)
def test_a_fault_of_the_head_never_stops_the_engine(name: str) -> None:
    factory = engines(loaded("float32"), dtype="float32")
    timeline = Timeline.live(factory(), factory=factory)
    timeline.perform(SetFault(name=name))
    assert "error" not in {timeline.perform(action).reason for action in scenario(timeline, 1)}


def test_rows_of_rejected_drafts_and_of_undone_outputs_stay() -> None:
    engine = make_engine(prefill_chunk=16)
    start(engine, tuple(range(300, 343)), ignore_eos=True)
    run(engine, RunRound(accept=4))
    run(engine, SaveRing(req=1))
    kept = engine.rt.requests[1].output_len
    run(engine, SetFault(name="mtp-kv-not-rewound"))
    (before,) = of(RoundEnd, run(engine, RunRound(accept=1)))
    assert before.head_rows == engine.rt.requests[1].seq.cursor + engine.rt.config.drafts - 1
    run(engine, RollBack(req=1, to="length", value=kept))
    (after,) = of(RoundEnd, run(engine, RunRound()))
    assert after.head_rows == before.head_rows + 1 == engine.rt.requests[1].seq.cursor + engine.rt.config.drafts


@pytest.mark.parametrize("name", ["", *NEW])
def test_a_session_with_a_fault_of_the_head_can_be_executed_again(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.session"
    timeline = Timeline.live(make_engine(), Store(path, "x", level="digests"), factory=make_engine)
    req = begin(timeline, tuple(range(300, 343)))
    rounds(timeline, req, 4, 1)
    if name:
        timeline.perform(SetFault(name=name))
    timeline.perform(SaveRing(req=req))
    kept = timeline.view.requests[req].outputs
    rounds(timeline, req, 1, None, 2)
    rounds(timeline, req, 1, drafts=(5, 6))
    timeline.perform(RollBack(req=req, to="length", value=kept))
    rounds(timeline, req, None, 1, None)
    ends = [event for event in timeline.events(1, timeline.now) if isinstance(event, RoundEnd)]
    assert len({event.head for event in ends}) > 8
    timeline.close()
    report = replay(path, make_engine())
    assert report.same, report.difference


def test_swapped_halves_change_what_is_drafted() -> None:
    heads = []
    for on in (False, True):
        engine = make_engine()
        run(engine, SetFault(name="mtp-halves-swapped", on=on))
        run(engine, NewRequest(prompt=tuple(range(300, 340)), ignore_eos=True))
        heads.append(of(RoundEnd, [e for _ in range(3) for e in run(engine, RunRound())])[-1].head)
    assert heads[0] != heads[1]
