"""What a debugger looks at: where it stands, which request it speaks of, places, instants, expressions, displays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.events import Event, Place, TensorData, TensorRef
from inspector.commands.errors import CommandError, ExpressionError
from inspector.commands.places import PlaceSpec, When
from inspector.commands.values import Scope, ValueProblem
from inspector.describe import Texts, describe
from inspector.text import suggest
from sessions.errors import Cancelled, DivergedError, NotAvailable
from sessions.finding import Finding
from sessions.invariants import INVARIANTS, ORACLES
from sessions.view import LedgerView, RequestFact

if TYPE_CHECKING:
    import threading

    from inspector.commands.expressions import Expression
    from inspector.commands.values import Array
    from sessions.timeline import Timeline


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


def explain(error: BaseException) -> str:
    """One paragraph about what went wrong."""
    text = str(error).strip()
    if isinstance(error, Cancelled):
        return text or "cancelled"
    if isinstance(error, DivergedError):
        return text if text.startswith("diverged") else f"diverged at event {error.seq}: {text}"
    if isinstance(error, KeyError) and not isinstance(error, NotAvailable):
        text = str(error.args[0]) if error.args else "a key is missing"
    if isinstance(error, MemoryError) and not text:
        text = "there is not enough memory for this"
    return text or type(error).__name__


class Looking:
    """The part of the debugger that only looks."""

    timeline: Timeline
    focus: Focus
    displays: dict[int, Expression]
    _cancel: threading.Event
    _followed: int
    _next_display: int

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

    def describe(self, event: Event, view: LedgerView | None = None) -> str:
        """One line for an event. Its tokens have texts also where the run told them later, or only the model knows."""
        seen = self.view if view is None else view
        told = Texts(lambda token: seen.texts.get(token) or self._text(token))
        return describe(event, replace(seen, texts=told))  # type: ignore[arg-type]

    def _text(self, token: int) -> str | None:
        known = self.timeline.text(token)
        return self.timeline.view_at(self.timeline.last).texts.get(token) if known is None else known

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
            raise ValueProblem(explain(error)) from None

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
