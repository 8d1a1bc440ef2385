"""The golden base: the state a place should hold, recomputed by the engine from the tokens it should have absorbed.

The record's own prefill chunks and batches are used again, so a healthy session is met bit for bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.events import Golden, Place, StateData, TensorData
from inspector.commands.errors import CommandError

if TYPE_CHECKING:
    from inspector.commands.debugger import Debugger, Instant
    from inspector.judging.states import Subject
    from sessions.timeline import Timeline


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


def golden_of(debugger: Debugger, place: Place, instant: Instant) -> Recomputed:
    """Recompute what ``place`` should hold. Raises CommandError, NotAvailable, DivergedError."""
    from inspector.judging.states import placed

    return recompute(debugger.timeline, placed(debugger.timeline, place, instant.seq, instant.branch))


def recompute(timeline: Timeline, about: Subject, form: str = "steps") -> Recomputed:
    """``form``: steps, as the session absorbed the tokens; single, one by one; prefill, in chunks.

    Raises CommandError, NotAvailable, DivergedError."""
    if not about.tokens:
        raise CommandError(f"{about.place} should hold no tokens at event {about.seq}")
    asked = {
        "steps": Golden(tokens=about.tokens, chunks=about.chunks, rows=about.rows),
        "single": Golden(tokens=about.tokens),
        "prefill": Golden(tokens=about.tokens, form="prefill"),
    }[form]
    return Recomputed(timeline.compute(asked, about.seq, about.branch)[-1])
