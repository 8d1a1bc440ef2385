"""Keys that come faster than the screen moves its focus, and the answers to what was typed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import tui_samples as samples
from textual import events
from textual.widgets import Label
from tui_pilot import PROMPT, Driver, screen

from inspector.tui.frame import TensorTable
from inspector.tui.panes.output import OutputPane
from inspector.tui.panes.tensors import TensorsPane
from inspector.tui.pictures import steady_svg
from inspector.tui.screens.dialogs import AcceptDialog
from inspector.tui.widgets.bars import StopBar
from inspector.tui.widgets.command_line import CommandLine

STARTED = (PROMPT, "next", "next", "next")
NAMED = {":": "colon", "/": "slash", "\r": "enter", " ": "space"}


async def burst(driver: Driver, keys: Iterable[str]) -> None:
    """All keys put into the app's queue before it handles the first."""
    for key in keys:
        driver.app.post_message(events.Key(NAMED.get(key, key), key))
    await driver.settle()


def stop_line(driver: Driver) -> str:
    return "".join(text for text, _ in driver.screen.query_one(StopBar).spans)


async def test_a_burst_after_the_colon_is_a_command_and_nothing_else() -> None:
    async with screen(*STARTED) as driver:
        start, sent = driver.frame.view.seq, len(driver.app.history)
        await burst(driver, ":print now\r")
        assert driver.app.history[sent:] == ["print now"]
        assert driver.frame.view.seq == start and not driver.frame.stops
        assert str(start) in stop_line(driver)


async def test_two_lines_in_one_burst_are_two_commands_and_keys_after_them_are_keys() -> None:
    async with screen(*STARTED) as driver:
        start, sent = driver.frame.view.seq, len(driver.app.history)
        await burst(driver, "i:print now\r:mark here\ri")
        assert driver.app.history[sent:] == ["print now", "mark here"]
        assert driver.frame.view.seq == start + 2
        assert (start + 1, "here") in driver.frame.marks.bookmarks


async def test_a_burst_after_the_slash_is_a_search_in_the_pane_asked_for_before() -> None:
    async with screen(*STARTED) as driver:
        await burst(driver, "8/commit\r")
        assert driver.screen.pane.id == "events" and driver.screen.pane.word == "commit"


async def test_a_paste_goes_into_the_line_and_is_not_run() -> None:
    async with screen(*STARTED) as driver:
        start = driver.frame.view.seq
        driver.app.post_message(events.Paste(":why\nnext\n"))
        await driver.settle()
        assert driver.screen.query_one(CommandLine).value == "why"
        assert driver.frame.view.seq == start


async def test_keys_typed_while_a_dialog_opens_go_into_it() -> None:
    async with screen(*STARTED) as driver:
        await burst(driver, "vids 5 6\r")
        assert driver.frame.request is not None and driver.frame.request.round.drafts == (5, 6)


async def test_a_burst_of_v_enter_and_a_digit_answers_the_decision() -> None:
    async with screen(*STARTED) as driver:
        await burst(driver, "v\r2")
        await driver.settle()
        assert driver.frame.request is not None and driver.frame.request.round.accepted == 2
        assert driver.frame.waiting is None


async def test_v_opens_the_accept_dialog_when_its_round_waits() -> None:
    async with screen(*STARTED) as driver:
        await driver.press("v", "enter")
        assert isinstance(driver.app.screen, AcceptDialog)


async def test_an_answer_is_seen_while_a_decision_waits_until_the_next_key() -> None:
    async with screen(*STARTED) as driver:
        await driver.press("v", "enter")
        await driver.press("escape")
        assert "decision" in stop_line(driver)
        await driver.type("frobnicate")
        assert "frobnicate" in stop_line(driver)
        await driver.press("4")
        assert "decision" in stop_line(driver) and "frobnicate" not in stop_line(driver)


async def test_a_written_session_is_answered(tmp_path: Path) -> None:
    async with screen(*STARTED) as driver:
        await driver.press("v", "enter", "escape")
        await driver.type(f"record {tmp_path / 'x.mtl'}")
        assert "x.mtl" in stop_line(driver)


async def test_several_lines_still_open_the_drawer() -> None:
    async with screen(*STARTED) as driver:
        await burst(driver, ":info slots\r")
        assert driver.screen.query_one(OutputPane).has_class("open")


# ---------------------------------------------------------------------------------------------- decisions in the past


