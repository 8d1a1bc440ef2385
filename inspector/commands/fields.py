"""The fields that facts have in the expression language, each with a word on it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from engine.events import EVENTS, Event, Place
from inspector.commands.values import PlaceValue, Scope, Tensors, ValueProblem, kind_of
from inspector.text import suggest
from sessions.view import LedgerView, PoolFact, PrefixFact, RequestFact, RingFact

Getter = Callable[[Any, Scope], Any]


def _fact(name: str) -> Getter:
    def get(value: PlaceValue, scope: Scope) -> Any:
        state = scope.state(value)
        return None if state is None else getattr(state, name)

    return get


def _part(part: str) -> Getter:
    def get(value: PlaceValue, scope: Scope) -> Tensors:
        if value.place is None:
            raise ValueProblem(f"{value.name} has no slot now, so it has no tensors")
        return Tensors(value.place, part)

    return get


def _writer(value: PlaceValue, scope: Scope) -> int | None:
    state = scope.state(value)
    return None if state is None else max(state.h_writer, state.conv_writer)


def _of_request(name: str) -> Getter:
    return lambda value, scope: getattr(value, name)


def skews(view: LedgerView, request: RequestFact) -> tuple[int | None, int | None]:
    """h position minus cursor and conv position minus cursor of the live state, None where nothing was written."""
    live = view.live(request.req)
    if live is None:
        return None, None
    h, conv = live.h_position, live.conv_position
    return None if h is None else h - request.cursor, None if conv is None else conv - request.cursor


def skew(view: LedgerView, request: RequestFact) -> int | None:
    """The one of :func:`skews` that is further from 0; 0 when h, conv and cursor agree; None while a copy into live
    waits on the secondary stream, for then live is about to change."""
    live = view.live(request.req)
    if live is not None and live.queued:
        return None
    known = [value for value in skews(view, request) if value is not None]
    return max(known, key=abs) if known else None


def request_text(view: LedgerView, request: RequestFact) -> str:
    """The outputs as text; an id without a known text is written ``<id>``."""
    return "".join(view.texts.get(token, f"<{token}>") for token in request.tokens[request.prompt_len :])


def _live(name: str) -> Getter:
    def get(value: RequestFact, scope: Scope) -> Any:
        state = scope.view.live(value.req)
        return None if state is None else getattr(state, name)

    return get


def _round(name: str) -> Getter:
    return lambda value, scope: getattr(value.round, name)


REQUEST: dict[str, tuple[str, Getter]] = {
    "id": ("number of the request", _of_request("req")),
    "status": ("queued, running, finished", _of_request("status")),
    "slot": ("row of the state pool, -1 without one", _of_request("slot")),
    "epoch": ("allocation count of its slot", lambda r, scope: scope.view.slot_epoch.get(r.slot)),
    "prompt": ("number of prompt tokens", _of_request("prompt_len")),
    "outputs": ("number of generated tokens", _of_request("outputs")),
    "length": ("prompt and outputs together", lambda r, scope: len(r.tokens)),
    "tokens": ("ids of prompt and outputs", _of_request("tokens")),
    "cursor": ("tokens valid in the paged KV (seq_len)", _of_request("cursor")),
    "expected": ("position live must have between rounds: prompt + outputs - 1", _of_request("expected")),
    "position": ("tokens absorbed by live, none when h and conv differ", _live("position")),
    "h_position": ("tokens absorbed by h of live", _live("h_position")),
    "conv_position": ("tokens absorbed by conv of live", _live("conv_position")),
    "h_skew": ("h_position - cursor", lambda r, scope: skews(scope.view, r)[0]),
    "conv_skew": ("conv_position - cursor", lambda r, scope: skews(scope.view, r)[1]),
    "skew": (
        "h_skew or conv_skew, the one further from 0; none while a copy into live is queued",
        lambda r, scope: skew(scope.view, r),
    ),
    "dirty": ("live holds rejected drafts (between verify and commit)", _live("dirty")),
    "pending": ("id of the pending input token", _of_request("pending")),
    "text": ("the outputs as text", lambda r, scope: request_text(scope.view, r)),
    "thinking": ("inside a <think> passage", _of_request("thinking")),
    "mode": ("prefill, decode or verify: the running or last round", _round("mode")),
    "phase": ("where the round is", _round("phase")),
    "open": ("a round is running", _round("open")),
    "k": ("rows of the last verify, drafts + 1", _round("k")),
    "accepted": ("rows the last verify confirmed, 1..k", _round("accepted")),
    "drafts": ("ids of the last drafts", _round("drafts")),
    "picks": ("what the model chose after each verify row", _round("picks")),
    "rejected": ("drafts the last round threw away", _of_request("rejected")),
    "source": ("who drafted: mtp, lookup, hand", _round("source")),
    "ring": ("its snapshot ring", _of_request("ring")),
    "blocks": ("its KV blocks, in order", _of_request("blocks")),
    "rollbacks": ("boundary rollbacks so far", _of_request("rollbacks")),
    "finish": ("why it ended, empty while it runs", _of_request("finish")),
    "guard": ("watchdog that ended it", _of_request("guard")),
    "parent": ("request it was forked from, -1", _of_request("parent")),
}

PLACE: dict[str, tuple[str, Getter]] = {
    "position": ("tokens absorbed, none when h and conv differ", _fact("position")),
    "h_position": ("tokens absorbed by h", _fact("h_position")),
    "conv_position": ("tokens absorbed by conv", _fact("conv_position")),
    "owner": ("request that owns it, -1", _fact("owner")),
    "epoch": ("epoch of its slot", _fact("epoch")),
    "writer": ("event that wrote it last", _writer),
    "h_writer": ("event that wrote h last", _fact("h_writer")),
    "conv_writer": ("event that wrote conv last", _fact("conv_writer")),
    "sealed": ("finished: must not change until it is given up", _fact("sealed")),
    "dirty": ("holds rejected drafts", _fact("dirty")),
    "queued": ("a copy into it waits on the secondary stream", _fact("queued")),
    "label": ("token position it is found under, -1", _fact("label")),
    "dtype": ("dtype of its tensors", _fact("dtype")),
    "h": ("its h tensors: h[layer], h[layer, head]", _part("h")),
    "conv": ("its conv tensors: conv[layer], conv[layer, channel]", _part("conv")),
}

RING: dict[str, tuple[str, Getter]] = {
    "capacity": ("ring slots", lambda r, scope: r.capacity),
    "positions": ("labels of the entries, oldest first", lambda r, scope: tuple(e.token_position for e in r.entries)),
    "slots": ("ring slots of the entries, oldest first", lambda r, scope: tuple(e.ring_slot for e in r.entries)),
    "next": ("ring slot the next record takes", lambda r, scope: r.next_slot),
    "evictions": ("entries lost to newer ones", lambda r, scope: r.evictions),
}

POOL: dict[str, tuple[str, Getter]] = {
    "used": ("entries in use", lambda p, scope: p.used),
    "total": ("entries there are", lambda p, scope: p.total),
    "free": ("entries free", lambda p, scope: p.total - p.used),
    "peak": ("most that were ever in use", lambda p, scope: p.peak),
}

PREFIX: dict[str, tuple[str, Getter]] = {
    name: (about, _of_request(name))
    for name, about in (
        ("index", "prefix slot"),
        ("tokens", "tokens it covers"),
        ("key", "hash it is found under"),
        ("origin", "chunk, tail, leaf or decode"),
        ("session", "session that may use it"),
        ("blocks", "KV blocks it holds"),
    )
}

PLACE_NAME: dict[str, tuple[str, Getter]] = {
    "kind": ("live, checkpoint, step, ring, prefix", lambda p, scope: p.kind),
    "slot": ("row of the state pool", lambda p, scope: p.slot),
    "index": ("verify row, ring slot or prefix slot", lambda p, scope: p.index),
}

_EVENT_CLASSES: tuple[type[Event], ...] = (Event, *EVENTS.values())
EVENT_FIELDS: frozenset[str] = frozenset({f.name for cls in _EVENT_CLASSES for f in dataclasses.fields(cls)} | {"kind"})
TABLES: tuple[tuple[type[Any], str, dict[str, tuple[str, Getter]]], ...] = (
    (RequestFact, "request", REQUEST),
    (PlaceValue, "place", PLACE),
    (RingFact, "ring", RING),
    (PoolFact, "pool", POOL),
    (PrefixFact, "prefix", PREFIX),
    (Place, "place name", PLACE_NAME),
)
ATTRIBUTES: frozenset[str] = frozenset(name for _, _, table in TABLES for name in table) | EVENT_FIELDS


def attribute(value: Any, name: str, scope: Scope) -> Any:
    """Field ``name`` of a fact. Raises ValueProblem when this kind of value has no such field."""
    if value is None:
        return None
    if isinstance(value, Event):
        # A field another kind of event has is simply not there: none, so one condition serves all events.
        return getattr(value, name, None) if name in EVENT_FIELDS else _no_field("an event", name, EVENT_FIELDS)
    for cls, noun, table in TABLES:
        if isinstance(value, cls):
            found = table.get(name)
            if found is None:
                raise ValueProblem(f'a {noun} has no field "{name}".{suggest(name, table)}')
            return found[1](value, scope)
    raise ValueProblem(f'{kind_of(value)} has no field "{name}"')


def _no_field(noun: str, name: str, known: frozenset[str]) -> Any:
    raise ValueProblem(f'{noun} has no field "{name}".{suggest(name, known)}')
