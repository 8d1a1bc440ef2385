"""The conv decoder at a place: which tokens the window of the first recurrent layer really contains."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engine.events import Columns, TensorRef
from inspector.analysis.conv_decoder import EMPTY, Column, Reading, decode_window, read_window
from inspector.judging.states import Subject
from sessions.errors import NotAvailable

if TYPE_CHECKING:
    from engine.events import EnginePort, TensorData
    from sessions.timeline import Timeline
    from sessions.view import LedgerView

WHOLE = 8192
"""Vocabularies up to this size are searched whole; of larger ones only the ids of the session itself."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """``columns`` oldest first; ``reading`` against the committed tokens; ``searched`` ids."""

    columns: tuple[Column, ...]
    reading: Reading
    searched: int

    @property
    def ratio(self) -> float:
        """How much farther the runner-up is, in the least certain column."""
        return min((column.ratio for column in self.columns if column.token != EMPTY), default=float("inf"))


def candidates(view: LedgerView, extra: tuple[int, ...] = ()) -> tuple[int, ...]:
    """Ids to search: a small vocabulary whole, else all ids that any request of the session was fed or drafted."""
    if 0 < view.start.vocab <= WHOLE:
        return tuple(range(view.start.vocab))
    ids = dict.fromkeys(extra)
    for request in view.requests.values():
        ids.update(dict.fromkeys((*request.tokens, *request.round.drafts, *request.round.picks)))
    return tuple(token for token in ids if token >= 0)


def decode(window: TensorData, table: TensorData, ids: tuple[int, ...], about: Subject) -> Decoded:
    """Name the tokens of a window [channels, kernel] and where in the sequence they are."""
    columns = decode_window(window, table, ids)
    readings = (
        read_window(columns, about.tokens, about.position, future) for future in dict.fromkeys((about.future, ()))
    )
    first: Reading | None = None
    had = {*about.tokens, *about.future}
    for reading in readings:
        first = first or reading
        if reading.tokens is not None or reading.rest is not None:
            foreign = tuple(dict.fromkeys(token for token in reading.strange if token not in had))
            return Decoded(columns, replace(reading, foreign=foreign), len(ids))
    assert first is not None
    return Decoded(columns, first, len(ids))


def decode_with(engine: EnginePort, window: TensorData, view: LedgerView, about: Subject) -> Decoded:
    """The same with an engine at hand. Raises ValueError when layer 0 is not recurrent."""
    ids = candidates(view, (*about.tokens, *about.future))
    (table,) = engine.compute(Columns(tokens=ids))
    return decode(window, table.conv[0], ids, about)


def decode_place(timeline: Timeline, about: Subject) -> Decoded:
    """The conv window of layer 0 at the place of ``about``.

    Raises:
        NotAvailable: layer 0 keeps no state, or no model is open.
    """
    if 0 not in timeline.start.recurrent_layers:
        raise NotAvailable("layer 0 of this model is not recurrent: its window cannot be decoded from token ids")
    view = timeline.view_at(about.seq, about.branch)
    window = timeline.tensor(TensorRef(about.sources[1], 0, "conv"), about.seq, about.branch)
    ids = candidates(view, (*about.tokens, *about.future))
    (table,) = timeline.compute(Columns(tokens=ids), about.seq, about.branch)
    return decode(window, table.conv[0], ids, about)
