"""The round that made a state: where it began, which tokens it absorbed in which shapes, the instant just before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.events import Checkpoint, Decode, Place, Prefill, ReplayRow, VerifyRow
from inspector.judging.states import Subject
from sessions.view import RequestFact

if TYPE_CHECKING:
    from sessions.timeline import Timeline

STEPS = ("prefill", "decode", "verify_row", "verify")
RESTORES = ("ring_restore", "prefix_hit", "state_rollback", "copy", "zero")


@dataclass(frozen=True, slots=True)
class Made:
    """How a state came about. ``mode``: verify, decode, prefill, or restored (by a copy from elsewhere; then only
    ``seq`` counts). ``before`` is the last instant before the round touched live, ``base`` the position then, ``fed``
    all tokens it absorbed and ``count`` those that stay. ``place`` holds the state at ``base`` at that instant.
    ``seq`` is the event that began or made it; ``picks`` what the model chose after each row; ``form`` the shapes."""

    mode: str
    seq: int
    before: int = 0
    base: int = 0
    fed: tuple[int, ...] = ()
    count: int = 0
    place: Place | None = None
    picks: tuple[int, ...] = ()
    form: str = "steps"


def made(timeline: Timeline, about: Subject) -> Made | None:
    """How the live state of ``about`` came about; None when the record does not tell."""
    view = timeline.view_at(about.seq, about.branch)
    request = view.requests[about.req]
    state = request.round
    if state.open and not _touched(timeline, about, state.first):
        request = _previous(timeline, about, state.first) or request
        state = request.round
    live = view.states.get(about.place)
    writer = max(live.h_writer, live.conv_writer) if live is not None else 0
    if not state.first:
        return Made("restored", writer) if writer else None
    if writer and (request.last_rollback > state.first or writer < state.first):
        return Made("restored", writer)
    if writer > state.first and timeline.event(writer, about.branch).kind in RESTORES:
        return Made("restored", writer)
    return _round(timeline, about, request)


def _touched(timeline: Timeline, about: Subject, first: int) -> bool:
    events = timeline.events(first, about.seq, about.branch)
    return any(e.req == about.req and e.kind in (*STEPS, "ring_restore", "rollback") for e in events)


def _previous(timeline: Timeline, about: Subject, first: int) -> RequestFact | None:
    """The request at the end of its round before event ``first``."""
    low = first
    while low > timeline.first:
        high, low = low - 1, max(timeline.first, low - 256)
        for event in reversed(timeline.events(low, high, about.branch)):
            if event.req == about.req and event.kind == "round_end":
                return timeline.view_at(event.seq, about.branch).requests[about.req]
    return None


def _round(timeline: Timeline, about: Subject, request: RequestFact) -> Made | None:
    """The facts of the round that ``request`` tells of."""
    state = request.round
    events = [e for e in timeline.events(state.first, about.seq, about.branch) if e.req == about.req]
    first = next((e for e in events if isinstance(e, (Prefill, Decode, VerifyRow, ReplayRow))), None)
    if first is None:
        return None
    # the request may have moved to another slot since
    place = Place("live", timeline.view_at(first.seq - 1, about.branch).requests[about.req].slot)
    if isinstance(first, Prefill):
        base = first.start
        return Made("prefill", state.first, first.seq - 1, base, first.tokens, first.count, place, form="prefill")
    if isinstance(first, Decode):
        return Made("decode", state.first, first.seq - 1, state.base, (first.token,), 1, place, (first.pick,))
    rows = [e for e in events if isinstance(e, VerifyRow)]
    saved = next((e for e in events if isinstance(e, Checkpoint)), None)
    before = saved.seq if saved is not None else first.seq - 1
    fed = (rows[0].token, *state.drafts) if state.drafts else tuple(row.token for row in rows)
    count = state.accepted or len(rows)
    if state.open and state.base >= 0 and 0 <= about.position - state.base <= len(fed):
        count = about.position - state.base
    mode = timeline.view_at(before, about.branch).start.verify_mode
    told = next((e.mode for e in events if e.kind == "verify"), mode)  # type: ignore[attr-defined]
    if told == "batched":
        fed = tuple(row.token for row in rows) if len(rows) >= count else fed
    picks = tuple(row.pick for row in rows)
    return Made(
        "verify", state.first, before, state.base, fed, count, place, picks, "rows" if told == "batched" else "steps"
    )
