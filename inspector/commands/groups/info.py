"""The tables of ``info``: each a function of the debugger and a word that picks."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.events import Place
from inspector.commands.errors import CommandError, UsageError
from inspector.commands.groups.stopping import invariant_rows, stop_rows
from inspector.commands.render import bar, number, positions, request_line, table
from inspector.commands.values import skews
from inspector.describe import describe, token_text
from inspector.text import byte_size, plural, visible
from sessions.view import RequestFact, StateFact

if TYPE_CHECKING:
    from inspector.commands.debugger import Debugger

Topic = Callable[["Debugger", str], list[str]]

MARKS = {"p": "prompt", ".": "plain", "a": "accepted draft", "b": "bonus", "i": "injected"}


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


def _ring(debugger: Debugger, which: str) -> list[str]:
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


def _slots(debugger: Debugger, which: str) -> list[str]:
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


def _cursors(debugger: Debugger, which: str) -> list[str]:
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


def _pools(debugger: Debugger, which: str) -> list[str]:
    rows = [
        (name, bar(pool.used, pool.total), f"{pool.used}/{pool.total}", pool.peak)
        for name, pool in sorted(debugger.view.pools.items())
    ]
    return table(("pool", "", "used", "peak"), rows, right=("used", "peak"))


def _stops(debugger: Debugger, which: str) -> list[str]:
    points = list(debugger.stops)
    lines = stop_rows(points, debugger.timeline.now) if points else ["no stop is set: break, watch, trace"]
    off = sorted(debugger.disabled)
    return [*lines, *([f"invariants switched off: {' '.join(off)}"] if off else [])]


def _streams(debugger: Debugger, which: str) -> list[str]:
    view = debugger.view
    rows = [
        (copy.copy, f"@{copy.seq}", copy.kind, f"{copy.src} -> {copy.dst}", copy.parts, byte_size(copy.bytes))
        for copy in view.queued
    ]
    head = f"secondary stream: {plural(len(rows), 'copy', 'copies')} queued"
    waiting = [flight for flight in view.in_flight if flight.landed]
    more = [f"{plural(len(waiting), 'copy', 'copies')} landed without a wait that orders them"] if waiting else []
    return [head, *(table(("copy", "event", "kind", "from -> to", "parts", "bytes"), rows) if rows else []), *more]


def _blocks(debugger: Debugger, which: str) -> list[str]:
    view, request = debugger.view, _request(debugger, which)
    size = view.start.block_size or 1
    rows = []
    for i, block in enumerate(request.blocks):
        first = i * size
        valid = max(0, min(size, request.cursor - first))
        rows.append((i, block, f"{first}..{first + size - 1}", f"{valid}/{size}", view.block_refs.get(block, 0)))
    head = f"blocks of r{request.req}: {plural(len(rows), 'block')} of {size} tokens, cursor {request.cursor}"
    return [head, *table(("#", "block", "tokens", "valid", "refs"), rows, ("#", "block", "valid", "refs"))]


def _range(which: str, low: int, high: int) -> tuple[int, int]:
    found = re.fullmatch(r"@?(\d{1,12})(?:\s*(?:-|\.\.|\s)\s*@?(\d{1,12}))?", which)
    if which and found is None:
        raise UsageError(f'a range is FIRST or FIRST LAST, not "{visible(which):.40}"')
    if found is None:
        return low, high
    first = int(found[1])
    return first, int(found[2]) if found[2] else first


def _events(debugger: Debugger, which: str) -> list[str]:
    timeline = debugger.timeline
    low, high = _range(which, timeline.now - debugger.settings.lines // 2, timeline.now)
    low, high = max(low, timeline.first), min(high, timeline.last)
    view = debugger.view
    if low > high:
        raise CommandError(f"no such events; there are {timeline.first} to {timeline.last}")
    marks = {finding.seq for finding in timeline.findings(low, high)}
    return [
        f"{'>' if event.seq == timeline.now else '!' if event.seq in marks else ' '} {describe(event, view)}"
        for event in timeline.events(low, high)
    ]


def _findings(debugger: Debugger, which: str) -> list[str]:
    found = debugger.timeline.findings(None, debugger.timeline.now)
    rows = [
        (f"@{finding.seq}", finding.name, f"r{finding.req}" if finding.req >= 0 else "-", finding.text)
        for finding in found
        if not which or finding.name == which
    ]
    return table(("event", "invariant", "req", "says"), rows) if rows else ["no invariant is broken up to now"]


def _requests(debugger: Debugger, which: str) -> list[str]:
    view = debugger.view
    here = debugger.request
    lines = [
        f"{'>' if req == here else ' '} {request_line(view, view.requests[req])}"
        for req in sorted(view.requests.keys())
    ]
    return lines or ["there is no request"]


def _tokens(debugger: Debugger, which: str) -> list[str]:
    view, request = debugger.view, debugger.current()
    low, high = _range(which, max(0, len(request.tokens) - debugger.settings.lines), len(request.tokens) - 1)
    rows = []
    for at in range(max(0, low), min(high, len(request.tokens) - 1) + 1):
        token = request.tokens[at]
        mark = request.marks[at] if at < len(request.marks) else "?"
        letter = {"n": "."}.get(mark.lower(), mark.lower())
        notes = [MARKS.get(letter, mark)]
        if mark.isupper():
            notes.append("boundary")
        if at < len(request.think) and request.think[at] == "t":
            notes.append("thinking")
        if at == len(request.tokens) - 1 and request.outputs:
            notes.append("pending")
        rows.append(
            (
                at,
                at - request.prompt_len + 1 if at >= request.prompt_len else "-",
                token,
                token_text(view, token),
                ", ".join(notes),
            )
        )
    return table(("index", "output", "id", "text", "mark"), rows, ("index", "output", "id"))


def _branches(debugger: Debugger, which: str) -> list[str]:
    timeline = debugger.timeline
    rows = [
        (
            ("> " if branch.id == timeline.branch else "  ") + str(branch.id),
            "-" if branch.id == 0 else f"{branch.parent} at @{branch.at}",
            f"@{branch.last}",
            visible(branch.reason),
        )
        for branch in timeline.branches
    ]
    return table(("  branch", "from", "last", "why"), rows)


def _marks(debugger: Debugger, which: str) -> list[str]:
    marks = debugger.timeline.bookmarks
    rows = [(f"'{name}", f"@{seq}") for name, seq in sorted(marks.items(), key=lambda item: (item[1], item[0]))]
    lines = table(("mark", "event"), rows) if rows else ["no bookmark is set: mark NAME"]
    notes = [note for note in debugger.timeline.notes if note.text and note.kind != "command"]
    return [*lines, *(f"@{note.seq} {visible(note.text)}" for note in notes)]


def _counters(debugger: Debugger, which: str) -> list[str]:
    rows = [(name, f"{value:,}") for name, value in sorted(debugger.view.counters.items()) if which in name]
    return table(("counter", "value"), rows, right=("value",)) if rows else ["nothing is counted yet"]


def _prefix(debugger: Debugger, which: str) -> list[str]:
    view = debugger.view
    rows = [
        (i, fact.tokens, positions(view.states.get(Place("prefix", -1, i))), fact.origin, fact.session or "-",
         len(fact.blocks), f"@{fact.saved}", fact.key[:12])
        for i, fact in sorted(view.prefixes.items())
    ]  # fmt: skip
    head = ("slot", "tokens", "position", "origin", "session", "blocks", "saved", "key")
    return table(head, rows, right=("slot", "tokens", "blocks")) if rows else ["no snapshot is cached"]


def _engine(debugger: Debugger, which: str) -> list[str]:
    start = debugger.view.start
    layers = start.recurrent_layers
    some = " ".join(map(str, layers[:16])) + (" ..." if layers[16:] else "")
    rows = [
        ("model", visible(start.model) or "-"),
        ("recurrent layers", f"{len(layers)} of {start.layers}: {some}"),
        ("h, one layer", f"{'x'.join(map(str, start.h_shape)) or '-'} {byte_size(start.h_bytes)}"),
        ("conv, one layer", f"{'x'.join(map(str, start.conv_shape)) or '-'} {byte_size(start.conv_bytes)}"),
        ("slots", start.slots), ("K", start.k), ("ring depth", start.ring_depth), ("prefix slots", start.prefix_slots),
        ("KV blocks", f"{start.blocks} of {start.block_size} tokens"),
        ("verify, rollback", f"{start.verify_mode or '-'}, {start.rollback_mode or '-'}"),
        ("dtype, device", f"{start.dtype or '-'}, {start.device or '-'}"),
        ("digests", "on" if start.digests else "off"),
        ("faults on", " ".join(debugger.view.faults) or "none"),
    ]  # fmt: skip
    return table(("", ""), rows)[1:]


def _display(debugger: Debugger, which: str) -> list[str]:
    return debugger.display_lines() or ["nothing is displayed: display EXPR"]


TOPICS: dict[str, tuple[str, Topic]] = {
    "ring": ("the snapshot ring of a request", _ring),
    "slots": ("every place: owner, epoch, position, last writer (a slot number or kind picks)", _slots),
    "cursors": ("KV cursor, h and conv position of each request", _cursors),
    "pools": ("occupancy of slots, blocks, prefix and ring", _pools),
    "stops": ("stops with their hits", _stops),
    "streams": ("copies that wait on the secondary stream", _streams),
    "blocks": ("the block table of a request", _blocks),
    "events": ("events up to now (FIRST LAST picks)", _events),
    "findings": ("broken invariants up to now", _findings),
    "requests": ("all requests", _requests),
    "tokens": ("tokens of the request with their marks (FIRST LAST picks)", _tokens),
    "branches": ("lines of history", _branches),
    "marks": ("bookmarks and notes", _marks),
    "invariants": ("the invariants and whether they are on", lambda debugger, which: invariant_rows(debugger)),
    "counters": ("what the run counted (a part of a name picks)", _counters),
    "prefix": ("the prefix cache", _prefix),
    "engine": ("geometry and settings of the engine", _engine),
    "display": ("displayed expressions", _display),
}
