"""The units people step by, as tests on events."""

from __future__ import annotations

from collections.abc import Callable

from engine.events import Emit, Event, Finish, Prefill, Request, RoundEnd
from sessions.record import PAGE, Record

UNITS = ("event", "token", "round", "chunk", "request")
Test = Callable[[Event], bool]

KINDS: dict[str, tuple[type[Event], ...]] = {
    "event": (Event,),
    "token": (Emit,),
    "round": (RoundEnd,),
    "chunk": (Prefill, RoundEnd),
    "request": (Finish,),
}


def ends(unit: str, req: int | None = None, back: bool = False) -> Test:
    """Whether an event ends a step of ``unit``: token an Emit, round a RoundEnd, chunk a Prefill or RoundEnd, request a
    Finish (backwards: the Request). ``req``: of that request only.

    Raises:
        ValueError: no such unit.
    """
    if unit not in KINDS:
        raise ValueError(f"unit: expected one of {', '.join(UNITS)}, found {unit!r}")
    kinds = (Request,) if unit == "request" and back else KINDS[unit]
    return lambda event: isinstance(event, kinds) and (req is None or event.req == req)


def search_back(record: Record, branch: int, before: int, test: Test) -> int | None:
    """The latest event before ``before`` that passes ``test``."""
    hi = before - 1
    while hi >= 1:
        lo = max(1, hi - hi % PAGE)
        for event in reversed(record.events(branch, lo, hi)):
            if test(event):
                return event.seq
        hi = lo - 1
    return None


def counted_from(record: Record, branch: int, now: int, unit: str, test: Test) -> int:
    """The event that steps back are counted from: of tokens the newest one at or before ``now`` (behind it, at the end
    of its round, one still has it), of other units ``now`` itself."""
    newest = search_back(record, branch, now + 1, test) if unit == "token" else None
    return now if newest is None else newest
