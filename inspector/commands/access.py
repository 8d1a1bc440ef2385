"""Which event reads and which event writes which place: what ``watch PLACE``, ``rwatch PLACE`` and ``last`` go by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from engine.events import (
    LIVE,
    Compact,
    Decode,
    Event,
    Landed,
    Place,
    Prefill,
    ReplayRow,
    StateCopy,
    VerifyRow,
    Zero,
)
from sessions.view import LedgerView

BOTH = "h+conv"


@dataclass(frozen=True, slots=True)
class Access:
    """One read or write of parts of a place."""

    place: Place
    parts: str
    write: bool


def _read(place: Place, parts: str = BOTH) -> Access:
    return Access(place, parts, False)


def _write(place: Place, parts: str = BOTH) -> Access:
    return Access(place, parts, True)


def accesses(event: Event, before: LedgerView) -> Iterator[Access]:
    """Everything ``event`` read or wrote. A queued copy touches bytes when it lands, so only ``Landed`` counts.

    ``before`` is the view without the event: a compaction moves every place its old slot had."""
    match event:
        case Zero():
            yield _write(event.place, event.parts)
        case Prefill():
            if event.start:
                yield _read(LIVE(event.slot))
            yield _write(LIVE(event.slot))
        case Decode():
            yield _read(LIVE(event.slot))
            yield _write(LIVE(event.slot))
        case VerifyRow():
            yield _read(LIVE(event.slot))
            yield _write(LIVE(event.slot))
            if event.step_parts:
                yield _write(Place("step", event.slot, event.row), event.step_parts)
        case ReplayRow():
            yield _read(event.place)
            yield _write(event.place)
        case StateCopy() if event.landed and event.parts and event.bytes:
            yield _read(event.src, event.parts)
            yield _write(event.dst, event.parts)
        case Landed() if event.parts:
            yield _read(event.src, event.parts)
            yield _write(event.dst, event.parts)
        case Compact():
            for place in before.states:
                if place.slot == event.src and place.kind != "prefix":
                    yield _read(place, event.parts)
                    yield _write(Place(place.kind, event.dst, place.index), event.parts)
        case _:
            return


def touches(event: Event, before: LedgerView, place: Place, part: str = "", *, reads: bool, writes: bool) -> str:
    """``read``, ``written``, ``read and written`` or "": what ``event`` did to ``part`` ("" for any) of ``place``."""
    did = {
        access.write
        for access in accesses(event, before)
        if access.place == place and (not part or part in access.parts.split("+"))
    }
    shown = [
        word for word, write, wanted in (("read", False, reads), ("written", True, writes)) if wanted and write in did
    ]
    return " and ".join(shown)


def slots_of(event: Event) -> set[int]:
    """Pool rows that an event names, in any of its fields."""
    found: set[int] = set()
    for name in ("slot", "src", "dst", "place"):
        value = getattr(event, name, None)
        if isinstance(value, Place):
            found.add(value.slot)
        elif isinstance(value, int) and (name == "slot" or isinstance(event, Compact)):
            found.add(value)
    return found - {-1}
