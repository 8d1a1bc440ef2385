"""Pane 6: one tensor as a picture: the values, the base beside them, and the difference; a cell cursor with numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.strip import Strip

from inspector.tui.frame import Frame, Slab
from inspector.tui.panes.tensors import number
from inspector.tui.text import Line, Span, fit, pad
from inspector.tui.themes import INK, Styles
from inspector.tui.widgets.heat import HeatColours, difference_levels, enlarge, pool, signs, value_levels
from inspector.tui.widgets.pane import Content, Pane, Row, Target

SIGMA = 3.0
GAP = 2
Pixels = tuple[tuple[str, int, int, Any, Any], ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """One heatmap on the pane: ``x`` its first column, ``down``/``across`` values per pixel;
    ``factor`` pixels per value."""

    name: str
    kind: str
    levels: Any
    x: int
    down: int
    across: int
    factor: int = 1

    def pixel(self, row: int, column: int) -> tuple[int, int]:
        """Where a value is drawn: pixel row and column of its upper left corner."""
        return row // self.down * self.factor, column // self.across * self.factor


class ExaminePane(Pane):
    """A state tensor of shape [rows, columns] (one head of h, or conv) as half-block heatmaps."""

    NUMBER = "6"
    NAME = "examine"
    SUMMARY = "the numbers of one state tensor as a picture, beside a base, with the difference"
    HELP_TEXT = """\
