"""Pane 2: the snapshot ring of the focused request."""

from __future__ import annotations

from engine.events import Place
from inspector.tui.frame import Frame
from inspector.tui.panes.facts import last_writer, position_spans
from inspector.tui.text import Line, Span
from inspector.tui.themes import owner_role
from inspector.tui.widgets.pane import Content, Pane, Row, columns
from sessions.view import RequestFact, RingEntry, StateFact

WIDTHS = (1, 4, 4, 7, 6, 4)


class RingPane(Pane):
    """Entries, the cursor, and what is really in each ring slot."""

    NUMBER = "2"
    NAME = "snapshot ring"
    SUMMARY = "saved states of the focused request that a rollback can return to"
    HELP_TEXT = """\
Top     one sign per ring slot: ■ saved   □ reserved, not saved yet   ▪ bytes of a dropped entry   · never written
        ▸ is the cursor, the slot the next snapshot goes to
out     label of the entry: outputs that exist when it was taken (what a rollback asks for)
slot    ring slot
state   tokens its bytes have absorbed. It should be prompt + out - 1: the boundary token itself is not in it yet
parts   h conv: both were copied; a dash means that part was not
by      event that wrote it
age     outputs generated since
*       changed by the last step       !  something is wrong with this entry
Enter on an entry rolls back to it (asks first); D diffs live against it; x looks into it."""

    def build(self, frame: Frame, width: int, height: int) -> Content:
        request = frame.request
        if request is None:
            return Content(rows=(Row((("  no request", "faint"),)),))
        ring = request.ring
        title: Line = ((f"r{request.req}", owner_role(request.req)),)
        capacity = ring.capacity or frame.view.start.ring_depth
        if capacity == 0:
            return Content(title, (("0 slots", "dim"),), rows=(Row((("  off: this run keeps no ring", "faint"),)),))
        title = (*title, (f"  {len(ring.entries)}/{capacity}", "dim"))
        note: Line = ((f"{ring.evictions} evicted", "dim"),) if ring.evictions else ()
        head_cells = (("", ""), ("out", "head"), ("slot", "head"), ("state", "head"), ("parts", "head"), ("by", "head"))
        spare = max(0, width - sum(WIDTHS) - len(WIDTHS) - 5)
        widths = (*WIDTHS[:5], WIDTHS[5] + min(spare, 14))
        head = (*_map(frame, request, capacity, width), (*columns(head_cells, widths, "<>>>^<"), ("  age", "head")))
        rows = [self._row(frame, request, entry, widths) for entry in ring.entries]
        if not rows:
            rows = [Row((("  none yet: saved at each boundary token", "faint"),))]
        return Content(title, note, head, tuple(rows), anchor=len(rows) - 1)

    def _row(self, frame: Frame, request: RequestFact, entry: RingEntry, widths: tuple[int, ...]) -> Row:
        place = Place("ring", request.slot, entry.ring_slot)
        state = frame.view.states.get(place)
        changed = frame.touched("state", place)
        wrong = _wrong(request, entry, state)
        sign: Span = ("!", "bad") if wrong else ("*", "changed") if changed else (" ", "")
        parts = _parts(state, entry)
        text, role = position_spans(state)
        cells = (
            sign,
            (str(entry.token_position), "strong"),
            (str(entry.ring_slot), "accent"),
            (text, "bad" if wrong else role),
            parts,
            (str(last_writer(state) or "–"), "dim"),
        )
        age = request.outputs - entry.token_position
        return Row((*columns(cells, widths, "<>>>^<"), (f"{age:>5}", "faint")), ("place", place))


def _wrong(request: RequestFact, entry: RingEntry, state: StateFact | None) -> bool:
    if not entry.saved or state is None:
        return False
    should = request.prompt_len + entry.token_position - 1
    return state.h_position != should or state.conv_position != should or state.owner not in (-1, request.req)


def _parts(state: StateFact | None, entry: RingEntry) -> Span:
    if not entry.saved:
        return "reserved", "faint"
    h = state is not None and state.h_position is not None
    conv = state is not None and state.conv_position is not None
    return f"{'h' if h else '–'} {'conv' if conv else '–'}", "text" if h and conv else "bad"


def _map(frame: Frame, request: RequestFact, capacity: int, width: int) -> tuple[Line, ...]:
    """The ring as one sign per slot, with the cursor."""
    ring = request.ring
    live = {entry.ring_slot: entry for entry in ring.entries}
    spans: list[Span] = [(" ", "")]
    for slot in range(capacity):
        at = slot == ring.next_slot
        spans.append(("▸" if at else " ", "key"))
        entry = live.get(slot)
        state = frame.view.states.get(Place("ring", request.slot, slot))
        written = state is not None and state.h_position is not None
        if entry is not None:
            spans.append(("■", owner_role(request.req)) if entry.saved else ("□", "dim"))
        else:
            spans.append(("▪", "faint") if written else ("·", "faint"))
        if 2 * (slot + 1) + 4 >= width:
            spans.append((" …", "faint"))
            break
    return (tuple(spans),)
