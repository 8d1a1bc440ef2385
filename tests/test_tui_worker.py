"""The thread that owns the debugger: frames while it runs, pausing, opening, failing. No clock decides anything."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from judging_helpers import open_timeline
from tui_pilot import PROMPT, Driver, fake_debugger, screen

from inspector.commands.debugger import Debugger
from inspector.text import visible
from inspector.tui.app import InspectorApp, run_app
from inspector.tui.framing import Framer
from inspector.tui.messages import Answered, FrameReady, OpenFailed
from inspector.tui.opener import OpeningCancelled, opener_for
from inspector.tui.panes.tensors import TensorsPane
from inspector.tui.ports import Options
from inspector.tui.screens.dialogs import ConfirmDialog
from inspector.tui.screens.loading import LoadingScreen
from inspector.tui.tensorjobs import LAST_STOP, TensorJobs
from inspector.tui.worker import Worker


class Post:
    """Keeps what a worker posted."""

    def __init__(self) -> None:
        self.messages: list[object] = []

    def __call__(self, message: object) -> None:
        self.messages.append(message)

    def of(self, kind: type) -> list[object]:
        return [message for message in self.messages if isinstance(message, kind)]


def rested(worker: Worker) -> None:
    """Until the worker has nothing left to do."""
    done = threading.Event()
    worker.at_rest(done.set)
    assert done.wait(30)


def opened(**engine: object) -> tuple[Worker, Post]:
    post = Post()
    worker = Worker(lambda progress, cancelled: fake_debugger(**engine), post)
    worker.start()
    rested(worker)
    return worker, post


def test_a_line_is_answered_and_followed_by_a_frame() -> None:
    worker, post = opened()
    worker.submit(PROMPT)
    rested(worker)
    (answer,) = post.of(Answered)
    assert answer.line == PROMPT and answer.status == "ok"
    assert post.of(FrameReady)[-1].frame.view.requests
    assert worker.close()


def test_picks_that_were_rejected_have_texts_in_the_event_list() -> None:
    timeline = open_timeline()
    debugger = Debugger(timeline)
    for line in ('new "Once upon a time"', "accept 1", "accept 1"):
        assert debugger.execute(line).ok
    picks = {event.pick for event in timeline.events(1, timeline.last) if event.kind == "verify_row"}
    untold = {token: timeline.text(token) for token in picks if token not in timeline.view.texts}
    assert untold, "all of them were emitted"
    rows = [row.text for row in Framer(debugger).rows(1, timeline.last)]
    for token, text in untold.items():
        assert not any(f"<{token}>" in row for row in rows)
        assert text is not None and any(visible(text).strip() in row for row in rows)


def test_frames_are_posted_while_it_runs_and_an_interrupt_pauses_it() -> None:
    worker, post = opened(blocks=20000)
    worker.submit('new "a b c" --max 100000 --ignore-eos')
    rested(worker)
    running = threading.Event()

    def watch_for_a_running_frame(message: object) -> None:
        post.messages.append(message)
        if isinstance(message, FrameReady) and message.frame.running:
            running.set()

    worker._post = watch_for_a_running_frame
    worker.submit("continue")
    assert running.wait(60)
    worker.interrupt()
    rested(worker)
    last = post.of(FrameReady)[-1].frame
    assert not last.running and "paused at event" in last.stop
    assert worker.close()


def test_a_message_that_a_newer_one_makes_useless_can_be_replaced() -> None:
    frame = FrameReady.__new__(FrameReady)
    other = FrameReady.__new__(FrameReady)
    answer = Answered.__new__(Answered)
    assert frame.can_replace(other) and not frame.can_replace(answer)


def test_an_exception_becomes_a_stop_and_the_session_stays_open() -> None:
    worker, post = opened()
    worker.submit(PROMPT)

    def fail(debugger: object) -> None:
        raise MemoryError("the device is full")

    worker.do(fail)
    rested(worker)
    frame = post.of(FrameReady)[-1].frame
    assert frame.stop_kind == "error" and "the device is full" in frame.stop
    worker.submit("next")
    rested(worker)
    assert post.of(FrameReady)[-1].frame.stop_kind == "step"
    assert worker.close()


@pytest.mark.parametrize("error", [ValueError("bad file"), OSError("unreadable"), MemoryError("no room")])
def test_opening_that_fails_is_told(error: Exception) -> None:
    post = Post()

    def opener(progress: object, cancelled: object) -> Debugger:
        raise error

    worker = Worker(opener, post)
    worker.start()
    worker.close()
    (failed,) = post.of(OpenFailed) or [None]
    assert failed is None or str(error) in failed.text


def test_loading_can_be_cancelled_between_two_reports() -> None:
    reached = threading.Event()

    def opener(progress: object, cancelled: object) -> Debugger:
        reached.set()
        while not cancelled():  # type: ignore[operator]
            pass
        raise OpeningCancelled("opening was cancelled")

    worker = Worker(opener, Post())
    worker.start()
    assert reached.wait(30)
    assert worker.close()


def test_tensors_are_read_for_panes_in_sight_only() -> None:
    debugger = fake_debugger()
    debugger.execute(PROMPT)
    debugger.execute("next")
    jobs = TensorJobs(debugger)
    assert jobs.next() == (None, None)
    jobs.wanted = frozenset({"tensors", "examine"})
    table, _ = jobs.next()
    assert table is not None and len(table.rows) == 6 and table.base == ""
    _, slab = jobs.next()
    assert slab is not None and slab.values.ndim == 3
    assert jobs.next() == (None, None)


def test_the_default_base_is_the_last_stop_and_calls_changes_changes() -> None:
    debugger = fake_debugger()
    debugger.execute(PROMPT)
    debugger.execute("next")
    jobs = TensorJobs(debugger)
    jobs.wanted = frozenset({"tensors"})
    jobs.next()
    debugger.execute("next")
    jobs.moved()
    table, _ = jobs.next()
    assert table is not None and table.base == LAST_STOP
    assert table.verdict == "6 of 6 tensors changed since the last stop"
    assert not any(row.flags for row in table.rows)


@pytest.mark.parametrize(("base", "equal"), [("live", True), ("checkpoint", False), ("@6", False)])
def test_a_chosen_base_is_compared(base: str, equal: bool) -> None:
    debugger = fake_debugger()
    for line in (PROMPT, "next", "next", "next"):
        debugger.execute(line)
    jobs = TensorJobs(debugger)
    jobs.wanted = frozenset({"tensors"})
    jobs.compare(base)
    table, _ = jobs.next()
    assert table is not None and table.reason == ""
    assert all(row.same for row in table.rows) is equal


def test_a_base_that_cannot_be_had_is_explained() -> None:
    debugger = fake_debugger()
    for line in (PROMPT, "next"):
        debugger.execute(line)
    jobs = TensorJobs(debugger)
    jobs.wanted = frozenset({"tensors"})
    jobs.compare("nonsense")
    table, _ = jobs.next()
    assert table is not None and not table.rows and "nonsense" in table.reason


async def test_a_failed_opening_stays_readable_and_leaves_with_status_3() -> None:
    def opener(progress: object, cancelled: object) -> Debugger:
        raise ValueError("demo.mtl: not a session file, expected SQLite; record one with --record")

    app = InspectorApp(opener, "demo.mtl")
    async with app.run_test() as pilot:
        while not app.failure:
            await pilot.pause()
        assert isinstance(app.screen, LoadingScreen)
        await pilot.press("q")
    assert app.return_value == 3


async def test_the_first_paint_does_not_wait_for_the_opener() -> None:
    release = threading.Event()

    def opener(progress: object, cancelled: object) -> Debugger:
        release.wait(30)
        return fake_debugger()

    app = InspectorApp(opener, "slow")
    async with app.run_test() as pilot:
        await pilot.pause()
        assert isinstance(app.screen, LoadingScreen) and not app.is_open
        release.set()
        while not app.is_open:
            await pilot.pause()
        app.worker.close()


async def test_ctrl_c_pauses_and_never_ends_the_session() -> None:
    async with screen('new "a b c" --max 100000 --ignore-eos', "next", blocks=20000) as driver:
        await driver.pilot.press("ctrl+c")
        assert driver.app.return_value is None
        await driver.pilot.press("c")
        while not driver.frame.running:
            await driver.pilot.pause()
        await driver.press("ctrl+c")
        assert "paused at event" in driver.frame.stop and driver.app.return_value is None


async def test_keys_pressed_while_it_runs_do_not_pile_up() -> None:
    async with screen('new "a b c" --max 100000 --ignore-eos', "next", blocks=20000) as driver:
        await driver.pilot.press("c")
        while not driver.frame.running:
            await driver.pilot.pause()
        await driver.pilot.press("s", "s")
        await driver.press("space")
        assert "paused at event" in driver.frame.stop


async def test_space_pauses_a_running_engine() -> None:
    async with screen('new "a b c" --max 100000 --ignore-eos', "next", blocks=20000) as driver:
        await driver.pilot.press("c")
        while not driver.frame.running:
            await driver.pilot.pause()
        await driver.press("space")
        assert not driver.frame.running and "paused at event" in driver.frame.stop


@pytest.mark.parametrize("size", [(1, 1), (20, 5), (60, 12), (300, 90)])
async def test_any_size_and_back_keeps_the_screen_alive(size: tuple[int, int]) -> None:
    async with screen(PROMPT, "next", "next") as driver:
        await driver.pilot.resize_terminal(*size)
        await driver.press("i")
        await driver.pilot.resize_terminal(120, 40)
        await driver.settle()
        assert driver.screen.query_one("#ring").size.width > 30
        assert driver.app.focused is not None


async def test_narrow_terminals_get_tabs() -> None:
    async with screen(PROMPT, "next", size=(80, 24)) as driver:
        assert driver.screen.query_one("#slots").display and not driver.screen.query_one("#ring").display
        await driver.press("3")
        assert driver.screen.query_one("#slots").display and not driver.screen.query_one("#ring").display
        assert driver.screen.query_one("#cursorline").display


async def test_a_tab_that_is_opened_reads_its_tensors() -> None:
    async with screen(PROMPT, "next", "next", size=(80, 24)) as driver:
        pane = driver.screen.query_one(TensorsPane)
        assert pane.table is None
        await driver.press("5")
        assert pane.table is not None and len(pane.table.rows) == 6
        await driver.press("n")
        assert pane.table.seq == driver.frame.view.seq


async def test_the_mouse_goes_to_tokens_tabs_rows_and_places_on_the_timeline() -> None:
    async with screen(PROMPT, "next", "next", "next") as driver:
        last = driver.frame.last
        await driver.pilot.click("#tokens", offset=(10, 2))
        await driver.settle()
        assert driver.frame.mode == "HISTORY" and driver.frame.view.last is not None
        assert driver.frame.view.last.kind == "request"
        await driver.pilot.click("#timeline", offset=(60, 0))
        await driver.settle()
        assert 1 < driver.frame.view.seq < last
        await driver.pilot.click("#slots", offset=(10, 3))
        await driver.settle()
        assert driver.app.focused is not None and driver.app.focused.id == "slots"
        assert driver.screen.pane.target is not None and driver.screen.pane.target[0] == "place"
        pane = driver.screen.query_one("#events")
        top = pane.top  # type: ignore[attr-defined]
        await driver.pilot._post_mouse_events([__import__("textual.events").events.MouseScrollUp], "#events")
        await driver.settle()
        assert pane.top < top  # type: ignore[attr-defined]


async def test_a_long_recording_scrolls_by_asking_for_rows() -> None:
    async with screen('new "a b c" --max 400 --ignore-eos', "finish") as driver:
        last = driver.frame.last
        assert last > 1000
        await driver.press("8", "g")
        pane = driver.screen.query_one("#events")
        assert pane.target == ("event", 1)  # type: ignore[attr-defined]
        await driver.press("G")
        assert pane.target == ("event", last)  # type: ignore[attr-defined]
        assert len(pane.content.rows) < 500  # type: ignore[attr-defined]


TRACE = """\
# scenario small
num_free_blocks() -> 1000
-- tick 1
alloc_sequence() -> slot 0
prefill(n=3, s1@0:len=3, stream=0)
decode(token=8, s1@0:len=4, stream=0)
argmax_on_device(row=0, stream=0) -> 2
num_free_blocks() -> 999
"""


async def test_a_trace_opens_by_content_and_shows_its_facts(tmp_path: Path) -> None:
    file = tmp_path / "small"
    file.write_text(TRACE)
    app = InspectorApp(opener_for(str(file), Options()), "small")
    async with app.run_test(size=(120, 40)) as pilot:
        while not app.is_open and not app.failure:
            await pilot.pause()
        driver = Driver(app, pilot)
        await driver.settle()
        assert app.failure == "" and driver.frame.source == "trace" and driver.frame.mode == "HISTORY"
        assert "kept as unknown" in driver.frame.stop
        assert driver.frame.view.requests
        await driver.press("v", "enter")
        if isinstance(app.screen, ConfirmDialog):
            await driver.press("y")
        assert driver.frame.stop_kind == "error" and "trace" in driver.frame.stop
        app.worker.close()


async def test_a_recorded_session_opens_in_history_and_walks_back(tmp_path: Path) -> None:
    file = tmp_path / "run.mtl"
    debugger = fake_debugger()
    for line in (PROMPT, "next", "next", f"export session {file}"):
        assert debugger.execute(line).ok
    debugger.close()
    app = InspectorApp(opener_for(str(file), Options()), "run")
    async with app.run_test(size=(120, 40)) as pilot:
        while not app.is_open and not app.failure:
            await pilot.pause()
        driver = Driver(app, pilot)
        await driver.settle()
        assert driver.frame.mode == "HISTORY" and driver.frame.source == "recording"
        last = driver.frame.view.seq
        await driver.press("N")
        assert driver.frame.view.seq < last
        app.worker.close()


def test_without_a_terminal_there_is_a_sentence_and_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_app(None) == 2
    captured = capsys.readouterr()
    assert "needs a terminal" in captured.err and captured.out == ""


@pytest.mark.parametrize("options", [Options(theme="mauve"), Options(keymap="emacs")], ids=["theme", "keymap"])
def test_unknown_themes_and_keymaps_are_named(options: Options, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_app(None, options) == 2
    error = capsys.readouterr().err
    assert ("mauve" in error and "ink" in error) or ("emacs" in error and "gdb" in error)


def test_importing_the_screen_loads_no_torch() -> None:
    code = "import sys, inspector.tui.app, inspector.tui.opener; sys.exit('torch' in sys.modules)"
    root = Path(__file__).parent.parent
    run = subprocess.run([sys.executable, "-c", code], cwd=root, env={**os.environ}, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
