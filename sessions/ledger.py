"""The ledger: a pure fold of events into what people look at. No engine, no torch, no clock.

It is independent of the engine's own bookkeeping, so it can catch the engine lying: positions and cursors are derived
from what was absorbed, copied, zeroed and rewound, never from the ``position`` and ``cursor`` an event claims. What
nobody told stays unknown (None, -1) and nothing is concluded from it.

Counters: requests, claims, forks, rounds.<mode>, outputs, decodes, tokens.prefill, tokens.skipped, drafted, verifies,
verifies.batched, accepted, accepted.<depth>, replayed, boundaries, watchdog.<name>, rollback.<outcome>,
finish.<reason>, reads, copies.<kind>, bytes.<kind>, syncs, ring.evictions, prefix.misses, prefix.evictions, kv.copies,
kv.rewinds, options, unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from immutables import Map

from engine.events import Event, Start
from sessions import fold_blocks, fold_requests, fold_snapshots, fold_states
from sessions.books import Books, Fold
from sessions.ordering import TOUCHING, touch
from sessions.view import LedgerView, PoolFact


def _start(books: Books, event: Start) -> None:
    """A new run begins; whatever was folded before belongs to another one."""
    books.open(LedgerView())
    books.changed = set()
    books.start = event
    totals = {
        "slots": event.slots,
        "blocks": event.blocks,
        "prefix": event.prefix_slots,
        "ring": event.slots * event.ring_depth,
    }
    books.pools = Map({name: PoolFact(name, total=total) for name, total in totals.items()})
    for name in totals:
        books.note("pool", name)


FOLDS: dict[str, Fold] = {
    "start": _start,
    **fold_requests.FOLDS,
    **fold_blocks.FOLDS,
    **fold_snapshots.FOLDS,
    **fold_states.FOLDS,
}


class Ledger:
    """Folds events one by one. ``view`` continues an earlier ledger (a keyframe): views are immutable, so any of them
    will do."""

    __slots__ = ("_books", "_view")

    def __init__(self, view: LedgerView | None = None) -> None:
        self._view = LedgerView() if view is None else view
        self._books = Books(self._view)

    @property
    def view(self) -> LedgerView:
        """The run after the last event."""
        return self._view

    def apply(self, event: Event) -> LedgerView:
        """Fold one event; the view after it. Earlier views stay as they are."""
        self._fold(event)
        self._books.changed = frozenset(self._books.changed)
        self._view = self._books.view()
        return self._view

    def _fold(self, event: Event) -> None:
        books = self._books
        books.changed = set()
        if books.in_flight and event.kind in TOUCHING:
            books.in_flight = tuple(touch(books.in_flight, event))
        fold: Any = FOLDS.get(event.kind)
        if fold is not None:
            fold(books, event)
        books.seq = event.seq
        books.round = event.round
        books.last = event

    def extend(self, events: Iterable[Event]) -> LedgerView:
        """Fold many events, making only the last view: what seeking needs."""
        for event in events:
            self._fold(event)
        self._books.changed = frozenset(self._books.changed)
        self._view = self._books.view()
        return self._view


def fold(events: Iterable[Event], view: LedgerView | None = None) -> LedgerView:
    """The view after ``events``, beginning from ``view`` (default: nothing happened yet)."""
    return Ledger(view).extend(events)