Three pictures: the values, the base, the difference. A pixel is the value farthest from zero of what
it covers, so that nothing bad can hide.
Values: blue below zero, red above, clipped at three sigma. Difference: log10, from 1e-8 to 10.
Magenta is NaN. Without colour: letters are negative, signs positive, denser is larger.
h j k l, arrows or a click move the cell cursor; its exact values are in the last line.
d and u go inward and outward (layer, head), ( and ) to the previous and next; D chooses the base."""

    slab: Slab | None = None

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.heat = HeatColours(INK)
        self.cell = (0, 0)
        self._pictures: list[Picture] = []
        self._heat_lines: dict[int, Pixels] = {}
        self._values: Any = None
        self._base: Any = None

    def recolour(self, styles: Styles) -> None:
        self.heat = HeatColours(styles.palette)
        super().recolour(styles)

    def take(self, slab: Slab | None) -> None:
        """A new tensor from the worker."""
        self.slab = slab
        self.redraw()

    def build(self, frame: Frame, width: int, height: int) -> Content:
        slab = self.slab
        self._pictures, self._heat_lines = [], {}
        if slab is None or slab.values is None:
            why = slab.reason if slab is not None and slab.reason else "choose a tensor in pane 5 and press x"
            return Content(rows=(Row(((f"  {why}", "faint"),)),))
        heads = slab.values.shape[0]
        head = min(max(frame.head, 0), heads - 1)
        self._values = slab.values[head]
        self._base = slab.base[head] if slab.base is not None and slab.base.shape == slab.values.shape else None
        title: list[Span] = [(f"L{slab.layer:02d}.{slab.part}", slab.part), (f"  {slab.place}", "strong")]
        if heads > 1:
            title.append((f"  head {head}/{heads}", "dim"))
        shape = "×".join(str(size) for size in self._values.shape)
        note: Line = ((f"[{shape}]", "dim"),)
        if slab.seq != frame.view.seq:
            note = ((f"at {slab.seq}  ", "warn"), *note)
        rows = self._draw_pictures(slab, width, height)
        return Content(tuple(title), note, rows=tuple(rows))

    def _draw_pictures(self, slab: Slab, width: int, height: int) -> list[Row]:
        values, base = self._values, self._base
        finite = values[np.isfinite(values)]
        limit = float(SIGMA * finite.std()) if finite.size else 0.0
        limit = limit or float(np.abs(finite).max(initial=0.0)) or 1.0
        kinds = [("live" if base is not None else slab.place, "value", values)]
        if base is not None:
            kinds += [(slab.base_name, "value", base), ("difference", "diff", values - base)]
        each = (width - GAP * (len(kinds) - 1) - 2) // len(kinds)
        lines = max(1, height - 3)
        x = 1
        names: list[Span] = [(" ", "")]
        for name, kind, array in kinds:
            picture, down, across = pool(array, lines * 2, max(1, each))
            levels = value_levels(picture, limit) if kind == "value" else difference_levels(picture)
            levels, factor = enlarge(levels, lines * 2, max(1, each))
            self._pictures.append(Picture(name, kind, levels, x, down, across, factor))
            names.append((fit(name, each + GAP), "head"))
            x += each + GAP
        tall = max(len(picture.levels) for picture in self._pictures)
        rows = [Row(tuple(names))]
        mono = self.app.no_color if self.is_attached else False
        for y in range(-(-tall // 2)):
            if mono:
                rows.append(Row(self._signs_line(y, each, width)))
                continue
            pixels = self._heat_lines[y + 2] = self._pixels(y)
            rows.append(Row(((" " * width, self._key(y, pixels)),)))
        rows += [Row(())] * (lines - (len(rows) - 1))
        rows.append(Row(self._legend(limit, base is not None, width)))
        rows.append(Row(self._cursor_line(slab, width)))
        return rows[:height]

    def _key(self, y: int, pixels: Pixels) -> str:
        """A name for what the line looks like: only lines with another name are drawn again."""
        under = tuple(
            self.cell for picture in self._pictures if self.has_focus and picture.pixel(*self.cell)[0] // 2 == y
        )
        seen = tuple((kind, x, above.tobytes(), below.tobytes()) for kind, _, x, above, below in pixels)
        return f"heat{hash((seen, under))}"

    def _pixels(self, y: int) -> Pixels:
        """Per picture: kind, its number, first column, levels of the upper and of the lower pixel row."""
        out = []
        for order, picture in enumerate(self._pictures):
            levels = picture.levels
            if 2 * y >= len(levels):
                continue
            above = levels[2 * y]
            below = levels[2 * y + 1] if 2 * y + 1 < len(levels) else above
            out.append((picture.kind, order, picture.x, above, below))
        return tuple(out)

    def _signs_line(self, y: int, each: int, width: int) -> Line:
        text = " "
        for picture in self._pictures:
            levels = picture.levels
            row = signs(levels[2 * y], picture.kind) if 2 * y < len(levels) else ""
            text += fit(row, each + GAP)
        return pad(((text, "text"),), width)

    def render_line(self, y: int) -> Strip:
        pictures = self._heat_lines.get(y)
        if pictures is None or y >= len(self._lines):
            return super().render_line(y)
        strip = self._strips[y]
        if strip is None:
            strip = self._strips[y] = self._heat_strip(y, pictures)
        return strip

    def _heat_strip(self, y: int, pictures: Pixels) -> Strip:
        blank = self.styles_of("")
        edge_left, edge_right = self._lines[y][0][0], self._lines[y][0][-1]
        segments = [Segment(edge_left[0], self.styles_of(edge_left[1]))]
        x = 0
        row, column = self.cell
        for kind, order, start, above, below in pictures:
            segments.append(Segment(" " * (start - x), blank))
            line = self.heat.line(kind, above, below)
            picture = self._pictures[order]
            above_at, at = picture.pixel(row, column)
            if above_at // 2 == y - 2 and self.has_focus:
                line = _with_cursor(line, at, self.styles_of("strong"))
            segments += line
            x = start + len(above)
        segments.append(Segment(" " * max(0, self.inner[0] - x), blank))
        segments.append(Segment(edge_right[0], self.styles_of(edge_right[1])))
        return Strip(segments, self.size.width)

    def _legend(self, limit: float, both: bool, width: int) -> Line:
        text = f" ±{limit:.2g} at 3σ"
        if self._pictures and (self._pictures[0].down > 1 or self._pictures[0].across > 1):
            text += f"  ·  1 px = {self._pictures[0].down}×{self._pictures[0].across}, worst"
        if both:
            text += "  ·  difference log 1e-8 … 10"
        return pad(((text, "faint"),), width)

    def _cursor_line(self, slab: Slab, width: int) -> Line:
        row, column = self._clamped()
        value = float(self._values[row, column])
        spans: list[Span] = [(f" [{row},{column}] ", "accent"), (f"{value:+.7g}", "strong")]
        if self._base is not None:
            other = float(self._base[row, column])
            diff = value - other
            spans += [(f"  {slab.base_name} ", "dim"), (f"{other:+.7g}", "text"), ("  d ", "dim")]
            spans.append((number(abs(diff)), "text" if diff == 0 else "changed"))
            gap = np.abs(self._values - self._base)
            if gap.size and np.nanmax(gap) > 0:
                worst = np.unravel_index(int(np.nanargmax(gap)), gap.shape)
                spans.append((f"  max {float(gap[worst]):.3g} @ [{worst[0]},{worst[1]}]", "dim"))
        return pad(tuple(spans), width)

    def _clamped(self) -> tuple[int, int]:
        rows, length = self._values.shape
        self.cell = (max(0, min(rows - 1, self.cell[0])), max(0, min(length - 1, self.cell[1])))
        return self.cell

    # --------------------------------------------------------------------------------------------------- movement

    def _go(self, row: int, column: int) -> None:
        self.cell = (row, column)
        if self._values is not None:
            self._clamped()
        self.redraw()

    def move(self, rows: int) -> None:
        self._go(self.cell[0] + rows, self.cell[1])

    def slide(self, columns: int) -> None:
        self._go(self.cell[0], self.cell[1] + columns)

    def edge(self, last: bool) -> None:
        end = 1 << 30
        self._go(end if last else 0, end if last else 0)

    @property
    def target(self) -> Target | None:
        return ("tensor", (self.slab.layer, self.slab.part)) if self.slab is not None else None

    def on_click(self, event: events.Click) -> None:
        for picture in self._pictures:
            x, y = event.x - 1 - picture.x, event.y - 2
            if 0 <= x < picture.levels.shape[1] and 0 <= y * 2 < len(picture.levels):
                self._go(y * 2 // picture.factor * picture.down, x // picture.factor * picture.across)
                return


def _with_cursor(line: list[Segment], at: int, style: Style) -> list[Segment]:
    """``line`` with the cell ``at`` crossed out, so that the cursor is seen without colour too."""
    out: list[Segment] = []
    x = 0
    for segment in line:
        size = len(segment.text)
        if x <= at < x + size:
            out.append(Segment(segment.text[: at - x], segment.style))
            out.append(Segment("╳", style))
            out.append(Segment(segment.text[at - x + 1 :], segment.style))
        else:
            out.append(segment)
        x += size
    return [segment for segment in out if segment.text]
