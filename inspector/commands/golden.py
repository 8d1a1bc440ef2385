"""The golden base: the state a place should hold, recomputed by the engine from the tokens the record says it absorbed.

The record's own prefill chunks are used again, so a healthy session with exact verify is met bit for bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.events import Computation, Golden, Place, Prefill, PrefixHit, PrefixSave, StateData, TensorData
from inspector.commands.errors import CommandError
from sessions.view import LedgerView, RequestFact

if TYPE_CHECKING:
    from inspector.commands.debugger import Debugger, Instant
    from sessions.timeline import Timeline

Span = tuple[int, int]
DEEPEST = 64


class Recomputed:
    """Tensors of a :class:`StateData` by (layer, part)."""

    def __init__(self, data: StateData) -> None:
        self.data = data

    def tensor(self, layer: int, part: str) -> TensorData:
        """Raises CommandError for a layer that was not recomputed."""
        if layer not in self.data.layers:
            raise CommandError(f"layer {layer} was not recomputed")
        index = self.data.layers.index(layer)
        return (self.data.h if part == "h" else self.data.conv)[index]


def absorbed(view: LedgerView, place: Place) -> tuple[RequestFact, int]:
    """The request whose tokens a place should hold, and how many of them, by its role and label (not by the position
    it claims). Raises CommandError when nobody owns it."""
    state = view.states.get(place)
    owner = state.h_owner if state is not None and state.h_owner >= 0 else state.owner if state is not None else -1
    request = view.requests.get(owner)
    if state is None or request is None:
        raise CommandError(f"{place} belongs to no request at event {view.seq}, so its golden state is not known")
    if place.kind == "live":
        return request, request.cursor
    if place.kind == "ring" and state.label >= 0:
        return request, request.prompt_len + state.label - 1
    if place.kind == "prefix" and state.label >= 0:
        return request, state.label
    claimed = state.position if state.position is not None else state.conv_position
    if claimed is None:
        raise CommandError(f"{place} was never written, so there is nothing to recompute")
    return request, claimed


def tokens_of(request: RequestFact, count: int) -> tuple[int, ...]:
    """The first ``count`` tokens a state of the request absorbed; inside a verify the drafts follow the outputs.

    Raises CommandError when the record does not know them."""
    tokens = request.tokens
    if len(tokens) < count and request.round.open:
        tokens = tokens + request.round.drafts
    tokens = tokens[:count]
    if len(tokens) < count or any(token < 0 for token in tokens):
        raise CommandError(f"the record does not know the first {count} tokens of r{request.req}")
    return tokens


def chunks_of(timeline: Timeline, req: int, count: int, seq: int, branch: int, depth: int = 0) -> tuple[Span, ...]:
    """(start, end) of the prefill chunks in which the first ``count`` tokens were absorbed, as recorded up to ``seq``;
    those of the request that saved the snapshot for what a prefix hit skipped, those of the parent for a fork."""
    if depth > DEEPEST:
        return ()
    view = timeline.view_at(seq, branch)
    request = view.requests.get(req)
    spans: list[Span] = []
    for event in timeline.events(1, seq, branch):
        if event.req != req:
            continue
        if isinstance(event, Prefill):
            spans.append((event.start, event.start + event.count))
        elif isinstance(event, PrefixHit):
            saved = _saver(timeline, event, branch)
            if saved is not None:
                spans += chunks_of(timeline, saved.req, event.tokens, saved.seq, branch, depth + 1)
    if not spans and request is not None and request.parent >= 0:
        return chunks_of(timeline, request.parent, count, seq, branch, depth + 1)
    return tuple((low, min(high, count)) for low, high in sorted(set(spans)) if low < count)


def _saver(timeline: Timeline, hit: PrefixHit, branch: int) -> PrefixSave | None:
    """The event that put the snapshot of a hit into the cache."""
    saves = [
        event
        for event in timeline.events(1, hit.seq, branch)
        if isinstance(event, PrefixSave) and event.dst == hit.src and event.tokens >= hit.tokens
    ]
    return saves[-1] if saves else None


def golden_of(debugger: Debugger, place: Place, instant: Instant) -> Recomputed:
    """Recompute what ``place`` should hold. Raises CommandError, NotAvailable, DivergedError."""
    view = debugger.view_of(instant)
    request, count = absorbed(view, place)
    if count <= 0:
        raise CommandError(f"{place} should hold no tokens at event {instant.seq}")
    asked: Computation = Golden(
        tokens=tokens_of(request, count),
        chunks=chunks_of(debugger.timeline, request.req, count, instant.seq, instant.branch),
    )
    return Recomputed(debugger.timeline.compute(asked, instant.seq, instant.branch)[-1])
