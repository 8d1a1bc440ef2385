"""Each key, pressed once on a screen over the fake engine. Nothing sleeps: the driver waits for the worker."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.command import CommandPalette
from tui_pilot import PROMPT, Driver, screen

from inspector.tui.palette import CommandsProvider
from inspector.tui.panes.events import EventsPane
from inspector.tui.panes.examine import ExaminePane
from inspector.tui.panes.output import OutputPane
from inspector.tui.panes.tensors import TensorsPane
from inspector.tui.panes.tokens import TokensPane
from inspector.tui.ports import Options
from inspector.tui.screens.dialogs import AcceptDialog, AskDialog, ChoiceDialog, ConfirmDialog
from inspector.tui.screens.help import HelpScreen
from inspector.tui.widgets.command_line import CommandLine
from inspector.tui.widgets.pane import Pane

STARTED = (PROMPT, "next", "next", "next")


def here(driver: Driver) -> int:
    return driver.frame.view.seq


# --------------------------------------------------------------------------------------------------------- movement


@pytest.mark.parametrize(("forward", "back"), ["sS", "iI", "nN"])
async def test_a_unit_forward_and_back_returns_to_the_same_event(forward: str, back: str) -> None:
    async with screen(*STARTED) as driver:
        start = here(driver)
        await driver.press(forward)
        assert here(driver) > start and driver.frame.mode == "LIVE"
        await driver.press(back)
        assert here(driver) <= start or forward == "s"
        assert driver.frame.mode == "HISTORY"
        assert driver.frame.last > here(driver)


async def test_i_moves_by_exactly_one_event() -> None:
    async with screen(*STARTED) as driver:
        start = here(driver)
        await driver.press("i")
        assert here(driver) == start + 1
        await driver.press("I")
        assert here(driver) == start


async def test_o_goes_to_the_next_chunk_boundary_and_O_back() -> None:
    async with screen('new "a b c d e f g h i j k l m n o p q r s t" max=8') as driver:
        await driver.press("o")
        first = here(driver)
        assert driver.frame.view.last is not None and driver.frame.view.last.kind == "prefill"
        await driver.press("o")
        assert here(driver) > first
        await driver.press("O")
        assert here(driver) == first


async def test_f_runs_to_the_end_of_the_request_and_F_to_its_start() -> None:
    async with screen(*STARTED) as driver:
        await driver.press("f")
        assert driver.frame.request is not None and driver.frame.request.finish
        end = here(driver)
        await driver.press("F")
        assert here(driver) < 10 < end


async def test_c_runs_to_the_next_stop_and_C_back_to_the_latest_before_now() -> None:
    async with screen(*STARTED) as driver:
        await driver.type("break boundary")
        await driver.press("c")
        first = here(driver)
        assert driver.frame.view.last is not None and driver.frame.view.last.kind == "boundary"
        await driver.press("c")
        second = here(driver)
        assert second > first
        await driver.press("C")
        assert here(driver) == first
        assert driver.frame.stop_kind == "hit"


async def test_space_steps_an_event_while_nothing_runs() -> None:
    async with screen(*STARTED) as driver:
        start = here(driver)
        await driver.press("space")
        assert here(driver) == start + 1


async def test_enter_repeats_the_last_movement() -> None:
    async with screen(*STARTED) as driver:
        await driver.press("i")
        start = here(driver)
        await driver.press("enter")
        assert here(driver) == start + 1


async def test_scrubbing_stops_at_the_live_edge_instead_of_executing() -> None:
    async with screen(*STARTED) as driver:
        last = driver.frame.last
        await driver.press("left_square_bracket")
        assert here(driver) == last - 1
        await driver.press("right_square_bracket", "right_square_bracket", "right_square_bracket")
        assert here(driver) == last == driver.frame.last
        assert "live edge" in driver.frame.stop


async def test_braces_scrub_between_keyframes_and_bookmarks() -> None:
    async with screen(*STARTED) as driver:
        await driver.press("m", "a")
        marked = here(driver)
        await driver.press("n", "n")
        await driver.press("left_curly_bracket")
        assert here(driver) >= marked
        await driver.press("apostrophe", "a")
        assert here(driver) == marked
        await driver.press("right_curly_bracket")
        assert here(driver) > marked


async def test_the_jump_list_goes_back_and_forward() -> None:
    async with screen(*STARTED) as driver:
        start = here(driver)
        await driver.type("goto @10")
        end = here(driver)
        await driver.press("less_than_sign")
        assert here(driver) == start
        await driver.press("greater_than_sign")
        assert here(driver) == end
        await driver.press("ctrl+o")
        assert here(driver) == start


async def test_restart_asks_first() -> None:
    async with screen(*STARTED) as driver:
        start = here(driver)
        await driver.press("r")
        assert isinstance(driver.app.screen, ConfirmDialog)
        await driver.press("n")
        assert here(driver) == start
        await driver.press("r", "y")
        assert here(driver) == driver.frame.first


async def test_t_goes_to_the_event_under_the_cursor() -> None:
    async with screen(*STARTED) as driver:
        start = here(driver)
        await driver.press("8", "k", "k", "t")
        assert here(driver) == start - 2


# ----------------------------------------------------------------------------------------------------------- acting


async def test_verify_pauses_at_its_decision_and_a_digit_accepts() -> None:
    async with screen(*STARTED) as driver:
        await driver.press("v")
        assert isinstance(driver.app.screen, AskDialog)
        await driver.press("enter")
        assert driver.frame.waiting is not None and driver.frame.waiting.what == "accept"
        live = driver.frame.view.live(driver.frame.req)
        assert live is not None and live.dirty
        await driver.press("a")
        assert isinstance(driver.app.screen, AcceptDialog)
        await driver.press("2")
        request = driver.frame.request
        assert request is not None and request.round.accepted == 2
        assert driver.frame.waiting is None
        assert not list(driver.app.worker.debugger.stops)  # type: ignore[union-attr]


async def test_verify_takes_typed_ids() -> None:
    async with screen(*STARTED) as driver:
        await driver.press("v", *"ids", "space", "5", "space", "6", "enter")
        assert driver.frame.request is not None
        assert driver.frame.request.round.drafts == (5, 6)


async def test_accept_without_a_waiting_round_runs_the_next_one() -> None:
    async with screen(*STARTED) as driver:
        await driver.press("a", "1")
        assert driver.frame.request is not None and driver.frame.request.round.accepted == 1


async def test_rollback_offers_the_ring_entries() -> None:
    async with screen(*STARTED, "next", "next") as driver:
        request = driver.frame.request
        assert request is not None and request.ring.entries
        await driver.press("R")
        assert isinstance(driver.app.screen, ChoiceDialog)
        await driver.press("enter")
        after = driver.frame.request
        assert after is not None and after.rollbacks == 1
        assert after.outputs == request.ring.entries[-1].token_position


async def test_acting_in_the_past_asks_once_and_shows_the_branch() -> None:
    async with screen(*STARTED) as driver:
        last = driver.frame.last
        await driver.press("N", "N")
        await driver.press("a", "1")
        assert isinstance(driver.app.screen, ConfirmDialog)
        await driver.press("n")
        assert driver.frame.mode == "HISTORY" and driver.frame.last == last
        await driver.press("a", "1", "y")
        assert driver.frame.mode == "BRANCH" and driver.frame.branch == 1
        await driver.type("branch 0")
        assert driver.frame.mode == "LIVE" and driver.frame.last == last


async def test_a_new_request_is_typed_as_text() -> None:
    async with screen() as driver:
        await driver.press("A", *"ab", "enter")
        assert len(driver.frame.view.requests) == 1


async def test_fork_and_free_from_the_line() -> None:
    async with screen(*STARTED) as driver:
        await driver.type("fork")
        assert len(driver.frame.view.requests) == 2
        await driver.type("free")
        assert any(request.finish for request in driver.frame.view.requests.values())


# ------------------------------------------------------------------------------------------------------------ focus


async def test_focus_goes_in_out_and_to_siblings() -> None:
    async with screen(*STARTED, "fork") as driver:
        assert driver.frame.layer == -1
        await driver.press("d")
        first = driver.frame.layer
        assert first >= 0
        await driver.press("right_parenthesis")
        assert driver.frame.layer > first
        await driver.press("d")
        assert driver.frame.head == 0
        await driver.press("u", "u")
        assert (driver.frame.layer, driver.frame.head) == (-1, -1)
        before = driver.frame.req
        await driver.press("right_parenthesis")
        assert driver.frame.req != before
        await driver.press("left_parenthesis")
        assert driver.frame.req == before


# ------------------------------------------------------------------------------------------------- stops and looking


async def test_b_stops_at_what_the_cursor_is_on_and_again_clears_it() -> None:
    async with screen(*STARTED) as driver:
        await driver.press("8", "k", "b")
        assert [row.name for row in driver.frame.stops] == ["b1"]
        await driver.press("7", "j", "b")
        assert not driver.frame.stops


async def test_w_watches_the_selected_place() -> None:
    async with screen(*STARTED) as driver:
        await driver.press("3", "j", "w")
        assert [row.name for row in driver.frame.stops] == ["w1"]
        await driver.press("c")
        assert driver.frame.stop_kind == "hit"


@pytest.mark.parametrize("key", ["B", "W"])
async def test_stops_are_listed(key: str) -> None:
    async with screen(*STARTED, "break accept") as driver:
        await driver.press(key)
        assert "accept" in driver.screen.query_one(OutputPane).text()


async def test_p_opens_the_line_and_prints() -> None:
    async with screen(*STARTED) as driver:
        await driver.press("p")
        assert driver.screen.query_one(CommandLine).value == "print "
        await driver.press(*"now", "enter")
        assert str(here(driver)) in driver.frame.stop


async def test_x_looks_into_the_tensor_under_the_cursor() -> None:
    async with screen(*STARTED) as driver:
        await driver.press("5", "j", "j", "j", "x")
        assert isinstance(driver.app.focused, ExaminePane)
        slab = driver.app.focused.slab
        assert slab is not None and slab.values is not None


async def test_D_chooses_a_base_for_the_tensor_pane() -> None:
    async with screen(*STARTED) as driver:
        await driver.press("D", "down", "enter")
        table = driver.screen.query_one(TensorsPane).table
        assert table is not None and table.base == "checkpoint"
        assert all(row.worst is not None for row in table.rows)


async def test_L_tells_who_wrote_live_last() -> None:
    async with screen(*STARTED) as driver:
        await driver.press("L")
        assert "live" in driver.screen.query_one(OutputPane).text()


# ------------------------------------------------------------------------------------------------------------- panes


@pytest.mark.parametrize(
    ("key", "name"),
    [
        *zip(
            "1234567890",
            ["tokens", "ring", "slots", "cursors", "tensors", "examine", "stops", "events", "streams", "blocks"],
            strict=True,
        )
    ],
)
async def test_digits_focus_panes(key: str, name: str) -> None:
    async with screen(*STARTED) as driver:
        await driver.press(key)
        assert driver.app.focused is driver.screen.query_one(f"#{name}", Pane)
        assert driver.screen.query_one(f"#{name}").display


async def test_tab_walks_the_panes_and_back() -> None:
    async with screen(*STARTED) as driver:
        await driver.press("tab")
        assert driver.app.focused is not None and driver.app.focused.id == "ring"
        await driver.press("shift+tab")
        assert driver.app.focused is not None and driver.app.focused.id == "tokens"


async def test_z_maximises_and_escape_brings_all_back() -> None:
    async with screen(*STARTED) as driver:
        await driver.press("8", "z")
        pane = driver.screen.query_one(EventsPane)
        assert pane.size.width == 120 and not driver.screen.query_one("#ring").display
        await driver.press("escape")
        assert driver.screen.query_one("#ring").display


async def test_the_tokens_can_be_maximised() -> None:
    async with screen(*STARTED) as driver:
        await driver.press("1", "z")
        assert driver.screen.query_one(TokensPane).size.height > 20
        await driver.press("z")
        assert driver.screen.query_one(TokensPane).size.height == 7


async def test_movement_keys_move_the_cursor_of_the_focused_pane() -> None:
    async with screen(*STARTED, "next", "next", "next") as driver:
        pane = driver.screen.query_one(EventsPane)
        await driver.press("8", "k")
        assert pane.target == ("event", here(driver) - 1)
        await driver.press("j")
        assert pane.target == ("event", here(driver))
        await driver.press("ctrl+u")
        up = pane.target
        assert up is not None and int(str(up[1])) < here(driver)
        await driver.press("ctrl+d")
        await driver.press("g")
        assert pane.target == ("event", driver.frame.first)
        await driver.press("G")
        assert pane.target == ("event", driver.frame.last)


async def test_tokens_move_sideways() -> None:
    async with screen(*STARTED) as driver:
        await driver.press("1", "h")
        count = len(driver.frame.request.tokens) if driver.frame.request else 0
        assert driver.screen.query_one(TokensPane).target == ("token", count - 2)
        await driver.press("l", "l")
        assert driver.screen.query_one(TokensPane).target == ("token", count - 1)


async def test_search_finds_the_next_and_the_previous_row() -> None:
    async with screen(*STARTED) as driver:
        pane = driver.screen.query_one(EventsPane)
        await driver.press("8", "slash", *"commit", "enter")
        first = pane.target
        await driver.press("full_stop")
        second = pane.target
        assert first is not None and second is not None and first != second
        await driver.press("comma")
        assert pane.target == first


async def test_a_search_without_a_match_says_so() -> None:
    async with screen(*STARTED) as driver:
        await driver.press("8", "slash", *"zzz", "enter")
        assert "nothing contains" in driver.frame.stop


async def test_y_copies_a_command_and_Y_the_text() -> None:
    async with screen(*STARTED) as driver:
        await driver.press("2", "y")
        assert driver.app.clipboard == "info ring"
        await driver.press("Y")
        assert "slot" in driver.app.clipboard


async def test_layouts_are_cycled() -> None:
    async with screen(*STARTED) as driver:
        await driver.press("equals_sign")
        assert driver.screen.has_class("layout-round")
        assert not driver.screen.query_one("#tensors").display
        await driver.press("equals_sign", "equals_sign", "equals_sign")
        assert driver.screen.query_one("#tensors").display


@pytest.mark.parametrize("key", ["question_mark", "f1"])
async def test_help_tells_about_the_focused_pane_and_lists_every_command(key: str) -> None:
    async with screen(*STARTED) as driver:
        await driver.press("2", key)
        assert isinstance(driver.app.screen, HelpScreen)
        text = "\n".join("".join(part for part, _ in line) for line in driver.app.screen.lines)
        assert "snapshot ring" in text
        for command in driver.app.registry.commands:
            assert command.usage[:30] in text
        await driver.press("escape")
        assert not isinstance(driver.app.screen, HelpScreen)


@pytest.mark.parametrize("number", "1234567890")
async def test_every_pane_answers_the_question_mark(number: str) -> None:
    async with screen(*STARTED) as driver:
        await driver.press(number, "question_mark")
        pane = driver.screen.pane
        assert number == pane.NUMBER and pane.SUMMARY and pane.HELP_TEXT
        text = "\n".join("".join(part for part, _ in line) for line in driver.app.screen.lines)  # type: ignore[attr-defined]
        assert pane.SUMMARY in text


async def test_the_palette_lists_commands_and_runs_the_chosen_one() -> None:
    async with screen(*STARTED) as driver:
        await driver.press("ctrl+p")
        assert isinstance(driver.app.screen, CommandPalette)
        await driver.press("escape")
        names = [hit.text for hit in [hit async for hit in CommandsProvider(driver.screen).discover()]]
        for command in driver.app.registry.commands:
            assert any(command.usage in str(name) for name in names)
        start = here(driver)
        driver.app.from_palette(":next")
        await driver.settle()
        assert here(driver) > start
        driver.app.from_palette(":goto ")
        await driver.pilot.pause()
        assert driver.screen.query_one(CommandLine).value == "goto "
        await driver.press("escape")
        driver.app.from_palette("=theme contrast")
        assert driver.app.theme == "contrast"
        driver.app.from_palette("@zoom")
        assert driver.screen.zoomed


async def test_jump_shows_what_to_press() -> None:
    async with screen(*STARTED) as driver:
        await driver.press("grave_accent", "3")
        assert driver.app.focused is not None and driver.app.focused.id == "slots"


# -------------------------------------------------------------------------------------------------- the command line


async def test_every_command_of_the_registry_can_be_run_from_the_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.mtl").write_text("print now\n")
    async with screen(*STARTED) as driver:
        driver.app._asked_branch = True
        for command in driver.app.registry.commands:
            if command.name == "quit":
                continue
            driver.app.run_line(command.example or command.name)
            await driver.settle()
            assert driver.app.worker._thread.is_alive(), command.name
            # an exception that reached the thread would be told by its type
            assert not driver.frame.stop.startswith(("TypeError", "AttributeError", "KeyError", "AssertionError")), (
                command.name, driver.frame.stop,
            )  # fmt: skip
            assert driver.app.return_value is None


async def test_letters_go_to_the_line_while_it_has_the_focus() -> None:
    async with screen(*STARTED) as driver:
        start = here(driver)
        await driver.press("colon", "s", "n")
        assert driver.screen.query_one(CommandLine).value == "sn" and here(driver) == start
        await driver.press("escape")
        await driver.press("s")
        assert here(driver) > start


async def test_history_and_completion() -> None:
    async with screen(*STARTED) as driver:
        await driver.type("print now")
        line = driver.screen.query_one(CommandLine)
        await driver.press("colon", "up")
        assert line.value == "print now"
        await driver.press("down")
        assert line.value == ""
        await driver.press(*"inf", "tab")
        assert line.value.startswith("info")
        await driver.press("escape")


async def test_an_unknown_command_is_an_error_in_the_stop_line() -> None:
    async with screen(*STARTED) as driver:
        await driver.type("frobnicate")
        assert driver.frame.stop_kind == "error" and "frobnicate" in driver.frame.stop


async def test_answers_of_several_lines_open_the_drawer_and_escape_closes_it() -> None:
    async with screen(*STARTED) as driver:
        await driver.type("info slots")
        output = driver.screen.query_one(OutputPane)
        assert output.has_class("open") and "live" in output.text()
        await driver.press("escape")
        assert not output.has_class("open")


async def test_themes_keymaps_and_speed_are_commands_of_the_screen() -> None:
    async with screen(*STARTED) as driver:
        await driver.type("theme paper")
        assert driver.app.theme == "paper"
        await driver.type("keymap vim")
        assert driver.app.keymap.name == "vim"
        start = here(driver)
        await driver.press("3", "i")
        assert here(driver) == start + 3
        await driver.type("speed 50")
        assert driver.app.worker.speed == 50
        await driver.press("plus")
        assert driver.app.worker.speed == 100
        await driver.press("minus")
        assert driver.app.worker.speed == 50
        await driver.type("speed nonsense")
        assert "speed is" in driver.frame.stop


async def test_the_pudb_keymap_goes_back_with_a_prefix() -> None:
    async with screen(*STARTED, options=Options(keymap="pudb")) as driver:
        start = here(driver)
        await driver.press("minus", "n")
        assert here(driver) < start
        await driver.press("V")
        assert driver.app.focused is not None and driver.app.focused.id == "tensors"


async def test_E_writes_a_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with screen(*STARTED) as driver:
        await driver.press("E")
        assert isinstance(driver.app.screen, ChoiceDialog)
        await driver.press("enter")
        pictures = list(tmp_path.glob("*.svg"))
        assert len(pictures) == 1 and "<svg" in pictures[0].read_text(encoding="utf-8")


async def test_q_quits() -> None:
    async with screen(*STARTED) as driver:
        await driver.pilot.press("q")
        await driver.pilot.pause()
        assert driver.app.return_value == 0
