"""Folds of paged KV events: block tables, references, cursors."""

from __future__ import annotations

from engine.events import KvAlloc, KvCopy, KvDrop, KvFree, KvHold, KvRewind, KvShare
from sessions.books import Books, Fold
from sessions.evolve import evolve
from sessions.view import PrefixFact


def append(books: Books, event: KvAlloc | KvShare) -> None:
    request = books.request(event.req)
    books.put_request(evolve(request, blocks=request.blocks + event.blocks))
    books.refer(event.blocks, 1)


def copied(books: Books, event: KvCopy) -> None:
    """Copy on write: ``dst`` takes the place of ``src`` in the table."""
    request = books.request(event.req)
    books.note("block", event.dst)
    if event.dst in request.blocks:
        return
    if event.src in request.blocks:
        table = tuple(event.dst if block == event.src else block for block in request.blocks)
        books.refer((event.src,), -1)
    else:
        table = (*request.blocks, event.dst)
    books.refer((event.dst,), 1)
    books.put_request(evolve(request, blocks=table))
    books.count("kv.copies")


def hold(books: Books, event: KvHold) -> None:
    held = books.prefixes.get(event.index) or PrefixFact(event.index, -1, "", "")
    books.prefixes = books.prefixes.set(event.index, evolve(held, blocks=held.blocks + event.blocks))
    books.note("prefix", event.index)
    books.refer(event.blocks, 1)


def drop(books: Books, event: KvDrop) -> None:
    held = books.prefixes.get(event.index)
    if held is not None:
        kept = tuple(block for block in held.blocks if block not in event.blocks)
        books.prefixes = books.prefixes.set(event.index, evolve(held, blocks=kept))
        books.note("prefix", event.index)
    books.refer(event.blocks, -1)


def rewind(books: Books, event: KvRewind) -> None:
    books.put_request(evolve(books.request(event.req), cursor=event.cursor))
    books.count("kv.rewinds")


def free(books: Books, event: KvFree) -> None:
    request = books.request(event.req)
    books.refer(event.blocks, -1)
    # Without blocks nothing is cached; a finished request keeps its last cursor for people to read.
    cursor = request.cursor if request.status == "finished" else 0
    books.settle(evolve(request, blocks=(), cursor=cursor))


FOLDS: dict[str, Fold] = {
    "kv_alloc": append,
    "kv_share": append,
    "kv_copy": copied,
    "kv_hold": hold,
    "kv_drop": drop,
    "kv_rewind": rewind,
    "kv_free": free,
}
