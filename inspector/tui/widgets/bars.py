"""The lines around the panes: where am I (first line), what stopped me, the timeline, the keys."""

from __future__ import annotations

from bisect import bisect_left

from rich.segment import Segment
from textual import events
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from inspector.tui.frame import Frame, Marks
from inspector.tui.panes.facts import consequence, phase_text, skew
from inspector.tui.text import Line, Span, between, crop, cut, fit, line_width, pad, visible, width
from inspector.tui.themes import INK, Styles, owner_role
from sessions.view import StateFact

SEPARATOR: Span = ("  ", "")


class LineBar(Widget):
    """One line made from the frame; repainted only when its spans change."""

    ALLOW_SELECT = False
    DEFAULT_CSS = "LineBar { height: 1; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.view = Frame()
        self.styles_of = Styles(INK)
        self.spans: Line = ()

    def line(self, frame: Frame, cells: int) -> Line:
        """What to show. Pure."""
        raise NotImplementedError

    def show(self, frame: Frame) -> None:
        """Take a frame."""
        self.view = frame
        self.redraw()

    def redraw(self) -> None:
        spans = pad(self.line(self.view, self.size.width), self.size.width)
        if spans != self.spans:
            self.spans = spans
            self.refresh()

    def recolour(self, styles: Styles) -> None:
        self.styles_of = styles
        self.refresh()

    def on_resize(self) -> None:
        self.redraw()

    def render_line(self, y: int) -> Strip:
        if y:
            return Strip.blank(self.size.width)
        return Strip([Segment(text, self.styles_of(role)) for text, role in self.spans], self.size.width)


class StatusBar(LineBar):
    """First line: LIVE, HISTORY or BRANCH; which run; token, event, round; invariants."""

    def line(self, frame: Frame, cells: int) -> Line:
        view, request = frame.view, frame.request
        mode = frame.mode.lower()
        left: list[Span] = []
        if cells >= 130:
            left += [(" metrale-inspect ", "strong")]
        left += [(f" {frame.mode} ", f"badge-{mode}")]
        if frame.branches > 1 or frame.mode == "BRANCH":
            left.append((f" branch {frame.branch}", "branch"))
        live = view.live(frame.req)
        if live is not None and live.dirty:
            left += [(" ", ""), (" DIRTY ", "badge-dirty")]
        title: Line = (SEPARATOR, (visible(frame.title), "dim")) if frame.title else ()
        before = tuple(left)
        left = []
        phase: Line = ()
        left += [SEPARATOR, ("event ", "faint"), (f"{view.seq:,}", "strong"), (f"/{frame.last:,}", "dim")]
        if request is not None:
            left += [SEPARATOR, (f"r{request.req}", owner_role(request.req))]
            left += [SEPARATOR, ("len ", "faint"), (f"{len(request.tokens)}", "strong")]
            number = request.round.number or view.round
            if number:
                left += [SEPARATOR, ("round ", "faint"), (f"{number}", "strong")]
                told = phase_text(frame)
                if told and cells >= 100:
                    phase = ((f" {told}", "dirty" if request.round.open else "dim"),)
        right: list[Span] = [SEPARATOR]
        if frame.waiting is not None:
            right += [(f" {frame.waiting.what}? ", "badge-dirty"), SEPARATOR]
        if frame.running:
            right += [("▶ running", "live"), SEPARATOR]
        if frame.recording:
            stopped = frame.recording.startswith("rec stopped")
            name = visible(frame.recording.removeprefix("rec").strip())
            shown = f"● REC {name}" if cells >= 100 else "● REC"
            right += [(" ✗ rec stopped ", "badge-bad") if stopped else (shown[:28].rstrip(), "good"), SEPARATOR]
        if view.faults:
            right += [(f"fault {', '.join(view.faults)}"[:24], "warn"), SEPARATOR]
        broken = len(frame.broken)
        if frame.invariants:
            holds = frame.invariants - broken
            words = f"{'invariants ' if cells >= 150 else 'inv ' if cells >= 100 else ''}{holds}/{frame.invariants}"
            right.append((f" {words} ! ", "badge-bad") if broken else (f"{words} ✓ ", "good"))
        elif broken:
            right.append((f" {broken} broken ! ", "badge-bad"))
        room = cells - line_width(right)
        choices: tuple[Line, ...] = (
            (*before, *title, *left, *phase), (*before, *left, *phase), (*before, *left), (*before, *left[:3]),
        )  # fmt: skip
        fitting: Line = next((line for line in choices if line_width(line) <= room), before)
        return between(fitting, right, cells)


