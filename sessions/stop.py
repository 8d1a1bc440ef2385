"""Where and why a movement ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.events import Event
from sessions.finding import Finding
from sessions.view import LedgerView

Predicate = Callable[[LedgerView, Event, LedgerView], str | None]
"""(view before, event, view after) -> text of the hit, or None. Called in the order of travel."""
Cancel = Callable[[], bool]
Progress = Callable[[str, int, int], None]
"""(what, done, total)."""

REASONS = {
    "step": "the asked units were walked",
    "stop": "a stop was hit; hits has its texts",
    "finding": "an invariant broke; finding says which",
    "decision": "the engine waits for an answer",
    "pause": "pause_at said so",
    "done": "the action is finished",
    "moved": "a seek arrived",
    "edge": "nothing more is recorded on this branch and it cannot be executed further",
    "idle": "no request has work left",
    "start": "the first event",
    "limit": "the given number of events was walked",
    "cancelled": "the caller cancelled",
    "refused": "the action cannot be done; text says why, nothing changed",
    "error": "the engine raised an exception; text has it",
    "diverged": "re-execution differs from the record; finding says where",
}


@dataclass(frozen=True, slots=True)
class Stop:
    """The movement ended at event ``seq`` (now) for ``reason``, one of ``REASONS``. ``hits`` are the texts of the stops
    hit there, ``finding`` is the first invariant broken on the way (forwards) or at ``seq``."""

    reason: str
    seq: int
    text: str = ""
    hits: tuple[str, ...] = ()
    finding: Finding | None = None
