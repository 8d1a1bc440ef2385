"""What ring and prefix copies mean beyond the bytes they move, and the bookkeeping events of both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.events import (
    Place,
    PrefixEvict,
    PrefixHit,
    PrefixMiss,
    PrefixSave,
    RingEvict,
    RingRecord,
    RingSave,
    RingTruncate,
    StateCopy,
)
from sessions.books import Books, Fold
from sessions.evolve import evolve
from sessions.view import PrefixFact, RequestFact, RingEntry, rows_upto


def _unseal(books: Books, place: Place) -> None:
    fact = books.states.get(place)
    if fact is not None:
        books.put(evolve(fact, sealed=False, label=-1))


# ----------------------------------------------------------------------------------------------------------- ring


def _put_ring(books: Books, request: RequestFact, entries: tuple[RingEntry, ...], **changes: Any) -> None:
    used = books.pools["ring"].used if "ring" in books.pools else 0
    books.pool("ring", used + len(entries) - len(request.ring.entries))
    books.put_request(evolve(request, ring=evolve(request.ring, entries=entries, **changes)))


def _after(ring_slot: int, depth: int) -> int:
    """The ring slot that follows; a ring of unknown depth (0) does not wrap."""
    return (ring_slot + 1) % depth if depth else ring_slot + 1


def ring_record(books: Books, event: RingRecord) -> None:
    request = books.request(event.req)
    entry = RingEntry(event.token_position, event.ring_slot, event.seq)
    depth = books.start.ring_depth
    following = _after(event.ring_slot, depth)
    _put_ring(books, request, (*request.ring.entries, entry), capacity=depth, next_slot=following)
    _unseal(books, Place("ring", event.slot, event.ring_slot))


def ring_evict(books: Books, event: RingEvict) -> None:
    request = books.request(event.req)
    gone = (event.ring_slot, event.token_position)
    entries = tuple(e for e in request.ring.entries if (e.ring_slot, e.token_position) != gone)
    _put_ring(books, request, entries, evictions=request.ring.evictions + 1)
    if all(entry.ring_slot != event.ring_slot for entry in entries):
        _unseal(books, Place("ring", event.slot, event.ring_slot))
    books.count("ring.evictions")


def ring_truncate(books: Books, event: RingTruncate) -> None:
    request = books.request(event.req)
    kept = tuple(entry for entry in request.ring.entries if entry.token_position <= event.keep_len)
    owned = {entry.ring_slot for entry in kept}
    for entry in request.ring.entries:
        if entry.ring_slot not in owned:
            _unseal(books, Place("ring", event.slot, entry.ring_slot))
    following = _after(kept[-1].ring_slot, books.start.ring_depth) if kept else 0
    _put_ring(books, request, kept, next_slot=following)


def _ring_saved(books: Books, event: StateCopy) -> dict[str, Any]:
    assert isinstance(event, RingSave)
    request = books.requests.get(event.req)
    if request is not None:
        entries = tuple(
            evolve(e, saved=True) if (e.ring_slot, e.token_position) == (event.dst.index, event.token_position) else e
            for e in request.ring.entries
        )
        books.put_request(evolve(request, ring=evolve(request.ring, entries=entries)))
    return {"label": event.token_position, "sealed": True}


# --------------------------------------------------------------------------------------------------------- prefix


def _prefix_saving(books: Books, event: StateCopy) -> None:
    assert isinstance(event, PrefixSave)
    index = event.dst.index
    held = books.prefixes.get(index)
    blocks = held.blocks if held is not None else ()
    saver = books.requests.get(event.req)
    chunks, rows = (saver.chunks, saver.rows) if saver is not None else ((), ())
    if saver is not None:
        rows = rows_upto(rows, saver.tokens, event.tokens)
    fact = PrefixFact(index, event.tokens, event.key, event.origin, event.session, blocks, event.seq, chunks, rows)
    books.prefixes = books.prefixes.set(index, fact)
    books.note("prefix", index)
    books.pool("prefix", len(books.prefixes))


def _prefix_saved(books: Books, event: StateCopy) -> dict[str, Any]:
    assert isinstance(event, PrefixSave)
    return {"label": event.tokens, "sealed": True, "epoch": books.state(event.dst).epoch + 1}


def _prefix_hitting(books: Books, event: StateCopy) -> None:
    assert isinstance(event, PrefixHit)
    if event.req >= 0:
        held = books.prefixes.get(event.src.index)
        chunks, rows = (held.chunks, held.rows) if held is not None else ((), ())
        books.put_request(evolve(books.request(event.req), cursor=event.tokens, chunks=chunks, rows=rows))
    books.count("tokens.skipped", event.tokens)
    books.note("prefix", event.src.index)


def prefix_miss(books: Books, event: PrefixMiss) -> None:
    books.count("prefix.misses")


def prefix_evict(books: Books, event: PrefixEvict) -> None:
    held = books.prefixes.get(event.index)
    if held is not None:
        books.prefixes = books.prefixes.delete(event.index)
        books.refer(held.blocks, -1)
    books.note("prefix", event.index)
    _unseal(books, Place("prefix", -1, event.index))
    books.pool("prefix", len(books.prefixes))
    books.count("prefix.evictions")


AT_COPY: dict[str, Callable[[Books, StateCopy], None]] = {
    "prefix_save": _prefix_saving,
    "prefix_hit": _prefix_hitting,
}
AT_LANDING: dict[str, Callable[[Books, StateCopy], dict[str, Any]]] = {
    "ring_save": _ring_saved,
    "prefix_save": _prefix_saved,
}

FOLDS: dict[str, Fold] = {
    "ring_record": ring_record,
    "ring_evict": ring_evict,
    "ring_truncate": ring_truncate,
    "prefix_miss": prefix_miss,
    "prefix_evict": prefix_evict,
}
