"""Snapshots: found under the position they hold, unchanged since they were taken, whole when they come back."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from engine.events import Digests, Landed, Place, PrefixHit, PrefixSave, RingRestore, RingSave, Start, StateCopy, Zero
from sessions.finding import Finding
from sessions.invariants.base import COPIES, OK, broken, invariant, parts_of
from sessions.view import LedgerView, StateFact

ITEM_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}


def _off(fact: StateFact, expected: int) -> bool:
    """Whether a known position of the place is not ``expected``."""
    return any(p is not None and p != expected for p in (fact.h_position, fact.conv_position))


@invariant(
    "snapshot-label",
    at=("ring_save", "ring_restore", "landed"),
    says="A ring entry labelled p holds the state before the p-th output was absorbed: prompt + p - 1 tokens.",
    cause="Saved one token early or late, after the boundary token was fed, or into the slot of another entry.",
)
def snapshot_label(before: LedgerView, event: RingSave | RingRestore | Landed, after: LedgerView) -> Iterable[Finding]:
    if isinstance(event, RingRestore):
        return _restored(before, event)
    if event.dst.kind != "ring" or (isinstance(event, RingSave) and (not event.landed or event.bytes == 0)):
        return OK
    fact = after.states.get(event.dst)
    request = after.requests.get(after.slot_owner.get(event.dst.slot, event.req))
    if fact is None or request is None or fact.label < 0:
        return OK
    expected = request.prompt_len + fact.label - 1
    if not _off(fact, expected):
        return OK
    text = f"{event.dst} is labelled {fact.label} outputs, so {expected} tokens, and holds {parts_of(fact)}"
    return broken("snapshot-label", event, event.dst, expected, parts_of(fact), text)


def _restored(before: LedgerView, event: RingRestore) -> Iterable[Finding]:
    fact, request = before.states.get(event.src), before.requests.get(event.req)
    if fact is None or request is None or not event.parts:
        return OK
    if fact.h_writer and fact.label != event.token_position:
        text = (
            f"{event.src} was restored as the snapshot after {event.token_position} outputs, its label is {fact.label}"
        )
        return broken("snapshot-label", event, event.src, event.token_position, fact.label, text)
    expected = request.prompt_len + event.token_position - 1
    if not _off(fact, expected):
        return OK
    text = f"{event.src} was restored for {expected} tokens and holds {parts_of(fact)}"
    return broken("snapshot-label", event, event.src, expected, parts_of(fact), text)


@invariant(
    "prefix-depth",
    at=("prefix_save", "prefix_hit", "landed"),
    says="A cached snapshot is found under exactly the tokens its state has absorbed.",
    cause="The key was rounded down to a block while the state was not, or saved before the commit.",
)
def prefix_depth(before: LedgerView, event: PrefixSave | PrefixHit | Landed, after: LedgerView) -> Iterable[Finding]:
    if isinstance(event, PrefixHit):
        fact, label = before.states.get(event.src), event.tokens
        held = before.prefixes.get(event.src.index)
        if held is not None and event.parts and (held.tokens, held.key) != (event.tokens, event.key):
            text = f"{event.src} holds {held.tokens} tokens under {held.key!r:.20}, the hit claims {event.tokens}"
            return broken("prefix-depth", event, event.src, held.tokens, event.tokens, text)
    elif event.dst.kind != "prefix" or (isinstance(event, PrefixSave) and not event.landed):
        return OK
    else:
        fact = after.states.get(event.dst)
        label = fact.label if fact is not None else -1
    if fact is None or label < 0 or not event.parts or not _off(fact, label):
        return OK
    text = f"{fact.place} is found under {label} tokens and holds {parts_of(fact)}"
    return broken("prefix-depth", event, fact.place, label, parts_of(fact), text)


@invariant(
    "prefix-session",
    at=("prefix_hit",),
    says="A tail snapshot is restored only by the session that saved it.",
    cause="The session gate is missing: the state lies past the key that another session shares.",
)
def prefix_session(before: LedgerView, event: PrefixHit, after: LedgerView) -> Iterable[Finding]:
    held, request = before.prefixes.get(event.src.index), before.requests.get(event.req)
    if held is None or request is None or held.origin != "tail" or held.session == request.session != 0:
        return OK
    text = f"{event.src} is the tail of session {held.session} and was restored by session {request.session}"
    return broken("prefix-session", event, event.src, held.session, request.session, text)


def _differ(old: Digests, new: Digests, parts: str) -> tuple[int, str, str, str] | None:
    """First (ordinal, part, old, new) that differs among known digests of ``parts``."""
    if old == new:
        return None
    for ordinal, (a, b) in enumerate(zip(old, new, strict=False)):
        for index, part in enumerate(("h", "conv")):
            if part in parts and a[index] and b[index] and a[index] != b[index]:
                return ordinal, part, a[index], b[index]
    return None


@invariant(
    "digest-after-restore",
    at=(*COPIES, "landed"),
    says="After a copy the destination has, bit for bit, the digest its source had when it was last written.",
    cause="The source was overwritten after it was sealed, the copy was cut short, or it went to another layer.",
)
def digest_after_restore(before: LedgerView, event: StateCopy | Landed, after: LedgerView) -> Iterable[Finding]:
    if not event.digests or event.bytes == 0:
        return OK
    source = before.states.get(event.src)
    found = _differ(source.digests, event.digests, event.parts) if source is not None else None
    if source is None or found is None:
        return OK
    ordinal, part, old, new = found
    layers = before.start.recurrent_layers
    layer = layers[ordinal] if ordinal < len(layers) else ordinal
    writer = source.h_writer if part == "h" else source.conv_writer
    text = f"{part} of layer {layer} in {event.dst} is {new}, {event.src} was {old} when it was written at @{writer}"
    return broken("digest-after-restore", event, event.dst, old, new, text)


@invariant(
    "sealed-immutable",
    at=(*COPIES, "zero"),
    says="A snapshot that can still be found is not written again before it is evicted.",
    cause="A ring slot was reused while a live entry points at it, or a cached snapshot is written in place.",
)
def sealed_immutable(before: LedgerView, event: StateCopy | Zero, after: LedgerView) -> Iterable[Finding]:
    place: Place = event.place if isinstance(event, Zero) else event.dst
    fact = before.states.get(place)
    if fact is None or not fact.sealed or not event.parts or event.bytes == 0:
        return OK
    if isinstance(event, StateCopy) and event.src == event.dst:
        return OK
    text = f"{place} was sealed at @{fact.h_writer} under label {fact.label} and is written again"
    return broken("sealed-immutable", event, place, f"sealed since @{fact.h_writer}", f"written at @{event.seq}", text)


@invariant(
    "dtype-and-shape",
    at=("start", *COPIES, "zero"),
    says="An entry has the dtype and shape of its role: bytes per layer are those of the pool.",
    cause="A size was computed in two places, or a snapshot is kept in another dtype than its pool.",
)
def dtype_and_shape(before: LedgerView, event: Start | StateCopy | Zero, after: LedgerView) -> Iterable[Finding]:
    if isinstance(event, Start):
        return _shapes(event)
    start = after.start
    layers = len(start.recurrent_layers) if isinstance(event, Zero) else event.layers
    if event.bytes <= 0 or layers <= 0 or start.h_bytes <= 0 or start.conv_bytes <= 0:
        return OK
    expected = layers * (start.h_bytes * ("h" in event.parts) + start.conv_bytes * ("conv" in event.parts))
    if event.bytes == expected:
        return OK
    place = event.place if isinstance(event, Zero) else event.dst
    text = (
        f"{event.kind} of {event.parts} over {layers} layers moved {event.bytes} bytes, the pool's rows have {expected}"
    )
    return broken("dtype-and-shape", event, place, expected, event.bytes, text)


def _shapes(event: Start) -> Iterable[Finding]:
    item = ITEM_BYTES.get(event.state_dtype, 0)
    for part, shape, told in (("h", event.h_shape, event.h_bytes), ("conv", event.conv_shape, event.conv_bytes)):
        if item and shape and told and prod(shape) * item != told:
            text = (
                f"{part} {list(shape)} in {event.state_dtype} is {prod(shape) * item} bytes per layer, told are {told}"
            )
            return broken("dtype-and-shape", event, part, prod(shape) * item, told, text)
    return OK
