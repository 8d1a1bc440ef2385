"""Folds of events that write states: where h and conv are, what they have absorbed, who wrote them last.

Positions are derived here and nowhere taken from the engine: absorbing adds, copying takes the source's, zeroing is 0.
"""

from __future__ import annotations

from typing import Any

from engine.events import (
    Claim,
    Compact,
    Decode,
    Digests,
    Event,
    Landed,
    Place,
    Prefill,
    Release,
    ReplayRow,
    StateCopy,
    Sync,
    Verify,
    VerifyRow,
    Zero,
)
from sessions import places
from sessions.books import Books, Fold
from sessions.evolve import evolve
from sessions.fold_snapshots import AT_COPY, AT_LANDING
from sessions.view import InFlight, StateFact


def moves(event: StateCopy | Zero | Compact | Landed) -> bool:
    """Whether bytes went anywhere; -1 bytes means that nobody counted them."""
    return bool(event.parts) and event.bytes != 0


def _plus(position: int | None, count: int) -> int | None:
    return None if position is None else position + count


def absorb(books: Books, place: Place, event: Event, count: int, digests: Digests, **more: Any) -> StateFact:
    """``count`` tokens went into the state at ``place``."""
    fact = books.state(place)
    fact = evolve(
        fact,
        h_position=_plus(fact.h_position, count),
        conv_position=_plus(fact.conv_position, count),
        h_writer=event.seq,
        conv_writer=event.seq,
        h_owner=event.req,
        conv_owner=event.req,
        digests=digests,
        **more,
    )
    books.put(fact)
    return fact


def prefill(books: Books, event: Prefill) -> None:
    place = places.live(event.slot)
    fact = books.state(place)
    if event.start == 0 and fact.h_writer == 0 and fact.conv_writer == 0:
        # A sequence that starts from nothing: whatever stale bytes it may have read, it counts from 0.
        books.states = books.states.set(place, evolve(fact, h_position=0, conv_position=0))
    absorb(books, place, event, event.count, event.digests)
    request = books.request(event.req)
    if event.req >= 0:
        round_ = evolve(request.round, phase="prefill")
        chunks = (*request.chunks, (event.start, event.start + event.count)) if event.count > 0 else request.chunks
        books.put_request(evolve(request, cursor=request.cursor + event.count, round=round_, chunks=chunks))
    books.count("tokens.prefill", event.count)


def decode(books: Books, event: Decode) -> None:
    absorb(books, places.live(event.slot), event, 1, event.digests)
    request = books.request(event.req)
    if event.req >= 0:
        round_ = evolve(request.round, phase="decode", picks=(event.pick,))
        books.put_request(evolve(request, cursor=request.cursor + 1, round=round_))
    books.count("decodes")


def verify_row(books: Books, event: VerifyRow) -> None:
    live = absorb(books, places.live(event.slot), event, 1, event.digests, dirty=True)
    if event.step_parts:
        _step(books, event, live)
    request = books.request(event.req)
    if event.req >= 0:
        old = request.round
        k, batched = (event.batch, True) if event.batch else (old.k, old.batched)
        round_ = evolve(old, rows=old.rows + 1, k=k, batched=batched, phase="verify")
        books.put_request(evolve(request, round=round_))


def _step(books: Books, event: VerifyRow, live: StateFact) -> None:
    step = books.state(places.step(event.slot, event.row))
    h, conv = "h" in event.step_parts, "conv" in event.step_parts
    changes: dict[str, Any] = {"digests": merged(step.digests, event.digests, h, conv)}
    if h:
        changes.update(h_position=live.h_position, h_writer=event.seq, h_owner=event.req)
    if conv:
        changes.update(conv_position=live.conv_position, conv_writer=event.seq, conv_owner=event.req)
    books.put(evolve(step, **changes))


def verify(books: Books, event: Verify) -> None:
    request = books.request(event.req)
    if request.round.rows == 0:
        # Rows were not told one by one.
        absorb(books, places.live(event.slot), event, event.k, (), dirty=True)
    if event.req >= 0:
        if event.mode == "batched":
            books.count("verifies.batched")
        batched = event.mode == "batched"
        round_ = evolve(request.round, k=event.k, picks=event.picks, phase="verify", batched=batched)
        books.put_request(evolve(request, cursor=request.cursor + event.k, round=round_))


def replay_row(books: Books, event: ReplayRow) -> None:
    absorb(books, event.place, event, 1, event.digests)
    books.count("replayed")


def zero(books: Books, event: Zero) -> None:
    if not moves(event):
        return
    fact = books.state(event.place)
    h, conv = "h" in event.parts, "conv" in event.parts
    changes: dict[str, Any] = {"digests": merged(fact.digests, event.digests, h, conv), "dirty": False}
    if h:
        changes.update(h_position=0, h_writer=event.seq, h_owner=event.req)
    if conv:
        changes.update(conv_position=0, conv_writer=event.seq, conv_owner=event.req)
    books.put(evolve(fact, **changes))
    books.count("bytes.zero", max(0, event.bytes))


# --------------------------------------------------------------------------------------------------------- copies


def merged(old: Digests, new: Digests, h: bool, conv: bool) -> Digests:
    """Digests of a place after some of its parts were replaced; "" for a part whose digest nobody told."""
    if h and conv:
        return new
    rows = max(len(old), len(new))
    blank = (("", ""),) * rows
    pairs = zip(old or blank, new or blank, strict=False)
    return tuple((b[0] if h else a[0], b[1] if conv else a[1]) for a, b in pairs)


