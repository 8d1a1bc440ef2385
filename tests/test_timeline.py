"""Time travel: moving changes nothing, acting in the past branches, and any instant can be reached bit for bit."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
import session_helpers as make
from fake_engine import FakeEngine
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.events import (
    Action,
    Computation,
    Decision,
    Emit,
    Event,
    Golden,
    InjectToken,
    Place,
    RollBack,
    RunRound,
    SetFault,
    SyncSecondary,
    TakeCheckpoint,
    TensorRef,
)
from sessions.errors import SessionError
from sessions.finding import Finding
from sessions.history import History
from sessions.invariants import check_all
from sessions.keyframes import Keyframes
from sessions.ledger import Ledger, fold
from sessions.record import Record
from sessions.rows import ActionRow
from sessions.store import Store
from sessions.timeline import DivergedError, NotAvailable, Stop, Timeline
from sessions.view import LedgerView

ACCEPT = "accept"


def at_decision(what: str) -> object:
    return lambda event: isinstance(event, Decision) and event.what == what


def started(**options: object) -> Timeline:
    timeline = make.live(**options)  # type: ignore[arg-type]
    timeline.perform(make.new())
    return timeline


# --------------------------------------------------------------------------------------------------- stepping, live


def test_a_live_timeline_begins_with_the_start_event() -> None:
    timeline = make.live()
    assert (timeline.now, timeline.last, timeline.mode, timeline.source) == (1, 1, "LIVE", "live")
    assert timeline.event(1).kind == "start" and timeline.runnable() == ()
    assert timeline.step("token") == Stop("idle", 1, "no request has work left")


@pytest.mark.parametrize(
    ("unit", "kinds"),
    [("token", {"emit"}), ("round", {"round_end"}), ("chunk", {"prefill", "round_end"}), ("request", {"finish"})],
)
def test_a_forward_step_executes_to_the_end_of_its_unit(unit: str, kinds: set[str]) -> None:
    timeline = started()
    first = timeline.now
    stop = timeline.step(unit)
    assert stop.reason == "step" and timeline.now == timeline.last > first
    assert timeline.event(timeline.now).kind in kinds
    assert not any(event.kind in kinds for event in timeline.events(first + 1, timeline.now - 1))


def test_a_step_by_event_leaves_the_engine_paused_between_two_facts() -> None:
    timeline = started()
    for count in range(1, 30):
        assert timeline.step("event") == Stop("step", 5 + count)
    assert timeline.paused and timeline.mode == "LIVE"


def test_a_round_is_over_and_recorded_when_a_step_ends_at_its_end() -> None:
    timeline = started()
    timeline.step("round", 3)
    assert not timeline.paused and timeline.history.record.action(0, timeline.now).status == "done"  # type: ignore[union-attr]


def test_steps_of_one_request_ignore_the_others() -> None:
    timeline = make.live()
    timeline.perform(make.new())
    timeline.perform(make.new("one two three"))
    timeline.step("token", 3, req=2)
    assert timeline.event(timeline.now).req == 2
    assert {event.req for event in timeline.events(1, timeline.now) if isinstance(event, Emit)} == {1, 2}
    timeline.step("request", req=1)
    assert (timeline.event(timeline.now).kind, timeline.event(timeline.now).req) == ("finish", 1)


def test_before_the_edge_a_forward_step_moves_and_executes_nothing() -> None:
    timeline = make.two_requests(make.live())
    last = timeline.last
    timeline.seek(20)
    assert timeline.mode == "HISTORY"
    timeline.step("round", 2)
    assert timeline.last == last and timeline.now > 20
    rounds = [event.seq for event in timeline.events(21, last) if event.kind == "round_end"]
    assert timeline.now == rounds[1]


@pytest.mark.parametrize("unit", ["event", "token", "round", "chunk"])
def test_back_then_forward_comes_to_the_same_place(unit: str) -> None:
    timeline = make.two_requests(make.live())
    timeline.seek(timeline.last - 30)
    timeline.step(unit)
    here, view = timeline.now, timeline.view
    back = timeline.step(unit, 5, back=True)
    assert back.reason == "step" and timeline.now < here
    timeline.step(unit, 5)
    assert timeline.now == here and timeline.view == view


@pytest.mark.parametrize("count", [1, 3, 10])
def test_tokens_back_are_so_many_fewer_wherever_one_stands(count: int) -> None:
    timeline = started()
    timeline.step("round", 12)
    for here in range(timeline.last, timeline.last - 25, -1):
        timeline.seek(here)
        had = timeline.view.requests[1].outputs
        timeline.step("token", count, back=True)
        assert timeline.event(timeline.now).kind == "emit" and timeline.view.requests[1].outputs == had - count, here
        there = timeline.now
        timeline.step("token", count)
        assert timeline.view.requests[1].outputs == had and timeline.now <= here
        timeline.step("token", count, back=True)
        assert timeline.now == there


def test_the_first_token_back_is_the_beginning_of_the_record() -> None:
    timeline = started()
    while not timeline.view.requests[1].outputs:
        timeline.step("round")
    assert timeline.event(timeline.now).kind == "round_end"
    assert timeline.step("token", back=True).reason == "start" and timeline.now == 1


def test_stepping_back_past_the_beginning_stops_at_the_first_event() -> None:
    timeline = started()
    assert timeline.step("round", back=True) == Stop("start", 1, "the beginning of the record")
    assert timeline.step("event", back=True).reason == "start" and timeline.now == 1


def test_back_by_request_goes_to_where_it_was_admitted() -> None:
    timeline = make.two_requests(make.live())
    timeline.step("request", back=True, req=1)
    assert timeline.event(timeline.now).kind == "request" and timeline.event(timeline.now).req == 1


def test_an_unknown_unit_is_refused() -> None:
    with pytest.raises(ValueError, match="unit: expected one of event, token"):
        started().step("line")


def test_views_at_every_event_equal_the_fold() -> None:
    timeline = make.two_requests(make.live())
    events = timeline.events(1, timeline.last)
    for seq in (1, 2, 100, 255, 256, 257, 300, timeline.last):
        assert timeline.view_at(seq) == fold(events[:seq])
    with pytest.raises(NotAvailable, match="the record holds 1 to"):
        timeline.view_at(timeline.last + 1)


# -------------------------------------------------------------------------------------------------------------- run


def partial(before: LedgerView, event: Event, after: LedgerView) -> str | None:
    return f"accepted {event.accepted}" if event.kind == ACCEPT and event.accepted < event.k else None  # type: ignore[attr-defined]


def test_run_stops_at_the_first_hit_and_gives_its_text() -> None:
    timeline = started()
    stop = timeline.run(partial)
    assert stop.reason == "stop" and stop.hits == (stop.text,) and stop.text.startswith("accepted")
    assert stop.seq == timeline.now == timeline.last and timeline.paused


def test_reverse_run_reports_the_latest_hit_before_now_and_both_ways_meet_the_same() -> None:
    timeline = make.two_requests(make.live())
    hits = [e.seq for e in timeline.events(1, timeline.last) if partial(LedgerView(), e, LedgerView())]
    found = []
    while (stop := timeline.run(partial, back=True)).reason == "stop":
        found.append(stop.seq)
    assert found == hits[::-1] and stop.reason == "start" and timeline.now == 1
    forward = []
    while (stop := timeline.run(partial)).reason == "stop":
        forward.append(stop.seq)
    assert forward == hits and stop.reason == "idle"


def test_predicates_see_the_views_around_the_event_in_both_directions() -> None:
    timeline = make.two_requests(make.live())
    seen: list[tuple[int, int, int]] = []

    def look(before: LedgerView, event: Event, after: LedgerView) -> str | None:
        seen.append((before.seq, event.seq, after.seq))
        return None

    timeline.run(look, back=True, limit=300)
    assert seen == [(n - 1, n, n) for n in range(timeline.last - 1, timeline.last - 301, -1)]
    seen.clear()
    timeline.run(look, limit=50)
    assert seen == [(n - 1, n, n) for n in range(timeline.now - 49, timeline.now + 1)]


def test_run_stops_when_an_invariant_breaks_and_the_finding_stays() -> None:
    timeline = started()
    timeline.step("round", 2)
    timeline.perform(SetFault(name="stale_live"))
    stop = timeline.run()
    assert stop.reason == "finding" and stop.finding is not None and stop.finding == timeline.finding_at(stop.seq)
    assert timeline.findings() == [stop.finding]
    timeline.run()
    last = timeline.now
    assert len(timeline.findings()) == 2
    assert timeline.run(back=True).seq == stop.seq
    assert timeline.run(findings=False, limit=last - stop.seq).reason == "limit"


def test_a_step_says_what_broke_on_its_way() -> None:
    timeline = started()
    timeline.step("round", 2)
    timeline.perform(SetFault(name="stale_live"))
    stop = timeline.step("round", 50)
    assert stop.reason == "step" and stop.finding is not None and stop.finding.seq <= timeline.now
    assert timeline.view.requests[1].status != "finished"


def test_findings_are_those_of_checking_everything_from_the_beginning() -> None:
    timeline = started(slots=2)
    timeline.perform(SetFault(name="wrong_step"))
    timeline.perform(make.new("two slots of state", max_tokens=20))
    timeline.run(findings=False)
    assert timeline.findings() == check_all(timeline.events(1, timeline.last)) != []


def test_run_can_be_cancelled_and_limited() -> None:
    timeline = started()
    assert timeline.run(cancel=lambda: True) == Stop("cancelled", 5, "cancelled")
    assert timeline.run(limit=7) == Stop("limit", 12, "7 events walked")
    assert timeline.run(back=True, limit=3) == Stop("limit", 9, "3 events walked")
    assert timeline.run(back=True, cancel=lambda: True).reason == "cancelled"


# -------------------------------------------------------------------------------------------- actions and decisions


def test_a_decision_can_be_waited_for_and_answered() -> None:
    timeline = started()
    timeline.step("round", 2)
    stop = timeline.perform(RunRound(), at_decision(ACCEPT))  # type: ignore[arg-type]
    assert stop.reason == "decision" and timeline.waiting == timeline.event(timeline.now)
    assert timeline.answer(ACCEPT, 1) == Stop("decision", timeline.now, "accept: 1")
    timeline.resume()
    accept = next(e for e in timeline.events(stop.seq, timeline.last) if e.kind == ACCEPT)
    assert accept.accepted == 1 and timeline.waiting is None  # type: ignore[attr-defined]
    row = timeline.history.record.action(0, timeline.last)
    assert row is not None and row.answers == ((stop.seq, ACCEPT, 1),) and row.asked == RunRound()


def test_answers_that_cannot_be_are_refused_and_change_nothing() -> None:
    timeline = started()
    timeline.step("round", 2)
    assert timeline.answer(ACCEPT, 1).reason == "refused"
    timeline.perform(RunRound(), at_decision(ACCEPT))  # type: ignore[arg-type]
    last = timeline.last
    assert timeline.answer("drafts", 1).text == f"answer drafts: a decision about accept is waiting at event {last}"
    assert timeline.answer(ACCEPT, 99).reason == "refused"
    assert timeline.last == last and timeline.waiting is not None
    assert timeline.resume().reason == "done"


def test_a_refused_action_changes_nothing() -> None:
    timeline = started()
    before = timeline.view
    stop = timeline.perform(RollBack(req=9))
    assert stop.reason == "refused" and "request 9" in stop.text and timeline.view == before
    timeline.seek(3)
    assert timeline.perform(RollBack(req=9)).reason == "refused"
    assert (timeline.now, timeline.branch, len(timeline.branches)) == (3, 0, 1)
    assert timeline.checkout(0).seq == timeline.last and timeline.mode == "LIVE"


def test_a_refused_action_in_the_middle_of_a_past_round_leaves_no_branch_behind(tmp_path: Path) -> None:
    timeline = make.two_requests(make.live(tmp_path / "a.mtl"))
    verify = next(e.seq for e in timeline.events(1, timeline.last) if e.kind == "verify")
    timeline.seek(verify)
    assert timeline.perform(RollBack(req=9)).reason == "refused"  # the round was finished first, on a branch
    assert (timeline.now, timeline.branch, len(timeline.branches)) == (verify, 0, 1)
    with Store(tmp_path / "a.mtl") as store:
        assert len(store.branches()) == 1
    timeline.seek(40)
    timeline.perform(RunRound())
    for seq in (30, 41, timeline.last):
        assert timeline.view_at(seq) == fold(timeline.events(1, seq))
    timeline.close()
    with Store(tmp_path / "a.mtl") as store:
        assert store.branches()[1].at == 40


def test_a_branch_that_leaves_before_an_answer_is_not_bound_by_it() -> None:
    timeline = started()
    timeline.step("round", 2)
    timeline.perform(RunRound(), at_decision(ACCEPT))  # type: ignore[arg-type]
    natural = timeline.waiting.default  # type: ignore[union-attr]
    forced = 1 if natural > 1 else 2
    timeline.answer(ACCEPT, forced)
    timeline.resume()
    verify = max(e.seq for e in timeline.events(1, timeline.last) if e.kind == "verify")
    timeline.seek(verify)
    timeline.open_branch()
    timeline.resume()
    accepted = [next(e for e in timeline.events(verify, 10**6, branch=b) if e.kind == ACCEPT) for b in (0, 1)]
    assert [event.accepted for event in accepted] == [forced, natural]  # type: ignore[attr-defined]
    timeline.tensor(TensorRef(make.LIVE0, 0, "h"), timeline.now - 1)  # executed again, it is not bound either


def test_an_action_finishes_the_one_left_half_done_first() -> None:
    timeline = started()
    timeline.step("round", 2)
    timeline.step("event", 4)
    assert timeline.paused
    timeline.perform(InjectToken(req=1, token=12))
    kinds = [event.kind for event in timeline.events(1, timeline.last)]
    assert kinds[-2:] == ["round_end", "emit"] or kinds[-3] == "round_end"


def test_a_half_done_action_can_be_abandoned() -> None:
    timeline = started()
    timeline.step("round", 2)
    timeline.perform(RunRound(), lambda event: event.kind == "verify")
    assert timeline.abandon().reason == "done" and not timeline.paused
    assert timeline.abandon().reason == "refused"
    cut = timeline.now
    timeline.perform(TakeCheckpoint(req=1))
    timeline.step("round")
    for seq in range(cut - 3, timeline.last + 1):
        timeline.tensor(TensorRef(make.LIVE0, 2, "h"), seq)  # executed again through the abandoned round


class Failing(FakeEngine):
    """Raises in the middle of an action."""

    fail_at = 0

    def _event(self, cls: type, **more: object) -> Event:  # type: ignore[override]
        if self.fail_at and self.seq + 1 == self.fail_at:
            raise MemoryError("out of memory: 3 GiB wanted")
        return super()._event(cls, **more)  # type: ignore[no-any-return]


def test_an_engine_that_raises_becomes_a_stop_and_the_record_stays_usable(tmp_path: Path) -> None:
    engine = Failing()
    timeline = Timeline.live(engine, Store(tmp_path / "a.mtl", "x"), factory=FakeEngine)
    timeline.perform(make.new())
    timeline.step("round", 2)
    engine.fail_at = timeline.last + 9
    stop = timeline.step("round")
    assert stop.reason == "error" and "MemoryError: out of memory" in stop.text and timeline.now == engine.fail_at - 1
    engine.fail_at = 0
    timeline.tensor(TensorRef(make.LIVE0, 1, "h"))
    assert timeline.step("round").reason == "step"
    timeline.close()
    again = Timeline.open(tmp_path / "a.mtl", FakeEngine)
    again.tensor(TensorRef(make.LIVE0, 1, "h"))


# ---------------------------------------------------------------------------------------------------------- branches


def test_acting_in_the_past_opens_a_branch_and_leaves_the_parent_as_it_was() -> None:
    timeline = make.two_requests(make.live())
    events, last = timeline.events(1, timeline.last), timeline.last
    end = next(e.seq for e in timeline.events(60, last) if e.kind == "round_end")
    timeline.seek(end)
    stop = timeline.perform(RunRound(accept=1))
    assert stop.reason == "done" and timeline.mode == "BRANCH" and timeline.branch == 1
    assert timeline.events(1, end) == events[:end] and timeline.event(end + 1).kind == "round"
    assert timeline.events(1, last, branch=0) == events
    assert [(b.id, b.parent, b.at) for b in timeline.branches] == [(0, -1, 0), (1, 0, end)]
    timeline.run(findings=False)
    timeline.checkout(0)
    assert timeline.mode == "LIVE" and timeline.events(1, last) == events
    other = timeline.branches[1]
    assert timeline.perform(make.new("more")).reason == "done" and timeline.branch == 0
    assert timeline.branches[1] == other and timeline.event(timeline.last).kind == "zero"


def test_an_edited_accept_inside_a_recorded_round_branches_there() -> None:
    timeline = make.two_requests(make.live())
    decision = next(
        e for e in timeline.events(1, timeline.last) if isinstance(e, Decision) and e.what == ACCEPT and e.default > 2
    )
    timeline.seek(decision.seq)
    assert timeline.waiting == decision and timeline.mode == "HISTORY"
    assert timeline.answer(ACCEPT, 1).reason == "decision"
    assert timeline.mode == "BRANCH" and timeline.paused and timeline.waiting == decision
    timeline.resume()
    accept = timeline.event(decision.seq + 1)
    assert (accept.accepted, accept.natural, accept.forced) == (1, decision.default, True)  # type: ignore[attr-defined]
    assert timeline.event(decision.seq + 1, branch=0).accepted == decision.default  # type: ignore[attr-defined]
    timeline.tensor(TensorRef(make.LIVE0, 0, "h"))


def test_hand_written_drafts_in_the_past_follow_too() -> None:
    timeline = make.two_requests(make.live())
    decision = next(e for e in timeline.events(1, timeline.last) if isinstance(e, Decision) and e.what == "drafts")
    timeline.seek(decision.seq)
    timeline.answer("drafts", (20, 21))
    timeline.resume()
    draft = next(e for e in timeline.events(decision.seq, timeline.last) if e.kind == "draft")
    assert (draft.tokens, draft.source) == ((20, 21), "hand")  # type: ignore[attr-defined]
    for seq in range(decision.seq, timeline.last + 1):
        timeline.tensor(TensorRef(make.LIVE0, 0, "conv"), seq)
    timeline.seek(timeline.last - 1)
    timeline.perform(SyncSecondary())  # a branch that leaves inside the round that was edited
    assert [branch.parent for branch in timeline.branches] == [-1, 0, 1]
    assert timeline.event(decision.seq + 1).kind in ("texts", "draft")


def test_a_branch_inside_a_round_finishes_it_before_the_new_action() -> None:
    timeline = make.two_requests(make.live())
    verify = next(e.seq for e in timeline.events(1, timeline.last) if e.kind == "verify")
    end = next(e.seq for e in timeline.events(verify, timeline.last) if e.kind == "round_end")
    parent = timeline.events(1, end)
    timeline.seek(verify)
    timeline.perform(TakeCheckpoint(req=1))
    assert timeline.events(1, end) == parent and timeline.last > end
    assert timeline.branches[1].at == verify


def test_branches_of_branches_and_their_findings() -> None:
    timeline = make.two_requests(make.live())
    timeline.seek(80)
    timeline.perform(SetFault(name="stale_live"))
    timeline.run(findings=False)
    found = timeline.findings()
    assert found and not timeline.findings(branch=0)
    end = next(e.seq for e in timeline.events(found[0].seq, timeline.last) if e.kind == "round_end")
    timeline.seek(end)
    timeline.perform(SetFault(name="stale_live", on=False))
    assert timeline.branch == 2 and timeline.findings() == [finding for finding in found if finding.seq <= end]
    timeline.checkout(1)
    assert timeline.mode == "BRANCH" and timeline.findings() == found


def test_opening_a_branch_without_acting_is_possible() -> None:
    timeline = make.two_requests(make.live())
    assert timeline.open_branch().text == "this is the live edge"
    timeline.seek(40)
    assert timeline.open_branch("to try").text == "branch 1"
    assert (timeline.now, timeline.last, timeline.mode) == (40, 40, "BRANCH")
    timeline.step("token", 2)
    assert timeline.branch == 1


# ----------------------------------------------------------------------------------------------------------- tensors


@pytest.mark.parametrize("rollback", ["snapshot", "replay"])
@pytest.mark.parametrize("scratch", [True, False])
def test_every_tensor_of_every_past_instant_has_the_bytes_it_had(rollback: str, scratch: bool) -> None:
    engine = FakeEngine(rollback=rollback)
    timeline = Timeline.live(engine, factory=make.engine_of(rollback=rollback) if scratch else None)
    seen: dict[int, dict[TensorRef, bytes]] = {}
    timeline.perform(make.new(max_tokens=14))
    timeline.perform(make.new("one two", max_tokens=9))
    while timeline.step("event").reason == "step":
        if timeline.now % 3 == 0:
            seen[timeline.now] = make.everything(engine)
    for seq in sorted(seen, key=lambda n: (n * 7919) % 1009):
        for ref, raw in seen[seq].items():
            assert timeline.tensor(ref, seq).raw == raw, (seq, ref)


@pytest.mark.parametrize("scratch", [True, False])
def test_looking_into_the_past_does_not_disturb_the_live_engine(scratch: bool) -> None:
    actions: list[Action] = [make.new(), *make.rounds(8)]
    expected = make.undisturbed(actions)
    timeline = make.live(scratch=scratch)
    timeline.perform(actions[0])
    for count in range(len(expected) - timeline.last):
        timeline.step("event")
        if count % 5 == 0:
            timeline.tensor(TensorRef(make.LIVE0, 2, "h"), max(4, timeline.now - 11))
    assert timeline.events(1, len(expected)) == expected


def test_an_answer_given_before_looking_away_still_counts() -> None:
    timeline = started(scratch=False)
    timeline.step("round", 2)
    timeline.perform(RunRound(), at_decision(ACCEPT))  # type: ignore[arg-type]
    timeline.answer(ACCEPT, 1)
    here = timeline.now
    timeline.tensor(TensorRef(make.LIVE0, 0, "h"), 8)
    timeline.resume()
    assert timeline.event(here + 1).accepted == 1  # type: ignore[attr-defined]


def test_a_run_that_cannot_be_reproduced_stops_as_diverged_and_is_a_finding(tmp_path: Path) -> None:
    path = make.recording(tmp_path / "a.mtl")
    timeline = Timeline.open(path, make.engine_of(drift_at=60))
    with pytest.raises(DivergedError) as caught:
        timeline.tensor(TensorRef(make.LIVE0, 0, "h"), 200)
    assert str(caught.value).startswith("diverged at event") and "layer 1, h" in str(caught.value)
    assert caught.value.layer == 1 and caught.value.part == "h" and caught.value.seq >= 60
    finding = timeline.findings()[-1]
    assert (finding.name, finding.seq, finding.where) == ("diverged", caught.value.seq, "layer 1, h")
    timeline.seek(200)
    stop = timeline.perform(RunRound())
    assert stop.reason == "diverged" and stop.finding == finding and len(timeline.branches) == 1
    timeline.close()
    assert Timeline.open(path, write=False).findings() == [finding]


def test_bytes_changed_behind_the_record_are_noticed() -> None:
    engine = FakeEngine()
    timeline = Timeline.live(engine)
    timeline.perform(make.new())
    timeline.step("round", 2)
    engine.memory.conv[make.LIVE0][2, 0, 0] += 1
    with pytest.raises(DivergedError, match="live:0, layer 2, conv: bytes changed without an event since"):
        timeline.tensor(TensorRef(make.LIVE0, 2, "conv"))
    assert timeline.tensor(TensorRef(make.LIVE0, 2, "h")).raw == engine.read(TensorRef(make.LIVE0, 2, "h")).raw


def test_what_is_not_there_is_said_in_words() -> None:
    timeline = started()
    with pytest.raises(NotAvailable, match=r"no h in layer 7; recurrent layers are 0, 1, 2"):
        timeline.tensor(TensorRef(make.LIVE0, 7, "h"))
    with pytest.raises(NotAvailable, match=r"no place ring:9\.9"):
        timeline.tensor(TensorRef(Place("ring", 9, 9), 0, "h"))
    with pytest.raises(NotAvailable, match="no event 99"):
        timeline.tensor(TensorRef(make.LIVE0, 0, "h"), 99)


def test_computations_see_the_engine_as_it_was_then() -> None:
    timeline = make.two_requests(make.live())
    seq = next(e.seq for e in timeline.events(100, timeline.last) if e.kind == "checkpoint" and e.req == 1)
    view = timeline.view_at(seq)
    tokens = view.requests[1].tokens[: view.live(1).position]  # type: ignore[union-attr]
    (golden,) = timeline.compute(Golden(tokens=tokens), seq)
    assert golden.h[1] == timeline.tensor(TensorRef(make.LIVE0, 1, "h"), seq)
    with pytest.raises(NotAvailable, match="not a computation"):
        timeline.compute(Computation())


def test_seeking_and_reporting_on_the_way() -> None:
    timeline = make.live(scratch=False)
    timeline.perform(make.new(max_tokens=80))
    timeline.run(findings=False)
    timeline.keyframes = Keyframes()
    seen: list[tuple[str, int, int]] = []
    timeline.progress = lambda *what: seen.append(what)
    machine = timeline._tensors.edge.machine  # type: ignore[union-attr]
    keep = machine.keyframes
    machine.keyframes = Keyframes()
    machine.keyframes.add(0, 1, keep.image((0, 1)))
    assert timeline.prefetch(400).reason == "moved"
    assert seen[-1] == ("executing again", 399, 399) and seen[0][1] >= 60
    assert timeline.prefetch(600, cancel=lambda: True).reason == "cancelled"
    assert timeline.prefetch(300).reason == "moved"


# -------------------------------------------------------------------------------------------------------- recordings


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make.recording(tmp_path_factory.mktemp("recorded") / "a.mtl")


def test_a_recording_without_its_model_shows_facts_and_says_what_it_cannot_show(recorded: Path) -> None:
    timeline = Timeline.open(recorded, write=False)
    assert (timeline.source, timeline.mode, timeline.now) == ("recording", "HISTORY", timeline.last)
    assert timeline.view.requests[1].finish and not timeline.can_act
    with pytest.raises(NotAvailable, match="open it with its model, or record at level full"):
        timeline.tensor(TensorRef(make.LIVE0, 0, "h"), 30)
    assert timeline.perform(RunRound()).reason == "refused"
    assert timeline.step("token") == Stop("edge", timeline.last, "the record ends here")
    with pytest.raises(NotAvailable, match="no tokenizer"):
        timeline.tokens("x")


def test_a_recording_with_its_model_shows_tensors_and_can_be_branched(recorded: Path, tmp_path: Path) -> None:
    path = tmp_path / "b.mtl"
    path.write_bytes(recorded.read_bytes())
    timeline = Timeline.open(path, FakeEngine)
    timeline.tensor(TensorRef(make.LIVE0, 0, "h"), 77)
    assert timeline.step("token").text == "the record ends here; an action opens a branch"
    timeline.seek(70)
    assert timeline.perform(RunRound(accept=1)).reason == "done" and timeline.mode == "BRANCH"
    branch = timeline.events(1, timeline.last)
    timeline.close()
    again = Timeline.open(path, FakeEngine)
    assert again.events(1, again.history.record.last(1), branch=1) == branch
    assert again.branches[1].at == 70 and again.mode == "HISTORY"
    again.tensor(TensorRef(make.LIVE0, 0, "h"), again.history.record.last(1), branch=1)
    again.close()


def test_another_model_or_other_settings_are_refused(recorded: Path) -> None:
    for options, text in (
        ({"fingerprint": "other"}, r"found another model: fake other; expected fake \(fingerprint fake-1\)"),
        ({"ring_depth": 5}, "ring_depth 5"),
    ):
        timeline = Timeline.open(recorded, make.engine_of(**options), write=False)
        with pytest.raises(SessionError, match=text):
            timeline.tensor(TensorRef(make.LIVE0, 0, "h"), 30)


def test_bookmarks_notes_and_jumps_are_kept_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.mtl"
    timeline = make.two_requests(make.live(path))
    timeline.mark("a", 30, "here it begins")
    timeline.seek(50)
    timeline.note("odd", author="me")
    timeline.mark("b")
    timeline.mark("a", 31)
    timeline.command("goto @50")
    timeline.close()
    again = Timeline.open(path)
    assert again.bookmarks == {"b": 50, "a": 31}
    assert [(n.kind, n.seq, n.text, n.author) for n in again.notes if n.kind == "note"] == [("note", 50, "odd", "me")]
    assert again.commands == [(0, 50, "goto @50")]
    assert again.bookmark("a").seq == 31
    with pytest.raises(NotAvailable, match="there are: a, b"):
        again.bookmark("c")
    with pytest.raises(NotAvailable):
        again.mark("z", 10**6)
    last = again.last
    again.seek(20)
    assert again.jumps.back().seq == last and again.jumps.forward().seq == 20
    again.close()


def test_the_jump_list_remembers_where_movements_left_from() -> None:
    timeline = make.two_requests(make.live())
    last = timeline.now
    timeline.seek(50)
    timeline.step("event")
    timeline.step("event")
    timeline.step("event")
    timeline.seek(10)
    assert [timeline.jumps.back().seq for _ in range(3)] == [53, 50, last]
    assert [timeline.jumps.forward().seq for _ in range(3)] == [50, 53, 10]
    assert timeline.jumps.forward().reason == "refused" and timeline.now == 10
    while timeline.jumps.back().reason == "moved":
        pass
    assert timeline.now == 1
    while timeline.jumps.forward().reason == "moved":
        pass
    assert timeline.now == 10
    timeline.seek(7)
    assert timeline.jumps.forward().reason == "refused"


def test_a_finding_made_elsewhere_is_remembered(tmp_path: Path) -> None:
    timeline = make.two_requests(make.live(tmp_path / "a.mtl"))
    finding = Finding("golden", 40, 1, "live:0", "same", "0.3 apart", "h differs")
    timeline.add_finding(finding)
    timeline.add_finding(finding)
    timeline.close()
    assert Timeline.open(tmp_path / "a.mtl", write=False).findings() == [finding]


def test_a_second_window_on_the_same_file_is_read_only(tmp_path: Path) -> None:
    timeline = make.two_requests(make.live(tmp_path / "a.mtl"))
    other = Timeline.open(tmp_path / "a.mtl")
    assert "opened read-only: another process writes it" in other.remarks
    assert other.events(1, other.last) == timeline.events(1, other.last)
    other.mark("mine")
    other.close()
    timeline.close()


def test_seeks_to_nowhere_are_refused() -> None:
    timeline = started()
    for stop in (timeline.seek(99), timeline.seek(0), timeline.checkout(4), timeline.seek(2, branch=-1)):
        assert stop.reason == "refused" and timeline.now == 5


def test_traces_of_other_engines_are_a_third_source(tmp_path: Path) -> None:
    trace = Path(__file__).parent / "data" / "ngram.trace"
    timeline = Timeline.open(trace)
    assert (timeline.source, timeline.mode) == ("trace", "HISTORY")
    found = timeline.findings()
    assert [finding.name for finding in found] == ["read-after-sync"]
    assert timeline.run(back=True).seq == found[0].seq
    assert timeline.perform(RunRound()).reason == "refused"
    timeline.close()


def test_a_branch_that_was_taken_back_leaves_no_views_behind() -> None:
    history = History()

    def grow(branch: int, hi: int, token: int) -> None:
        ledger = Ledger(history.view(branch, history.record.last(branch)))
        for seq in range(history.record.last(branch) + 1, hi + 1):
            event = Emit(seq=seq, req=1, token=token, index=seq)
            history.record.append(branch, event)
            history.views.push(branch, event, ledger.apply(event))

    history.record.add_branch()
    grow(0, 300, 7)
    grow(history.record.add_branch(0, 200), 290, 8)
    history.drop_branch(1)
    assert history.record.add_branch(0, 100) == 1
    grow(1, 16 * 256, 9)  # more than the pages that are kept
    assert history.view(1, 280) == fold(history.record.events(1, 1, 280))
    assert history.view(1, 230).requests[1].tokens[-1] == 9


# --------------------------------------------------------------------------------------------------------- keyframes


def test_keyframes_thin_out_within_their_budget_and_keep_both_ends() -> None:
    timeline = Timeline.live(FakeEngine(), keyframe_bytes=60_000)
    timeline.perform(make.new(max_tokens=400))
    timeline.run(findings=False)
    keyframes = timeline.keyframes
    kept = keyframes.positions(0)
    assert keyframes.bytes <= 60_000 and kept[0] == 1
    assert timeline.last - kept[-1] < 200
    gaps = [b - a for a, b in pairwise(kept[1:])]
    assert max(gaps[: len(gaps) // 2]) > 2 * max(gaps[-2:])


def test_a_bookmark_keeps_its_keyframe() -> None:
    timeline = Timeline.live(FakeEngine(), keyframe_bytes=40_000)
    timeline.perform(make.new(max_tokens=400))
    timeline.step("round", 9)
    timeline.mark("a")
    here = timeline.now
    timeline.run(findings=False)
    assert timeline.keyframes.has(0, here)


def test_the_nearest_keyframe_is_looked_for_along_the_path() -> None:
    record, keyframes = Record(), Keyframes()
    record.add_branch()
    record.add_branch(0, 50)
    record.add_branch(1, 70)
    image = FakeEngine().save()
    for key in ((0, 1), (0, 40), (0, 60), (1, 55), (2, 90)):
        keyframes.add(*key, image)
    for branch, seq, key in ((2, 95, (2, 90)), (2, 80, (1, 55)), (1, 54, (0, 40)), (0, 59, (0, 40)), (2, 39, (0, 1))):
        assert keyframes.nearest(record, branch, seq) == key
    assert keyframes.nearest(record, 2, 0) is None
    record.add_branch(0, 50)
    assert keyframes.nearest(record, 3, 99) == (0, 40), "what the parent did after the branch left is not on its path"


def test_actions_are_looked_for_along_the_path() -> None:
    record = Record()
    for parent, at in ((-1, 0), (0, 30), (0, 50)):
        record.add_branch(parent, at)
    rows = [
        ActionRow(b, lo, hi, "done", RunRound(), RunRound()) for b, lo, hi in ((0, 2, 20), (0, 21, 40), (2, 41, 60))
    ]
    for row in rows:
        record.put_action(row)
    for branch, seq, row in ((0, 1, None), (0, 20, rows[0]), (0, 21, rows[1]), (1, 30, rows[1]), (1, 31, None)):
        assert record.action(branch, seq) == row, (branch, seq)
    assert record.action(2, 41) == rows[2] and record.action(2, 40) == rows[1]
    assert record.actions(2) == rows and record.actions(1) == rows[:2]
    assert record.boundary(0, 20) and not record.boundary(0, 30) and record.boundary(0, 1)


# ---------------------------------------------------------------------------------------------------------- property

COMMANDS = st.lists(
    st.one_of(
        st.tuples(st.just("step"), st.sampled_from(["event", "token", "round", "chunk"]), st.integers(1, 4)),
        st.tuples(st.just("back"), st.sampled_from(["event", "token", "round"]), st.integers(1, 6)),
        st.tuples(st.just("seek"), st.floats(0, 1), st.just(0)),
        st.tuples(st.just("round"), st.integers(0, 4), st.booleans()),
        st.tuples(st.just("answer"), st.integers(1, 3), st.just(0)),
        st.tuples(st.just("rollback"), st.integers(1, 4), st.just(0)),
        st.tuples(st.just("checkout"), st.floats(0, 1), st.just(0)),
        st.tuples(st.just("look"), st.floats(0, 1), st.just(0)),
        st.tuples(st.just("abandon"), st.just(0), st.just(0)),
    ),
    max_size=14,
)


def apply(timeline: Timeline, command: tuple[object, object, object]) -> Stop | None:
    name, a, b = command
    if name == "step":
        return timeline.step(str(a), int(b))  # type: ignore[call-overload, no-any-return]
    if name == "back":
        return timeline.step(str(a), int(b), back=True)  # type: ignore[call-overload, no-any-return]
    if name == "seek":
        return timeline.seek(1 + int(float(a) * (timeline.last - 1)))  # type: ignore[arg-type]
    if name == "round":
        return timeline.perform(RunRound(accept=a or None), (lambda e: e.kind == "decision") if b else None)  # type: ignore[arg-type]
    if name == "answer":
        decision = timeline.waiting
        return timeline.answer(decision.what, a) if decision is not None else None  # type: ignore[arg-type]
    if name == "rollback":
        return timeline.perform(RollBack(req=1, value=a))  # type: ignore[arg-type]
    if name == "checkout":
        return timeline.checkout(int(float(a) * (len(timeline.branches) - 1)))  # type: ignore[arg-type]
    if name == "abandon":
        return timeline.abandon()
    timeline.tensor(TensorRef(make.LIVE0, 1, "h"), 1 + int(float(a) * (timeline.last - 1)))  # type: ignore[arg-type]
    return None


@settings(max_examples=60, deadline=None)
@given(commands=COMMANDS, rollback=st.sampled_from(["snapshot", "replay"]), scratch=st.booleans())
def test_any_sequence_of_commands_leaves_a_record_that_can_be_executed_again(
    commands: list[tuple[object, object, object]], rollback: str, scratch: bool
) -> None:
    timeline = make.live(rollback=rollback, scratch=scratch)
    timeline.perform(make.new(max_tokens=30))
    timeline.step("round", 3)
    written: dict[int, list[Event]] = {}
    for command in commands:
        stop = apply(timeline, command)
        assert stop is None or stop.reason not in ("diverged", "error"), (command, stop)
        for number, events in written.items():  # nothing on any branch ever changes
            assert timeline.events(1, len(events), branch=number) == events
        written = {b.id: timeline.events(1, b.last, branch=b.id) for b in timeline.branches}
        assert timeline.view == fold(written[timeline.branch][: timeline.now])
    fresh = make.live(rollback=rollback)
    fresh_machine = fresh._tensors.edge.machine  # type: ignore[union-attr]
    fresh_machine.record = timeline.history.record
    for branch in timeline.branches:
        fresh_machine.goto(branch.id, branch.last)
