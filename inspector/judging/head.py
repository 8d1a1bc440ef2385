"""The head oracle: the newest row of the MTP head, run again from what it should be fed with, against what it gave.

Nothing that is counted shows a head whose input is put together the wrong way: every digest it is fed with is right,
and it drafts on, only worse. So its own output is compared, bit for bit, because the same rows go through the same
kernels. A look costs one layer for the rows of one feeding, about a tenth of a decode of the bundled model: the first
feeding of a request is looked at and every eighth after it, and all again after a setting changed or a rollback.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import xxhash

from engine.events import HeadRow, RoundEnd
from inspector.analysis.moments import moments
from sessions.finding import Finding

if TYPE_CHECKING:
    from engine.events import EnginePort, Event, StateData
    from sessions.view import LedgerView

NAME = "head-oracle"
BY_HAND = frozenset(("fault", "option", "rollback", "ring_restore", "state_rollback", "fork"))


class HeadOracle:
    """Asked by the live edge after each event; gives findings. ``every`` n looks at every n-th feeding of a request.
    ``refused`` is why the engine did not compute the last time it did not."""

    def __init__(self, every: int = 8) -> None:
        self.on, self.every, self.refused = True, every, ""
        self.compared = 0
        self._fed: dict[int, int] = {}

    def __call__(self, before: LedgerView, event: Event, after: LedgerView, engine: EnginePort) -> list[Finding]:
        if event.kind in BY_HAND:
            self._fed.clear()
        if not self.on or not isinstance(event, RoundEnd) or event.fed_position < 0:
            return []
        count = self._fed.get(event.req, 0)
        self._fed[event.req] = count + 1
        if count % self.every:
            return []
        try:
            (data,) = engine.compute(HeadRow(req=event.req))
        except ValueError as error:  # this engine cannot, or not here: the next feeding is looked at
            self.refused = str(error)
            self._fed[event.req] = count
            return []
        self.compared += 1
        return _compare(event, data)


def _compare(event: RoundEnd, data: StateData) -> list[Finding]:
    right, own = data.h
    expected, found = (xxhash.xxh3_64_hexdigest(tensor.raw) for tensor in (right, own))
    found = event.head or found
    if expected == found:
        return []
    error = moments(own, right, heads=1).error
    text = (
        f"the MTP head of r{event.req} gave {found} for position {data.tokens - 1}; fed with the hidden states and "
        f"tokens of this round it gives {expected}, {error:.2g} away: its input is put together another way"
    )
    return [Finding(NAME, event.seq, event.req, f"r{event.req}", expected, found, text)]
