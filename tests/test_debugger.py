"""The debugger without a screen: every group of commands, on a live engine, in the past, on branches, on a record."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_helpers import make_engine
from fake_engine import FakeEngine

from engine.events import LIVE, TensorRef
from inspector.commands.completion import complete
from inspector.commands.debugger import Debugger
from inspector.commands.registry import Result
from sessions.timeline import Timeline

NEW = 'new "the ring holds four entries." max=60 --ignore-eos'


def make(**options: object) -> Debugger:
    return Debugger(Timeline.live(FakeEngine(**options), factory=lambda: FakeEngine(**options)), name="fake")  # type: ignore[arg-type]


@pytest.fixture
def debugger() -> Iterator[Debugger]:
    debugger = make()
    yield debugger
    debugger.close()


def do(debugger: Debugger, *lines: str) -> Result:
    """Run command lines that must all succeed; the last result."""
    result = Result()
    for line in lines:
        result = debugger.execute(line)
        assert result.ok, (line, result.lines)
    return result


def text(result: Result) -> str:
    return "\n".join(result.lines)


def fails(debugger: Debugger, line: str, *parts: str, status: str = "error") -> str:
    result = debugger.execute(line)
    assert result.status == status, (line, result)
    for part in parts:
        assert part in text(result)
    return text(result)


def kinds(debugger: Debugger) -> list[str]:
    return [event.kind for event in debugger.timeline.events(1, debugger.timeline.last)]


# ------------------------------------------------------------------------------------------------------- movement


def test_steps_of_each_unit_end_at_their_event(debugger: Debugger) -> None:
    do(debugger, NEW)
    for line, kind in (
        ("step", "emit"),
        ("next", "round_end"),
        ("next", "round_end"),
        ("step 2", "emit"),
        ("chunk", "round_end"),
    ):
        do(debugger, line)
        assert debugger.view.last is not None and debugger.view.last.kind == kind, line
    now = debugger.timeline.now
    do(debugger, "event 3")
    assert debugger.timeline.now == now + 3
    do(debugger, "finish")
    assert debugger.view.last.kind == "finish"  # type: ignore[union-attr]
    assert debugger.view.requests[1].outputs == 60


def test_back_and_forward_are_exact(debugger: Debugger) -> None:
    do(debugger, NEW, "next 6")
    last = debugger.timeline.now
    for unit in ("event", "step", "next", "chunk"):
        do(debugger, "goto end")
        places = []
        for _ in range(4):
            do(debugger, f"rev {unit}")
            places.append(debugger.timeline.now)
        assert places == sorted(places, reverse=True) and len(set(places)) == 4
        for expected in places[-2::-1]:
            do(debugger, unit)
            assert debugger.timeline.now == expected
    assert debugger.timeline.last == last, "going back and forth executed something"
    assert debugger.timeline.branch == 0


@pytest.mark.parametrize("stops", [(), ("break place ring 3",)])
def test_tokens_back_from_the_end_of_a_round_are_so_many_tokens(debugger: Debugger, stops: tuple[str, ...]) -> None:
    do(debugger, "set findings off", NEW, "next 8", *stops)
    here, had = debugger.timeline.now, debugger.current().outputs
    for count in (1, 2, 5, 10):
        debugger.timeline.seek(here)
        do(debugger, f"rev step {count}")
        assert debugger.current().outputs == had - count


def test_going_back_past_the_start_says_so(debugger: Debugger) -> None:
    result = do(debugger, "rev step 5")
    assert result.stop is not None and result.stop.reason == "start"
    assert "the first event" in text(result)


def test_nothing_to_run_says_what_to_do(debugger: Debugger) -> None:
    assert 'new "text"' in text(do(debugger, "continue"))


def test_an_empty_line_repeats_the_last_movement_only(debugger: Debugger) -> None:
    do(debugger, NEW, "event 2")
    now = debugger.timeline.now
    do(debugger, "info ring", "print cursor")
    do(debugger, "")
    assert debugger.timeline.now == now + 2
    do(debugger, "rev event 3", "")
    assert debugger.timeline.now == now - 4
    assert debugger.execute("# a comment").lines == ()
    assert debugger.timeline.now == now - 4


def test_continue_ends_at_the_stop_and_reverse_continue_at_the_latest_before_now(debugger: Debugger) -> None:
    do(debugger, "set findings off", NEW, "run 8")
    accepts = [e.seq for e in debugger.timeline.events(1, debugger.timeline.last) if e.kind == "accept"]
    do(debugger, "break accept", "goto start")
    forwards = []
    for _ in accepts:
        do(debugger, "continue")
        forwards.append(debugger.timeline.now)
    assert forwards == accepts
    do(debugger, "goto end")
    backwards = []
    for _ in accepts:
        do(debugger, "rev continue")
        backwards.append(debugger.timeline.now)
    assert backwards == accepts[::-1]
    assert do(debugger, "rc").stop.reason == "start"  # type: ignore[union-attr]


def test_a_condition_on_hits_means_the_same_live_and_in_both_directions() -> None:
    lines = ["set findings off", NEW, "break emit if hits % 4 == 0"]
    live = make()
    do(live, *lines)
    found = []
    while (stop := do(live, "continue").stop) is not None and stop.reason == "stop":
        found.append(stop.seq)
    emits = [e.seq for e in live.timeline.events(1, live.timeline.last) if e.kind == "emit"]
    assert found == emits[3::4]
    do(live, "goto end")
    back = []
    while (stop := do(live, "rev continue").stop) is not None and stop.reason == "stop":
        back.append(stop.seq)
    assert back == found[::-1]
    # Set only now, in the middle of the past, it still counts from the first event.
    do(live, "delete", f"goto @{emits[5]}", "break emit if hits % 4 == 0", "continue")
    assert live.timeline.now == emits[7]


def test_continue_with_a_count_and_ignore(debugger: Debugger) -> None:
    do(debugger, "set findings off", NEW, "break emit", "continue 3")
    third = debugger.timeline.now
    emits = [e.seq for e in debugger.timeline.events(1, third) if e.kind == "emit"]
    assert len(emits) == 3 and emits[-1] == third
    do(debugger, "ignore 1 2", "continue")
    emits = [e.seq for e in debugger.timeline.events(1, debugger.timeline.now) if e.kind == "emit"]
    assert len(emits) == 6 and emits[-1] == debugger.timeline.now


def test_steps_stop_at_stops_on_the_way(debugger: Debugger) -> None:
    do(debugger, "set findings off", NEW, "next 2", "break verify_row if event.row == 1")
    result = do(debugger, "next")
    assert result.stop is not None and result.stop.reason == "stop"
    assert debugger.timeline.paused and debugger.view.last.kind == "verify_row"  # type: ignore[union-attr]
    do(debugger, "next")
    assert debugger.view.last.kind == "round_end"  # type: ignore[union-attr]
    do(debugger, "rev next")
    assert debugger.view.last.kind == "verify_row"  # type: ignore[union-attr]


def test_until_takes_what_break_takes(debugger: Debugger) -> None:
    do(debugger, "set findings off", NEW)
    do(debugger, "until outputs >= 9")
    assert debugger.view.requests[1].outputs == 9
    do(debugger, "until commit")
    assert debugger.view.last.kind == "commit"  # type: ignore[union-attr]
    do(debugger, "rev until prefill")
    assert debugger.view.last.kind == "prefill"  # type: ignore[union-attr]
    do(debugger, "until pos 9")
    live = debugger.view.live(1)
    assert live is not None and live.h_position == 9


def test_an_endless_condition_ends_at_the_limit(debugger: Debugger) -> None:
    do(debugger, "set findings off", "set limit 50", NEW)
    said = fails(debugger, "until outputs < 0", "never so within 50 events", "set limit")
    assert "50" in said


def test_goto_marks_and_the_jump_list(debugger: Debugger) -> None:
    do(debugger, NEW, "next 3", "mark here", "goto start", "goto @9", "goto 'here")
    here = debugger.timeline.now
    do(debugger, "back")
    assert debugger.timeline.now == 9
    do(debugger, "back")
    assert debugger.timeline.now == 1
    do(debugger, "forward 2")
    assert debugger.timeline.now == here
    fails(debugger, "goto 'her", "no bookmark 'her", 'Did you mean "here"')
    fails(debugger, "goto @99999", "not recorded")
    fails(debugger, "goto @1/7", "no branch 7")


# -------------------------------------------------------------------------------------------------------- actions


def test_verify_by_number_by_ids_and_by_text(debugger: Debugger) -> None:
    do(debugger, "set findings off", NEW, "next 2")
    do(debugger, "verify 1")
    assert debugger.current().round.k == 2
    do(debugger, "verify ids 5 6")
    assert debugger.current().round.drafts == (5, 6) and debugger.current().round.source == "hand"
    do(debugger, 'verify " the ring"')
    assert debugger.current().round.drafts == debugger.timeline.tokens(" the ring")
    do(debugger, "verify")
    assert debugger.current().round.k == 4
    assert debugger.timeline.branch == 0
    fails(debugger, "verify 9", "0 to 3 are possible")
    fails(debugger, "verify 5, x", "a token id is a whole number", "quotes")


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_accept_forces_the_next_round(debugger: Debugger, rows: int) -> None:
    do(debugger, "set findings off", NEW, "next 2", f"accept {rows}")
    assert debugger.current().round.accepted == rows
    assert not debugger.timeline.paused


def test_accept_answers_the_round_one_stands_in(debugger: Debugger) -> None:
    do(debugger, "set findings off", NEW, "next 2", "until verify_row")
    assert debugger.timeline.paused
    do(debugger, "accept 3")
    assert debugger.current().round.accepted == 3 and debugger.view.last.kind == "round_end"  # type: ignore[union-attr]
    do(debugger, "until decision if event.what == 'accept'")
    result = do(debugger, "print phase")
    assert "decide:accept" in text(result)
    do(debugger, "accept 1")
    assert debugger.current().round.accepted == 1
    fails(debugger, "accept 5", "1 to 4 rows")


def test_acting_in_the_past_opens_a_branch_and_leaves_the_parent_alone(debugger: Debugger) -> None:
    do(debugger, "set findings off", NEW, "run 6")
    before = debugger.timeline.events(1, debugger.timeline.last)
    decision = next(e.seq for e in before if e.kind == "decision" and e.what == "accept")  # type: ignore[attr-defined]
    do(debugger, f"goto @{decision}")
    result = do(debugger, "accept 1")
    assert "BRANCH 1" in text(result) and "branch" in result.changed
    assert debugger.timeline.mode == "BRANCH" and debugger.current().round.accepted == 1
    assert debugger.timeline.events(1, decision) == before[:decision]
    do(debugger, "branch 0")
    assert debugger.timeline.events(1, debugger.timeline.last) == before
    assert "> 0" in text(do(debugger, "branches"))


def test_branches_can_be_compared(debugger: Debugger) -> None:
    do(debugger, "set findings off", NEW, "run 6", "sync", "mark main")
    decision = next(e.seq for e in debugger.timeline.events(1, 60) if e.kind == "decision" and e.what == "accept")  # type: ignore[attr-defined]
    do(debugger, f"goto @{decision}", "accept 1", "sync", "mark other")
    last = debugger.timeline.last
    assert "differ" in text(do(debugger, "diff live 'main"))
    assert "of branch 0" in text(do(debugger, f"diff live @{decision + 3}/0"))
    do(debugger, "goto 'main")
    assert debugger.timeline.branch == 0
    do(debugger, f"goto @{last}/1")
    assert debugger.timeline.branch == 1
    # A bookmark on the shared part does not change the branch.
    do(debugger, "goto @3", "mark early", "branch 1", "goto 'early")
    assert (debugger.timeline.branch, debugger.timeline.now) == (1, 3)


def test_rollback_save_restore_checkpoint_sync(debugger: Debugger) -> None:
    do(debugger, "set findings off", NEW, "until ring_save", "run 2")
    outputs = debugger.current().outputs
    do(debugger, "rollback boundary")
    request = debugger.current()
    assert request.outputs < outputs and request.rollbacks == 1
    do(debugger, "run", "save")
    assert debugger.view.last.kind == "ring_save"  # type: ignore[union-attr]
    do(debugger, "restore 0")
    assert debugger.view.last.kind == "ring_restore"  # type: ignore[union-attr]
    do(debugger, "checkpoint --queued")
    assert len(debugger.view.queued) == 1
    do(debugger, "sync")
    assert not debugger.view.queued
    do(debugger, "restore checkpoint")
    assert debugger.view.last.kind == "state_rollback"  # type: ignore[union-attr]
    fails(debugger, "restore 99", "expected a ring slot below 3")
    fails(debugger, "rollback ring", "needs a number: the ring slot")


def test_fork_free_inject_and_focus(debugger: Debugger) -> None:
    do(debugger, "set findings off", NEW, "next 2", "fork")
    assert debugger.request == 2
    do(debugger, "inject 11")
    assert debugger.view.requests[2].pending == 11
    do(debugger, "focus request 1")
    assert debugger.request == 1
    do(debugger, "free r2")
    assert debugger.view.requests[2].finish == "freed"
    assert debugger.request == 1
    do(debugger, "focus auto")
    fails(debugger, "inject 1 2", "one token")
    fails(debugger, "free r9", "expected one that owns a slot")
    fails(debugger, "focus request 7", "no request 7")


def test_a_refused_action_says_why_and_changes_nothing(debugger: Debugger) -> None:
    do(debugger, NEW, "fork")
    last = debugger.timeline.last
    fails(debugger, "fork", "expected a free slot")
    assert debugger.timeline.last == last
    do(debugger, "goto @5")
    fails(debugger, "restore 99", "expected a ring slot")
    assert len(debugger.timeline.branches) == 1 and debugger.timeline.now == 5


def test_stops_are_asked_inside_actions(debugger: Debugger) -> None:
    do(debugger, "set findings off", NEW, "next 2", "break accept")
    result = do(debugger, "verify 2")
    assert result.stop is not None and result.stop.reason == "stop"
    assert debugger.timeline.paused and debugger.view.last.kind == "accept"  # type: ignore[union-attr]
    do(debugger, "abandon")
    assert not debugger.timeline.paused
    fails(debugger, "abandon", "no round is half done")


# ---------------------------------------------------------------------------------------------------------- stops


def test_temporary_stops_go_after_one_hit(debugger: Debugger) -> None:
    do(debugger, "set findings off", NEW, "tbreak emit", "break round_end", "continue")
    assert [point.kind for point in debugger.stops] == ["break"]
    result = do(debugger, "continue")
    assert debugger.view.last.kind == "round_end" and "stops" not in result.changed  # type: ignore[union-attr]


def test_watches_tell_old_and_new(debugger: Debugger) -> None:
    do(debugger, "set findings off", NEW, "next", "watch cursor")
    before = debugger.current().cursor
    result = do(debugger, "continue")
    assert f"cursor: {before} -> {debugger.current().cursor}" in text(result)


def test_tensor_watches_work_live_and_in_the_past(debugger: Debugger) -> None:
    do(debugger, "set findings off", NEW, "next 3", "watch norm(live.h[0])")
    result = do(debugger, "continue")
    assert "norm(live.h[0]):" in text(result)
    there = debugger.timeline.now
    do(debugger, "event 4", "rev continue")
    while debugger.timeline.now > there:
        do(debugger, "rev continue")
    assert debugger.timeline.now == there


def test_traces_print_on_the_way_and_over_the_recorded_past(debugger: Debugger) -> None:
    do(debugger, "set findings off", NEW, "run 6")
    accepts = [e for e in debugger.timeline.events(1, debugger.timeline.last) if e.kind == "accept"]
    expected = [f"@{e.seq}: accepted = {e.accepted}" for e in accepts]  # type: ignore[attr-defined]
    result = do(debugger, "trace accept print accepted")
    assert [line.strip() for line in result.lines[1:]] == expected
    assert [line.strip() for line in do(debugger, "hits 1").lines[1:]] == expected
    do(debugger, "goto start")
    walked = [line for line in do(debugger, f"until @{debugger.timeline.last}").lines if line.startswith("trace 1")]
    assert walked == ["trace 1 " + line for line in expected]
    back = [line for line in do(debugger, "rev continue").lines if line.startswith("trace 1")]
    assert back == walked[::-1]
    # Live, at the edge.
    do(debugger, "goto end")
    assert any(line.startswith("trace 1") for line in do(debugger, "next").lines)


def test_conditions_can_be_changed_disabled_and_deleted(debugger: Debugger) -> None:
    do(
        debugger,
        "set findings off",
        NEW,
        "run 5",
        "break emit",
        "goto start",
        "condition 1 event.index == 4",
        "continue",
    )
    assert debugger.view.last.index == 4  # type: ignore[union-attr]
    do(debugger, "disable 1", "goto start")
    last = debugger.timeline.last
    do(debugger, f"until @{last}")
    assert debugger.timeline.now == last
    assert "off" in text(do(debugger, "info stops"))
    do(debugger, "enable", "delete 1")
    fails(debugger, "delete 1", "no stop 1")
    assert "no stop is set" in text(do(debugger, "info stops"))


def test_branching_recounts_hits(debugger: Debugger) -> None:
    do(debugger, "set findings off", NEW, "run 6", "break emit if hits == 8")
    do(debugger, "rev continue")
    eighth = debugger.timeline.now
    decision = next(e.seq for e in debugger.timeline.events(1, 60) if e.kind == "decision" and e.what == "accept")  # type: ignore[attr-defined]
    do(debugger, f"goto @{decision}", "accept 1", "disable 1", "run 6", "enable 1", "rev continue")
    emits = [e.seq for e in debugger.timeline.events(1, debugger.timeline.last) if e.kind == "emit"]
    assert debugger.timeline.now == emits[7] != eighth


# ------------------------------------------------------------------------------------------- findings and invariants


def faulty() -> Debugger:
    """conv is left out of every copy: the invariants must say so."""
    debugger = make()
    do(debugger, NEW, "run 2")
    do(debugger, "fault conv_omitted")
    return debugger


def test_a_broken_invariant_stops_and_why_explains_it() -> None:
    debugger = faulty()
    result = do(debugger, "continue")
    assert result.stop is not None and result.stop.reason == "finding"
    name = result.stop.finding.name  # type: ignore[union-attr]
    assert f"! {name}" in text(result)
    why = text(do(debugger, "why"))
    invariant = debugger.invariants[name]
    assert invariant.sentence in why and invariant.usual_cause in why and "last written by" in why
    assert name in text(do(debugger, "info findings"))
    assert name in text(do(debugger, "print findings"))
    do(debugger, "goto end")
    assert do(debugger, "print finding").data is not None


def test_findings_can_be_told_not_to_stop() -> None:
    debugger = faulty()
    do(debugger, "set findings off", "continue")
    assert debugger.view.requests[1].finish
    debugger = faulty()
    do(debugger, "invariants off", "continue")
    assert debugger.view.requests[1].finish
    assert "off" in text(do(debugger, "invariants"))


def test_a_stop_at_one_invariant() -> None:
    debugger = faulty()
    do(debugger, "set findings off", "break invariant", "continue")
    found = debugger.timeline.findings(debugger.timeline.now, debugger.timeline.now)
    assert found
    name = found[0].name
    do(debugger, "delete", f"break invariant {name}", "goto start", "continue")
    assert any(f.name == name for f in debugger.timeline.findings(debugger.timeline.now, debugger.timeline.now))
    fails(debugger, "break invariant nope", "no invariant")


def test_why_without_a_finding_is_good_news(debugger: Debugger) -> None:
    assert "no invariant is broken" in text(do(debugger, "why"))


def test_why_shows_the_notes_at_the_finding_only() -> None:
    debugger = faulty()
    do(debugger, "note far away")
    finding = do(debugger, "continue").stop.finding  # type: ignore[union-attr]
    debugger.timeline.note("look at conv", seq=finding.seq, author="ann")  # type: ignore[union-attr]
    why = text(do(debugger, "why"))
    assert "  note: look at conv (ann)" in why and "far away" not in why
    notes = text(do(debugger, "info notes"))
    assert f"@{finding.seq} look at conv (ann)" in notes and "far away" in notes  # type: ignore[union-attr]


# ---------------------------------------------------------------------------------------------------------- looks


def test_every_info_topic_answers_with_and_without_a_request(debugger: Debugger) -> None:
    from inspector.commands.groups.info import TOPICS

    for topic in TOPICS:
        assert debugger.execute(f"info {topic}").lines
    do(debugger, "set findings off", NEW, "run 4")
    for topic in TOPICS:
        assert do(debugger, f"info {topic}").lines
    assert "r1" in text(do(debugger, "info ring r1"))
    fails(debugger, "info ring r7", "no request r7")
    fails(debugger, "info events x", "a range is")


def test_the_last_writer_is_found(debugger: Debugger) -> None:
    do(debugger, "set findings off", NEW, "run 4")
    writer = max(debugger.view.live(1).h_writer, debugger.view.live(1).conv_writer)  # type: ignore[union-attr]
    assert do(debugger, "last live").data == writer
    fails(debugger, "last prefix 1", "never written")


def test_displays_are_shown_after_every_movement(debugger: Debugger) -> None:
    do(debugger, "set findings off", NEW, "display outputs", "display 1 / outputs")
    assert "1: outputs = 1" in text(do(debugger, "step"))
    do(debugger, "goto start")
    assert "division by zero" in text(do(debugger, "until claim"))
    do(debugger, "undisplay 1")
    assert "1: outputs" not in text(do(debugger, "step"))
    fails(debugger, "undisplay 1", "no display 1")


def test_a_place_that_was_never_written_is_not_compared(debugger: Debugger) -> None:
    do(debugger, "set findings off", NEW, "run 3", "sync")
    last = debugger.timeline.now
    found = fails(debugger, "diff live prefix 1", f"prefix:1 was never written up to event {last}; written: ")
    assert "inf" not in found and "nan" not in found
    empty = max(place.index for place in debugger.view.states if place.kind == "ring") + 1
    found = fails(debugger, f"diff ring {empty} live", f"ring:0.{empty} was never written")
    assert "live:0" in found and "ring:0.0" in found


def test_examine_and_diff_read_the_bytes(debugger: Debugger) -> None:
    do(debugger, "set findings off", NEW, "run 3", "sync")
    result = do(debugger, "examine live.h[1]")
    tensor = result.data[1, "h"]  # type: ignore[index]
    live = debugger.timeline.tensor(TensorRef(LIVE(0), 1, "h"))
    assert tensor == live
    assert "all bitwise equal" in text(do(debugger, "diff live live"))
    do(debugger, "checkpoint", "sync")
    assert do(debugger, "diff live checkpoint --exact").status == "ok"
    do(debugger, "next")
    fails(debugger, "diff live checkpoint --exact", "differ", status="failed")
    fails(debugger, "diff live checkpoint --tol 1e-9", "beyond the tolerance", status="failed")
    assert "all within 1e+06" in text(do(debugger, "diff live.h checkpoint.h --tol 1e6"))
    assert do(debugger, "diff live previous").status == "ok"
    fails(debugger, "examine live.h[9]", "layer 9")
    fails(debugger, "diff checkpoint twin", "the twin has a live state only")


def test_print_shows_control_characters(debugger: Debugger) -> None:
    do(debugger, "echo \x1b[31m")
    assert debugger.execute("echo \x1b[31m").lines == ("\\e[31m",)


# -------------------------------------------------------------------------------------------------------- session


def test_assert_shows_both_sides(debugger: Debugger) -> None:
    do(debugger, NEW, "next", "assert outputs == 1 and status == 'running'")
    fails(debugger, "assert outputs + 1 == cursor * 2", "outputs + 1 = 2", "cursor * 2 = 12", status="failed")


def test_a_session_is_recorded_and_read_again(debugger: Debugger, tmp_path: Path) -> None:
    file = tmp_path / "s.mtl"
    do(debugger, "set findings off", NEW, "run 4", "mark a", 'note "look here"', f"record {file}")
    last, events = debugger.timeline.last, debugger.timeline.events(1, debugger.timeline.last)
    again = Debugger(Timeline.open(file))
    assert again.timeline.events(1, last) == events
    do(again, "goto 'a", "info ring", "rev step 2")
    assert "look here" in text(do(again, "marks"))
    fails(again, "verify", "a recording alone cannot run", "--model")
    fails(again, "set drafts 2", "none here")
    again.close()
    acting = Debugger(Timeline.open(file, FakeEngine))
    do(acting, "set findings off", "goto @40", "verify 1")
    assert acting.timeline.mode == "BRANCH"
    acting.close()


def test_scripts_run_and_errors_name_their_line(debugger: Debugger, tmp_path: Path) -> None:
    script = tmp_path / "a.mtls"
    script.write_text(f"# tour\nset findings off\n{NEW}\nnext 2\nfoo\nnext\n")
    said = fails(debugger, f"source {script}", "a.mtls:5: foo", 'no command "foo"')
    assert str(tmp_path) not in said
    script.write_text(f"source {script}\n")
    fails(debugger, f"source {script}", "more than 8 deep")
    fails(debugger, f"source {tmp_path}/none", "cannot be read")
    (tmp_path / "b").write_bytes(b"\xff\xfe")
    fails(debugger, f"source {tmp_path}/b", "not UTF-8")


def test_settings(debugger: Debugger) -> None:
    do(debugger, "set limit 5,000", "set tolerance 1e-3")
    assert debugger.settings.limit == 5000
    assert "limit = 5000" in text(do(debugger, "show limit"))
    fails(debugger, "set limit x", "is a number")
    fails(debugger, "set limit 0", "positive")
    fails(debugger, "set findings maybe", "on or off")
    fails(debugger, "set nope 1", "not")
    do(debugger, NEW, "set drafter none")
    assert debugger.view.last.kind == "option"  # type: ignore[union-attr]


def test_commands_are_remembered_and_quit_finishes(debugger: Debugger) -> None:
    do(debugger, NEW, "step", "quit")
    assert debugger.finished
    assert debugger.history == [NEW, "step", "quit"]
    assert "2  step" in text(do(debugger, "history"))


@pytest.mark.parametrize(
    "line", ["verify", "accept 1", "rollback", "save", "restore 0", "checkpoint", "fork", "free", "inject 3"]
)
def test_a_command_that_needs_a_request_says_so(debugger: Debugger, line: str) -> None:
    fails(debugger, line, "needs a request", 'new "text"')


def test_cancel_ends_a_long_run(debugger: Debugger) -> None:
    do(debugger, "set findings off", 'new "a" max=100000 --ignore-eos')
    seen: list[int] = []

    def report(what: str, done: int, total: int) -> None:
        seen.append(done)
        if len(seen) == 100:
            threading.Thread(target=debugger.cancel).run()

    debugger.on_progress(report)
    result = debugger.execute("continue")
    assert result.status == "error" and "cancelled" in text(result)
    assert do(debugger, "step").stop is not None


def test_the_same_commands_give_the_same_lines() -> None:
    lines = [
        NEW,
        "next 3",
        "break accept if accepted < k",
        "c",
        "info slots",
        "verify 2",
        "diff live checkpoint",
        "why",
        "p text",
    ]
    runs = []
    for _ in range(2):
        debugger = make()
        runs.append([debugger.execute(line).lines for line in lines])
    assert runs[0] == runs[1]


# ----------------------------------------------------------------------------------------------------- completion


def names(debugger: Debugger, line: str) -> list[str]:
    return [item.text for item in complete(debugger, line)]


def test_completion(debugger: Debugger) -> None:
    do(debugger, NEW, "next", "mark alpha", "break accept")
    assert names(debugger, "cont") == ["continue"]
    assert {"step", "next", "continue"} <= set(names(debugger, "rev "))
    assert "verify" not in names(debugger, "rev ")
    assert names(debugger, "info ri") == ["ring"]
    assert names(debugger, "goto 'al") == ["'alpha"]
    assert names(debugger, "break verify_") == ["verify_row"]
    assert "cursor" in names(debugger, "print cur")
    assert names(debugger, "print ring.pos") == ["position", "positions"]
    assert "golden" in names(debugger, "diff live g")
    assert names(debugger, "delete ") == ["1"]
    assert "--tol" in names(debugger, "diff live ring 1 --t")
    assert names(debugger, "focus la") == ["layer"]
    assert names(debugger, "nonsense x") == []
    assert names(debugger, 'new "unclosed') == []
    for item in complete(debugger, "break accept if acce"):
        assert "break accept if "[: item.start] == "break accept if "[: item.start]


def test_file_names_are_completed(debugger: Debugger, tmp_path: Path) -> None:
    (tmp_path / "one.mtls").write_text("")
    assert names(debugger, f"source {tmp_path}/o") == [f"{tmp_path}/one.mtls"]


# --------------------------------------------------------------------------------------------------------- faults


def test_a_fault_is_switched_on_and_off(debugger: Debugger) -> None:
    do(debugger, "fault conv_omitted")
    assert "conv_omitted" in text(do(debugger, "print faults"))
    do(debugger, "fault conv_omitted off")
    assert debugger.view.faults == ()
    fails(debugger, "fault nonsense", "expected one of")


# ------------------------------------------------------------------------------------------- actions before outputs


@pytest.mark.parametrize("line", ["verify", "verify 2", "verify ids 20 21", "accept 2"])
def test_a_verify_asked_for_during_prefill_runs_the_prompt_first(line: str) -> None:
    debugger = make()
    do(debugger, 'new "the ring holds four entries and a cursor that moves." max=20 --ignore-eos', "event 2")
    before = debugger.current()
    result = do(debugger, line)
    assert f"{before.prompt_len - before.cursor} tokens of the prompt first" in text(result)
    request = debugger.current()
    assert request.round.mode == "verify" and request.outputs >= 2 and not request.round.open


def test_a_stop_during_that_prefill_is_respected() -> None:
    debugger = make()
    do(debugger, 'new "the ring holds four entries and a cursor that moves." max=20 --ignore-eos', "break prefill")
    result = do(debugger, "verify")
    assert debugger.view.last is not None and debugger.view.last.kind == "prefill" and "stop 1" in text(result)


def test_accept_says_when_there_was_less_to_accept() -> None:
    debugger = Debugger(Timeline.live(make_engine()))
    do(debugger, 'new "And it came to pass" --ignore-eos', "next 2", "set drafts 1")
    assert "2 rows confirmed, not 4: the round had 2" in text(do(debugger, "accept 4"))
    do(debugger, "set drafts 0")
    assert "no drafts were made" in text(do(debugger, "accept 2"))


def test_saving_after_an_abandoned_round_is_no_finding(debugger: Debugger) -> None:
    """An abandoned round is not told to end; what a person does afterwards is outside of it."""
    do(debugger, NEW, "until emit if not boundary(event.token)", "abandon")
    assert debugger.current().round.open and not debugger.view.boundaries[debugger.current().pending]
    assert "ring-boundary" not in text(do(debugger, "save"))


def test_a_round_that_ends_its_request_is_not_abandoned(debugger: Debugger) -> None:
    """Half of it would leave an ended request in a slot that nobody gives back."""
    do(debugger, NEW, "finish")
    assert debugger.view.last is not None and debugger.view.last.kind == "finish" and debugger.timeline.paused
    fails(debugger, "abandon", "giving its slot back")
    do(debugger, "next")
    assert debugger.current().slot == -1


@pytest.mark.parametrize("line", ["help {}", 'print "{}"', "record {}/no/such", "break if '{}'", "{}", "echo {}"])
@pytest.mark.parametrize("hostile", ["\x1b[31m", "\x9b2J", "\u202e", "\ud800"])
def test_what_is_quoted_back_holds_no_control_characters(debugger: Debugger, line: str, hostile: str) -> None:
    result = debugger.execute(line.format(hostile))
    assert result.lines
    for shown in (*result.lines, result.error):
        assert hostile[0] not in shown
        shown.encode()


def test_a_place_without_any_request_says_so(debugger: Debugger) -> None:
    fails(debugger, "examine live", "there is no request at event 1")
