"""All that is known of a run without an engine: events, views and findings of every branch."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from engine.events import Event
from sessions.errors import NotAvailable
from sessions.finding import Finding
from sessions.invariants import Checker, check_all
from sessions.ledger import Ledger
from sessions.record import PAGE, Record
from sessions.store_reader import StoreReader
from sessions.view import LedgerView
from sessions.views import Views


class History:
    """``store``: a session file whose events are paged in; without one everything is in memory."""

    def __init__(self, store: StoreReader | None = None) -> None:
        self.record = Record(store)
        self.views = Views(self.record, store)
        self._findings: dict[int, list[Finding]] = {}
        for branch, finding in store.findings() if store is not None else ():
            self.add_finding(branch, finding)

    @classmethod
    def of(cls, events: Iterable[Event], checker: Checker | None) -> History:
        """The history of a finished run of events, checked on the way. Raises ValueError when numbers do not follow."""
        history = cls()
        branch, ledger = history.record.add_branch(), Ledger()
        before = ledger.view
        for event in events:
            history.record.append(branch, event)
            after = ledger.apply(event)
            history.views.push(branch, event, after)
            for finding in checker.check(before, event, after) if checker is not None else ():
                history.add_finding(branch, finding)
            before = after
        return history

    def event(self, branch: int, seq: int) -> Event:
        return self.record.event(branch, seq)

    def view(self, branch: int, seq: int) -> LedgerView:
        return self.views.at(branch, seq)

    def steps(self, branch: int, lo: int, hi: int) -> Iterator[tuple[LedgerView, Event, LedgerView]]:
        """(before, event, after) for events ``lo``..``hi``, forwards."""
        before = self.views.at(branch, lo - 1)
        for seq in range(lo, hi + 1):
            after = self.views.at(branch, seq)
            yield before, self.record.event(branch, seq), after
            before = after

    def drop_branch(self, branch: int) -> None:
        """Take back the newest branch, as if it had never been."""
        self.record.drop_branch(branch)
        self.views.forget(branch)
        self._findings.pop(branch, None)

    def add_finding(self, branch: int, finding: Finding) -> bool:
        """Remember a finding at its place; False when it is known."""
        known = self._findings.setdefault(branch, [])
        at = bisect_right(known, finding.seq, key=lambda entry: entry.seq)
        if finding in known[bisect_left(known, finding.seq, key=lambda entry: entry.seq) : at]:
            return False
        known.insert(at, finding)
        return True

    def findings(self, branch: int, lo: int = 0, hi: int | None = None) -> list[Finding]:
        """Findings on the path of ``branch`` between two events, both included."""
        here = self.record.branch(branch)
        hi = self.record.last(branch) if hi is None else hi
        found = self.findings(here.parent, lo, min(hi, here.at)) if branch and lo <= here.at else []
        own = self._findings.get(branch, [])
        first = bisect_left(own, lo, key=lambda entry: entry.seq)
        return found + own[first : bisect_right(own, hi, key=lambda entry: entry.seq)]

    def check(self, checker: Checker, branch: int = 0) -> list[Finding]:
        """All invariants over a whole path, from its first event; what they find is not remembered."""
        starts = range(1, self.record.last(branch) + 1, PAGE)
        return check_all((event for lo in starts for event in self.record.events(branch, lo, lo + PAGE - 1)), checker)

    def require(self, branch: int, seq: int) -> None:
        """Raises NotAvailable when ``seq`` is not an event of ``branch``."""
        last = self.record.last(branch)
        if not 1 <= seq <= last:
            raise NotAvailable(f"no event {seq}; the record holds 1 to {last}")
