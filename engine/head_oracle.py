"""The newest feeding of the MTP head run again, beside the session: the same rows, the same KV below them, no seams.

Same rows and same shapes go through the same kernels, so a healthy head is met bit for bit. One layer without logits;
the head's keys and values are read in place, what the run would write to them is put beside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.events import HeadRow, StateData
from engine.runtime import EngineRefusal
from engine.state.paged_kv import KvTable
from engine.state.places import to_plain

if TYPE_CHECKING:
    from engine.runtime import Runtime


def head_row(rt: Runtime, asked: HeadRow) -> tuple[StateData, ...]:
    """See :class:`HeadRow`. Raises EngineRefusal when the head was not fed since the request was loaded or rewound, or
    was left behind by a round that was abandoned."""
    request = rt.find(asked.req)
    seq, draft = request.seq, request.draft
    if draft.hidden is None or draft.inputs is None:
        raise EngineRefusal(f"the head of r{asked.req} has no newest row: run a round of it first")
    count = draft.inputs.shape[0]
    start = seq.cursor - count
    following = seq.tokens[start + 1 : seq.cursor + 1]
    if draft.position != seq.cursor - 1 or start < 0 or len(following) != count:
        raise EngineRefusal(f"the newest row of the head of r{asked.req} is of position {draft.position}, not the last")
    right = rt.model.mtp_hidden(draft.inputs, following, _Beside(seq.table), start)[-1]
    layer = rt.model.config.layers
    return (StateData((layer, layer), (to_plain(right), to_plain(draft.hidden)), (), None, seq.cursor),)


class _Beside(KvTable):
    """The rows of a table below the first one written here, followed by what was written here; the table is only read.

    For one layer and one write, which the next read covers."""

    __slots__ = ("_rows", "_start")

    def __init__(self, table: KvTable) -> None:
        super().__init__(table.kv, table.blocks, table.cursor)
        self._start = 0
        self._rows: tuple[Tensor, Tensor] | None = None

    def write(self, layer: int, start: int, k: Tensor, v: Tensor) -> None:
        self._start, self._rows = start, (k, v)

    def read(self, layer: int, length: int) -> tuple[Tensor, Tensor]:
        keys, values = super().read(layer, min(length, self._start))
        if self._rows is None:
            return keys, values
        k, v = self._rows
        return torch.cat((keys, k)), torch.cat((values, v))
