"""Stops: breakpoints, watches, tracepoints. What they are, when they hit, how hits are counted.

A stop asks about one event: the view before it, the event, the view after it. The same question is asked while an
engine runs and while the past is searched, so a stop hits at the same events whichever way one walks.

Hits are counted over the run, not over the walk: ``hits`` at an event is how often the stop's place was met from the
first event up to there. ``break emit if hits % 10 == 0`` therefore means the same forwards and backwards.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from engine.events import Event
from inspector.commands.errors import CommandError, ExpressionError, UsageError
from inspector.commands.expressions import Expression
from inspector.commands.locations import Location, Match, Scopes
from sessions.view import LedgerView

Fact = tuple[LedgerView, Event, LedgerView]
MakeScopes = Callable[["StopPoint", LedgerView, Event, LedgerView], Scopes]


@dataclass(frozen=True, slots=True)
class Hit:
    """``number`` of the stop, what happened, and the lines a tracepoint prints."""

    number: int
    text: str
    lines: tuple[str, ...] = ()
    halts: bool = True


@dataclass(slots=True)
class StopPoint:
    """One stop. ``kind``: break, tbreak, watch, rwatch, awatch, trace. ``req`` is the request bare names speak of; -1
    takes the one of the event. ``since`` is the first event that is counted."""

    number: int
    kind: str
    location: Location
    condition: Expression | None = None
    prints: tuple[Expression, ...] = ()
    req: int = -1
    enabled: bool = True
    since: int = 1
    ignore_from: int = 0
    ignore_count: int = 0
    met: list[int] = field(default_factory=list)
    hits: list[int] = field(default_factory=list)
    seen_to: int = 0

    @property
    def heavy(self) -> bool:
        parts = (self.condition, *self.prints)
        return self.location.heavy or any(part is not None and part.heavy for part in parts)

    @property
    def counts(self) -> bool:
        """It must know every hit before the present one."""
        return self.ignore_count > 0 or (self.condition is not None and "hits" in self.condition.names)

    @property
    def text(self) -> str:
        """As it is listed, and as it could be typed again."""
        condition = f" if {self.condition.source}" if self.condition is not None else ""
        prints = " print " + ", ".join(part.source for part in self.prints) if self.prints else ""
        return f"{self.location.text}{prints}{condition}"

    def forget(self) -> None:
        """Drop what was counted: the line of history changed."""
        self.met, self.hits, self.seen_to = [], [], self.since - 1

    def ask(self, before: LedgerView, event: Event, after: LedgerView, make: MakeScopes) -> Hit | None:
        """The hit at this event, if any; counts it. Asked again about the same event it answers the same."""
        kinds = self.location.kinds
        seq = after.seq
        if seq == self.seen_to + 1:
            self.seen_to = seq
        if kinds and event.kind not in kinds:
            return None
        scopes = make(self, before, event, after)
        try:
            what = self.location.match(before, event, after, scopes)
            if not what:
                return None
            _insert(self.met, seq)
            if self.condition is not None:
                scopes.after.extras = {**scopes.after.extras, "hits": bisect.bisect_right(self.met, seq)}
                if not self.condition.true(scopes.after):
                    return None
        except ExpressionError as error:
            return Hit(self.number, f"{self.kind} {self.number} cannot be decided: {error}")
        _insert(self.hits, seq)
        ordinal = bisect.bisect_right(self.hits, seq)
        if self.ignore_from < ordinal <= self.ignore_from + self.ignore_count:
            return None
        return Hit(self.number, what, tuple(self._printed(scopes)), self.kind != "trace")

    def _printed(self, scopes: Scopes) -> Iterator[str]:
        for part in self.prints:
            try:
                yield f"{part.source} = {part.show(scopes.after)}"
            except ExpressionError as error:
                yield f"{part.source}: {error}"


def _insert(numbers: list[int], seq: int) -> None:
    if not numbers or numbers[-1] < seq:
        numbers.append(seq)
        return
    at = bisect.bisect_left(numbers, seq)
    if numbers[at] != seq:
        numbers.insert(at, seq)


def watch_location(expression: Expression) -> Location:
    """Hit when the value differs from the one before the event; names the old and the new value.

    The value after one event is the value before the next, so each is computed once while walking."""
    memory: dict[int, tuple[LedgerView, object]] = {}

    def value(view: LedgerView, scopes: Scopes, old: bool) -> object:
        known = memory.get(view.seq)
        if known is not None and known[0] is view:
            return known[1]
        found = expression.plain(scopes.before if old else scopes.after)
        if len(memory) > 8:
            memory.clear()
        memory[view.seq] = (view, found)
        return found

    def match(before: LedgerView, event: Event, after: LedgerView, scopes: Scopes) -> str:
        try:
            old = value(before, scopes, True)
        except ExpressionError:
            old = None  # Nothing could be known yet, for example before the first event.
        new = value(after, scopes, False)
        if _same(old, new):
            return ""
        scopes.after.extras = {"old": old, "new": new}
        shown = [_shown(item) for item in (old, new)]
        return f"{expression.source}: {shown[0]} -> {shown[1]}"

    made: Match = match
    return Location(expression.source, made, heavy=expression.heavy)


def _same(old: object, new: object) -> bool:
    if isinstance(old, float) and isinstance(new, float) and old != old and new != new:
        return True
    return type(old) is type(new) and old == new


def _shown(value: object) -> str:
    from inspector.text import quoted, shorten

    if isinstance(value, str):
        return quoted(value, 80)
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return f"{value:.9g}" if isinstance(value, float) else shorten(str(value), 160)


class StopTable:
    """The stops of a session, by number."""

    def __init__(self) -> None:
        self._points: dict[int, StopPoint] = {}
        self._next = 1

    def __iter__(self) -> Iterator[StopPoint]:
        return iter(self._points.values())

    def __len__(self) -> int:
        return len(self._points)

    def add(
        self,
        kind: str,
        location: Location,
        condition: Expression | None = None,
        prints: Iterable[Expression] = (),
        req: int = -1,
        now: int = 0,
    ) -> StopPoint:
        """A new enabled stop. One that reads tensors is counted from ``now`` on, others from the first event."""
        point = StopPoint(self._next, kind, location, condition, tuple(prints), req)
        if point.heavy:
            point.since = now + 1
        point.forget()
        self._points[point.number] = point
        self._next += 1
        return point

    def get(self, number: int) -> StopPoint:
        """Raises CommandError when there is no stop of that number."""
        point = self._points.get(number)
        if point is None:
            there = ", ".join(map(str, self._points)) or "none is set"
            raise CommandError(f"there is no stop {number}; stops: {there}")
        return point

    def delete(self, number: int) -> None:
        self.get(number)
        del self._points[number]

    def condition(self, number: int, expression: Expression | None) -> StopPoint:
        """Replace the condition; what was counted under the old one is dropped."""
        point = self.get(number)
        point.condition = expression
        if point.heavy and expression is not None and expression.heavy:
            point.since = max(point.since, point.seen_to + 1)
        point.forget()
        return point

    def ignore(self, number: int, count: int, now: int) -> StopPoint:
        """Skip the next ``count`` hits after event ``now``. The stop must be counted up to ``now``."""
        if count < 0:
            raise UsageError(f"a count is a number from 0, not {count}")
        point = self.get(number)
        point.ignore_from, point.ignore_count = bisect.bisect_right(point.hits, now), count
        return point

    def forget(self) -> None:
        for point in self:
            point.forget()

    def counting(self) -> list[StopPoint]:
        return [point for point in self if point.enabled and point.counts]

    def ask(self, before: LedgerView, event: Event, after: LedgerView, make: MakeScopes) -> list[Hit]:
        """All hits at this event."""
        hits = (point.ask(before, event, after, make) for point in self._points.values() if point.enabled)
        return [hit for hit in hits if hit is not None]
