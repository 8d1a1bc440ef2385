"""Pane 5: every state tensor of one place, against a base of one's choice."""

from __future__ import annotations

from inspector.tui.frame import Frame, TensorRow, TensorTable
from inspector.tui.text import Line, Span, fit
from inspector.tui.widgets.pane import Content, Pane, Row, columns

WIDTHS = (1, 3, 4, 8, 8, 8, 4)
ALIGNS = "<><>>><"
BARS = "▁▂▃▄▅▆▇█"


class TensorsPane(Pane):
    """One row per layer and part."""

    NUMBER = "5"
    NAME = "state tensors"
    SUMMARY = "size of every layer's h and conv, and how far each is from the chosen base"
    HELP_TEXT = """\
rms      root mean square of the values
max|d|   largest absolute difference from the base
rel      1 - 2 sum(xy) / sum(x^2 + y^2), the score of SGLang's comparator: quadratic in the error, 0 when equal
=        the same bits    ok: within the tolerance of the dtype    NO: not
profile  one bar per layer, logarithmic: rounding grows with depth, corruption stands out in one layer
D chooses the base (previous, checkpoint, a ring slot, golden, a bookmark); Enter or x looks into a tensor."""

    table: TensorTable | None = None

    def take(self, table: TensorTable | None) -> None:
        """New statistics from the worker."""
        self.table = table
        self.redraw()

    def build(self, frame: Frame, width: int, height: int) -> Content:
        table = self.table
        if table is None:
            return Content(rows=(Row((("  not read yet", "faint"),)),))
        title: Line = ((table.place, "strong"), *((("  vs ", "dim"), (table.base, "accent")) if table.base else ()))
        stale = table.seq != frame.view.seq
        note: Line = ((f"at {table.seq}", "warn"),) if stale and table.rows else ()
        if not table.rows:
            return Content(title, note, rows=(Row(((f"  {table.reason or 'nothing here'}", "faint"),)),))
        spare = max(0, width - sum(WIDTHS) - len(WIDTHS))
        wide = spare >= 14
        widths = (*WIDTHS, spare)
        head = columns(
            [(name, "head") for name in ("", "L", "part", "rms", "max|d|", "rel", "", "range" if wide else "")],
            widths,
            ALIGNS + "<",
        )
        rows = [self._row(frame, row, widths) for row in table.rows]
        foot = self._profile(table, width) if table.base else ()
        if table.verdict:
            foot = (*foot, ((" ", ""), (table.verdict, "strong")))
        return Content(title, note, (head,), tuple(rows), foot)

    def _row(self, frame: Frame, row: TensorRow, widths: tuple[int, ...]) -> Row:
        here = frame.layer == row.layer
        verdict: Span = ("", "")
        if row.same:
            verdict = ("=", "good")
        elif row.flags:
            verdict = (row.flags, "bad")
        elif row.same is False:
            verdict = ("", "dim")
        bad = row.flags != "" and not row.same
        cells: list[Span] = [
            ("›" if here else "", "key"),
            (str(row.layer), "accent" if here else "dim"),
            (row.part, row.part),
            (f"{row.rms:.4g}", "text"),
            (number(row.worst), "bad" if bad else "text" if row.worst else "faint"),
            (number(row.rel), "bad" if bad else "text" if row.rel else "faint"),
            verdict,
            (f" {row.low:.3g} … {row.high:.3g}" if widths[-1] >= 14 else "", "faint"),
        ]
        return Row(columns(cells, widths, ALIGNS + "<"), ("tensor", (row.layer, row.part)))

    def _profile(self, table: TensorTable, width: int) -> tuple[Line, ...]:
        out: list[Span] = []
        for part in ("h", "conv"):
            bars = "".join(profile_bar(row.worst, row.rms) for row in table.rows if row.part == part)
            room = max(1, width // 2 - 8)
            out += [(fit(f" {part}", 6), part), (fit(bars, min(room, max(len(bars), 1))), "text"), ("  ", "")]
        return (tuple(out),)


def number(value: float | None) -> str:
    """Three significant digits; 0 for exactly nothing; a dash for unknown."""
    if value is None:
        return "–"
    return "0" if value == 0 else f"{value:.1e}" if abs(value) < 1e-2 or abs(value) >= 1e4 else f"{value:.3f}"


def profile_bar(worst: float | None, rms: float) -> str:
    """A bar for the difference relative to the size of the tensor, one step per decade from 1e-7 up."""
    if not worst:
        return "·"
    share, steps = worst / rms if rms else 1.0, 0
    while share > 1e-7 and steps < len(BARS) - 1:
        share, steps = share / 10, steps + 1
    return BARS[steps]
