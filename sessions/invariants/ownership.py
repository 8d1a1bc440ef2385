"""Who may touch what: one owner per slot, written before read, every index in range."""

from __future__ import annotations

from collections.abc import Iterable

from engine.events import (
    Claim,
    Compact,
    Decode,
    Event,
    Landed,
    Place,
    Prefill,
    Release,
    ReplayRow,
    RoundEnd,
    StateCopy,
    VerifyRow,
    Zero,
)
from sessions import places
from sessions.finding import Finding
from sessions.invariants.base import COPIES, OK, broken, invariant
from sessions.ordering import accesses
from sessions.view import LedgerView, StateFact

STEPS = ("prefill", "decode", "verify_row", "replay_row")
OWN = tuple(kind for kind in COPIES if kind != "copy")
"""Copies that stay with one request; a plain copy may go anywhere."""


def _written(fact: StateFact | None, parts: str) -> bool:
    if fact is None:
        return False
    return ("h" not in parts or fact.h_writer > 0) and ("conv" not in parts or fact.conv_writer > 0)


@invariant(
    "written-before-read",
    at=(*STEPS, *COPIES),
    says="A place is written in this epoch before it is read, restored or saved.",
    cause="A snapshot was published that no kernel wrote, or a restore took a reserved but empty slot.",
)
def written_before_read(before: LedgerView, event: Event, after: LedgerView) -> Iterable[Finding]:
    if isinstance(event, (Prefill, Decode, VerifyRow)):
        place, parts = places.live(event.slot), "h+conv"
        # A first prefill into a slot never used before starts from nothing; reuse is another invariant.
        if isinstance(event, Prefill) and event.start == 0:
            return OK
        fact = before.states.get(place)
        if fact is not None and fact.epoch > 1 and not (fact.h_writer or fact.conv_writer):
            return OK
    elif isinstance(event, ReplayRow):
        place, parts = event.place, "h+conv"
    elif isinstance(event, StateCopy) and event.parts and event.bytes != 0:
        place, parts = event.src, event.parts
        # What a queued copy will read may itself still be in the queue before it.
        if any(copy.dst == place for copy in before.queued):
            return OK
    else:
        return OK
    if _written(before.states.get(place), parts):
        return OK
    text = f"{event.kind} reads {parts} of {place}, which nobody has written since its slot was claimed"
    return broken("written-before-read", event, place, "written in this epoch", "never written", text)


@invariant(
    "zeroed-on-reuse",
    at=("prefill", "decode", "verify_row"),
    says="A reused slot is zeroed or restored before its new owner reads it.",
    cause="The slot was handed on without a reset: the former tenant's state is the starting point.",
)
def zeroed_on_reuse(before: LedgerView, event: Prefill | Decode | VerifyRow, after: LedgerView) -> Iterable[Finding]:
    fact = before.states.get(places.live(event.slot))
    if fact is None or fact.epoch <= 1 or fact.h_writer or fact.conv_writer:
        return OK
    text = f"r{event.req} reads slot {event.slot}, claimed {fact.epoch} times, without a reset since the former tenant"
    return broken("zeroed-on-reuse", event, fact.place, "zeroed or restored", f"epoch {fact.epoch}, unwritten", text)


@invariant(
    "zeroed-alike",
    at=("zero",),
    says="A place that was zeroed has the same digest in every layer: that of zeros.",
    cause="Recycled memory was scrubbed in part, or multiplied by zero, which leaves NaN where NaN were.",
)
def zeroed_alike(before: LedgerView, event: Zero, after: LedgerView) -> Iterable[Finding]:
    for index, part in enumerate(("h", "conv")):
        told = [pair[index] for pair in event.digests] if part in event.parts and event.bytes else []
        usual = max(told, key=told.count, default="")
        odd = next((ordinal for ordinal, digest in enumerate(told) if digest and digest != usual), -1)
        if odd < 0 or not usual:
            continue
        layers = after.start.recurrent_layers
        layer = layers[odd] if odd < len(layers) else odd
        text = f"{part} of layer {layer} in {event.place} is {told[odd]} after it was zeroed, other layers are {usual}"
        return broken("zeroed-alike", event, event.place, usual, told[odd], text)
    return OK


@invariant(
    "one-owner",
    at=("claim", "release", "compact"),
    says="A slot has exactly one owner, a request at most one slot.",
    cause="A slot was handed out twice, freed twice, or freed by somebody else.",
)
def one_owner(before: LedgerView, event: Claim | Release | Compact, after: LedgerView) -> Iterable[Finding]:
    if isinstance(event, Release):
        owner = before.slot_owner.get(event.slot, -1)
        if owner == event.req or (event.req < 0 <= owner):
            return OK
        who = f"r{owner}" if owner >= 0 else "nobody"
        text = f"r{event.req} gives slot {event.slot} back, which belongs to {who}"
        return broken("one-owner", event, f"slot {event.slot}", f"r{event.req}", who, text)
    dst = event.slot if isinstance(event, Claim) else event.dst
    taken = before.slot_owner.get(dst, -1)
    if taken >= 0:
        text = f"slot {dst} is given to r{event.req} while r{taken} owns it"
        return broken("one-owner", event, f"slot {dst}", "free", f"r{taken}", text)
    request = before.requests.get(event.req)
    held = request.slot if request is not None else -1
    if isinstance(event, Claim) and held >= 0:
        text = f"r{event.req} claims slot {dst} and still owns slot {held}"
        return broken("one-owner", event, f"slot {dst}", "no other slot", f"slot {held}", text)
    if isinstance(event, Compact) and held != event.src:
        text = f"r{event.req} is moved from slot {event.src}, it owns slot {held}"
        return broken("one-owner", event, f"slot {event.src}", event.src, held, text)
    return OK


