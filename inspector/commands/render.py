"""Plain text for answers: aligned tables, positions, where one is."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from inspector.commands.fields import skews
from inspector.describe import token_text
from inspector.text import visible
from sessions.rows import Note
from sessions.view import LedgerView, RequestFact, StateFact

if TYPE_CHECKING:
    from sessions.timeline import Timeline

STORY = ("story", "look", "judge")


def width(text: str) -> int:
    """Columns a text takes: wide characters two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def table(header: Sequence[str], rows: Iterable[Sequence[object]], right: Iterable[str] = ()) -> list[str]:
    """Aligned columns, two blanks between them; columns named in ``right`` are right-aligned."""
    cells = [[visible(str(cell)) for cell in row] for row in rows]
    widths = [max([width(name), *(width(row[i]) for row in cells)]) for i, name in enumerate(header)]
    to_right = {i for i, name in enumerate(header) if name in set(right)}

    def line(row: Sequence[str]) -> str:
        parts = [
            " " * (widths[i] - width(cell)) + cell if i in to_right else cell + " " * (widths[i] - width(cell))
            for i, cell in enumerate(row)
        ]
        return "  ".join(parts).rstrip()

    return [line(list(header)), *(line(row) for row in cells)]


def number(value: int | None) -> str:
    return "-" if value is None else str(value)


def positions(state: StateFact | None) -> str:
    """``31``, or ``h 31 conv 33`` when they differ, or ``-``."""
    if state is None or (state.h_position is None and state.conv_position is None):
        return "-"
    if state.h_position == state.conv_position:
        return str(state.h_position)
    return f"h {number(state.h_position)} conv {number(state.conv_position)}"


def note_text(note: Note) -> str:
    """A note for a line of its own, with who wrote it when that is known."""
    return visible(note.text) + (f" ({visible(note.author)})" if note.author else "")


def story(timeline: Timeline) -> list[Note]:
    """What the session itself tells of what happened in it, where to look, and the verdict: the notes of a room."""
    return [note for note in timeline.notes if note.kind == "note" and note.name in STORY]


def place_of(timeline: Timeline) -> str:
    """``event 1043 of 1877, HISTORY`` with the branch when it is not the main line."""
    at = f"event {timeline.now} of {timeline.last}, {timeline.mode}"
    return at + (f" {timeline.branch}" if timeline.branch else "")


def request_line(view: LedgerView, request: RequestFact) -> str:
    """``r2 verify, round 57: 319 tokens, cursor 319, h 319, conv 321, skew conv +2, pending " pool"``."""
    live = view.live(request.req)
    parts = [f"r{request.req} {request.status}"]
    if request.round.open:
        parts[0] += f", in round {request.round.number}"
        if request.round.mode:
            parts[0] += f" ({request.round.mode}{', ' + request.round.phase if request.round.phase else ''})"
    parts.append(f"{request.prompt_len}+{request.outputs} tokens")
    if request.slot >= 0:
        parts.append(f"slot {request.slot}")
    parts.append(f"cursor {request.cursor}")
    if live is not None:
        parts.append(f"position {positions(live)}" + _flags(live))
        for name, value in zip(("h", "conv"), skews(view, request), strict=True):
            if value and not request.round.open and not live.queued:
                parts.append(f"skew {name}-cursor {value:+d}")
    if request.outputs:
        parts.append(f"pending {token_text(view, request.pending)}")
    if request.finish:
        parts.append(f"ended: {request.finish}")
    return ", ".join(parts)


def _flags(live: StateFact) -> str:
    return (" dirty" if live.dirty else "") + (" (a copy into it is queued)" if live.queued else "")


def bar(used: int, total: int, cells: int = 10) -> str:
    """``[####......]``."""
    full = round(cells * used / total) if total else 0
    return "[" + "#" * full + "." * (cells - full) + "]"
