"""Pane 3: every place a state can be, who owns it, and what it holds."""

from __future__ import annotations

from engine.events import Place
from inspector.tui.frame import Frame
from inspector.tui.panes.facts import position_spans, writer_text
from inspector.tui.text import Line, Span
from inspector.tui.text import width as cell_width
from inspector.tui.themes import owner_role
from inspector.tui.widgets.pane import Content, Pane, Row, columns
from sessions.view import StateFact

LEAST = (1, 1, 3, 2, 8, 5)
MOST = (1, 2, 3, 2, 8, 7)


class SlotsPane(Pane):
    """Rows of the state pool, one block per slot, then the prefix cache."""

    NUMBER = "3"
    NAME = "slots and owners"
    SUMMARY = "every place a state can be: owner, epoch, position, who wrote it last"
    HELP_TEXT = """\
Map     one sign per slot: the number of its owner, · when free. The same for cached prefixes after the bar
#       slot: row of the state pool
own ep  request that owns it, and how often the slot has been allocated (its epoch)
place   live: the working state   ckpt: copy taken before a verify   step i: state after verify row i
        prefix i: a cached snapshot that new prompts may start from
at      tokens absorbed; 319/321 means that h and conv differ
by      event that wrote it last
        dirty: live has absorbed drafts not accepted yet     queued: a copy into it waits on the secondary stream
        stale: the bytes are of an earlier owner or allocation
*       changed by the last step       !  an invariant that is broken now names this place
Click or Enter selects a place: then L shows who wrote it, w watches it, x looks into it, D compares it."""

    def build(self, frame: Frame, width: int, height: int) -> Content:
        start, view = frame.view.start, frame.view
        slots = start.slots or len(view.slot_owner)
        if not slots:
            return Content(rows=(Row((("  no pool", "faint"),)),))
        used = sum(1 for owner in view.slot_owner.values() if owner >= 0)
        title: Line = ((f"{used}/{slots}", "dim"),)
        widths = _widths(frame, slots, width)
        head_cells = [(text, "head") for text in ("", "#", "own", "ep", "place", "at", "by")]
        rows: list[Row] = []
        anchor = 0
        for slot in range(slots):
            owner = view.slot_owner.get(slot, -1)
            if frame.request is not None and frame.request.slot == slot:
                anchor = len(rows)
            rows += self._slot(frame, slot, owner, widths)
        for index in sorted(view.prefixes):
            rows.append(self._prefix(frame, index, widths))
        head = (*_map(frame, slots, width), columns(head_cells, widths, "<><><<<"))
        return Content(title, (), head, tuple(rows), anchor=anchor)

    def _slot(self, frame: Frame, slot: int, owner: int, widths: tuple[int, ...]) -> list[Row]:
        view = frame.view
        if owner < 0 and view.states.get(Place("live", slot)) is None:
            cells: tuple[Span, ...] = _cells("", str(slot), owner, 0, ("free", "faint"), ("", ""), ("", ""))
            return [Row(columns(cells, widths, "<><><<<"), ("place", Place("live", slot)))]
        out = [self._place(frame, Place("live", slot), owner, widths, str(slot))]
        if owner < 0:
            return out
        check = view.states.get(Place("checkpoint", slot))
        if check is not None:
            out.append(self._place(frame, Place("checkpoint", slot), owner, widths))
        for index in range(max(0, view.start.k)):
            if view.states.get(Place("step", slot, index)) is not None:
                out.append(self._place(frame, Place("step", slot, index), owner, widths))
        return out

    def _place(self, frame: Frame, place: Place, owner: int, widths: tuple[int, ...], slot: str = "") -> Row:
        view = frame.view
        state = view.states.get(place)
        epoch = view.slot_epoch.get(place.slot, 0) if slot else 0
        name = {"live": "live", "checkpoint": "ckpt"}.get(place.kind, f"{place.kind} {place.index}")
        if place.kind == "live" and owner < 0:
            name = "free"
        wrong = any(finding.where == place.to_text() for finding in frame.findings)
        sign = "!" if wrong else "*" if frame.touched("state", place) else ""
        at = position_spans(state)
        by: Span = (writer_text(frame, state), "dim")
        flag = _flag(view.slot_epoch.get(place.slot, 0), owner, state)
        if flag[0]:
            whole = f"{flag[0]} {by[0]}"
            by = (whole if cell_width(whole) <= widths[-1] else f"{flag[0]} {by[0].split()[0]}", flag[1])
        role = "faint" if owner < 0 else "strong" if place.kind == "live" else "dim"
        cells = _cells(sign, slot, owner if slot else -2, epoch, (name, role), at, by)
        return Row(columns(cells, widths, "<><><<<"), ("place", place))

    def _prefix(self, frame: Frame, index: int, widths: tuple[int, ...]) -> Row:
        fact = frame.view.prefixes[index]
        place = Place("prefix", -1, index)
        state = frame.view.states.get(place)
        sign = "*" if frame.touched("prefix", index) or frame.touched("state", place) else ""
        writer = writer_text(frame, state)
        whole = f"{writer} {fact.origin}"
        by = (whole if cell_width(whole) <= widths[-1] else writer, "dim")
        at = position_spans(state) if state is not None else (str(fact.tokens), "text")
        cells = _cells(sign, "", -2, 0, (f"prefix {index}", "text"), at, by)
        return Row(columns(cells, widths, "<><><<<"), ("place", place))


