"""How a debugger asks its stops: one predicate for running, searching the past, and acting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from inspector.commands.debugger_look import Looking
from inspector.commands.locations import Scopes
from inspector.commands.stops import Hit, StopPoint, StopTable
from sessions.errors import Cancelled
from sessions.ledger import Ledger
from sessions.view import LedgerView

if TYPE_CHECKING:
    from engine.events import Event


class Stopping(Looking):
    """The part of the debugger that stops. ``hits`` are those of the last movement, by event number."""

    stops: StopTable
    hits: dict[int, list[Hit]]
    _report: Callable[[str, int, int], None] | None
    _line_of_history: int

    @property
    def cancelled(self) -> bool:
        return self._cancel.is_set()

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