class CursorsBar(LineBar):
    """The cursors and pools of pane 4 in one line: always in sight when panes are tabs."""

    def line(self, frame: Frame, cells: int) -> Line:
        request = frame.request
        spans: list[Span] = [(" ", "")]
        if request is not None:
            live = frame.view.live(request.req)
            spans += [("kv ", "kv"), (f"{request.cursor}", "strong"), SEPARATOR]
            for part, position in (
                ("h", None if live is None else live.h_position),
                ("conv", None if live is None else live.conv_position),
            ):
                wrong = position is not None and position != request.cursor
                spans += [
                    (f"{part} ", part),
                    ("–" if position is None else f"{position}", _position_role(wrong, live)),
                ]
                spans += [(" !" if wrong and live is not None and not live.dirty else "", "bad"), SEPARATOR]
            off = skew(frame.view, request)
            if off:
                dirty = live is not None and live.dirty
                spans += [("dirty", "dirty") if dirty else (f"skew {off:+d}", "bad"), SEPARATOR]
        right: list[Span] = []
        for name, short in (("blocks", "blocks"), ("slots", "slots"), ("ring", "ring"), ("prefix", "prefix")):
            pool = frame.view.pools.get(name)
            if pool is not None:
                piece: Line = ((f"{short} ", "faint"), (f"{pool.used}/{pool.total}", "dim"), SEPARATOR)
                if line_width((*spans, *right, *piece)) > cells:
                    break
                right += piece
        return between(spans, right, cells)


def _position_role(wrong: bool, live: StateFact | None) -> str:
    return "strong" if not wrong else "dirty" if live is not None and live.dirty else "bad"


class StopBar(LineBar):
    """The answer to the last action, else why the debugger stands here and what to press next."""

    reply: tuple[str, str] = ("", "")

    def line(self, frame: Frame, cells: int) -> Line:
        if self.reply[0]:
            return _sentence(*self.reply, cells)
        waiting = frame.waiting
        if waiting is not None and waiting.what == "accept":
            return crop(
                (
                    (" ◆ ", "dirty"),
                    ("paused at the decision: ", "strong"),
                    (f"how many of {waiting.high} rows are accepted? ", "text"),
                    (f"goes on with {waiting.default}", "dirty"),
                    ("   a answers · n goes on", "dim"),
                ),
                cells,
            )
        if waiting is not None:
            return crop(((" ◆ ", "dirty"), (f"paused at the decision: {waiting.what}", "strong")), cells)
        if frame.running:
            return crop(((" ▶ ", "live"), ("running", "strong"), ("   space pauses", "dim")), cells)
        if frame.findings and (frame.stop_kind == "finding" or frame.findings[0].seq == frame.view.seq):
            finding = frame.findings[0]
            more = f"  (+{len(frame.findings) - 1} more)" if len(frame.findings) > 1 else ""
            right: Line = ((" :why explains ", "dim"),)
            name = f"  {visible(finding.name)}"
            room = cells - line_width(right) - width(more) - width(name) - 4
            told = visible(consequence(frame, finding))
            if width(told) > room:
                # the sentence matters most, then how many others there are
                name, room = "", room + width(name)
            left: Line = (
                (" ! ", "badge-bad"), (" ", ""), (fit(told, min(width(told), max(room, 1))), "bad"), (more, "text"),
                (name, "dim"),
            )  # fmt: skip
            return between(left, right, cells)
        return _sentence(frame.stop, frame.stop_kind, cells) if frame.stop else ()


