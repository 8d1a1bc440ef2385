"""The engine's own numbers against the ledger's: where they differ, the engine believes something that is not so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from engine.events import (
    Decode,
    Emit,
    Event,
    Fork,
    KvRewind,
    Landed,
    Place,
    Prefill,
    ReplayRow,
    RingRecord,
    RingTruncate,
    Rollback,
    StateCopy,
    Verify,
    VerifyRow,
)
from sessions import places
from sessions.finding import Finding
from sessions.invariants.base import COPIES, OK, broken, invariant
from sessions.view import LedgerView

Claim = tuple[str, object, object]


@invariant(
    "engine-agrees",
    at=(
        "prefill",
        "decode",
        "verify_row",
        "verify",
        "replay_row",
        *COPIES,
        "landed",
        "kv_rewind",
        "ring_record",
        "ring_truncate",
        "emit",
        "fork",
        "rollback",
    ),
    says="Positions, cursors and counts that the engine tells are those that follow from what it did.",
    cause="The engine's bookkeeping and its copies have parted; one of the two forgot a rollback.",
)
def engine_agrees(before: LedgerView, event: Event, after: LedgerView) -> Iterable[Finding]:
    for what, told, derived in _claims(before, event, after):
        if told != derived:
            text = f"{event.kind}: the engine says {what} {told}, its events add up to {derived}"
            return broken("engine-agrees", event, what, derived, told, text)
    return OK


def _position(before: LedgerView, after: LedgerView, req: int, place: Place, told: int) -> Iterable[Claim]:
    """Compare a told position with h's and conv's; 0 and less after absorbing a token means not told."""
    fact = after.states.get(place)
    if fact is None or told <= 0 or fact.h_position is None or fact.conv_position is None:
        return ()
    # Where h and conv differ, another invariant speaks; one of them being right is enough here.
    if told in (fact.h_position, fact.conv_position) or told - fact.h_position == _lead(before, req):
        return ()
    return ((f"position of {place}", told, fact.h_position),)


def _lead(before: LedgerView, req: int) -> int:
    """By how much the cursor was ahead of live already: what an older mistake explains is not told again."""
    request, live = before.requests.get(req), before.live(req)
    if request is None or live is None or live.h_position is None:
        return 0
    rows = request.round.rows if request.round.phase == "verify" and not request.round.k else 0
    return request.cursor + rows - live.h_position


def _claims(before: LedgerView, event: Event, after: LedgerView) -> Iterable[Claim]:
    """(what, told, derived) of everything ``event`` claims and the ledger knows."""
    known = _CLAIMS.get(event.kind)
    return known(before, event, after) if known is not None else ()


def _cursor(view: LedgerView, req: int, told: int) -> Iterable[Claim]:
    request = view.requests.get(req)
    if request is None or told <= 0 or told == request.cursor:
        return ()
    return ((f"cursor of r{req}", told, request.cursor),)


def _step(before: LedgerView, event: Prefill | Decode | Verify, after: LedgerView) -> Iterable[Claim]:
    yield from _cursor(after, event.req, event.cursor)
    yield from _position(before, after, event.req, places.live(event.slot), event.position)
    request = before.requests.get(event.req)
    if isinstance(event, Prefill) and request is not None and -1 < event.start != request.cursor:
        yield f"start of the chunk of r{event.req}", event.start, request.cursor


def _row(before: LedgerView, event: VerifyRow, after: LedgerView) -> Iterable[Claim]:
    return _position(before, after, event.req, places.live(event.slot), event.position)


def _replay(before: LedgerView, event: ReplayRow, after: LedgerView) -> Iterable[Claim]:
    return _position(before, after, event.req, event.place, event.position)


def _copy(before: LedgerView, event: StateCopy, after: LedgerView) -> Iterable[Claim]:
    if not event.landed or not event.parts or event.bytes == 0:
        return ()
    return _position(before, after, event.req, event.dst, event.position)


def _landed(before: LedgerView, event: Landed, after: LedgerView) -> Iterable[Claim]:
    queued = next((copy for copy in before.queued if copy.copy == event.copy), None)
    if queued is None:
        return ((f"copy {event.copy} landed", "queued", "never queued"),)
    if (queued.src, queued.dst) != (event.src, event.dst):
        return ((f"copy {event.copy}", f"{event.src} to {event.dst}", f"{queued.src} to {queued.dst}"),)
    return ()


def _rewind(before: LedgerView, event: KvRewind, after: LedgerView) -> Iterable[Claim]:
    yield from _cursor(before, event.req, event.before)
    if event.cursor > event.before > 0:
        yield f"cursor of r{event.req}", event.cursor, f"at most {event.before}"


def _recorded(before: LedgerView, event: RingRecord, after: LedgerView) -> Iterable[Claim]:
    capacity = after.start.ring_depth
    if capacity and event.next_slot >= 0:
        yield f"next ring slot of r{event.req}", event.next_slot, (event.ring_slot + 1) % capacity


def _truncated(before: LedgerView, event: RingTruncate, after: LedgerView) -> Iterable[Claim]:
    request, capacity = before.requests.get(event.req), after.start.ring_depth
    if request is None or not capacity:
        return
    kept = [e for e in request.ring.entries if e.token_position <= event.keep_len]
    gone = tuple(e.token_position for e in request.ring.entries if e.token_position > event.keep_len)
    yield f"ring entries of r{event.req} dropped", event.dropped, gone
    expected = (kept[-1].ring_slot + 1) % capacity if kept else 0
    if event.next_slot >= 0:
        yield f"next ring slot of r{event.req}", event.next_slot, expected


def _emitted(before: LedgerView, event: Emit, after: LedgerView) -> Iterable[Claim]:
    request = before.requests.get(event.req)
    if request is not None:
        # An injected token replaces the pending one.
        expected = request.outputs - (event.mark == "inject")
        if event.index != expected:
            yield f"output number of r{event.req}", event.index, expected


def _forked(before: LedgerView, event: Fork, after: LedgerView) -> Iterable[Claim]:
    parent = before.requests.get(event.parent)
    if parent is not None:
        yield f"cursor of r{event.req}", event.cursor, parent.cursor
        yield f"outputs of r{event.req}", len(event.outputs), parent.outputs


def _rolled(before: LedgerView, event: Rollback, after: LedgerView) -> Iterable[Claim]:
    request = after.requests.get(event.req)
    if request is None or event.outcome != "rolled_back":
        return
    yield f"outputs of r{event.req}", event.keep_len, request.outputs
    yield from _cursor(after, event.req, event.cursor)
    if event.count > 0:
        yield f"rollbacks of r{event.req}", event.count, request.rollbacks
    if event.pending >= 0 and request.pending >= 0:
        yield f"pending token of r{event.req}", event.pending, request.pending


_CLAIMS: dict[str, Any] = {
    "prefill": _step,
    "decode": _step,
    "verify": _step,
    "verify_row": _row,
    "replay_row": _replay,
    **dict.fromkeys(COPIES, _copy),
    "landed": _landed,
    "kv_rewind": _rewind,
    "ring_record": _recorded,
    "ring_truncate": _truncated,
    "emit": _emitted,
    "fork": _forked,
    "rollback": _rolled,
}
