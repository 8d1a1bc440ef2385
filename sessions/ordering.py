"""Happens-before over streams: which events use a place that a copy on the secondary stream still has in hand.

Copies on the secondary stream run one after another. The default stream runs one after another. Between them there is
one edge only: ``Sync``, after which the default stream sees everything queued before. (A copy may rely on what the
default stream did before it was queued: the host has read results back by then.) So from the moment a copy is queued
until the next Sync, the default stream must neither read nor write its destination, and must not write its source.
That a copy is *said* to have landed in between changes nothing: nobody waited for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from engine.events import Event, Place, StateCopy
from sessions import places
from sessions.evolve import evolve
from sessions.view import InFlight

BOTH = "h+conv"
Access = tuple[Place, str]
Accesses = tuple[tuple[Access, ...], tuple[Access, ...]]


def _absorb(event: Any) -> Accesses:
    access = ((places.live(event.slot), BOTH),)
    return access, access


def _verify_row(event: Any) -> Accesses:
    live = (places.live(event.slot), BOTH)
    step = (places.step(event.slot, event.row), event.step_parts)
    return (live,), (live, step)


def _replay_row(event: Any) -> Accesses:
    access = ((event.place, BOTH),)
    return access, access


def _zero(event: Any) -> Accesses:
    return (), ((event.place, event.parts),)


def _copy(event: Any) -> Accesses:
    if event.stream != "default" or not event.parts or event.bytes == 0:
        return (), ()
    writes = ((event.dst, event.parts),) if event.dst != event.src else ()
    return ((event.src, event.parts),), writes


ACCESSES: dict[str, Callable[[Any], Accesses]] = {
    "prefill": _absorb,
    "decode": _absorb,
    "verify_row": _verify_row,
    "replay_row": _replay_row,
    "zero": _zero,
    **dict.fromkeys(
        (
            "copy",
            "checkpoint",
            "commit",
            "state_rollback",
            "ring_save",
            "ring_restore",
            "prefix_save",
            "prefix_hit",
        ),
        _copy,
    ),
}


TOUCHING = frozenset((*ACCESSES, "compact"))


def accesses(event: Event) -> Accesses:
    """(reads, writes) of places that ``event`` does on the default stream, each with its parts."""
    known = ACCESSES.get(event.kind)
    return known(event) if known is not None else ((), ())


def _overlap(a: str, b: str) -> bool:
    return ("h" in a and "h" in b) or ("conv" in a and "conv" in b)


def conflict(copy: StateCopy, event: Event) -> str:
    """How ``event`` collides with a copy in flight: "reads", "overwrites" or "overwrites the source of"; "" if not."""
    if event.kind == "compact":
        return _moved(copy, event)
    reads, writes = accesses(event)
    if any(place == copy.dst and _overlap(parts, copy.parts) for place, parts in reads):
        return "reads"
    if any(place == copy.dst and _overlap(parts, copy.parts) for place, parts in writes):
        return "overwrites"
    if any(place == copy.src and _overlap(parts, copy.parts) for place, parts in writes):
        return "overwrites the source of"
    return ""


def _moved(copy: StateCopy, event: Any) -> str:
    """A compaction reads every place of its source slot and writes every place of its destination."""
    if event.bytes == 0 or not _overlap(event.parts, copy.parts):
        return ""
    if copy.dst.slot == event.src:
        return "reads"
    if copy.dst.slot == event.dst:
        return "overwrites"
    return "overwrites the source of" if copy.src.slot == event.dst else ""


def touch(in_flight: Iterable[InFlight], event: Event) -> Iterator[InFlight]:
    """``in_flight`` with the first event marked that used a place too early."""
    for item in in_flight:
        early = not item.touched and conflict(item.copy, event)
        yield evolve(item, touched=event.seq) if early else item
