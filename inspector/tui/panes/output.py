"""The drawer that holds what a command answered, over the lower panes. Escape closes it."""

from __future__ import annotations

from inspector.tui.frame import Frame
from inspector.tui.text import Line, visible
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
        return Content(rows=tuple(Row(line) for line in self.text_lines), note=(("esc closes", "dim"),))
