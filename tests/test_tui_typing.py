"""Keys that come faster than the screen moves its focus, and the answers to what was typed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from textual import events
from tui_pilot import PROMPT, Driver, screen

from inspector.tui.panes.output import OutputPane
from inspector.tui.screens.dialogs import AcceptDialog
from inspector.tui.widgets.bars import StatusBar, StopBar
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


async def test_a_recording_is_answered_and_named_in_the_first_line(tmp_path: Path) -> None:
    async with screen(*STARTED) as driver:
        await driver.type(f"record {tmp_path / 'x.mtl'}")
        assert "x.mtl" in stop_line(driver)
        assert "REC x.mtl" in "".join(text for text, _ in driver.screen.query_one(StatusBar).spans)


async def test_several_lines_still_open_the_drawer() -> None:
    async with screen(*STARTED) as driver:
        await burst(driver, ":info slots\r")
        assert driver.screen.query_one(OutputPane).has_class("open")
