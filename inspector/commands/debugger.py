"""The debugger without a screen: a timeline, stops, displays, focus, settings, history; text in, results out.

One worker calls :meth:`Debugger.execute`; :meth:`Debugger.cancel` may be called from any thread. The screen, batch and
scripts use the same object, so what works in one works in all.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from inspector.commands.arguments import bind
from inspector.commands.debugger_look import Focus, Instant, explain
from inspector.commands.debugger_stops import Stopping
from inspector.commands.errors import CommandError
from inspector.commands.groups import build_registry
from inspector.commands.parser import Words, strip_comment
from inspector.commands.registry import Command, Context, Registry, Result
from inspector.commands.settings import Settings
from inspector.commands.stops import Hit, StopTable
from inspector.text import plural, visible
from sessions.errors import Cancelled, DamagedError, DivergedError
from sessions.finding import Finding

if TYPE_CHECKING:
    from inspector.commands.expressions import Expression
    from sessions.timeline import Timeline

__all__ = ["Debugger", "Focus", "Instant"]

# What a command may meet in an engine or a file; one sentence each, never a traceback.
TROUBLES = (
    ValueError,
    LookupError,
    OSError,
    RuntimeError,
    ArithmeticError,
    MemoryError,
    Cancelled,
)
SOURCE_DEPTH = 8


def _shown(result: Result) -> Result:
    """The last guard before a terminal: whatever was quoted, no control character leaves as itself."""
    lines = tuple("\n".join(map(visible, line.split("\n"))) for line in result.lines)
    return result if lines == result.lines else replace(result, lines=lines, error=visible(result.error))


class Debugger(Stopping):
    """See the module. ``name`` is how the model or file is called in answers."""

    def __init__(self, timeline: Timeline, *, name: str = "", registry: Registry | None = None) -> None:
        self.timeline = timeline
        self.name = name
        self.registry = registry or build_registry()
        self.stops = StopTable()
        self.displays: dict[int, Expression] = {}
        self.focus = Focus()
        self.settings = Settings()
        self.history: list[str] = []
        self.transcript: deque[tuple[str, Result]] = deque(maxlen=2000)
        self.hits: dict[int, list[Hit]] = {}
        self.last_stop: Any = None
        self.finished = False
        self.expected = False  # an assertion spoke of findings: broken invariants are what the script is about
        self._cancel = threading.Event()
        self._repeat = ""
        self._next_display = 1
        self._followed = -1
        self._line_of_history = timeline.branch
        self._depth = 0
        self._report: Callable[[str, int, int], None] | None = None

    # --------------------------------------------------------------------------------------------------- running

    def execute(self, line: str) -> Result:
        """Run one command line. Never raises for what a person, a file or an engine can do wrong."""
        typed = strip_comment(line).strip()
        if not typed:
            if not self._repeat or line.strip():
                return Result()
            typed = self._repeat
        if self._depth == 0:
            self._cancel.clear()
            self.history.append(typed)
            self._note_command(typed)
        self._depth += 1
        try:
            result = _shown(self._execute(typed))
        finally:
            self._depth -= 1
        self.transcript.append((typed, result))
        return result

    def _execute(self, typed: str) -> Result:
        context: Context | None = None
        try:
            command, rev, words = self.parse(typed)
            context = Context(self, command, rev, typed, self.timeline.branch)
            args = bind(command, words, self)
            self._check_needs(command)
            self._check_line_of_history()
            result = command.run(context, args) or context.result()
        except TROUBLES as error:
            text = explain(error)
            lines = (*(context.lines if context is not None else ()), text)
            status = "failed" if isinstance(error, DivergedError) else "error"
            return Result(lines, status, error=text, damaged=isinstance(error, DamagedError))
        if command.repeats:
            self._repeat = typed
        return result

    def parse(self, line: str) -> tuple[Command, bool, Words]:
        """The command of a line, whether ``rev`` stands before it, and its words. Raises UsageError."""
        words = Words(line)
        first = words.take()
        rev = False
        if first is not None and not first.quoted and first.text in ("rev", "reverse"):
            rev, first = True, words.take()
            if first is None:
                raise CommandError("rev goes before a movement: rev step, rev continue")
        if first is None or first.quoted:
            raise CommandError('a command is a word; "help" lists them')
        command, backwards = self.registry.resolve(first.text)
        if rev and not command.reversible:
            raise CommandError(f"{command.name} cannot go backwards; movements can: rev step, rev next, rev continue")
        return command, rev != backwards, words

    def cancel(self) -> None:
        """End the running command at its next event; from any thread."""
        self._cancel.set()

    def on_progress(self, report: Callable[[str, int, int], None] | None) -> None:
        """``report(what, done, total)`` is called in long walks, and between any two events of a running command."""
        self._report = report
        self.timeline.progress = report

    def _note_command(self, typed: str) -> None:
        self.timeline.command(typed)

    def _check_needs(self, command: Command) -> None:
        if "live" in command.needs and not self.can_act:
            kind = {"trace": "an imported trace has facts only and cannot run"}.get(
                self.timeline.source, "a recording alone cannot run: open it with --model FILE"
            )
            raise CommandError(f"{command.name} needs an engine, and {kind}")
        if "request" in command.needs and self.view.requests.get(self.request) is None:
            raise CommandError(
                f'{command.name} needs a request and there is none at event {self.view.seq}: start one with new "text"'
                if self.can_act
                else f"{command.name} needs a request and there is none at event {self.view.seq}: go to a later event"
            )

    @property
    def can_act(self) -> bool:
        """Actions can be performed (in a recording: on a branch, by the model it was opened with)."""
        return self.timeline.can_act

    # ----------------------------------------------------------------------------------------------------- scripts

    def source(self, text: str, name: str, keep_going: bool = False) -> Iterator[tuple[int, str, Result]]:
        """Run a script line by line: (line number, command, result). Ends after the first that is not ok;
        ``keep_going`` passes over failed checks."""
        from inspector.commands.parser import script_lines

        if self._depth >= SOURCE_DEPTH:
            raise CommandError(f"{name}: scripts call each other more than {SOURCE_DEPTH} deep")
        for number, command in script_lines(text):
            result = self.execute(command)
            yield number, command, result
            passed = result.ok or (keep_going and result.status == "failed")
            if not passed or self.finished or self.cancelled:
                return

    def all_findings(self) -> set[Finding]:
        """Findings of every line of history."""
        return {found for line in self.timeline.branches for found in self.timeline.findings(branch=line.id)}

    def close(self) -> None:
        self.timeline.close()

    def summary(self) -> str:
        """``event 1043 of 1877, HISTORY; 2 requests, 1 finding``."""
        from inspector.commands.render import place_of

        found = len(self.timeline.findings(None, self.timeline.now))
        return f"{place_of(self.timeline)}; {plural(len(self.view.requests), 'request')}, {plural(found, 'finding')}"
