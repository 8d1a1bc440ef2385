"""What a person reads after a command and on opening a session: whole sentences, the first cause, newest answers."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
import tui_samples as samples
from judging_helpers import open_timeline
from tui_pilot import PROMPT, Driver, fake_debugger, screen

from inspector.commands.debugger import Debugger
from inspector.tui.app import InspectorApp
from inspector.tui.frame import Frame
from inspector.tui.framing import Framer, found_elsewhere
from inspector.tui.opener import opener_for
from inspector.tui.panes.events import EventsPane
from inspector.tui.panes.facts import elsewhere_text
from inspector.tui.panes.output import OutputPane, tabular
from inspector.tui.panes.stops import StopsPane
from inspector.tui.ports import Options
from inspector.tui.screens.choices import rollback_choices, rollback_remark
from inspector.tui.screens.dialogs import ChoiceDialog, ConfirmDialog
from inspector.tui.tensorjobs import TensorJobs
from inspector.tui.text import plain
from inspector.tui.widgets.bars import StopBar
from sessions.finding import Finding

STARTED = (PROMPT, "next", "next", "next")
SENTENCE = "A window was moved within its own block by parallel copies of overlapping ranges. " * 3
STORY = "conv was left behind when the state came back, " * 6 + "and nobody saw it"


def shown(pane: OutputPane | StopsPane | EventsPane, frame: Frame, cells: int, height: int = 30) -> list[str]:
    pane.view = frame
    return [plain(row.spans) for row in pane.build(frame, cells, height).rows]


def words(lines: list[str]) -> str:
    return " ".join(" ".join(lines).split())


async def recording(path: Path, debugger: Debugger) -> None:
    debugger.execute(f"export session {path}")
    debugger.close()


# -------------------------------------------------------------------------------------------------------- the drawer


@pytest.mark.parametrize("cells", [38, 78, 118])
def test_a_sentence_wraps_at_the_width_of_the_drawer(cells: int) -> None:
    pane = OutputPane()
    pane.add("why", (f"  {SENTENCE}",), True)
    lines = shown(pane, Frame(), cells)
    assert len(lines) > 2 and all(len(line) <= cells for line in lines)
    assert words(lines) == ": why " + words([SENTENCE])


def test_a_table_keeps_its_columns_and_can_be_moved_sideways() -> None:
    table = (
        "event  invariant        says",
        f"@105   layer0-oracle    {'x' * 90}",
        f"@1060  positions-agree  {'y' * 90}",
    )
    pane = OutputPane()
    pane.add("info findings", table, True)
    content = pane.build(Frame(), 60, 20)
    assert [plain(row.spans) for row in content.rows[1:]] == [f"  {line}" for line in table]
    assert content.wide == 2 + len(table[2])


def test_two_sentences_with_gaps_in_different_places_are_no_table() -> None:
    assert tabular(["  broken by 62 landed r1  copy 13", "  live:0.h last written by 62 landed r1  copy 13"]) == [
        False,
        False,
    ]
    assert tabular(["column   id", "t-3     300", "searched 1,024 ids"]) == [True, True, False]


async def test_a_row_that_is_cut_says_so_with_an_ellipsis() -> None:
    async with screen(size=(80, 24)) as driver:
        output = driver.screen.query_one(OutputPane)
        output.add("x", ("left  " + "a" * 60 + "  end", "left  " + "b" * 90 + "  end"), True)
        output.add_class("open")
        await driver.settle()
        drawn = [plain(line) for line, _ in output._lines]
        assert any(line.rstrip("│┃ ").endswith("bbb…") for line in drawn)
        assert any("a" * 60 + "  end" in line and "…" not in line for line in drawn)


async def test_a_long_answer_is_read_from_its_first_line() -> None:
    async with screen(*STARTED) as driver:
        await driver.type("info invariants")
        output = driver.screen.query_one(OutputPane)
        assert len(output.content.rows) > output._room()
        assert plain(output.content.rows[output.top].spans).strip() == ": info invariants"


# ------------------------------------------------------------------------------------------------- opening a session


async def test_a_session_with_a_story_shows_it_when_it_is_opened_and_again_by_why(tmp_path: Path) -> None:
    debugger = fake_debugger()
    for line in STARTED:
        debugger.execute(line)
    seq = debugger.timeline.now - 1
    debugger.timeline.add_finding(Finding("positions-agree", seq, 1, "live:0", "a", "b", "conv is ahead"))
    debugger.timeline.note(STORY, name="story", seq=seq)
    debugger.timeline.note("look: pane 4", name="look", seq=seq)
    file = tmp_path / "room.session"
    await recording(file, debugger)
    app = InspectorApp(opener_for(str(file), Options()), "room")
    async with app.run_test(size=(80, 24)) as pilot:
        while not app.is_open and not app.failure:
            await pilot.pause()
        driver = Driver(app, pilot)
        await driver.settle()
        output = driver.screen.query_one(OutputPane)
        told = words([plain(row.spans) for row in output.content.rows])
        assert output.has_class("open") and STORY in told and "look: pane 4" in told
        await driver.press("escape")
        assert not output.has_class("open")
        await driver.type("why")
        again = words([plain(row.spans) for row in output.content.rows])
        assert again.count(STORY) == 2 and output.has_class("open")
        app.worker.close()


def branched(healthy_first: bool = True) -> Debugger:
    """A main line without findings and branch 1 with two."""
    debugger = fake_debugger()
    for line in (*STARTED, "rev next", "next", "rev next 2", "accept 1"):
        assert debugger.execute(line).ok, line
    timeline = debugger.timeline
    assert timeline.branch == 1
    for number in (timeline.now, timeline.now - 1):
        timeline.add_finding(Finding("one-owner", number, 1, "slot 0", "1", "2", "two owners"))
    if healthy_first:
        assert debugger.execute("branch 0").ok
    return debugger


async def test_findings_on_another_branch_are_told_on_opening_and_in_pane_7(tmp_path: Path) -> None:
    file = tmp_path / "run.mtl"
    await recording(file, branched())
    app = InspectorApp(opener_for(str(file), Options()), "run")
    async with app.run_test(size=(120, 40)) as pilot:
        while not app.is_open and not app.failure:
            await pilot.pause()
        driver = Driver(app, pilot)
        await driver.settle()
        assert driver.frame.branch == 0 and driver.frame.elsewhere == ((1, 2),)
        assert driver.frame.stop == "branch 1 has 2 findings: branch 1 goes there"
        pane = driver.screen.query_one(StopsPane)
        row = next(row for row in pane.content.rows if "on branch 1: 2 findings" in plain(row.spans))
        assert row.target == ("branch", 1)
        driver.screen.picked(row.target, True)
        await driver.settle()
        assert driver.frame.branch == 1 and driver.frame.elsewhere == ()
        app.worker.close()


def test_info_branches_counts_the_findings_of_each() -> None:
    lines = branched().execute("info branches").lines
    at = lines[0].index("findings") + len("findings")
    assert [line[at - 1] for line in lines[1:]] == ["0", "2"]


def test_what_the_path_has_found_before_it_left_its_parent_is_not_elsewhere() -> None:
    debugger = branched(healthy_first=False)
    timeline = debugger.timeline
    leaves = timeline.branches[1].at
    timeline.history.add_finding(0, Finding("one-owner", leaves - 1, 1, "slot 0", "1", "2", "before"))
    assert found_elsewhere(timeline) == ()
    timeline.history.add_finding(0, Finding("one-owner", leaves + 1, 1, "slot 0", "1", "2", "after"))
    assert found_elsewhere(timeline) == ((0, 1),)
    assert elsewhere_text(((0, 1),)) == "branch 0 has 1 finding: branch 0 goes there"


# ----------------------------------------------------------------------------------------------------------- findings


def test_of_one_event_the_invariant_comes_first_and_of_two_events_the_later() -> None:
    debugger = fake_debugger()
    for line in STARTED:
        debugger.execute(line)
    timeline, now = debugger.timeline, debugger.timeline.now
    names = ((now - 1, "one-owner"), (now, "head-oracle"), (now, "drafter-input"), (now, "ring-order"))
    for seq, name in names:
        timeline.add_finding(Finding(name, seq, 1, "r1", "a", "b", f"{name} says so"))
    frame = Framer(debugger).frame()
    order = [finding.name for finding in frame.findings]
    assert order == ["drafter-input", "ring-order", "head-oracle", "one-owner"]
    assert plain(StopBar().line(frame, 120)).startswith(" !  drafter-input says so  (+3 more)")
    heads = [line.split()[1] for line in shown(StopsPane(), frame, 60) if line.startswith(" ! ")]
    assert heads == order


def test_a_finding_is_told_in_words_and_its_values_come_after() -> None:
    text = "conv of layer 0 in live:0 is not what step:0.1 was when it was written at @50"
    finding = Finding("digest-after-restore", 1043, 2, "live:1", "d458f50063a4c3d3", "12904bf31933d73a", text)
    frame = dataclasses.replace(samples.broken_frame(), findings=(finding,))
    assert text in plain(StopBar().line(frame, 120)) and "d458f5" not in plain(StopBar().line(frame, 120))
    lines = shown(StopsPane(), frame, 48)
    assert text in words(lines) and all(len(line) <= 48 for line in lines)
    assert words(lines).index(text) < words(lines).index("d458f50063a4c3d3")


# -------------------------------------------------------------------------------------------------------- status line


@pytest.mark.parametrize("line", ["info invariants", "info ring", "where", "help"])
async def test_an_error_is_gone_from_the_status_line_after_the_next_command(line: str) -> None:
    async with screen(*STARTED) as driver:
        await driver.type("info")
        assert driver.frame.stop_kind == "error"
        await driver.type(line)
        bar = plain(driver.screen.query_one(StopBar).spans)
        assert driver.frame.stop_kind == "note" and "missing" not in bar and "✗" not in bar
        assert bar.strip(" ·")


async def test_a_comparison_says_in_the_status_line_what_came_of_it() -> None:
    async with screen(*STARTED) as driver:
        await driver.type("diff live checkpoint")
        bar = plain(driver.screen.query_one(StopBar).spans)
        assert "diff live checkpoint: h: 3 layers" in bar and "; conv: 3 layers" in bar


# --------------------------------------------------------------------------------------------------------- the panes


async def test_the_present_stays_in_sight_on_the_way_back_and_forth() -> None:
    async with screen(*STARTED) as driver:
        pane = driver.screen.query_one(EventsPane)
        await driver.press("5", "i", "i")
        for key in ["I"] * 40 + ["i"] * 20:
            await driver.press(key)
            now = driver.frame.view.seq
            drawn = [plain(line) for line, _ in pane._lines]
            assert any(line.startswith("│▸") and f" {now} " in line for line in drawn), (now, drawn)


def test_kind_and_request_of_an_event_never_touch() -> None:
    frame = samples.live_frame()
    for kind in ("ring_truncate", "state_rollback"):
        rows = tuple(dataclasses.replace(row, kind=kind) for row in frame.events)
        pane = EventsPane()
        assert all(f" {kind} " in line for line in shown(pane, dataclasses.replace(frame, events=rows), 60))


def test_a_stop_that_changed_nothing_says_so_and_since_when_the_bytes_are() -> None:
    debugger = fake_debugger()
    for line in (PROMPT, "next", "next"):
        debugger.execute(line)
    jobs = TensorJobs(debugger)
    jobs.wanted = frozenset({"tensors", "examine"})
    jobs.next()
    debugger.execute("next")
    wrote = debugger.timeline.now
    jobs.moved()
    jobs.next()
    jobs.next()
    state = debugger.timeline.view.live(1)
    for _ in range(2):
        debugger.execute("event")
        assert debugger.timeline.view.live(1) == state, "the event wrote the state"
        jobs.moved()
        table, _ = jobs.next()
        _, slab = jobs.next()
        assert table is not None and slab is not None
        assert table.verdict == f"nothing changed now; at event {wrote} 6 of 6 did"
        assert table.base == slab.base_name == f"before event {wrote}"


def test_the_rollback_dialog_says_that_an_open_round_ends_first() -> None:
    frame = samples.dirty_frame()
    request = frame.request
    assert request is not None and request.round.open
    assert f"Round {request.round.number} is open and ends first" in rollback_remark(frame)
    assert all(
        "and what the round adds dropped" in about for _, about, line in rollback_choices(frame) if "ring" in line
    )
    closed = samples.live_frame()
    assert rollback_remark(closed) == "" and not any("adds" in about for _, about, _ in rollback_choices(closed))


async def test_the_remark_of_the_rollback_dialog_is_seen() -> None:
    async with screen(*STARTED, "event 3") as driver:
        await driver.press("R")
        assert isinstance(driver.app.screen, ChoiceDialog) and "ends first" in driver.app.screen.about


# -------------------------------------------------------------------------------------------------- the branch question


async def test_what_is_typed_at_a_question_is_neither_its_answer_nor_the_next_command() -> None:
    async with screen(*STARTED) as driver:
        await driver.press("N", "N")
        seq, branches = driver.frame.view.seq, driver.frame.branches
        await driver.type("sync")
        assert isinstance(driver.app.screen, ConfirmDialog)
        await driver.pilot.press("colon", *"sync", "enter")
        await driver.settle()
        assert isinstance(driver.app.screen, ConfirmDialog)
        assert (driver.frame.view.seq, driver.frame.branches) == (seq, branches)
        await driver.press("y")
        assert driver.frame.mode == "BRANCH"


async def test_backspace_and_escape_take_back_what_was_typed_at_a_question() -> None:
    async with screen(*STARTED) as driver:
        await driver.press("N", "N")
        await driver.type("sync")
        box = driver.app.screen.query_one(".box")
        await driver.press("x")
        assert "'x' is no answer" in str(box.border_subtitle)
        await driver.press("backspace")
        assert "y or enter" in str(box.border_subtitle)
        await driver.press("x", "escape")
        assert isinstance(driver.app.screen, ConfirmDialog)
        await driver.press("escape")
        assert not isinstance(driver.app.screen, ConfirmDialog) and driver.frame.mode == "HISTORY"


async def test_at_the_end_of_a_recording_nobody_is_asked_about_the_past(tmp_path: Path) -> None:
    debugger = fake_debugger()
    for line in STARTED:
        debugger.execute(line)
    file = tmp_path / "run.mtl"
    await recording(file, debugger)
    app = InspectorApp(opener_for(str(file), Options()), "run")
    async with app.run_test(size=(120, 40)) as pilot:
        while not app.is_open and not app.failure:
            await pilot.pause()
        driver = Driver(app, pilot)
        await driver.settle()
        assert driver.frame.mode == "HISTORY" and driver.frame.view.seq == driver.frame.last
        await driver.type("new x")
        assert not isinstance(app.screen, ConfirmDialog) and driver.frame.stop_kind == "error"
        await driver.press("N")
        await driver.type("new x")
        assert isinstance(app.screen, ConfirmDialog)
        app.worker.close()


def test_a_state_that_is_ahead_is_told_as_that_also_when_an_oracle_saw_it_first() -> None:
    frame = samples.broken_frame()
    (finding,) = frame.findings
    oracle = dataclasses.replace(finding, name="layer0-oracle", text="layer 0 of live:1 is not what the tokens give")
    told = plain(StopBar().line(dataclasses.replace(frame, findings=(oracle,)), 120))
    assert "conv is 2 tokens ahead of h and KV" in told and "layer0-oracle" in told


def test_tokens_that_only_the_model_knows_have_texts_in_answers_too() -> None:
    debugger = Debugger(open_timeline())
    for line in ('new "Once upon a time"', "accept 1", "accept 1"):
        assert debugger.execute(line).ok
    timeline = debugger.timeline
    rows = [event for event in timeline.events(1, timeline.last) if event.kind == "verify_row"]
    untold = [event.seq for event in rows if event.pick not in timeline.view.texts]
    assert untold, "all picks were emitted"
    for line in (f"info events {untold[0]} {untold[-1]}", f"goto @{untold[-1]}", "last live"):
        assert not any(re.search(r"<\d+>", text) for text in debugger.execute(line).lines)
