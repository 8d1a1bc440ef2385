"""The line of pane names that stands over the tabbed area of a small terminal."""

from __future__ import annotations

from textual import events
from textual.message import Message

from inspector.tui.frame import Frame
from inspector.tui.text import Line, Span, width
from inspector.tui.widgets.bars import LineBar

TABS = (
    ("2", "ring"),
    ("3", "slots"),
    ("4", "pools"),
    ("5", "tensors"),
    ("6", "exam"),
    ("7", "stops"),
    ("8", "events"),
    ("9", "strm"),
    ("0", "kv"),
)


class TabsBar(LineBar):
    """Names of the panes; the open one is marked by brackets."""

    active = "2"

    class Chosen(Message):
        """A tab was clicked."""

        def __init__(self, number: str) -> None:
            super().__init__()
            self.number = number

    def line(self, frame: Frame, cells: int) -> Line:
        spans: list[Span] = []
        for number, name in TABS:
            if number == self.active:
                spans += [("[", "key"), (number, "number"), (f" {name}", "title"), ("]", "key")]
            else:
                spans += [(" ", ""), (number, "accent"), (f" {name} ", "dim")]
        return tuple(spans)

    def on_click(self, event: events.Click) -> None:
        x = 0
        for number, name in TABS:
            x += width(f" {number} {name} ")
            if event.x < x:
                self.post_message(self.Chosen(number))
                return
