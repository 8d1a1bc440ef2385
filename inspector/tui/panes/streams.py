"""Pane 9: copies that wait on the secondary stream, and counters of what moved."""

from __future__ import annotations

from inspector.tui.frame import Frame
from inspector.tui.text import Line, between, size_text
from inspector.tui.widgets.pane import Content, Pane, Row


class StreamsPane(Pane):
    """The queue of the secondary stream."""

    NUMBER = "9"
    NAME = "streams"
    SUMMARY = "copies queued on the secondary stream and not yet landed; counters"
    HELP_TEXT = """\
Each line is a copy that was queued and has not landed: number, from, to, parts, bytes.
Whoever reads the target before a sync sees the old bytes: that is the missing-wait bug, visible here.
Below: what the run has counted so far."""

    def build(self, frame: Frame, width: int, height: int) -> Content:
        view = frame.view
        rows: list[Row] = []
        for copy in view.queued:
            left: Line = (
                (" ⧗ ", "warn"),
                (f"#{copy.copy} ", "dim"),
                (copy.src.to_text(), "text"),
                (" → ", "faint"),
                (copy.dst.to_text(), "strong"),
                (f"  {copy.parts or 'nothing'}", "dim"),
            )
            rows.append(Row(between(left, ((f"{size_text(copy.bytes)} ", "dim"),), width), ("place", copy.dst)))
        if not rows:
            rows.append(Row(((" secondary: nothing queued", "faint"),)))
        for name, count in sorted(view.counters.items()):
            shown = size_text(count) if "bytes" in name else f"{count:,}"
            sign = "*" if frame.touched("counter", name) else " "
            right: Line = ((shown, "text"), (sign, "changed"), (" ", ""))
            rows.append(Row(between(((f"   {name.replace('_', ' ')}", "dim"),), right, width)))
        note: Line = ((f"{len(view.queued)} queued", "warn"),) if view.queued else (("idle", "dim"),)
        return Content((), note, rows=tuple(rows))