def _sentence(text: str, kind: str, cells: int) -> Line:
    sign = {"error": ("✗", "bad"), "finding": ("!", "bad"), "hit": ("●", "warn"), "end": ("■", "dim")}
    mark, role = sign.get(kind, ("·", "dim"))
    return cut(((f" {mark} ", role), (visible(text), "text" if role != "bad" else "bad")), cells)


class TimelineBar(LineBar):
    """The whole run in one line: keyframes, bookmarks, rollbacks, findings, and the present. Click to go there."""

    can_focus = True
    NUMBER = "timeline"

    class Scrubbed(Message):
        """A place on the bar was chosen."""

        def __init__(self, seq: int) -> None:
            super().__init__()
            self.seq = seq

    def line(self, frame: Frame, cells: int) -> Line:
        first, last, now = frame.first, max(frame.last, frame.view.seq, 1), frame.view.seq
        head, tail = f" {first} ", f" {last:,} "
        room = cells - width(head) - width(tail)
        if room < 8:
            return ()
        marks = frame.marks
        label = f"[{now:,}]" if room > 24 else "●"
        span = max(1, last - first)
        at = min(room - 1, round((now - first) * (room - 1) / span))
        start = max(0, min(room - width(label), at - width(label) // 2))
        signs = [("─", "dim")] * (at + 1) + [("┄", "faint")] * (room - at - 1)
        for x, sign in self._signs(marks, first, span, room).items():
            signs[x] = sign
        spans: list[Span] = [(head, "faint")]
        spans += signs[:start]
        spans.append((label, f"badge-{frame.mode.lower()}"))
        spans += signs[start + width(label) :]
        spans.append((tail, "faint"))
        return tuple(spans)

    def _signs(self, marks: Marks, first: int, span: int, room: int) -> dict[int, Span]:
        """Sign of each cell that has one. Later kinds win the cell: a finding never hides behind a keyframe."""
        key = (marks, first, span, room)
        if key == self._known[0]:
            return self._known[1]
        out: dict[int, Span] = {}
        for kind, sign, role in (
            (marks.keyframes, "┴", "dim"),
            (marks.rollbacks, "◂", "history"),
            (tuple(seq for seq, _ in marks.bookmarks), "◆", "accent"),
            (marks.findings, "!", "bad"),
        ):
            for x in _cells(kind, first, span, room):
                out[x] = (sign, role)
        self._known = (key, out)
        return out

    _known: tuple[object, dict[int, Span]] = (None, {})

    def on_click(self, event: events.Click) -> None:
        first, last = self.view.first, max(self.view.last, 1)
        head, tail = f" {first} ", f" {last:,} "
        room = self.size.width - width(head) - width(tail)
        if room > 1:
            share = min(1.0, max(0.0, (event.x - width(head)) / (room - 1)))
            self.post_message(self.Scrubbed(first + round(share * (last - first))))


def _cells(seqs: tuple[int, ...], first: int, span: int, room: int) -> list[int]:
    """Cells in which at least one of the ascending ``seqs`` falls; no more work than there are cells or events."""
    last = max(1, room - 1)
    if len(seqs) <= room:
        return [min(last, max(0, round((seq - first) * last / span))) for seq in seqs]
    out = []
    for x in range(room):
        place = bisect_left(seqs, first + (x - 0.5) * span / last)
        if place < len(seqs) and seqs[place] < first + (x + 0.5) * span / last:
            out.append(x)
    return out


class KeysBar(LineBar):
    """The footer: groups of keys, short. ``groups`` come from the keymap."""

    groups: tuple[tuple[tuple[str, str], ...], ...] = ()
    hint: Line = ()

    def line(self, frame: Frame, cells: int) -> Line:
        if self.hint:
            return crop(self.hint, cells)
        spans: list[Span] = [(" ", "")]
        for number, group in enumerate(self.groups):
            if number:
                spans.append(("│ ", "faint"))
            for keys, what in group:
                piece: list[Span] = [(keys, "key"), (f" {what}{'  ' if cells >= 100 else ' '}", "dim")]
                if line_width(spans) + line_width(piece) > cells:
                    return tuple(spans)
                spans += piece
        return tuple(spans)
