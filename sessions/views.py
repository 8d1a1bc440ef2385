"""Ledger views of any instant, without an engine: folded from the nearest kept view.

A view is kept every 256 events of each line (they are immutable and share structure), and all views of the pages last
looked at, so that walking costs nothing and a seek folds one page at most.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict

from engine.events import Event
from sessions.ledger import Ledger
from sessions.record import PAGE, Record
from sessions.store_reader import StoreReader
from sessions.view import LedgerView
from sessions.view_codec import LAYOUT, ViewError, from_sections

PAGES_KEPT = 12
LAYOUT_KEY = "view_layout"


class Views:
    """Views of ``record``. ``store``: where views of a recording may be kept."""

    def __init__(self, record: Record, store: StoreReader | None = None) -> None:
        self._record = record
        self._marks: dict[int, list[int]] = {}
        self._kept: dict[tuple[int, int], LedgerView] = {}
        self._stored: dict[int, list[int]] = {}
        self._pages: OrderedDict[tuple[int, int], list[LedgerView]] = OrderedDict()
        self._store = store
        if store is not None and store.meta(LAYOUT_KEY) == LAYOUT:
            self._stored = {branch.id: store.views(branch.id) for branch in record.branches}

    def at(self, branch: int, seq: int) -> LedgerView:
        """The view after event ``seq`` of ``branch``; 0 is before the first event. Raises NotAvailable."""
        if seq == 0:
            return LedgerView()
        owner = self._record.owner(branch, seq)
        self._record.event(branch, seq)  # complains in words when there is no such event
        page = self._page(owner, seq)
        return page[seq - max(self._record.branch(owner).at + 1, seq // PAGE * PAGE)]

    def push(self, branch: int, event: Event, view: LedgerView) -> None:
        """The view after a new event at the end of ``branch``."""
        number = event.seq // PAGE
        page = self._pages.get((branch, number))
        first = max(self._record.branch(branch).at + 1, number * PAGE)
        if page is not None and event.seq == first + len(page):
            page.append(view)
        elif event.seq == first:
            self._remember(branch, number, [view])
        if event.seq % PAGE == PAGE - 1:
            self._mark(branch, event.seq, view)

    def forget(self, branch: int) -> None:
        """The line is gone; its number may come again."""
        self._marks.pop(branch, None)
        for kept in (self._kept, self._pages):
            for key in [key for key in kept if key[0] == branch]:
                del kept[key]

    def _page(self, owner: int, seq: int) -> list[LedgerView]:
        """The views of the page of ``seq``, folded up to it at least."""
        key = (owner, seq // PAGE)
        lo = max(self._record.branch(owner).at + 1, seq // PAGE * PAGE)
        page = self._pages.get(key)
        if page is None:
            page, ledger = [], Ledger(self._base(owner, lo))
            self._remember(owner, seq // PAGE, page)
        else:
            self._pages.move_to_end(key)
            if lo + len(page) > seq:
                return page
            ledger = Ledger(page[-1])
        for event in self._record.events(owner, lo + len(page), seq):
            page.append(ledger.apply(event))
        if seq % PAGE == PAGE - 1:
            self._mark(owner, seq, page[-1])
        return page

    def _base(self, owner: int, lo: int) -> LedgerView:
        """The view before event ``lo``, the first of its page or of its line."""
        line = self._record.branch(owner)
        if lo == line.at + 1:
            return self.at(line.parent, line.at) if owner else LedgerView()
        marks = self._marks.get(owner, [])
        at = bisect_right(marks, lo - 1)
        known, view = (marks[at - 1], self._kept[owner, marks[at - 1]]) if at else (line.at, None)
        stored = self._stored.get(owner, [])
        at = bisect_right(stored, lo - 1)
        if at and stored[at - 1] > known:
            loaded = self._load(owner, stored[at - 1])
            known, view = (stored[at - 1], loaded) if loaded is not None else (known, view)
        ledger = Ledger(view if view is not None else self._base(owner, line.at + 1))
        while known < lo - 1:
            end = min(lo - 1, (known + 1) // PAGE * PAGE + PAGE - 1)
            after = ledger.extend(self._record.events(owner, known + 1, end))
            if end % PAGE == PAGE - 1:
                self._mark(owner, end, after)
            known = end
        return ledger.view

    def _load(self, owner: int, seq: int) -> LedgerView | None:
        assert self._store is not None
        try:
            view = from_sections(self._store.view_sections(owner, seq))
        except ViewError as error:
            raise self._store.damaged(f"ledger view of event {seq}: {error}") from None
        return view if view.seq == seq else None

    def _mark(self, owner: int, seq: int, view: LedgerView) -> None:
        if (owner, seq) not in self._kept:
            self._kept[owner, seq] = view
            marks = self._marks.setdefault(owner, [])
            marks.insert(bisect_right(marks, seq), seq)

    def _remember(self, owner: int, number: int, page: list[LedgerView]) -> None:
        self._pages[owner, number] = page
        self._pages.move_to_end((owner, number))
        while len(self._pages) > PAGES_KEPT:
            self._pages.popitem(last=False)
