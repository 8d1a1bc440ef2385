"""Pane 8: what happened, one line per event. Holds a window of rows; asks for others when it is scrolled there."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from textual.message import Message

from inspector.tui.frame import EventRow, Frame
from inspector.tui.text import Line, Span, fit, visible
from inspector.tui.themes import owner_role
from inspector.tui.widgets.pane import Content, LazyRows, Pane, Row

BAD = ("trouble", "fault", "watchdog")
ROLES = {
    "rollback": "history",
    "verify": "draft",
    "draft": "draft",
    "accept": "accepted",
    "commit": "accepted",
    "emit": "strong",
    "boundary": "boundary",
    "decision": "dirty",
    "ring_save": "h",
    "ring_restore": "history",
    "checkpoint": "conv",
    "prefill": "kv",
    "decode": "kv",
}


class EventsPane(Pane):
    """All events of the run around the present; later ones are dim (they are recorded, not undone)."""

    NUMBER = "8"
    NAME = "events"
    SUMMARY = "every fact the engine told, in order"
    HELP_TEXT = """\
▸ the present; lines below it are already recorded and can be stepped into
Each line: number, kind, request, what happened.   ! an invariant broke here   ◆ a bookmark
Enter (or a double click) on a line goes there; t runs there; b stops whenever an event of this kind comes.
g and G go to the first and last event; / searches what is loaded."""

    class Wanted(Message):
        """Rows ``low``..``high`` are looked at but not here."""

        def __init__(self, low: int, high: int) -> None:
            super().__init__()
            self.low = low
            self.high = high

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.window: tuple[EventRow, ...] = ()

    def take(self, rows: tuple[EventRow, ...]) -> None:
        """Rows that were asked for."""
        self.window = rows
        if rows and self.cursor is not None:
            at = self._seq_at_cursor
            self.cursor = next((place for place, row in enumerate(rows) if row.seq >= at), len(rows) - 1)
        self.redraw()

    _seq_at_cursor = 0

    def forget_cursor(self) -> None:
        self.window = ()
        super().forget_cursor()

    def build(self, frame: Frame, width: int, height: int) -> Content:
        rows = self.window if self.window and self.cursor is not None else frame.events
        now = frame.view.seq
        title: Line = ((f"{now:,}", "strong"), (f" of {frame.last:,}", "dim"))
        if not rows:
            return Content(title, rows=(Row((("  nothing has happened yet", "faint"),)),))
        marks = {seq for seq, _ in frame.marks.bookmarks}
        digits = max(4, len(str(frame.last)))
        findings = frame.marks.findings

        def make(place: int) -> Row:
            row = rows[place]
            at = bisect_left(findings, row.seq)
            broken = at < len(findings) and findings[at] == row.seq
            return Row(_line(row, now, digits, row.seq in marks, broken), ("event", row.seq))

        present = bisect_right(rows, now, key=lambda row: row.seq) - 1
        present = max(0, present)
        anchor = min(len(rows) - 1, present + max(1, height // 4))
        return Content(title, rows=LazyRows(len(rows), make), anchor=anchor, present=present)

    def move(self, rows: int) -> None:
        before = self._begin_at_present()
        super().move(rows)
        self._want(before + rows)

    def _begin_at_present(self) -> int:
        """The cursor; at the present when there was none."""
        if self.cursor is None:
            now = self.view.view.seq
            at = next((place for place, row in enumerate(self.view.events) if row.seq >= now), 0)
            self.window, self.cursor = self.view.events, at
        return self.cursor

    def search(self, word: str, forward: bool = True, again: bool = False) -> bool:
        began = self.cursor is None
        self._begin_at_present()
        if began:
            self.redraw()
        found = super().search(word, forward, again)
        if not found and began:
            self.cursor = None
            self.redraw()
        return found

    def edge(self, last: bool) -> None:
        at = self.view.last if last else self.view.first
        self._seq_at_cursor = at
        self.cursor = 0 if self.cursor is None else self.cursor
        self.post_message(self.Wanted(at - 100, at + 100))

    def _want(self, wished: int) -> None:
        """Ask for more rows when the cursor came near an end of what is here."""
        rows = self.window
        if not rows or self.cursor is None:
            return
        self._seq_at_cursor = rows[self.cursor].seq + (wished - self.cursor)
        self._seq_at_cursor = max(self.view.first, min(self.view.last, self._seq_at_cursor))
        near = 10
        low_open = self.cursor < near and rows[0].seq > max(1, self.view.first)
        high_open = self.cursor > len(rows) - near and rows[-1].seq < self.view.last
        if low_open or high_open:
            self.post_message(self.Wanted(self._seq_at_cursor - 100, self._seq_at_cursor + 100))


def _line(row: EventRow, now: int, digits: int, mark: bool, broken: bool) -> Line:
    later = row.seq > now
    sign: Span = ("▸", "key") if row.seq == now else ("!", "bad") if broken or row.finding else (" ", "")
    if mark and row.seq != now:
        sign = ("◆", "warn")
    role = ROLES.get(row.kind, "dim")
    if row.kind in BAD:
        role = "bad"
    own: Span = (fit(f"r{row.req}", 3), owner_role(row.req)) if row.req >= 0 else ("   ", "")
    body = "strong" if row.seq == now else "text"
    if later:
        role = body = "faint"
        own = (own[0], "faint")
    return (
        sign,
        (f"{row.seq:>{digits}} ", "accent" if row.seq == now else "faint"),
        (f"{row.kind:<13} ", role),
        own,
        (" ", ""),
        (visible(row.text), body),
        ("  recorded" if later and row.seq == now + 1 else "", "faint"),
    )
