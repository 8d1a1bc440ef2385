"""Making room in the paged KV: fresh blocks, copy-on-write of shared ones, and eviction of cached prefixes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import TypeVar

from engine.events import Event, KvAlloc, KvCopy, KvDrop, PrefixEvict
from engine.request import ActiveRequest
from engine.runtime import Runtime
from engine.state.errors import KvExhausted

T = TypeVar("T")


def reserve(rt: Runtime, request: ActiveRequest, count: int) -> Iterator[Event]:
    """Make positions cursor .. cursor + count - 1 of ``request`` writable by it alone.

    Raises KvExhausted when the pool is full; what was reserved so far stays with the request and was told.
    """
    table, cursor = request.seq.table, request.seq.cursor
    for copy in (yield from _evicting(rt, lambda: table.unshare(cursor))):
        yield rt.event(KvCopy, request.req, src=copy.src, dst=copy.dst, tokens=copy.tokens)
    fresh = yield from _evicting(rt, lambda: table.reserve(cursor + count))
    if fresh:
        yield rt.event(KvAlloc, request.req, blocks=fresh)


def _evicting(rt: Runtime, take: Callable[[], T]) -> Generator[Event, None, T]:
    """What ``take`` gives, after evicting as many cached prefixes as it needs. Raises KvExhausted."""
    while True:
        try:
            return take()
        except KvExhausted:
            yield from give_up_oldest(rt)


def give_up_oldest(rt: Runtime) -> Iterator[Event]:
    """Evict the least recently used cached prefix to get its blocks back. Raises KvExhausted when there is none."""
    oldest = rt.prefix.oldest() if rt.prefix is not None else None
    if oldest is None:
        raise KvExhausted(
            f"the KV pool of {rt.kv.blocks} blocks of {rt.kv.block_size} tokens is full ({rt.kv.free} free); "
            f"free a request or start with a larger --kv-tokens"
        )
    yield from evict_prefix(rt, oldest, "blocks needed")


def evict_prefix(rt: Runtime, index: int, reason: str) -> Iterator[Event]:
    """Drop one cached snapshot and the references it held."""
    assert rt.prefix is not None
    entry = rt.prefix.evict(index)
    rt.memory.snapshots.free_prefix(index)
    rt.kv.release(entry.blocks)
    yield rt.event(KvDrop, index=index, blocks=entry.blocks)
    yield rt.event(PrefixEvict, index=index, key=entry.key, tokens=entry.tokens, reason=reason)
