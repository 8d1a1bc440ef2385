"""Screenshots that every renderer draws alike."""

from __future__ import annotations

import re
from html import unescape

from rich.cells import cell_len

_TEXT = re.compile(r'<text (class="[^"]*") x="([0-9.]+)" y="([0-9.]+)" textLength="([0-9.]+)" ([^>]*)>([^<]*)</text>')
_FONT = re.compile(r"@font-face\s*{[^}]*}")
_BLANK = "&#160;"


def steady_svg(picture: str) -> str:
    """A screenshot of Textual's with every word at its own place, and with fonts asked for by name only.

    Textual writes a run of cells as one text that begins with blanks and is stretched to its length. Renderers that
    drop leading blanks or do not stretch (librsvg) would move the words: here each stands at its own x, and no text
    begins or ends with a blank. A picture in a repository should also fetch nothing, so font addresses are left out.
    """
    return _TEXT.sub(_words, _FONT.sub("", picture))


def _words(found: re.Match[str]) -> str:
    kind, x, y, length, rest, body = found.groups()
    cells = cell_len(unescape(body).rstrip("\n"))
    if not cells or not body.strip("\n"):
        return found[0]
    cell = float(length) / cells
    out: list[str] = []
    at = 0
    for piece in re.split(rf"((?:{_BLANK}){{2,}}|^{_BLANK}|{_BLANK}$)", body):
        size = cell_len(unescape(piece))
        if size and piece.replace(_BLANK, ""):
            out.append(
                f'<text {kind} x="{_number(float(x) + at * cell)}" y="{y}" textLength="{_number(size * cell)}" {rest}>'
                f"{piece}</text>"
            )
        at += size
    return "".join(out)


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
