"""The topics of ``info``: each a function of the debugger and a word that picks. Others add theirs to TOPICS."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from inspector.commands.errors import CommandError, UsageError
from inspector.commands.groups import info_state
from inspector.commands.groups.stopping import invariant_rows, stop_rows
from inspector.commands.render import note_text, request_line, table
from inspector.describe import token_text
from inspector.text import byte_size, visible

if TYPE_CHECKING:
    from inspector.commands.debugger import Debugger

Topic = Callable[["Debugger", str], list[str]]

MARKS = {"p": "prompt", ".": "plain", "a": "accepted draft", "b": "bonus", "i": "injected"}


def _stops(debugger: Debugger, which: str) -> list[str]:
    points = list(debugger.stops)
    lines = stop_rows(points, debugger.timeline.now) if points else ["no stop is set: break, watch, trace"]
    off = sorted(debugger.disabled)
    return [*lines, *([f"invariants switched off: {' '.join(off)}"] if off else [])]


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
        f"{'>' if event.seq == timeline.now else '!' if event.seq in marks else ' '} {debugger.describe(event, view)}"
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
            len(timeline.findings(branch.at + 1, None, branch.id)),
            visible(branch.reason),
        )
        for branch in timeline.branches
    ]
    return table(("  branch", "from", "last", "findings", "why"), rows, ("findings",))


def _marks(debugger: Debugger, which: str) -> list[str]:
    marks = debugger.timeline.bookmarks
    rows = [(f"'{name}", f"@{seq}") for name, seq in sorted(marks.items(), key=lambda item: (item[1], item[0]))]
    lines = table(("mark", "event"), rows) if rows else ["no bookmark is set: mark NAME"]
    notes = [note for note in debugger.timeline.notes if note.text]
    return [*lines, *(f"@{note.seq} {visible(note.text)}" for note in notes)]


def _notes(debugger: Debugger, which: str) -> list[str]:
    notes = [note for note in debugger.timeline.notes if note.kind == "note"]
    lines = [f"@{note.seq} {note_text(note)}" for note in sorted(notes, key=lambda note: note.seq)]
    return lines or ["there is no note: note TEXT"]


def _counters(debugger: Debugger, which: str) -> list[str]:
    rows = [(name, f"{value:,}") for name, value in sorted(debugger.view.counters.items()) if which in name]
    return table(("counter", "value"), rows, right=("value",)) if rows else ["nothing is counted yet"]


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
    "ring": ("the snapshot ring of a request", info_state.ring),
    "slots": ("every place: owner, epoch, position, last writer (a slot number or kind picks)", info_state.slots),
    "cursors": ("KV cursor, h and conv position of each request", info_state.cursors),
    "pools": ("occupancy of slots, blocks, prefix and ring", info_state.pools),
    "stops": ("stops with their hits", _stops),
    "streams": ("copies that wait on the secondary stream", info_state.streams),
    "blocks": ("the block table of a request", info_state.blocks),
    "events": ("events up to now (FIRST LAST picks)", _events),
    "findings": ("broken invariants up to now", _findings),
    "requests": ("all requests", _requests),
    "tokens": ("tokens of the request with their marks (FIRST LAST picks)", _tokens),
    "branches": ("lines of history", _branches),
    "marks": ("bookmarks and notes", _marks),
    "notes": ("notes and the event each is about", _notes),
    "invariants": ("the invariants and whether they are on", lambda debugger, which: invariant_rows(debugger)),
    "counters": ("what the run counted (a part of a name picks)", _counters),
    "prefix": ("the prefix cache", info_state.prefix),
    "engine": ("geometry and settings of the engine", _engine),
    "display": ("displayed expressions", _display),
}