def _widths(frame: Frame, slots: int, width: int) -> tuple[int, ...]:
    """Widths of the columns: the last one, which says who wrote a place, gets what narrow numbers leave."""
    view = frame.view
    wide = max((cell_width(position_spans(state)[0]) for state in view.states.values()), default=0)
    widths = [*LEAST]
    widths[1] = MOST[1] if slots > 10 else LEAST[1]
    widths[5] = min(MOST[5], max(LEAST[5], wide))
    return (*widths, max(0, width - sum(widths) - len(widths)))


def _cells(sign: str, slot: str, owner: int, epoch: int, name: Span, at: Span, by: Span) -> tuple[Span, ...]:
    own: Span = (f"r{owner}", owner_role(owner)) if owner >= 0 else ("–" if owner == -1 else "", "faint")
    mark: Span = (sign, "bad" if sign == "!" else "changed")
    return mark, (slot, "accent"), own, (str(epoch) if epoch else "", "dim"), name, at, by


def _flag(epoch: int, owner: int, state: StateFact | None) -> Span:
    if state is None or owner < 0:
        return "", ""
    if state.dirty:
        return "dirty", "dirty"
    if state.queued:
        return "queued", "warn"
    written = state.h_position is not None or state.conv_position is not None
    if written and (state.epoch != epoch or (state.h_owner >= 0 and state.h_owner != owner)):
        return "stale", "bad"
    return "", ""


def _map(frame: Frame, slots: int, width: int) -> tuple[Line, ...]:
    """Owner of every slot, one sign each, several lines at most two; then the prefix region."""
    view = frame.view
    spans: list[Span] = [(" ", "")]
    signs: list[Span] = []
    for slot in range(slots):
        owner = view.slot_owner.get(slot, -1)
        signs.append((str(owner % 10), owner_role(owner)) if owner >= 0 else ("·", "faint"))
    total = view.start.prefix_slots
    prefix: list[Span] = [("▪", "accent") if index in view.prefixes else ("·", "faint") for index in range(total)]
    room = width - 4
    if len(signs) + len(prefix) + 3 > room:
        head = signs[: max(0, room - 12)]
        return ((*spans, *head, (f" … {slots} slots", "faint")),)
    spans += signs
    if prefix:
        spans += [(" │ ", "faint"), *prefix]
    return (tuple(spans),)
