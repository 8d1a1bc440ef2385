"""Contribution diff on the open model: which block adds error, and which only passes on what it was given."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from engine.events import Residuals, StateData
from inspector.analysis.contribution import BlockStream, Contributions, contribution_diff
from inspector.judging.states import Subject
from sessions.errors import NotAvailable

if TYPE_CHECKING:
    from sessions.timeline import Timeline

MOST = 8


def streams(timeline: Timeline, data: StateData) -> list[BlockStream]:
    """Blocks in order: the mixer of each layer (linear or full) and its feed-forward (mlp)."""
    recurrent = set(timeline.start.recurrent_layers)
    blocks = []
    for i, layer in enumerate(data.layers):
        kind = "mlp" if i % 2 else "linear" if layer in recurrent else "full"
        blocks.append(BlockStream(layer, kind, data.h[i], data.h[i + 1]))
    return blocks


def by_form(timeline: Timeline, about: Subject, found: str, expected: str) -> Contributions:
    """The next tokens fed from live in two forms (steps, rows, prefill): what the shapes alone add.

    Raises:
        NotAvailable: no model is open, or nothing is there to feed.
    """
    asked = _next(timeline, about)
    a, b = (_run(timeline, replace(asked, form=form), about) for form in (found, expected))
    return contribution_diff(a, b)


def against_golden(timeline: Timeline, about: Subject) -> Contributions:
    """The next token fed from live, against the same from golden: where an error in the state enters the stream.

    Raises:
        NotAvailable: no model is open, or nothing is there to feed.
    """
    asked = replace(_next(timeline, about), form="steps")
    asked = replace(asked, tokens=asked.tokens[:1])
    return contribution_diff(
        _run(timeline, asked, about),
        _run(timeline, replace(asked, history=about.tokens, chunks=about.chunks, rows=about.rows), about),
    )


def _run(timeline: Timeline, asked: Residuals, about: Subject) -> list[BlockStream]:
    return streams(timeline, timeline.compute(asked, about.seq, about.branch)[0])


def _next(timeline: Timeline, about: Subject) -> Residuals:
    view = timeline.view_at(about.seq, about.branch)
    request = view.requests[about.req]
    pending = request.tokens[about.position :][:1]
    tokens = (*pending, *request.rejected, *request.round.drafts)[: min(MOST, max(2, view.start.k))]
    if not pending or any(token < 0 for token in tokens):
        raise NotAvailable(f"r{about.req} has no pending token here: nothing can be fed")
    if about.queued:
        raise NotAvailable("a copy into live is on its way: sync first, so that there is one state to start from")
    return Residuals(req=about.req, place=about.place, position=about.position, tokens=tokens)
