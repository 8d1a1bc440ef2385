"""Text for cells: whatever a model writes is shown as text, one visible sign per character, with a known width.

A line of a pane is a tuple of spans ``(text, role)``; roles are resolved to colours by ``inspector.tui.themes``.
Nothing here is ever parsed as markup.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from functools import lru_cache

from rich.cells import cell_len, set_cell_size

Span = tuple[str, str]
Line = tuple[Span, ...]

ELLIPSIS = "…"
_NAMED = {"\n": "↵", "\t": "⇥", "\r": "␍", "\x7f": "␡", "\xa0": "⍽"}
_ESCAPED = frozenset({"Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_LEFT_TO_RIGHT_MARK = "\u200e"


def width(text: str) -> int:
    """Terminal cells that ``text`` takes."""
    return len(text) if text.isascii() else cell_len(text)


@lru_cache(maxsize=16384)
def visible(text: str) -> str:
    """``text`` with control, format and unassigned characters replaced by signs; its width is that of its letters.

    A combining mark that would join the cell before it gets a dotted circle; right-to-left letters are followed by a
    left-to-right mark so that a terminal with bidirectional layout does not reorder its neighbours.
    """
    if text.isascii() and text.isprintable():
        return text
    out: list[str] = []
    backwards = False
    for char in text:
        named = _NAMED.get(char)
        if named is not None:
            out.append(named)
            continue
        category = unicodedata.category(char)
        if category == "Cc":
            out.append(chr(0x2400 + ord(char)) if ord(char) < 0x20 else f"\\x{ord(char):02x}")
        elif category in _ESCAPED or 0xFE00 <= ord(char) <= 0xFE0F:
            out.append(f"\\u{ord(char):04x}")
        else:
            if category in ("Mn", "Me") and not out:
                out.append("◌")
            backwards = backwards or unicodedata.bidirectional(char) in ("R", "AL")
            out.append(char)
    if backwards:
        out.append(_LEFT_TO_RIGHT_MARK)
    return "".join(out)


def token_text(text: str) -> str:
    """A token for a cell: leading spaces become middle dots, so that what is there can be seen and counted."""
    body = text.lstrip(" ")
    return "·" * (len(text) - len(body)) + visible(body)


def fit(text: str, cells: int, align: str = "<") -> str:
    """``text`` cut with an ellipsis or padded with spaces to exactly ``cells``; ``align`` is one of ``< > ^``."""
    if cells <= 0:
        return ""
    size = width(text)
    if size > cells:
        text = set_cell_size(text, cells - 1) + ELLIPSIS
        return text if width(text) == cells else set_cell_size(text, cells)
    gap = cells - size
    if align == ">":
        return " " * gap + text
    if align == "^":
        return " " * (gap // 2) + text + " " * (gap - gap // 2)
    return text + " " * gap


def line_width(spans: Iterable[Span]) -> int:
    """Cells of a line."""
    total = 0
    for text, _ in spans:
        total += len(text) if text.isascii() else cell_len(text)
    return total


def crop(spans: Iterable[Span], cells: int) -> Line:
    """``spans`` cut to at most ``cells``; a wide character that would be halved becomes a space."""
    out: list[Span] = []
    room = cells
    for text, role in spans:
        size = len(text) if text.isascii() else cell_len(text)
        if size > room:
            if room > 0:
                out.append((set_cell_size(text, room), role))
            break
        if size or text:
            out.append((text, role))
            room -= size
    return tuple(out)


def cut(spans: Iterable[Span], cells: int) -> Line:
    """``spans`` as they are when they fit in ``cells``; else cut, with an ellipsis that says so (not for blanks)."""
    line = spans if isinstance(spans, tuple) else tuple(spans)
    if cells <= 0:
        return ()
    if line_width(line) <= cells or not plain(shift(line, cells)).strip():
        return crop(line, cells)
    kept = crop(line, cells - 1)
    return (*kept, (" " * (cells - 1 - line_width(kept)) + ELLIPSIS, line[len(kept) - 1][1] if kept else ""))


def shift(spans: Iterable[Span], cells: int) -> Line:
    """``spans`` without their first ``cells`` cells."""
    out: list[Span] = []
    skip = cells
    for text, role in spans:
        size = width(text)
        if skip >= size:
            skip -= size
            continue
        while skip > 0 and text:
            skip -= width(text[0])
            text = text[1:]
        out.append((" " * -skip + text, role))
        skip = 0
    return tuple(out)


def pad(spans: Iterable[Span], cells: int, role: str = "") -> Line:
    """``spans`` cut or filled to exactly ``cells``."""
    line = spans if isinstance(spans, tuple) else tuple(spans)
    gap = cells - line_width(line)
    if gap > 0:
        return (*line, (" " * gap, role))
    if gap == 0:
        return line
    cut = crop(line, cells)
    gap = cells - line_width(cut)
    return (*cut, (" " * gap, role)) if gap > 0 else cut


def between(left: Iterable[Span], right: Iterable[Span], cells: int, role: str = "") -> Line:
    """``left`` and ``right`` at the two ends of a line of ``cells``; ``left`` gives way first."""
    tail = crop(right, cells)
    room = cells - line_width(tail)
    return (*pad(cut(left, room), room, role), *tail)


def wrap(line: Line, width: int, indent: int = 0) -> list[Line]:
    """``line`` broken at spaces into lines of at most ``width``; all but the first are indented."""
    out: list[Line] = []
    indent = max(0, min(indent, width - 8))
    while line_width(line) > max(1, width):
        head = plain(crop(line, width))
        at = head.rfind(" ", indent + 1)
        # a word longer than a line is broken where the line ends
        at = at if head[:at].strip() else len(head)
        size = line_width(((head[:at], ""),))
        out.append(crop(line, size))
        rest = shift(line, size)
        while rest and rest[0][0].startswith(" "):
            rest = shift(rest, 1)
        line = ((" " * indent, ""), *rest) if indent else rest
        if not rest:
            return out
    return [*out, line]


def plain(spans: Iterable[Span]) -> str:
    """The text of a line alone."""
    return "".join(text for text, _ in spans).replace(_LEFT_TO_RIGHT_MARK, "")


def size_text(count: int) -> str:
    """Bytes for people: ``1.5 MiB``."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    return str(count)
