"""The drawer that holds what a command answered, over the lower panes. Escape closes it."""

from __future__ import annotations

import re

from inspector.tui.frame import Frame
from inspector.tui.text import Line, visible, wrap
from inspector.tui.text import width as cell_width
from inspector.tui.widgets.pane import Content, Pane, Row


class OutputPane(Pane):
    """Lines of the last commands, newest at the end. Sentences wrap; tables do not, they go on to the right."""

    NUMBER = ":"
    NAME = "output"
    SUMMARY = "what the last commands answered"
    HELP_TEXT = """\
Answers of the last commands, newest at the end. Escape closes it; Y copies it.
A table that is wider than the pane goes on to the right: Right and Left move it."""
    KEEP = 2000

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.entries: list[tuple[str, str]] = []
        self._table: list[bool] = []
        self._fresh = False

    def add(self, line: str, lines: tuple[str, ...], ok: bool) -> None:
        """An answer; an error is shown as one."""
        if self.entries:
            self.entries.append(("", ""))
            self._table.append(False)
        shown = [visible(text) for text in lines]
        self.entries.append((f": {visible(line)}" if line else "", "key"))
        self.entries += [(text, "text" if ok else "bad") for text in shown]
        self._table += [False, *tabular(shown)]
        del self.entries[: -self.KEEP], self._table[: -self.KEEP]
        self.cursor, self.left, self._fresh = None, 0, True
        self.redraw()

    def _clamp(self) -> None:
        if self._fresh:
            # an answer that is longer than the drawer is read from its beginning
            self.top, self._fresh = self.content.anchor, False
        super()._clamp()

    def build(self, frame: Frame, width: int, height: int) -> Content:
        rows: list[Row] = []
        wide = first = 0
        for (text, role), table in zip(self.entries, self._table, strict=True):
            lead = " " if role == "key" else "  "
            first = len(rows) if role == "key" else first
            if table:
                wide = max(wide, cell_width(text) + 2)
                rows.append(Row(((lead, ""), (text, role))))
            else:
                deep = len(lead) + len(text) - len(text.lstrip(" "))
                rows += [Row(line) for line in wrap(((lead, ""), (text, role)), width - 1, deep + 2)]
        note: Line = (("left right: more   esc closes" if wide > width else "esc closes", "dim"),)
        return Content((), note, rows=tuple(rows), anchor=first, wide=wide)


def tabular(lines: list[str]) -> list[bool]:
    """Which lines belong to a table: a column of theirs begins, or ends, where one of a neighbour does."""
    columns = [_edges(line) for line in lines]
    return [
        any(not here.isdisjoint(columns[other]) for other in (place - 1, place + 1) if 0 <= other < len(columns))
        for place, here in enumerate(columns)
    ]


def _edges(line: str) -> set[tuple[str, int]]:
    """Where the columns of a line begin and end, as far as gaps tell."""
    gaps = list(_GAP.finditer(line))
    found = {(side, at) for gap in gaps for side, at in (("from", gap.end()), ("to", gap.start()))}
    return found | {("to", len(line))} if gaps else found


_GAP = re.compile(r"(?<=\S) {2,}(?=\S)")


class TextPane(Pane):
    """Fixed text in a pane: help."""

    NUMBER = "?"
    NAME = "help"

    def __init__(self, lines: tuple[Line, ...], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.text_lines = lines

    def build(self, frame: Frame, width: int, height: int) -> Content:
        lines = [part for line in self.text_lines for part in wrap(line, width - 1, 11)]
        return Content(rows=tuple(Row(line) for line in lines), note=(("esc closes", "dim"),))