@invariant(
    "one-writer",
    at=(*STEPS, "zero", *COPIES, "landed"),
    says="Only the owner of a slot writes its places.",
    cause="A stale index sent the write into the slot of another request, or it landed after the slot was handed on.",
)
def one_writer(before: LedgerView, event: Event, after: LedgerView) -> Iterable[Finding]:
    req = event.req
    if isinstance(event, Landed):
        # Whoever waits tells the landing; the writer is whoever queued the copy.
        req = next((copy.req for copy in before.queued if copy.copy == event.copy), -1)
        place = event.dst
    elif isinstance(event, StateCopy):
        place = event.dst
        if not event.parts or event.bytes == 0 or event.src == event.dst:
            return OK
    else:
        _, writes = accesses(event)
        place = writes[0][0]
    if req < 0 or place.slot < 0 or place.slot == after.start.slots > 0:
        return OK
    owner = before.slot_owner.get(place.slot, -1)
    if owner == req:
        return OK
    who = f"r{owner}" if owner >= 0 else "nobody"
    text = f"{event.kind} of r{req} writes {place}, which belongs to {who}"
    return broken("one-writer", event, place, f"r{req}", who, text, req)


@invariant(
    "index-in-range",
    at=(*STEPS, "zero", "claim", "compact", "ring_record", *COPIES),
    says="Every index is in range, and what is read belongs to the reader.",
    cause="An index was computed with the wrong unit, is -1, or is left over from another batch.",
)
def index_in_range(before: LedgerView, event: Event, after: LedgerView) -> Iterable[Finding]:
    for place in _touched(event):
        limit = _limit(after, place)
        if limit is not None:
            text = f"{event.kind} uses {place}, but {limit}"
            return broken("index-in-range", event, place, limit, place, text)
    if event.kind in OWN and isinstance(event, StateCopy) and event.req >= 0 and event.src.slot >= 0:
        owner = before.slot_owner.get(event.src.slot, -1)
        request = before.requests.get(event.req)
        if event.parts and owner not in (event.req, request.parent if request is not None else event.req):
            who = f"r{owner}" if owner >= 0 else "nobody"
            text = f"{event.kind} of r{event.req} reads {event.src}, which belongs to {who}"
            return broken("index-in-range", event, event.src, f"r{event.req}", who, text)
    return OK


def _touched(event: Event) -> tuple[Place, ...]:
    if isinstance(event, StateCopy):
        return (event.src, event.dst)
    if event.kind in ("zero", "replay_row"):
        return (event.place,)  # type: ignore[attr-defined]
    if event.kind == "ring_record":
        return (Place("ring", event.slot, event.ring_slot),)  # type: ignore[attr-defined]
    if isinstance(event, Compact):
        return (places.live(event.src), places.live(event.dst))
    if isinstance(event, VerifyRow) and event.step_parts:
        return (places.live(event.slot), places.step(event.slot, event.row))
    return (places.live(event.slot),)  # type: ignore[attr-defined]


def _limit(view: LedgerView, place: Place) -> str | None:
    """Why a place cannot exist, None when it can or when the sizes are not known."""
    start = view.start
    if place.kind == "prefix":
        if place.index < 0 or place.index >= start.prefix_slots > 0:
            return f"the prefix region has {start.prefix_slots} slots"
        return None
    # One more row than slots: the dummy that padded rows use.
    if place.slot < 0 or place.slot > start.slots > 0:
        return f"the pool has {start.slots} slots"
    depth = {"step": start.k if start.k > 1 else 0, "ring": start.ring_depth}.get(place.kind, 0)
    if place.index < 0 or place.index >= depth > 0:
        return f"there are {depth} {place.kind} places per slot"
    return None


@invariant(
    "padded-rows",
    at=(*STEPS, "zero", "copy"),
    says="Padded rows touch the dummy slot only, and no request ever uses it.",
    cause="Padding repeats a live index, or metadata of an earlier batch is stale.",
)
def padded_rows(before: LedgerView, event: Event, after: LedgerView) -> Iterable[Finding]:
    dummy = after.start.slots
    writes = accesses(event)[1]
    if not writes:
        return OK
    place = writes[0][0]
    if dummy <= 0 or place.slot < 0 or (event.req < 0) == (place.slot == dummy):
        return OK
    if event.req < 0:
        owner = before.slot_owner.get(place.slot, -1)
        who = f"r{owner}" if owner >= 0 else "nobody"
        text = f"a padded row writes {place}, which belongs to {who}; padding has slot {dummy}"
        return broken("padded-rows", event, place, f"slot {dummy}", f"slot {place.slot}", text)
    text = f"r{event.req} uses slot {dummy}, the dummy that padded rows write"
    return broken("padded-rows", event, place, "a slot of its own", f"slot {dummy}", text)


@invariant(
    "own-bytes",
    at=("round_end",),
    says="The state of a request holds its own tokens, or those of the parent or cached prefix it began from.",
    cause="A restore took the snapshot of another request.",
)
def own_bytes(before: LedgerView, event: RoundEnd, after: LedgerView) -> Iterable[Finding]:
    live = after.live(event.req)
    if live is None:
        return OK
    for part, owner in (("h", live.h_owner), ("conv", live.conv_owner)):
        if owner not in (event.req, -1):
            text = f"{part} in {live.place} of r{event.req} holds the tokens of r{owner}"
            return broken("own-bytes", event, live.place, f"r{event.req}", f"r{owner}", text)
    return OK
