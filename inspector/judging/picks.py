"""Picks of a round that its own states, computed again, do not give.

A greedy pick is right when no token has more. A drawn one is drawn again: the draw depends on the seed and the number
of outputs before it only, so equal logits give the same token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from engine.events import Request, StateData
from inspector.analysis.arrays import as_floats
from inspector.analysis.flips import Flip, margin_kind
from inspector.judging.rounds import Made
from inspector.judging.states import Subject

if TYPE_CHECKING:
    from sessions.timeline import Timeline

BETWEEN = "those the engine told against those that its own states give when computed again"


def flips(
    timeline: Timeline, about: Subject, rows: tuple[StateData, ...], made: Made, noise: float
) -> tuple[Flip, ...]:
    """One for each row whose pick was another one; ``noise`` is the floor of the logits."""
    found: list[Flip] = []
    told: Request | None = None
    for row, (state, pick) in enumerate(zip(rows, made.picks, strict=False)):
        if state.logits is None or pick < 0:
            continue
        logits = as_floats(state.logits).astype(np.float64)
        if pick >= len(logits) or logits[pick] == logits.max():
            continue  # of equal ones any is a first choice
        told = told or _request(timeline, about)
        drawn = told is not None and told.temperature > 0.0
        best = _drawn(timeline, about, told, logits, made, row) if told is not None and drawn else int(logits.argmax())
        if best == pick:
            continue
        margin = float(logits[best] - logits[pick])
        top = np.partition(logits, -2)[-2:]
        kind = margin_kind(abs(margin), noise)
        # where a draw falls may change by a hair's breadth: the margin proves nothing then
        kind = "unclear" if drawn and kind == "suspicious" else kind
        found.append(Flip(row, pick, best, margin, 0.0, float(top[1] - top[0]), kind))
    return tuple(found)


def _drawn(
    timeline: Timeline, about: Subject, told: Request, logits: np.ndarray[tuple[int], np.dtype[np.float64]],
    made: Made, row: int,
) -> int:  # fmt: skip
    import torch

    from engine.sampler import Sampling, pick

    request = timeline.view_at(about.seq, about.branch).requests[about.req]
    before = made.base + 1 - request.prompt_len  # outputs, the pending one included
    sampling = Sampling(told.temperature, told.top_k, told.top_p, told.seed)
    return pick(torch.from_numpy(logits.astype(np.float32)), sampling, before + row).token


def _request(timeline: Timeline, about: Subject) -> Request | None:
    """How the request began."""
    for low in range(timeline.first, about.seq + 1, 256):
        for event in timeline.events(low, min(low + 255, about.seq), about.branch):
            if isinstance(event, Request) and event.req == about.req:
                return event
    return None
