"""Pane 0: the blocks of the paged KV cache: who holds each, and the table of the focused request."""

from __future__ import annotations

from inspector.tui.frame import Frame
from inspector.tui.text import Line, Span
from inspector.tui.themes import owner_role
from inspector.tui.widgets.pane import Content, Pane, Row

PER_CELL = 2


class BlocksPane(Pane):
    """A map of all blocks and the block table of the focused request."""

    NUMBER = "0"
    NAME = "kv blocks"
    SUMMARY = "which KV blocks are held, by whom, and the block table of the focused request"
    HELP_TEXT = """\
Map    one sign per block: ■ one holder   ▣ shared by several   · free; the colour is its request
Table  logical block, physical block, tokens in it; ▸ is the block the cursor stands in.
       Rewinding moves the cursor and frees nothing: blocks behind it keep stale rows until they are overwritten."""

    def build(self, frame: Frame, width: int, height: int) -> Content:
        view = frame.view
        total = view.start.blocks
        if not total and not view.block_refs:
            return Content(rows=(Row((("  no paged KV here", "faint"),)),))
        owner: dict[int, int] = {}
        for req, holder in view.requests.items():
            for block in holder.blocks:
                owner[block] = min(req, owner.get(block, req)) if req != frame.req else req
        size = view.start.block_size
        request = frame.request
        head: list[Line] = [self._table(request.blocks, request.cursor, size, width)] if request is not None else []
        per = max(8, (width - 7) // PER_CELL)
        rows: list[Row] = []
        for first in range(0, total, per):
            spans: list[Span] = [(f"{first:>5} ", "faint")]
            for block in range(first, min(total, first + per)):
                refs = view.block_refs.get(block, 0)
                sign = "·" if refs <= 0 else "■" if refs == 1 else "▣"
                role = "faint" if refs <= 0 else owner_role(owner[block]) if block in owner else "accent"
                spans.append((sign + ("*" if frame.touched("block", block) else " "), role))
            rows.append(Row(tuple(spans)))
        used = sum(1 for refs in view.block_refs.values() if refs > 0)
        return Content(((f"{used}/{total}", "dim"),), (), tuple(head), tuple(rows))

    def _table(self, blocks: tuple[int, ...], cursor: int, size: int, width: int) -> Line:
        spans: list[Span] = [(" table ", "faint")]
        room = max(1, (width - 8) // 5)
        at = cursor // size if size else 0
        low = max(0, min(at - room // 2, len(blocks) - room))
        for logical in range(low, min(len(blocks), low + room)):
            here = logical == min(at, len(blocks) - 1)
            spans.append((f"{'▸' if here else ' '}{blocks[logical]:<4}", "strong" if here else "dim"))
        return tuple(spans)
