"""The debugger without a screen: a timeline, stops, displays, focus, settings, history; text in, results out.

One worker calls :meth:`Debugger.execute`; :meth:`Debugger.cancel` may be called from any thread. The screen, batch and
scripts use the same object, so what works in one works in all.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.events import Event, Place, TensorData, TensorRef
from inspector.commands.arguments import bind
from inspector.commands.errors import CommandError, ExpressionError
from inspector.commands.groups import build_registry
from inspector.commands.locations import Scopes
from inspector.commands.parser import Words, strip_comment
from inspector.commands.places import PlaceSpec, When
from inspector.commands.registry import Command, Context, Registry, Result
from inspector.commands.settings import Settings
from inspector.commands.stops import Hit, StopPoint, StopTable
from inspector.commands.values import Scope, ValueProblem
from inspector.text import plural, suggest
from sessions.errors import Cancelled, DivergedError, NotAvailable
from sessions.finding import Finding
from sessions.invariants import INVARIANTS, ORACLES
from sessions.ledger import Ledger
from sessions.view import LedgerView, RequestFact

if TYPE_CHECKING:
    from inspector.commands.expressions import Expression
    from inspector.commands.values import Array
    from sessions.timeline import Timeline

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


class Instant(NamedTuple):
    """Event ``seq`` of a line of history."""

    branch: int
    seq: int


@dataclass(frozen=True, slots=True)
class Focus:
    """What commands without an address speak of. ``req`` None follows the events."""

    req: int | None = None
    layer: int | None = None
    head: int | None = None


class Debugger:
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
            result = self._execute(typed)
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
            text = self.explain(error)
            lines = (*(context.lines if context is not None else ()), text)
            return Result(lines, "failed" if isinstance(error, DivergedError) else "error", error=text)
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

    @property
    def cancelled(self) -> bool:
        return self._cancel.is_set()

    def on_progress(self, report: Callable[[str, int, int], None] | None) -> None:
        """``report(what, done, total)`` is called in long walks, and between any two events of a running command."""
        self._report = report
        self.timeline.progress = report

    def explain(self, error: BaseException) -> str:
        """One paragraph about what went wrong."""
        text = str(error).strip()
        if isinstance(error, Cancelled):
            return text or "cancelled"
        if isinstance(error, DivergedError):
            return f"diverged at event {error.seq}: {text}"
        if isinstance(error, KeyError) and not isinstance(error, NotAvailable):
            text = str(error.args[0]) if error.args else "a key is missing"
        if isinstance(error, MemoryError) and not text:
            text = "there is not enough memory for this"
        return text or type(error).__name__

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

    # ------------------------------------------------------------------------------------------------ where one is

    @property
    def view(self) -> LedgerView:
        return self.timeline.view

    @property
    def request(self) -> int:
        """The request that bare names speak of: the one in focus, else the one of the last event, else the lowest
        running, else the lowest; -1 when there is none."""
        view = self.timeline.view
        return self.request_of(view, view.last)

    def request_of(self, view: LedgerView, event: Event | None) -> int:
        if self.focus.req is not None and self.focus.req in view.requests:
            return self.focus.req
        if event is not None and event.req >= 0 and event.req in view.requests:
            self._followed = event.req
        if self._followed in view.requests:
            return self._followed
        running = sorted(req for req, fact in view.requests.items() if fact.slot >= 0)
        return running[0] if running else min(view.requests.keys(), default=-1)

    def current(self) -> RequestFact:
        """Raises CommandError when there is no request."""
        request = self.view.requests.get(self.request)
        if request is None:
            raise CommandError(f"there is no request at event {self.view.seq}")
        return request

    def instant(self, when: When) -> Instant:
        """Raises CommandError for a bookmark, a branch or an event that is not there."""
        timeline = self.timeline
        if when.kind == "mark":
            branch, seq = self._marked(when.name)
        elif when.kind == "event":
            branch, seq = timeline.branch if when.branch is None else when.branch, when.value
        else:
            words = {"start": timeline.first, "end": timeline.last, "now": timeline.now}
            return Instant(timeline.branch, words[when.kind])
        last = {line.id: line.last for line in timeline.branches}
        if branch not in last:
            raise CommandError(f"there is no branch {branch}; branches: {', '.join(map(str, last))}")
        if not timeline.first <= seq <= last[branch]:
            on = f" on branch {branch}" if branch != timeline.branch else ""
            raise CommandError(f"event {seq} is not recorded; there are events {timeline.first} to {last[branch]}{on}")
        return Instant(branch, seq)

    def _marked(self, name: str) -> Instant:
        """On this branch when the bookmark stands on its way, else on the branch it was set on."""
        marks = self.timeline.bookmarks
        if name not in marks:
            there = ", ".join(sorted(marks)) or "none is set"
            raise CommandError(f"there is no bookmark '{name}.{suggest(name, marks)} Bookmarks: {there}")
        note, record = self.timeline.bookmark(name), self.timeline.history.record
        shared = note.seq <= self.timeline.last and record.owner(self.timeline.branch, note.seq) == record.owner(
            note.branch, note.seq
        )
        return Instant(self.timeline.branch if shared else note.branch, note.seq)

    def instant_of_mark(self, name: str) -> int:
        """Event number of a bookmark."""
        return self._marked(name).seq

    # ------------------------------------------------------------------------------------------------- expressions

    @property
    def invariants(self) -> Mapping[str, Any]:
        return {**INVARIANTS, **ORACLES}

    @property
    def disabled(self) -> frozenset[str]:
        """Invariants that are switched off."""
        checker = self.timeline.checker
        return checker.disabled if checker is not None else frozenset()

    def scope(self, view: LedgerView | None = None, event: Event | None = None, req: int | None = None) -> Scope:
        """What an expression sees: now, or a given view."""
        view = self.timeline.view if view is None else view
        event = view.last if event is None else event
        return Scope(view, event, self.request if req is None else req, self._array, self._findings)

    def _findings(self, view: LedgerView) -> tuple[Finding, ...]:
        return tuple(self.timeline.findings(None, view.seq))

    def findings_at(self, before: LedgerView, event: Event, after: LedgerView) -> list[Finding]:
        """Findings of one event."""
        return self.timeline.findings(after.seq, after.seq)

    def _array(self, ref: TensorRef, seq: int) -> Array:
        from inspector.analysis.arrays import as_floats

        try:
            return as_floats(self.tensor(ref, seq))
        except (LookupError, CommandError) as error:
            raise ValueProblem(self.explain(error)) from None

    def tensor(self, ref: TensorRef, seq: int | None = None, branch: int | None = None) -> TensorData:
        """The bytes at a place at an instant. Raises NotAvailable, DivergedError, Cancelled."""
        return self.timeline.tensor(ref, seq, branch, cancel=self._cancel.is_set)

    @property
    def here(self) -> Instant:
        return Instant(self.timeline.branch, self.timeline.now)

    def view_of(self, instant: Instant) -> LedgerView:
        return self.timeline.view_at(instant.seq, instant.branch)

    def place(self, spec: PlaceSpec, default: Instant | None = None) -> tuple[Place, Instant]:
        """The place and the instant that ``spec`` means. Raises CommandError while the request has no slot."""
        instant = self.instant(spec.when) if spec.when is not None else default or self.here
        view = self.view_of(instant)
        return spec.at(view, self.request_of(view, None) if spec.req is None else spec.req), instant

    # --------------------------------------------------------------------------------------------------- stopping

    def predicate(self) -> Callable[[LedgerView, Event, LedgerView], str | None]:
        """Asks every enabled stop about an event; remembers the hits by event number."""
        self.hits = {}
        for point in self.stops.counting():
            self.count_up_to(point, self.timeline.now)

        def ask(before: LedgerView, event: Event, after: LedgerView) -> str | None:
            self.tick(after.seq)
            hits = self.stops.ask(before, event, after, self.scopes)
            if not hits:
                return None
            self.hits[after.seq] = hits
            halting = [f"stop {hit.number}: {hit.text}" for hit in hits if hit.halts]
            return "; ".join(halting) or None

        return ask

    @property
    def asks(self) -> bool:
        """Whether any stop wants to be asked while walking."""
        return any(point.enabled for point in self.stops)

    @property
    def reports(self) -> bool:
        """Whether somebody wants to be told between events."""
        return self._report is not None

    def tick(self, seq: int) -> None:
        """A running command passed event ``seq``."""
        if self._report is not None:
            self._report("running", seq, 0)

    def scopes(self, point: StopPoint, before: LedgerView, event: Event, after: LedgerView) -> Scopes:
        def request(view: LedgerView) -> int:
            if point.req >= 0:
                return point.req
            return event.req if event.req >= 0 else self.request_of(view, None)

        return Scopes(
            lambda: self.scope(after, event, request(after)),
            lambda: self.scope(before, before.last, request(before)),
        )

    def count_up_to(self, point: StopPoint, seq: int) -> None:
        """Ask a stop about every event it has not seen, so that it knows its hits before ``seq``."""
        low = point.seen_to + 1
        if low > seq:
            return
        for before, event, after in self.walk(low, seq):
            point.ask(before, event, after, self.scopes)

    def walk(self, low: int, high: int) -> Iterator[tuple[LedgerView, Event, LedgerView]]:
        """(before, event, after) of recorded events ``low`` to ``high``, without moving. Raises Cancelled."""
        low = max(low, self.timeline.first)
        before = self.timeline.view_at(low - 1) if low > self.timeline.first else LedgerView()
        ledger = Ledger(before)
        for event in self.timeline.events(low, high):
            if self.cancelled:
                raise Cancelled("cancelled")
            after = ledger.apply(event)
            yield before, event, after
            before = after

    def _check_line_of_history(self) -> None:
        if self._line_of_history != self.timeline.branch:
            self._line_of_history = self.timeline.branch
            self.stops.forget()

    # --------------------------------------------------------------------------------------------------- displays

    def add_display(self, expression: Expression) -> int:
        number, self._next_display = self._next_display, self._next_display + 1
        self.displays[number] = expression
        return number

    def display_lines(self) -> list[str]:
        """One line for each display, with its value now."""
        lines = []
        for number, expression in self.displays.items():
            try:
                lines.append(f"{number}: {expression.source} = {expression.show(self.scope())}")
            except ExpressionError as error:
                lines.append(f"{number}: {expression.source}: {error.what}")
        return lines

    def set_focus(self, **what: Any) -> None:
        self.focus = replace(self.focus, **what)

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
