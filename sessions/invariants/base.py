"""What an invariant is, and the registry that the modules of this package fill."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from engine.events import Event
from sessions.finding import Finding
from sessions.view import LedgerView, RequestFact, StateFact

Check = Callable[[LedgerView, Any, LedgerView], Iterable[Finding]]

OK: tuple[Finding, ...] = ()
"""What a check returns when the invariant holds: nothing, without making a list."""

COPIES = ("copy", "checkpoint", "commit", "state_rollback", "ring_save", "ring_restore", "prefix_save", "prefix_hit")
"""Kinds of all copy events."""


@dataclass(frozen=True, slots=True)
class Invariant:
    """``check(before, event, after)`` is called at the kinds of events in ``commit_points`` only. ``sentence`` says
    what holds, ``usual_cause`` what is wrong most often when it does not."""

    name: str
    sentence: str
    usual_cause: str
    commit_points: tuple[str, ...]
    check: Check


INVARIANTS: dict[str, Invariant] = {}


def invariant(name: str, at: tuple[str, ...], says: str, cause: str) -> Callable[[Check], Check]:
    """Register the decorated check."""

    def register(check: Check) -> Check:
        INVARIANTS[name] = Invariant(name, says, cause, at, check)
        return check

    return register


def broken(
    name: str, event: Event, where: object, expected: object, found: object, text: str, req: int | None = None
) -> tuple[Finding]:
    """One finding about ``event``; ``req`` when it is about another request than the event's."""
    return (
        Finding(
            name,
            event.seq,
            event.req if req is None else req,
            str(where),
            str(expected),
            str(found),
            text,
        ),
    )


def settled(view: LedgerView, request: RequestFact | None) -> StateFact | None:
    """The live state of a request that runs and whose state nobody is about to change: not dirty, nothing queued into
    it, h and conv known. None when there is nothing to say."""
    if request is None or request.slot < 0 or request.status == "finished":
        return None
    live = view.live(request.req)
    if live is None or live.dirty or live.queued or live.h_position is None or live.conv_position is None:
        return None
    return None if view.start.layers and not view.start.recurrent_layers else live


def parts_of(fact: StateFact) -> str:
    """Positions of h and conv for people."""
    return f"h {_text(fact.h_position)}, conv {_text(fact.conv_position)}"


def _text(position: int | None) -> str:
    return "unknown" if position is None else str(position)
