"""The decode ring: its entries own distinct slots, are in order, and were taken at boundaries."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from engine.events import Boundary, Place, RingRecord, Rollback, RoundEnd
from sessions.finding import Finding
from sessions.invariants.base import OK, broken, invariant
from sessions.view import LedgerView


@invariant(
    "ring-distinct-slots",
    at=("ring_record",),
    says="At most capacity entries are live and no two share a ring slot.",
    cause="The cursor was not moved when entries were truncated, and eviction goes by age instead of by slot.",
)
def ring_distinct_slots(before: LedgerView, event: RingRecord, after: LedgerView) -> Iterable[Finding]:
    ring = after.requests[event.req].ring
    shared = [e for e in ring.entries[:-1] if e.ring_slot == event.ring_slot]
    if shared:
        positions = [*(e.token_position for e in shared), event.token_position]
        text = f"ring slot {event.ring_slot} of r{event.req} is claimed by the entries at {_join(positions)} at once"
        where = f"ring:{event.slot}.{event.ring_slot}"
        return broken("ring-distinct-slots", event, where, "one entry", f"entries {_join(positions)}", text)
    if len(ring.entries) > ring.capacity > 0:
        text = f"the ring of r{event.req} has {len(ring.entries)} live entries, its capacity is {ring.capacity}"
        return broken("ring-distinct-slots", event, f"r{event.req}", ring.capacity, len(ring.entries), text)
    return OK


@invariant(
    "ring-order",
    at=("ring_record", "rollback"),
    says="Ring positions strictly increase in recording order, and none lies past the outputs.",
    cause="Entries past a rollback were not truncated, or one position was recorded twice.",
)
def ring_order(before: LedgerView, event: RingRecord | Rollback, after: LedgerView) -> Iterable[Finding]:
    request = after.requests.get(event.req)
    if request is None or not request.ring.entries:
        return OK
    positions = [entry.token_position for entry in request.ring.entries]
    where = f"r{event.req}"
    if any(a >= b for a, b in pairwise(positions)):
        text = f"the ring of r{event.req} has the positions {_join(positions)} in recording order"
        return broken("ring-order", event, where, "strictly increasing", _join(positions), text)
    if max(positions) > request.outputs and request.tokens:
        text = f"the ring of r{event.req} has an entry at {max(positions)}, there are {request.outputs} outputs"
        return broken("ring-order", event, where, f"at most {request.outputs}", max(positions), text)
    return OK


@invariant(
    "ring-boundary",
    at=("ring_record", "boundary"),
    says="A ring entry at p was taken when output p ended a line or sentence outside thinking.",
    cause="The boundary mask is for another tokenizer, or thinking was tracked after the snapshot.",
)
def ring_boundary(before: LedgerView, event: RingRecord | Boundary, after: LedgerView) -> Iterable[Finding]:
    request = after.requests.get(event.req)
    # Outside a round (an abandoned one is not told to end) a person saves wherever they like.
    if request is None or not request.round.open or event.round != request.round.number:
        return OK
    length = event.token_position if isinstance(event, RingRecord) else event.output_len
    at = request.prompt_len + length - 1
    if not request.prompt_len <= at < len(request.tokens):
        return OK
    token = request.tokens[at]
    where = f"r{event.req}"
    if after.boundaries.get(token, True) is False:
        text = f"output {length} of r{event.req} is token {token}, which ends neither line nor sentence"
        return broken("ring-boundary", event, where, "a boundary token", token, text)
    if request.think[at : at + 1] == "t":
        text = f"output {length} of r{event.req} lies inside thinking and was taken as a boundary"
        return broken("ring-boundary", event, where, "outside thinking", "inside", text)
    return OK


@invariant(
    "ring-saved",
    at=("round_end",),
    says="When a round ends, every ring entry has a snapshot behind it, or one on its way.",
    cause="The save failed or was left out, and the entry that had been reserved for it was kept.",
)
def ring_saved(before: LedgerView, event: RoundEnd, after: LedgerView) -> Iterable[Finding]:
    request = after.requests.get(event.req)
    if request is None or not request.ring.entries or request.slot < 0:
        return OK
    for entry in request.ring.entries:
        if entry.saved:
            continue
        place = Place("ring", request.slot, entry.ring_slot)
        if any(copy.dst == place for copy in after.queued):
            continue
        text = (
            f"{place} of r{event.req} is found under {entry.token_position} outputs since @{entry.recorded}, "
            "and nothing was saved there"
        )
        return broken("ring-saved", event, place, "a snapshot", "an entry without one", text)
    return OK


def _join(positions: list[int]) -> str:
    return ", ".join(map(str, positions))
