"""Tables of state memory for ``info``: rings, places, cursors, pools, blocks, streams, the prefix cache."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from engine.events import Place
from inspector.commands.errors import CommandError, UsageError
from inspector.commands.fields import skews
from inspector.commands.render import bar, number, positions, table
from inspector.describe import token_text
from inspector.text import byte_size, plural, visible
from sessions.view import RequestFact, StateFact

if TYPE_CHECKING:
    from inspector.commands.debugger import Debugger


def _request(debugger: Debugger, which: str) -> RequestFact:
    if not which:
        return debugger.current()
    match = re.fullmatch(r"r?(\d{1,9})", which)
    if match is None:
        raise UsageError(f'a request is r0 or 0, not "{visible(which):.40}"')
    request = debugger.view.requests.get(int(match[1]))
    if request is None:
        raise CommandError(f"there is no request r{match[1]} at event {debugger.view.seq}")
    return request


def parts_of(state: StateFact | None) -> str:
    """Which parts of a place were ever written."""
    if state is None:
        return "-"
    parts = [name for name, at in (("h", state.h_position), ("conv", state.conv_position)) if at is not None]
    return "+".join(parts) or "-"


def ring(debugger: Debugger, which: str) -> list[str]:
    view, request = debugger.view, _request(debugger, which)
    ring = request.ring
    capacity = ring.capacity or view.start.ring_depth
    head = (
        f"ring of r{request.req}: {len(ring.entries)} of {capacity} entries, next slot {ring.next_slot}, "
        f"{plural(ring.evictions, 'eviction')}"
    )
    rows = []
    for i, entry in enumerate(ring.entries):
        state = view.states.get(Place("ring", request.slot, entry.ring_slot))
        expected = request.prompt_len + entry.token_position - 1
        at = positions(state)
        wrong = state is not None and entry.saved and state.position not in (None, expected)
        rows.append(
            (
                i,
                entry.token_position,
                entry.ring_slot,
                at + (" !" if wrong else ""),
                parts_of(state),
                "saved" if entry.saved else "queued" if state is not None and state.queued else "reserved",
                f"@{entry.recorded}",
                token_text(view, _token(request, entry.token_position - 1)),
            )
        )
    return [
        head,
        *table(
            ("#", "outputs", "slot", "position", "parts", "state", "since", "boundary"), rows, ("#", "outputs", "slot")
        ),
    ]


def _token(request: RequestFact, output: int) -> int:
    at = request.prompt_len + output
    return request.tokens[at] if 0 <= at < len(request.tokens) else -1


def slots(debugger: Debugger, which: str) -> list[str]:
    view = debugger.view
    rows = []
    for place in sorted(view.states, key=lambda p: (p.kind == "prefix", p.slot, _ORDER.index(p.kind), p.index)):
        state = view.states[place]
        if which and str(place.slot) != which and place.kind != which:
            continue
        changed = "*" if ("state", place) in view.changed else ""
        flags = " ".join(
            word for word, on in (("dirty", state.dirty), ("queued", state.queued), ("sealed", state.sealed)) if on
        )
        writer = max(state.h_writer, state.conv_writer)
        rows.append(
            (
                str(place) + changed,
                f"r{state.owner}" if state.owner >= 0 else "-",
                state.epoch or "-",
                positions(state),
                number(state.label if state.label >= 0 else None),
                f"@{writer}" if writer else "-",
                flags or "-",
            )
        )
    free = [str(slot) for slot in range(view.start.slots) if view.slot_owner.get(slot, -1) < 0]
    return [
        *table(("place", "owner", "epoch", "position", "label", "writer", "flags"), rows, ("epoch",)),
        f"free slots: {' '.join(free) or 'none'}",
    ]


_ORDER = ("live", "checkpoint", "step", "ring", "prefix")


def cursors(debugger: Debugger, which: str) -> list[str]:
    view = debugger.view
    rows = []
    for req in sorted(view.requests.keys()):
        request = view.requests[req]
        live = view.live(req)
        h, conv = skews(view, request)
        rows.append(
            (
                f"r{req}",
                request.cursor,
                number(live.h_position if live else None),
                number(live.conv_position if live else None),
                request.expected,
                _signed(h),
                _signed(conv),
                "dirty" if live is not None and live.dirty else "in round" if request.round.open else request.status,
            )
        )
    head = ("req", "kv", "h", "conv", "expected", "h-kv", "conv-kv", "state")
    return table(head, rows, right=head[1:-1])


def _signed(value: int | None) -> str:
    return "-" if value is None else f"{value:+d}" if value else "0"


def pools(debugger: Debugger, which: str) -> list[str]:
    rows = [
        (name, bar(pool.used, pool.total), f"{pool.used}/{pool.total}", pool.peak)
        for name, pool in sorted(debugger.view.pools.items())
    ]
    return table(("pool", "", "used", "peak"), rows, right=("used", "peak"))


def streams(debugger: Debugger, which: str) -> list[str]:
    view = debugger.view
    rows = [
        (copy.copy, f"@{copy.seq}", copy.kind, f"{copy.src} -> {copy.dst}", copy.parts, byte_size(copy.bytes))
        for copy in view.queued
    ]
    head = f"secondary stream: {plural(len(rows), 'copy', 'copies')} queued"
    waiting = [flight for flight in view.in_flight if flight.landed]
    more = [f"{plural(len(waiting), 'copy', 'copies')} landed without a wait that orders them"] if waiting else []
    return [head, *(table(("copy", "event", "kind", "from -> to", "parts", "bytes"), rows) if rows else []), *more]


def blocks(debugger: Debugger, which: str) -> list[str]:
    view, request = debugger.view, _request(debugger, which)
    size = view.start.block_size or 1
    rows = []
    for i, block in enumerate(request.blocks):
        first = i * size
        valid = max(0, min(size, request.cursor - first))
        rows.append((i, block, f"{first}..{first + size - 1}", f"{valid}/{size}", view.block_refs.get(block, 0)))
    head = f"blocks of r{request.req}: {plural(len(rows), 'block')} of {size} tokens, cursor {request.cursor}"
    return [head, *table(("#", "block", "tokens", "valid", "refs"), rows, ("#", "block", "valid", "refs"))]


def prefix(debugger: Debugger, which: str) -> list[str]:
    view = debugger.view
    rows = [
        (i, fact.tokens, positions(view.states.get(Place("prefix", -1, i))), fact.origin, fact.session or "-",
         len(fact.blocks), f"@{fact.saved}", fact.key[:12])
        for i, fact in sorted(view.prefixes.items())
    ]  # fmt: skip
    head = ("slot", "tokens", "position", "origin", "session", "blocks", "saved", "key")
    return table(head, rows, right=("slot", "tokens", "blocks")) if rows else ["no snapshot is cached"]
