"""The drawer that holds what a command answered, over the lower panes. Escape closes it."""

from __future__ import annotations

from inspector.tui.frame import Frame
from inspector.tui.text import Line, crop, line_width, plain, shift, visible
from inspector.tui.text import width as cell_width
from inspector.tui.widgets.pane import Content, Pane, Row


class OutputPane(Pane):
    """Lines of the last commands, newest at the end."""

    NUMBER = ":"
    NAME = "output"
    SUMMARY = "what the last commands answered"
    HELP_TEXT = "Answers of the last commands, newest at the end. Escape closes it; Y copies it."
    KEEP = 2000

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.entries: list[tuple[str, str]] = []

    def add(self, line: str, lines: tuple[str, ...], ok: bool) -> None:
        """An answer; an error is shown as one."""
        if self.entries:
            self.entries.append(("", ""))
        self.entries.append((f": {visible(line)}", "key"))
        self.entries += [(visible(text), "text" if ok else "bad") for text in lines]
        del self.entries[: -self.KEEP]
        self.cursor = None
        self.top = max(0, len(self.entries) - max(1, self._room()))
        self.redraw()

    def build(self, frame: Frame, width: int, height: int) -> Content:
        rows = tuple(Row((("  " if role != "key" else " ", ""), (text, role))) for text, role in self.entries)
        note: Line = (("esc closes", "dim"),)
        wide = max((len(text) + 2 for text, _ in self.entries), default=0)
        return Content((), note, rows=rows, anchor=len(rows) - 1, wide=wide)


class TextPane(Pane):
    """Fixed text in a pane: help."""

    NUMBER = "?"
    NAME = "help"

    def __init__(self, lines: tuple[Line, ...], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.text_lines = lines

    def build(self, frame: Frame, width: int, height: int) -> Content:
        lines = [part for line in self.text_lines for part in wrap(line, width - 1)]
        return Content(rows=tuple(Row(line) for line in lines), note=(("esc closes", "dim"),))


def wrap(line: Line, width: int, indent: int = 11) -> list[Line]:
    """``line`` broken at spaces into lines of at most ``width``; all but the first are indented."""
    out: list[Line] = []
    while line_width(line) > width:
        head = plain(crop(line, width))
        at = head.rfind(" ", indent)
        at = at if at > indent else len(head)
        out.append(crop(line, cell_width(head[:at])))
        line = ((" " * indent, ""), *shift(line, cell_width(head[: at + 1])))
    return [*out, line]