async def test_the_rows_of_a_waiting_round_are_those_of_its_events_and_dim_after_a_mismatch() -> None:
    async with screen(*STARTED) as driver:
        await driver.press("v", *"ids", "space", "5", "space", "6", "enter")
        rows, request = driver.frame.verify, driver.frame.request
        assert rows is not None and request is not None
        assert [token for token, _ in rows.rows] == [request.pending, 5, 6]
        assert all(pick >= 0 for _, pick in rows.rows)
        told = dialog_text(driver)
        assert told.count("✓") + told.count("✗") <= 2
        assert "✓" not in told.partition("✗")[2]


async def test_rows_that_are_not_there_yet_are_called_unknown() -> None:
    async with screen(*STARTED) as driver:
        await driver.press("v", *"ids", "space", "5", "space", "6", "enter", "escape")
        while driver.frame.view.last is None or driver.frame.view.last.kind != "verify_row":
            await driver.press("I")
        await driver.press("I", "a")
        assert "not known yet" in dialog_text(driver)


async def test_after_its_decision_a_round_offers_to_go_back_there() -> None:
    async with screen(*STARTED) as driver:
        await driver.press("v", "enter")
        decision = driver.frame.view.seq
        await driver.press("2")
        while driver.frame.view.last is None or driver.frame.view.last.kind != "accept":
            await driver.press("I")
        await driver.press("a")
        assert isinstance(driver.app.screen, AcceptDialog)
        assert f"decided at event {decision}" in dialog_text(driver)
        await driver.press("1")
        assert driver.frame.mode == "HISTORY" and isinstance(driver.app.screen, AcceptDialog)
        await driver.press("enter")
        assert driver.frame.view.seq == decision


def dialog_text(driver: Driver) -> str:
    return "\n".join(str(label.render()) for label in driver.app.screen.query(Label))


# ------------------------------------------------------------------------------------------------------ small things


async def test_a_finding_opens_pane_7_where_panes_are_tabs() -> None:
    async with screen(PROMPT, "next", size=(80, 24)) as driver:
        assert driver.screen.query_one("#slots").display
        driver.screen.show(samples.broken_frame())
        await driver.settle()
        assert driver.screen.query_one("#stops").display and driver.screen.pane.id == "stops"


async def test_a_tiny_terminal_asks_to_be_larger() -> None:
    async with screen(*STARTED, size=(30, 8)) as driver:
        assert driver.screen.query_one("#small").display and not driver.screen.query_one("#tokens").display
        await driver.pilot.resize_terminal(80, 24)
        await driver.settle()
        assert driver.screen.query_one("#tokens").display and not driver.screen.query_one("#small").display


async def test_what_changed_last_stays_in_sight_while_nothing_writes() -> None:
    async with screen(*STARTED) as driver:
        await driver.press("n")
        worst = [row.worst for row in table(driver).rows]
        assert any(worst)
        state = driver.frame.view.live(driver.frame.req)
        await driver.press("i")
        after = driver.frame.view.live(driver.frame.req)
        assert state is not None and after is not None and after.h_writer == state.h_writer
        assert [row.worst for row in table(driver).rows] == worst


def table(driver: Driver) -> TensorTable:
    found = driver.screen.query_one(TensorsPane).table
    assert found is not None
    return found


async def test_a_search_goes_on_from_the_present_and_counts_its_matches() -> None:
    async with screen(*STARTED, "next", "next") as driver:
        commits = [row.seq for row in driver.frame.events if "commit" in f"{row.kind} {row.text}"]
        assert len(commits) > 3
        await driver.type(f"goto @{commits[1] + 1}")
        await burst(driver, "8/commit\r")
        assert driver.screen.pane.target == ("event", commits[2])
        assert f"3 of {len(commits)}" in stop_line(driver)
        await driver.press("comma")
        assert f"2 of {len(commits)}" in stop_line(driver)
        await driver.press("full_stop", "full_stop")
        assert f"4 of {len(commits)}" in stop_line(driver)


def test_no_word_of_a_picture_begins_with_a_blank() -> None:
    body = "&#160;&#160;ab&#160;&#160;&#160;cd&#160;"
    made = steady_svg(f'<text class="a" x="10" y="5" textLength="122" clip-path="url(#c)">{body}</text>')
    assert ">ab<" in made and ">cd<" in made and 'x="34.4"' in made and 'x="95.4"' in made
