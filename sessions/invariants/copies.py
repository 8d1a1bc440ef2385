"""Copies do what they say: something moves, and no layer is left behind."""

from __future__ import annotations

from collections.abc import Iterable

from engine.events import Commit, Compact, Event, Landed, Release, StateCopy, Sync, Zero
from sessions.finding import Finding
from sessions.invariants.base import COPIES, OK, broken, invariant
from sessions.view import LedgerView

MUST_MOVE = ("checkpoint", "state_rollback", "ring_save", "ring_restore", "prefix_save", "prefix_hit")


@invariant(
    "bytes-moved",
    at=(*COPIES, "zero", "compact"),
    says="An operation that claims to copy state moves bytes.",
    cause="A default method that does nothing, or sizes read from a config that are 0 for this layer kind.",
)
def bytes_moved(before: LedgerView, event: StateCopy | Zero | Compact, after: LedgerView) -> Iterable[Finding]:
    if event.parts and event.bytes != 0:
        return OK
    if isinstance(event, Commit):
        due = event.accepted < event.k
    else:
        due = bool(event.parts) or event.kind in MUST_MOVE
    if not due:
        return OK
    if isinstance(event, StateCopy):
        route: object = f"{event.src} to {event.dst}"
    else:
        route = event.place if isinstance(event, Zero) else f"slot {event.src} to {event.dst}"
    text = f"{event.kind} ({route}) claims {event.parts or 'nothing'} and moved {event.bytes} bytes"
    return broken("bytes-moved", event, route, "more than 0 bytes", event.bytes, text)


@invariant(
    "all-layers",
    at=(*COPIES, "landed"),
    says="A copy covers every recurrent layer.",
    cause="A layer forgot to override a method, or the copy stopped half way.",
)
def all_layers(before: LedgerView, event: StateCopy | Landed, after: LedgerView) -> Iterable[Finding]:
    total = len(after.start.recurrent_layers)
    layers = len(event.digests) if isinstance(event, Landed) else event.layers
    if not total or layers <= 0 or not event.parts or event.bytes == 0 or layers == total:
        return OK
    text = f"{event.kind} to {event.dst} covered {layers} of {total} recurrent layers"
    return broken("all-layers", event, event.dst, total, layers, text)


@invariant(
    "read-after-sync",
    at=("prefill", "decode", "verify_row", "replay_row", "zero", "compact", *COPIES),
    says="Between a copy queued on the secondary stream and the next sync, the default stream leaves its places alone.",
    cause="A path that lacks the wait for the secondary stream before it reads or overwrites live.",
)
def read_after_sync(before: LedgerView, event: Event, after: LedgerView) -> Iterable[Finding]:
    if not after.in_flight:
        return OK
    early = [item.copy for item in after.in_flight if item.touched == event.seq]
    if not early:
        return OK
    first = early[0]
    more = f" (and {len(early) - 1} more)" if len(early) > 1 else ""
    text = (
        f"{event.kind} of r{event.req} uses {first.dst if first.dst.kind == 'live' else first.src} while "
        f"{first.kind} {first.src} to {first.dst}, queued at @{first.seq} on the {first.stream} stream{more}, "
        "is not waited for"
    )
    where = first.dst if first.dst.kind == "live" else first.src
    return broken("read-after-sync", event, where, f"a sync after @{first.seq}", "none", text)


@invariant(
    "released-at-rest",
    at=("release",),
    says="A slot is given back only after every queued copy into it or out of it has landed.",
    cause="The end of a request does not wait for the secondary stream: what lands late hits the next tenant.",
)
def released_at_rest(before: LedgerView, event: Release, after: LedgerView) -> Iterable[Finding]:
    for copy in before.queued:
        place = next((place for place in (copy.dst, copy.src) if place.slot == event.slot >= 0), None)
        if place is not None:
            text = (
                f"slot {event.slot} of r{event.req} is free while {copy.kind} {copy.src} to {copy.dst}, queued at "
                f"@{copy.seq} on the {copy.stream} stream, has not landed"
            )
            return broken("released-at-rest", event, place, f"copy {copy.copy} landed", "on its way", text)
    return OK


@invariant(
    "sync-lands",
    at=("sync",),
    says="After a sync nothing is left in the queue it waited for.",
    cause="The wait was recorded before the copy was queued, or an event was reused.",
)
def sync_lands(before: LedgerView, event: Sync, after: LedgerView) -> Iterable[Finding]:
    left = [copy for copy in after.queued if copy.stream == event.stream]
    if not left:
        return OK
    text = (
        f"{len(left)} copies on the {event.stream} stream have not landed after its sync, first that of @{left[0].seq}"
    )
    return broken("sync-lands", event, left[0].dst, 0, len(left), text)