def copy(books: Books, event: StateCopy) -> None:
    """Any copy: bytes are at ``dst`` now, or queued until their ``Landed``. A place copied onto itself was read."""
    if event.src == event.dst and event.kind == "copy":
        _read(books, event)
        return
    books.count(f"copies.{event.kind}")
    at_copy = AT_COPY.get(event.kind)
    if at_copy is not None:
        at_copy(books, event)
    if not moves(event):
        return
    books.count(f"bytes.{event.kind}", max(0, event.bytes))
    if event.landed:
        land(books, event, event.seq, event.digests)
        return
    books.queued = (*books.queued, event)
    books.in_flight = (*books.in_flight, InFlight(event))
    books.put(evolve(books.state(event.dst), queued=True))
    books.note("stream", event.stream)


def _read(books: Books, event: StateCopy) -> None:
    fact = books.state(event.src)
    if event.digests:
        h, conv = "h" in event.parts, "conv" in event.parts
        books.put(evolve(fact, digests=merged(fact.digests, event.digests, h, conv)))
    books.count("reads")


def land(books: Books, event: StateCopy, seq: int, digests: Digests) -> None:
    """The bytes of a copy are at its destination. A queued copy takes what its source holds when it lands."""
    src, dst = books.state(event.src), books.state(event.dst)
    h, conv = "h" in event.parts, "conv" in event.parts
    told = digests or merged(dst.digests, src.digests, h, conv)
    changes: dict[str, Any] = {"digests": told, "dirty": False}
    if h:
        changes.update(h_position=src.h_position, h_writer=seq, h_owner=_adopt(books, event, src.h_owner))
    if conv:
        changes.update(
            conv_position=src.conv_position, conv_writer=seq, conv_owner=_adopt(books, event, src.conv_owner)
        )
    if dst.queued:
        changes["queued"] = any(other.dst == event.dst for other in books.queued)
    at_landing = AT_LANDING.get(event.kind)
    if at_landing is not None:
        changes.update(at_landing(books, event))
    books.put(evolve(dst, **changes))


def _adopt(books: Books, event: StateCopy, owner: int) -> int:
    """Whose tokens the copied bytes hold. A child continues its parent; a prefix hit continues whoever saved it."""
    request = books.requests.get(event.req)
    if owner == event.req or request is None:
        return owner
    return event.req if event.kind == "prefix_hit" or owner == request.parent else owner


def landed(books: Books, event: Landed) -> None:
    queued = next((item for item in books.queued if item.copy == event.copy), None)
    if queued is None:
        # Told twice or never queued: an invariant says so, the bytes are taken as told.
        plain = StateCopy(
            seq=event.seq, req=event.req, copy=event.copy, src=event.src, dst=event.dst, parts=event.parts
        )
        land(books, plain, event.seq, event.digests)
        return
    books.queued = tuple(item for item in books.queued if item is not queued)
    books.in_flight = tuple(evolve(item, landed=True) if item.copy is queued else item for item in books.in_flight)
    books.note("stream", queued.stream)
    land(books, queued, event.seq, event.digests)


def sync(books: Books, event: Sync) -> None:
    books.in_flight = ()
    books.note("stream", event.stream)
    books.count("syncs")


# ---------------------------------------------------------------------------------------------------------- slots


def claim(books: Books, event: Claim) -> None:
    epoch = event.epoch if event.epoch > 0 else books.slot_epoch.get(event.slot, 0) + 1
    books.claim(event.slot, event.req, epoch)
    books.put_request(evolve(books.request(event.req), slot=event.slot, status="running"))
    books.count("claims")


def release(books: Books, event: Release) -> None:
    owner = books.slot_owner.get(event.slot, event.req)
    books.release(event.slot)
    request = books.requests.get(owner)
    if request is not None and request.slot == event.slot:
        status = "queued" if request.status == "running" else request.status
        if request.ring.entries:
            books.pool("ring", books.pools["ring"].used - len(request.ring.entries))
        books.settle(evolve(request, slot=-1, status=status, ring=evolve(request.ring, entries=())))


def compact(books: Books, event: Compact) -> None:
    epoch = event.epoch if event.epoch > 0 else books.slot_epoch.get(event.dst, 0) + 1
    moving = [books.states[place] for place in books.places_of(event.src)]
    books.claim(event.dst, event.req, epoch)
    h = moves(event) and "h" in event.parts
    conv = moves(event) and "conv" in event.parts
    for fact in moving:
        place = Place(fact.place.kind, event.dst, fact.place.index)
        # a copy on its way to the old place does not follow
        coming = any(other.dst == place for other in books.queued)
        changes: dict[str, Any] = {"place": place, "owner": event.req, "epoch": epoch, "queued": coming}
        if not h:
            changes.update(h_position=None, h_writer=0, h_owner=-1)
        elif fact.h_writer:
            changes["h_writer"] = event.seq
        if not conv:
            changes.update(conv_position=None, conv_writer=0, conv_owner=-1)
        elif fact.conv_writer:
            changes["conv_writer"] = event.seq
        books.put(evolve(fact, **changes))
    books.release(event.src)
    books.put_request(evolve(books.request(event.req), slot=event.dst))
    books.count("bytes.compact", max(0, event.bytes))


COPIES = (
    "copy",
    "checkpoint",
    "commit",
    "state_rollback",
    "ring_save",
    "ring_restore",
    "prefix_save",
    "prefix_hit",
)

FOLDS: dict[str, Fold] = {
    "prefill": prefill,
    "decode": decode,
    "verify_row": verify_row,
    "verify": verify,
    "replay_row": replay_row,
    "zero": zero,
    "landed": landed,
    "sync": sync,
    "claim": claim,
    "release": release,
    "compact": compact,
    **dict.fromkeys(COPIES, copy),
}
