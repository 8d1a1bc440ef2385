"""Tokens side by side, a few lines per band, as many bands as fit. The end is the present, unless the cursor moved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from textual import events

from inspector.tui.text import Line, Span, fit, line_width, pad
from inspector.tui.widgets.pane import Content, Pane, Row, Target

GUTTER = 7
LEAST = 4


@dataclass(frozen=True, slots=True)
class Cell:
    """One column: ``lines`` are its spans from top to bottom, ``size`` its cells, ``bar`` whether a group ends here."""

    index: int
    lines: tuple[Span, ...]
    size: int
    bar: bool = False


class TokenStrip(Pane):
    """A pane whose rows are bands of columns; the cursor is a column index."""

    LABELS: tuple[str, ...] = ()
    EMPTY: Line = (("nothing yet", "faint"),)

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.column: int | None = None
        self._places: list[list[tuple[int, int, int]]] = []

    def cells(self, labels: int) -> tuple[int, Callable[[int], Cell]]:
        """Number of columns, and the function that makes one with ``labels`` lines."""
        raise NotImplementedError

    def labels(self, height: int) -> tuple[str, ...]:
        """The lines of a band that fit in ``height``."""
        return self.LABELS[: min(height, len(self.LABELS))]

    def border(self) -> tuple[Line, Line]:
        """Title and note of the border."""
        return (), ()

    def build(self, frame: object, width: int, height: int) -> Content:
        labels = self.labels(height)
        count, make = self.cells(len(labels))
        bands = max(1, (height + 1) // (len(labels) + 1)) if height > len(labels) else 1
        title, note = self.border()
        self._places = []
        if not count:
            return Content(title, note, rows=(Row(()), Row((("  ", ""), *self.EMPTY))))
        last = count - 1
        if self.column is not None:
            self.column = max(0, min(self.column, last))
            last = min(last, self.column + 6)
        grid: list[list[Cell]] = []
        for _ in range(bands):
            band, last = self._band(make, last, width - GUTTER)
            if band:
                grid.append(band)
        grid.reverse()
        rows: list[Row] = []
        for number, band in enumerate(grid):
            rows += [Row(line) for line in self._draw(band, labels, width)]
            if number < len(grid) - 1:
                rows.append(Row(()))
        return Content(title, note, rows=tuple(rows[:height]))

    def _band(self, make: Callable[[int], Cell], last: int, room: int) -> tuple[list[Cell], int]:
        band: list[Cell] = []
        while last >= 0:
            cell = make(last)
            if band and room < cell.size + 2:
                break
            room -= cell.size + 2
            band.append(cell)
            last -= 1
        band.reverse()
        return band, last

    def _draw(self, band: Sequence[Cell], labels: Sequence[str], width: int) -> list[Line]:
        lines: list[list[Span]] = [[(fit(f" {label}", GUTTER), "faint")] for label in labels]
        places: list[tuple[int, int, int]] = []
        x = GUTTER
        for cell in band:
            here = cell.index == self.column
            for line, (text, role) in zip(lines, cell.lines, strict=False):
                shown = "cursor" if here and line is lines[0] else role + (".row" if here and role else "")
                body = fit(text, cell.size)
                bare = body.rstrip(" ")
                line += [(bare, shown), (body[len(bare) :], "cursor" if shown == "cursor" else "")]
                line.append((" │" if cell.bar else "  ", "rule-live" if cell.bar else ""))
            places.append((x, x + cell.size + 2, cell.index))
            x += cell.size + 2
        self._places.append(places)
        return [pad(line, width) for line in lines]

    def move(self, rows: int) -> None:
        """Up and down go a band's worth of tokens."""
        self.slide(rows * max(1, len(self._places[-1]) if self._places else 1))

    def slide(self, columns: int) -> None:
        count, _ = self.cells(1)
        if count:
            start = count - 1 if self.column is None else self.column
            self.column = max(0, min(count - 1, start + columns))
            self.redraw()

    def edge(self, last: bool) -> None:
        count, _ = self.cells(1)
        self.column = count - 1 if last else 0
        self.redraw()

    def forget_cursor(self) -> None:
        self.column = None
        super().forget_cursor()

    @property
    def target(self) -> Target | None:
        return ("token", self.column) if self.column is not None else None

    def search(self, word: str, forward: bool = True, again: bool = False) -> bool:
        count, make = self.cells(len(self.LABELS))
        if not count:
            return False
        start = self.column if self.column is not None else count - 1
        for step in range(1 if again else 0, count + 1):
            place = (start + (step if forward else -step)) % count
            if any(word.lower() in text.lower() for text, _ in make(place).lines):
                self.column = place
                self.redraw()
                return True
        return False

    def on_click(self, event: events.Click) -> None:
        labels = min(self.inner[1], len(self.LABELS))
        band = (event.y - 1) // (labels + 1)
        if 0 <= band < len(self._places):
            for low, high, index in self._places[band]:
                if low <= event.x - 1 < high:
                    self.column = index
                    self.redraw()
                    self.post_message(self.Picked(self, ("token", index), True))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.slide(4)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.slide(-4)


__all__ = ["Cell", "TokenStrip", "line_width"]
