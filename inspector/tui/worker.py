"""The one thread that owns the debugger. The screen puts command lines into its queue and gets messages back; the
engine never waits for the screen, and at most one frame per 33 ms is posted while it runs.

Stops are decided here, by the debugger. A long command is asked between any two events whether it was interrupted; that
is also when frames of a running engine are made and when the speed limit is kept.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

from textual.message import Message

from inspector.tui.messages import (
    Answered,
    EventsReady,
    FrameReady,
    Loading,
    Opened,
    OpenFailed,
    SlabReady,
    TensorsReady,
    VerifyDone,
)

if TYPE_CHECKING:
    from inspector.tui.framing import Framer
    from inspector.tui.ports import DebuggerPort, Opener
    from inspector.tui.tensorjobs import TensorJobs

FRAME_SECONDS = 0.033
SCREEN_SHARE = 0.15
# laying out is what is measured; Textual's painting takes about as long again
PAINT_FACTOR = 2.0
Job = Callable[[], None]
log = logging.getLogger(__name__)


class Worker:
    """Opens the debugger, runs what is asked of it in order, and posts what the screen needs."""

    def __init__(self, opener: Opener, post: Callable[[Message], Any]) -> None:
        self._opener = opener
        self._post = post
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._interrupt = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="debugger", daemon=True)
        self._last_frame = 0.0
        self._next_event = 0.0
        self.draw_seconds = 0.0
        self.speed = 0.0
        self.busy = False
        self.line = ""
        self._at_rest: list[Job] = []
        self.debugger: DebuggerPort | None = None
        self.framer: Framer
        self.tensors: TensorJobs

    # ------------------------------------------------------------------------------------------- from any thread

    def start(self) -> None:
        self._thread.start()

    def submit(self, line: str, quiet: bool = False) -> None:
        """Run a command line. A quiet one came from a key: its lines are not shown in the drawer."""
        self._jobs.put(lambda: self._execute(line, quiet))

    def do(self, job: Callable[[DebuggerPort], None]) -> None:
        """Run a small job between commands."""
        self._jobs.put(lambda: job(self.opened_debugger))

    def interrupt(self) -> None:
        """End the running command at its next event, or loading at its next step."""
        self._interrupt.set()
        if self.debugger is not None:
            self.debugger.cancel()

    def verify(self, drafts: str) -> None:
        """Run a verify round up to its accept decision: a temporary stop on the decision, then the round."""

        def job() -> None:
            debugger = self.opened_debugger
            try:
                stop = debugger.execute('tbreak decision if event.what == "accept"')
                self._execute(f"verify {drafts}".strip(), False)
                if isinstance(stop.data, int) and any(point.number == stop.data for point in debugger.stops):
                    debugger.execute(f"delete {stop.data}")
                    self._send(FrameReady(self.framer.frame()))
            finally:
                self._send(VerifyDone())

        self._jobs.put(job)

    def go_to_token(self, index: int) -> None:
        """Go to the event at which a token of the focused request was written."""

        def job() -> None:
            seq = self.framer.event_of_token(index)
            if seq is not None:
                self._execute(f"goto @{seq}", True)

        self._jobs.put(job)

    async def complete(self, line: str) -> list[str]:
        """Whole lines that ``line`` could become; nothing while a command runs."""
        if self.busy or self.debugger is None:
            return []
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[str]] = loop.create_future()

        def job(debugger: DebuggerPort) -> None:
            from inspector.commands.completion import complete

            found = [line[: found.start] + found.text for found in complete(debugger, line)]  # type: ignore[arg-type]
            loop.call_soon_threadsafe(lambda: None if answer.done() else answer.set_result(found))

        self.do(job)
        return await answer

    def want_events(self, low: int, high: int) -> None:
        """Post the event rows ``low``..``high``."""
        self._jobs.put(lambda: self._send(EventsReady(self.framer.rows(low, high))))

    def at_rest(self, job: Job) -> None:
        """Call ``job`` in this thread once everything asked so far is done and nothing is left to read."""
        self._jobs.put(lambda: self._at_rest.append(job))

    def refresh(self) -> None:
        """Post a frame of the present, and the tensors that are looked at."""
        self._jobs.put(self._show)

    def close(self, timeout: float = 10.0) -> bool:
        """Interrupt, close the session, end the thread. True when it ended in time."""
        self._closing = True
        self.interrupt()
        self._jobs.put(None)
        if self._thread.is_alive():
            self._thread.join(timeout)
        return not self._thread.is_alive()

    # ---------------------------------------------------------------------------------------------- in the thread

    @property
    def opened_debugger(self) -> DebuggerPort:
        assert self.debugger is not None
        return self.debugger

    def _send(self, message: Message) -> None:
        if not self._closing:
            self._post(message)

    def _run(self) -> None:
        try:
            opened = self._opener(lambda what, share: self._send(Loading(what, share)), self._interrupt.is_set)
        except (ValueError, OSError, LookupError, RuntimeError, MemoryError, ImportError) as error:
            log.info("opening failed", exc_info=True)
            self._send(OpenFailed(_paragraph(error), cancelled=self._interrupt.is_set()))
            return
        # imported here, after the first paint: together they take longer than Textual itself
        from inspector.tui.framing import Framer, found_elsewhere
        from inspector.tui.panes.facts import elsewhere_text
        from inspector.tui.tensorjobs import TensorJobs

        debugger: DebuggerPort = opened
        debugger.on_progress(lambda what, done, total: self.tick())
        self.framer = Framer(debugger)
        self.tensors = TensorJobs(debugger)
        self.debugger = debugger
        # what is loaded stays: without this each full collection walks the model's objects, a pause of many frames
        gc.freeze()
        self._send(Opened())
        if debugger.timeline.source != "live":
            self.framer.stop = "opened at its end: S I N go back, [ ] scrub events, { } marks, c and C run to stops"
            self.framer.stop_kind = "note"
        remarks = tuple(debugger.timeline.remarks)
        elsewhere = elsewhere_text(found_elsewhere(debugger.timeline))
        if remarks or elsewhere:
            self.framer.stop, self.framer.stop_kind = (*remarks, elsewhere)[0], "hit"
        if told := (*remarks, *((elsewhere,) if remarks and elsewhere else ()), *story_lines(debugger.timeline)):
            self._send(Answered("open", told, "ok"))
        self._show()
        try:
            self._serve()
        finally:
            debugger.close()

    def _serve(self) -> None:
        while True:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                if self._guarded(self._idle):
                    continue
                while self._at_rest:
                    self._at_rest.pop(0)()
                job = self._jobs.get()
            if job is None:
                return
            self._guarded(job)

    def _guarded(self, job: Callable[[], object]) -> bool:
        """Do a job; whatever happens in it becomes a stop with its text, and the session stays open."""
        try:
            return bool(job())
        except Exception as error:
            log.exception("a job of the debugger thread failed")
            self.framer.running = self.busy = False
            self.framer.stop, self.framer.stop_kind = f"{type(error).__name__}: {_paragraph(error)}", "error"
            self._send(FrameReady(self.framer.frame()))
            return False

    def _idle(self) -> bool:
        """One piece of work that nobody waits for. False when there is none left."""
        if self.framer.scan():
            if self._jobs.empty() and not self.framer.scan():
                self._send(FrameReady(self.framer.frame()))
            return True
        return self._read_tensors()

    def _read_tensors(self) -> bool:
        table, slab = self.tensors.next()
        if table is not None:
            self._send(TensorsReady(table))
        if slab is not None:
            self._send(SlabReady(slab))
        return table is not None or slab is not None

    def _execute(self, line: str, quiet: bool) -> None:
        debugger, framer = self.opened_debugger, self.framer
        self._interrupt.clear()
        framer.before = debugger.timeline.view
        self.busy = framer.running = True
        self.line = line
        self._last_frame = perf_counter()
        try:
            result = debugger.execute(line)
        finally:
            self.busy = framer.running = False
        framer.moved()
        reply = _tell(framer, result, line)
        self._send(Answered(line, tuple(result.lines), result.status, quiet, reply))
        self._show()

    def _show(self) -> None:
        self._send(FrameReady(self.framer.frame()))
        self.tensors.moved()

    # ----------------------------------------------------------------------------------------------- while running

    def tick(self) -> None:
        """A running command passed an event: post a frame when one is due, keep the speed limit, end it when asked to.

        Raises Cancelled, so that a pause takes effect at this event and not some events later.
        """
        if not self.busy:
            return
        if self._interrupt.is_set():
            raise self._paused
        now = perf_counter()
        if self.speed > 0:
            wait = self._next_event - now
            if wait > 0:
                self._frame_if_due(now)
                if self._interrupt.wait(wait):
                    raise self._paused
                now = perf_counter()
            self._next_event = max(now, self._next_event) + 1.0 / self.speed
        self._frame_if_due(now)

    @property
    def _paused(self) -> Exception:
        from sessions.errors import Cancelled

        return Cancelled("paused")

    def _frame_if_due(self, now: float) -> None:
        # drawing takes the interpreter from the engine: a slow screen gets fewer frames, never a slower engine
        pause = max(FRAME_SECONDS, PAINT_FACTOR * self.draw_seconds / SCREEN_SHARE)
        if now - self._last_frame >= pause:
            self._last_frame = now
            self.framer.speed = self.speed
            self._send(FrameReady(self.framer.frame()))


def story_lines(timeline: Any) -> tuple[str, ...]:
    """The story that a session carries in its notes, under its title; () for most sessions."""
    from inspector.commands.render import story

    notes = [note.text for note in story(timeline)]
    title = str(timeline.meta.get("title", ""))
    return (*([title] if title else []), *notes, "why tells this again, and what was found") if notes else ()


def _paragraph(error: BaseException) -> str:
    return str(error.args[0] if isinstance(error, KeyError) and error.args else error).strip() or type(error).__name__


KINDS = {
    "finding": "finding",
    "diverged": "finding",
    "stop": "hit",
    "decision": "hit",
    "edge": "end",
    "idle": "end",
    "start": "end",
    "limit": "end",
    "cancelled": "end",
    "refused": "error",
    "error": "error",
}


def _tell(framer: Framer, result: Any, line: str) -> tuple[str, str]:
    """The sentence of the stop line. Returns it, and its kind, when the command stopped nowhere new: then it is the
    answer to what was typed, and no finding or open decision may hide it."""
    lines = [line for line in result.lines if line.strip()]
    if result.status in ("error", "failed") and result.stop is None:
        framer.stop, framer.stop_kind = " ".join(lines[:1]) or result.status, "error"
    elif result.stop is not None:
        reason = result.stop.reason
        text = lines[0] if lines else result.stop.text
        if reason == "cancelled":
            text = f"paused at event {result.stop.seq:,}"
        framer.stop, framer.stop_kind = text.strip(), KINDS.get(reason, "step")
        if reason not in ("refused", "error", "edge", "start"):
            return "", ""
    elif lines:
        framer.stop, framer.stop_kind = answer_text(result.lines, line), "note"
    elif framer.stop_kind == "error":
        # an answer without words: at least what went wrong before is over
        framer.stop, framer.stop_kind = f"{line}: done", "note"
    else:
        return "", ""
    return framer.stop, framer.stop_kind


def answer_text(lines: Sequence[str], line: str) -> str:
    """The one sentence for an answer: its first line; of a comparison the result; of a table what was asked and how
    long the answer is."""
    from inspector.tui.panes.output import tabular

    told = [text for text in lines if text.strip()]
    parts = [text for text in told if text.startswith(("h: ", "conv: "))]
    if len(parts) > 1:
        # a comparison: what came of it stands at its end
        return f"{line.strip()}: {'; '.join(parts)}"
    return told[0].strip() if not tabular(told)[0] else f"{line.strip()}: {len(told)} lines, escape closes them"
