"""Pane 4: h, conv and KV of each request on one ruler, and how full the pools are."""

from __future__ import annotations

from inspector.tui.frame import Frame
from inspector.tui.panes.facts import rows_ahead, skew
from inspector.tui.text import Line, Span, fit, line_width
from inspector.tui.themes import owner_role
from inspector.tui.widgets.pane import Content, Pane, Row
from sessions.view import PoolFact, RequestFact

BLOCKS = " ▁▂▃▄▅▆▇█"
LABEL = 8
RULER_SPAN = 64


class CursorsPane(Pane):
    """The ruler, the other requests, the pools."""

    NUMBER = "4"
    NAME = "cursors and pools"
    SUMMARY = "how many tokens h, conv and the KV cache have absorbed, and how full each pool is"
    HELP_TEXT = """\
Ruler   kv    tokens valid in the paged KV cache (the cursor)
        h     tokens the recurrent matrix state has absorbed
        conv  tokens the convolution window has absorbed
        The three must end at the same place whenever no round is open. When they do not, the difference stands
        beside the bar and the skew is given in the border.
        Between verify and commit all three are ahead: live is dirty until the accepted rows are known.
        dirty, 2 rows to roll back: on its way, nothing is wrong    ← step 1 queued: the copy that does it waits
        +2 ! : no round is open and no copy is on its way; the state is broken
Others  the remaining requests, one line each; Enter moves the focus there
Pools   blocks (of the paged KV cache), slots, ring entries, cached prefixes:
        used/total, ▴ the most ever used, and how use went over the last events (right)"""

    def build(self, frame: Frame, width: int, height: int) -> Content:
        view = frame.view
        rows: list[Row] = []
        note: Line = ()
        title: Line = ()
        request = frame.request
        if request is not None:
            off = skew(view, request)
            title = ((f"r{request.req}", owner_role(request.req)),)
            if off:
                dirty = bool((live := view.live(request.req)) and live.dirty)
                note = ((f"{off} dirty", "dirty"),) if dirty else ((f"skew {off:+d}", "bad"), (" !", "bad"))
            elif (ahead := rows_ahead(view, request)) > 0:
                note = ((f"{ahead} rows ahead" if width >= 44 else f"{ahead} ahead", "dirty"),)
            elif (live := view.live(request.req)) and live.h_position is not None and live.conv_position is not None:
                note = (("in step", "good"),)
            rows += [Row(line) for line in self._ruler(frame, request, width, height >= 10)]
        others = [other for req, other in sorted(view.requests.items()) if req != frame.req]
        room = height - len(rows) - min(4, len(view.pools))
        active = [other for other in others if other.status not in ("finished", "freed")] or others[-1:]
        for other in active[: max(0, room)]:
            rows.append(Row(self._other(frame, other), ("request", other.req)))
        if height - len(rows) > len(view.pools):
            rows.append(Row(()))
        rows += [Row(self._pool(frame, pool, width), ("pool", name)) for name, pool in _ordered(view.pools)]
        return Content(title, note, rows=tuple(rows))

    def _ruler(self, frame: Frame, request: RequestFact, width: int, scaled: bool) -> list[Line]:
        live = frame.view.live(request.req)
        ends = {
            "kv": request.cursor,
            "h": live.h_position if live is not None else None,
            "conv": live.conv_position if live is not None else None,
        }
        known = [end for end in ends.values() if end is not None]
        top = max([*known, len(request.tokens)], default=0)
        tails = {
            name: _tail(frame, request, name, end, width - LABEL - 8) for name, end in ends.items() if end is not None
        }
        cells = max(8, width - LABEL - max(10, *(line_width(tail) for tail in tails.values())))
        span = max(cells, min(top, RULER_SPAN)) if top > cells else max(top, 1)
        low = max(0, top - span)
        per = cells / max(1, top - low)
        middle = (low + top) // 2
        scale = fit(f"{low}", cells // 2) + fit(f"{middle}", cells - cells // 2)
        lines: list[Line] = [((fit(" tokens", LABEL), "faint"), (scale, "faint"))] if scaled else []
        for name, end in ends.items():
            head: Span = (fit(f" {name}", LABEL), name)
            if end is None:
                lines.append((head, ("no state", "faint")))
                continue
            filled = (min(end, top) - low) * per
            bar = "━" * int(filled) + ("╸" if filled % 1 >= 0.5 else "")
            lines.append((head, (bar, name), *tails[name]))
        return lines

    def _other(self, frame: Frame, request: RequestFact) -> Line:
        off = skew(frame.view, request)
        live = frame.view.live(request.req)
        state = "–" if live is None or live.h_position is None else str(live.h_position)
        spans: list[Span] = [
            (fit(f" r{request.req}", LABEL), owner_role(request.req)),
            (f"kv {request.cursor} h {state} ", "dim"),
            (request.finish or request.status, "faint"),
        ]
        if off:
            dirty = live is not None and live.dirty
            spans.append((f" {off} in flight", "dirty") if dirty else (f" skew {off:+d} !", "bad"))
        return tuple(spans)

    def _pool(self, frame: Frame, pool: PoolFact, width: int) -> Line:
        cells = max(6, min(16, (width - LABEL - 12) // 2))
        share = pool.used / pool.total if pool.total else 0.0
        filled = round(share * cells)
        full = pool.total > 0 and pool.used >= pool.total
        sign = "*" if frame.touched("pool", pool.name) else " "
        counts = f" {pool.used}/{pool.total}"
        peak = f" ▴{pool.peak}" if pool.peak > pool.used else ""
        spans: list[Span] = [
            (fit(f" {pool.name}", LABEL), "dim"),
            ("━" * filled, "bad" if full else "accent"),
            ("─" * (cells - filled), "faint"),
            (counts, "bad" if full else "strong"),
            (sign, "changed"),
            (peak, "faint"),
        ]
        room = width - LABEL - cells - len(counts) - len(peak) - 3
        return (*spans, (" ", ""), (self._spark(frame, pool.name, room), "faint"))

    def _spark(self, frame: Frame, name: str, cells: int) -> str:
        if cells < 4:
            return ""
        shares = [
            used / total if total else 0.0
            for sample in frame.history[-cells:]
            for pool, used, total in sample.pools
            if pool == name
        ]
        return "".join(BLOCKS[max(1, min(8, round(share * 8)))] for share in shares)


def _tail(frame: Frame, request: RequestFact, name: str, end: int, room: int) -> Line:
    """What stands behind a bar: where it ends, and how far that is from the cursor. While live is dirty the distance is
    on its way to be undone, by a copy that waits or by one still to come; otherwise it is a broken state."""
    live = frame.view.live(request.req)
    off = end - request.cursor
    spans: list[Span] = [(f" {end}", "strong")]
    waiting = [copy for copy in frame.view.queued if copy.dst == (live.place if live is not None else None)]
    coming = next((copy.src for copy in waiting if name in copy.parts.split("+")), None)
    if coming is not None:
        index = f" {coming.index}" if coming.index >= 0 else ""
        spans.append((f" ← {coming.kind}{index} queued", "warn"))
    elif off and live is not None and live.dirty:
        rows = f"{abs(off)} row{'s' if abs(off) > 1 else ''}"
        words = (f"  dirty, {rows} to roll back", f"  dirty, {abs(off)} to undo", f"  {off:+d} dirty")
        if off < 0:
            words = (f"  dirty, {rows} to come", f"  dirty, {rows} to come", f"  {off:+d} dirty")
        spans.append((next((text for text in words if len(text) + 4 <= room), words[-1]), "dirty"))
    elif off:
        spans.append((f" {off:+d} !", "bad"))
    return tuple(spans)


def _ordered(pools: object) -> list[tuple[str, PoolFact]]:
    order = {"blocks": 0, "slots": 1, "ring": 2, "prefix": 3}
    items: list[tuple[str, PoolFact]] = sorted(pools.items(), key=lambda item: (order.get(item[0], 9), item[0]))  # type: ignore[attr-defined]
    return items
