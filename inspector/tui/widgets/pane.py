"""The base of every pane: a frame comes in, lines go out, only the lines that changed are drawn again.

A pane is a pure function ``build(frame, width, height)`` and this widget around it. It keeps a cursor, a scroll
position and a search word; everything else is made anew from the next frame. Built on Textual's line API: a table
widget that repaints itself whole for one changed cell would take the budget of a step.
"""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment
from textual import events
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from inspector.tui.frame import Frame
from inspector.tui.text import Line, Span, between, crop, cut, line_width, pad, plain, shift, width
from inspector.tui.themes import INK, Styles
from inspector.tui.widgets.content import Content, LazyRows, Row, Target, columns, highlight


class Pane(Widget, can_focus=True):
    """A bordered pane on the line API."""

    NUMBER: ClassVar[str] = ""
    NAME: ClassVar[str] = ""
    SUMMARY: ClassVar[str] = ""
    HELP_TEXT: ClassVar[str] = ""
    ALLOW_SELECT = False

    class Picked(Message):
        """A row was chosen: by Enter or a double click (``act``), or only pointed at."""

        def __init__(self, pane: Pane, target: Target, act: bool) -> None:
            super().__init__()
            self.pane = pane
            self.target = target
            self.act = act

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.view = Frame()
        self.styles_of = Styles(INK)
        self.content = Content()
        self.top = 0
        self.left = 0
        self.cursor: int | None = None
        self.word = ""
        self._lines: list[tuple[Line, bool]] = []
        self._strips: list[Strip | None] = []

    # ------------------------------------------------------------------------------------------ to be filled in

    def build(self, frame: Frame, width: int, height: int) -> Content:
        """What to show of ``frame`` in ``width`` x ``height`` cells inside the border. Pure."""
        raise NotImplementedError

    # ---------------------------------------------------------------------------------------------------- drawing

    def show(self, frame: Frame) -> int:
        """Take a frame; repaint only what differs. Returns the number of lines repainted."""
        self.view = frame
        return self.redraw() if self.display else 0

    def recolour(self, styles: Styles) -> None:
        """Another palette."""
        self.styles_of = styles
        self._strips = [None] * len(self._lines)
        self.refresh()

    @property
    def inner(self) -> tuple[int, int]:
        """Cells inside the border: width, height."""
        return max(0, self.size.width - 2), max(0, self.size.height - 2)

    def redraw(self) -> int:
        """Lay the current frame out again; refresh the changed lines only."""
        cells, rows = self.inner
        if cells < 4 or rows < 1:
            self._lines, self._strips = [], []
            return 0
        self.content = self.build(self.view, cells, rows)
        self._clamp()
        lines = self._layout(cells, rows)
        old = self._lines
        changed = [y for y, line in enumerate(lines) if y >= len(old) or old[y] != line]
        if len(lines) != len(old):
            self._strips = [None] * len(lines)
        for y in changed:
            self._strips[y] = None
        self._lines = lines
        if len(changed) * 2 > len(lines):
            self.refresh()
        elif changed:
            self.refresh(*(Region(0, y, cells + 2, 1) for y in changed))
        return len(changed)

    def render_line(self, y: int) -> Strip:
        if y >= len(self._lines):
            return Strip.blank(self.size.width, self.styles_of("").without_color)
        strip = self._strips[y]
        if strip is None:
            spans, selected = self._lines[y]
            style = self.styles_of
            suffix = ".row" if selected else ""
            segments = [Segment(text, style(role + suffix if role else "text" + suffix)) for text, role in spans]
            strip = self._strips[y] = Strip(segments, self.size.width)
        return strip

    def _layout(self, cells: int, height: int) -> list[tuple[Line, bool]]:
        content = self.content
        mode = self.view.mode.lower()
        rule = f"{'focus' if self.has_focus else 'rule'}-{mode}"
        room = self._room(height)
        shown = content.rows[self.top : self.top + room]
        lines: list[tuple[Line, bool]] = [(self._border_top(cells, rule), False)]
        thumb = self._thumb(room, rule, len(content.head))
        inside: list[tuple[Line, bool]] = [(pad(line, cells), False) for line in content.head]
        for number, row in enumerate(shown, self.top):
            spans = shift(row.spans, self.left) if self.left else row.spans
            if self.word:
                spans = highlight(spans, self.word)
            inside.append((pad(cut(spans, cells), cells), self.has_focus and number == self.cursor))
        foot = content.foot[: max(0, height - len(inside))]
        inside += [(pad((), cells), False)] * (height - len(inside) - len(foot))
        inside += [(pad(line, cells), False) for line in foot]
        for y, (line, selected) in enumerate(inside[:height]):
            lines.append(((("│", rule), *line, thumb.get(y, ("│", rule))), selected))
        lines.append((self._border_bottom(cells, rule, room), False))
        return lines

    def _border_top(self, cells: int, rule: str) -> Line:
        marker: Line = (("▸", "key"),) if self.has_focus else (("─", rule),)
        name: Line = ((" ", ""), (self.NUMBER, "number"), (f" {self.NAME}", "title"))
        title = (*name, *((("  ", ""), *self.content.title) if self.content.title else ()), (" ", ""))
        note = crop((*((" ", ""), *self.content.note, (" ", "")),), cells - 6) if self.content.note else ()
        room = cells - 2 - line_width(note)
        title = crop(title, max(0, room))
        fill = max(0, cells - 2 - line_width(title) - line_width(note))
        return (("╭", rule), *marker, *title, ("─" * fill, rule), *note, ("─╮", rule))

    def _border_bottom(self, cells: int, rule: str, room: int) -> Line:
        total = len(self.content.rows)
        if room <= 0 or total <= room:
            return (("╰" + "─" * cells + "╯", rule),)
        note = f" {self.top + 1}–{min(total, self.top + room)} of {total} "
        return (("╰" + "─" * max(0, cells - width(note) - 1), rule), (note, "faint"), ("─╯", rule))

    def _thumb(self, room: int, rule: str, offset: int) -> dict[int, Span]:
        total = len(self.content.rows)
        if room <= 1 or total <= room:
            return {}
        size = max(1, room * room // total)
        start = (room - size) * self.top // max(1, total - room)
        return {offset + y: ("┃", rule) for y in range(start, start + size)}

    def _room(self, height: int | None = None) -> int:
        rows = self.inner[1] if height is None else height
        return max(0, rows - len(self.content.head) - len(self.content.foot))

    def _clamp(self) -> None:
        total, room = len(self.content.rows), self._room()
        if self.cursor is not None:
            self.cursor = min(self.cursor, total - 1) if total else None
        place, present = self.content.anchor, self.content.present
        seen = range(self.top, self.top + room)
        if self.cursor is None and (place not in seen or (present is not None and present not in seen)):
            self.top = place - room // 2
            if present is not None:
                self.top = max(min(self.top, present), present - room + 1)
        self.top = max(0, min(self.top, total - room))
        self.left = max(0, min(self.left, self.content.wide - self.inner[0]))

    # --------------------------------------------------------------------------------------------------- movement

    def move(self, rows: int) -> None:
        """Cursor down (or up, negative) by ``rows``."""
        total = len(self.content.rows)
        if not total:
            return
        start = self.content.anchor if self.cursor is None else self.cursor
        self.cursor = max(0, min(total - 1, start + rows))
        self._reveal()

    def slide(self, columns: int) -> None:
        """Sideways."""
        self.left = max(0, self.left + columns * 8)
        self.redraw()

    def page(self, pages: float) -> None:
        """Half or whole pages."""
        self.move(int(pages * max(2, self._room())))

    def edge(self, last: bool) -> None:
        """First or last row."""
        self.move(len(self.content.rows) if last else -len(self.content.rows))

    def forget_cursor(self) -> None:
        """Follow the present again."""
        self.cursor, self.word = None, ""
        self.redraw()

    def _reveal(self) -> None:
        room = self._room()
        if self.cursor is not None:
            self.top = min(max(self.top, self.cursor - room + 1), self.cursor)
        self.redraw()

    def search(self, word: str, forward: bool = True, again: bool = False) -> bool:
        """Move to the next row that contains ``word`` (case ignored), around the end. False when there is none."""
        self.word = word
        rows, total = self.content.rows, len(self.content.rows)
        start = self.cursor if self.cursor is not None else self.content.anchor
        for step in range(1 if again else 0, total + 1):
            place = (start + (step if forward else -step)) % total
            if word.lower() in plain(rows[place].spans).lower():
                self.cursor = place
                self._reveal()
                return True
        self.redraw()
        return False

    def match_count(self) -> tuple[int, int]:
        """Which match of the search word the cursor stands on, counted from 1, and how many there are."""
        word = self.word.lower()
        places = [place for place, row in enumerate(self.content.rows) if word in plain(row.spans).lower()]
        return (places.index(self.cursor) + 1 if self.cursor in places else 0), len(places)

    @property
    def target(self) -> Target | None:
        """What the cursor stands on."""
        rows = self.content.rows
        return rows[self.cursor].target if self.cursor is not None and self.cursor < len(rows) else None

    def text(self) -> str:
        """Everything shown, as plain text."""
        cells, rows = self.inner
        content = self.build(self.view, max(cells, 40), max(rows, 4))
        lines = [*content.head, *(row.spans for row in content.rows), *content.foot]
        return "\n".join(plain(line).rstrip() for line in lines)

    # ------------------------------------------------------------------------------------------------------ events

    def on_resize(self) -> None:
        self._lines = []
        self.redraw()

    def on_show(self) -> None:
        self.redraw()

    def watch_has_focus(self, _has_focus: bool) -> None:
        super().watch_has_focus(_has_focus)
        self.redraw()

    def on_click(self, event: events.Click) -> None:
        row = self.top + event.y - 1 - len(self.content.head)
        rows = self.content.rows
        if self.top <= row < min(len(rows), self.top + self._room()):
            self.cursor = row
            self.redraw()
            target = rows[row].target
            if target is not None:
                self.post_message(self.Picked(self, target, event.chain > 1))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self._wheel(3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self._wheel(-3)

    def _wheel(self, rows: int) -> None:
        room = self._room()
        if self.cursor is None and self.content.rows:
            self.cursor = max(0, min(len(self.content.rows) - 1, self.content.anchor))
        self.top = max(0, min(self.top + rows, len(self.content.rows) - room))
        if self.cursor is not None and room:
            self.cursor = min(max(self.cursor, self.top), self.top + room - 1)
        self.redraw()


__all__ = ["Content", "LazyRows", "Pane", "Row", "Target", "between", "columns", "highlight"]
