"""Whose state is judged, where it lies, how many tokens it should have absorbed, and its bytes by layer.

Between a partial accept and the next wait the right bytes are still in the queue: what is read then is the source of
the queued copy, which is what live will hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.events import Place, StateData, TensorRef
from inspector.analysis.profile import LayerState
from sessions.errors import NotAvailable
from sessions.view import LedgerView, RequestFact, rows_upto

if TYPE_CHECKING:
    from sessions.timeline import Timeline

Chunks = tuple[tuple[int, int], ...]
Rows = tuple[tuple[int, ...], ...]
PARTS = ("h", "conv")


@dataclass(frozen=True, slots=True)
class Subject:
    """A state that is looked at. ``tokens`` are those it should have absorbed (exactly ``len(tokens)``), ``chunks`` the
    spans of them that came as prefill chunks, ``rows`` those from a batched verify. ``sources`` says where (h, conv)
    are read; other than ``place`` while a copy into it is queued. ``future`` are tokens that may have been absorbed too
    early: rejected drafts, or what comes next."""

    branch: int
    seq: int
    req: int
    place: Place
    tokens: tuple[int, ...]
    chunks: Chunks
    sources: tuple[Place, Place]
    future: tuple[int, ...] = ()
    rows: Rows = ()

    @property
    def position(self) -> int:
        return len(self.tokens)

    @property
    def queued(self) -> bool:
        """Whether the bytes are still on their way."""
        return self.sources != (self.place, self.place)

    def __str__(self) -> str:
        way = f" (queued from {self.sources[0]})" if self.queued else ""
        return f"{self.place} of r{self.req}{way}"


def line_of(view: LedgerView, before: Callable[[int], LedgerView], request: RequestFact) -> tuple[int, ...]:
    """All tokens of a request in the order in which they are fed, the drafts of an open round included.

    ``before(seq)`` gives the view after an earlier event."""
    state = request.round
    if not state.open or state.mode != "verify" or not state.first or request.last_rollback > state.first:
        return request.tokens
    begun = before(state.first).requests.get(request.req)
    head = begun.tokens if begun is not None else request.tokens[: state.base + 1]
    drafted = head + state.drafts
    if state.accepted and len(request.tokens) > len(head) + state.accepted - 1:
        return request.tokens  # everything accepted is emitted
    return drafted


def right_position(request: RequestFact) -> int:
    """Tokens live should have absorbed here: between rounds prompt + outputs - 1, inside a round what it has done."""
    state = request.round
    if not state.open or request.last_rollback > state.first:
        return request.expected
    if state.mode == "verify" and state.base >= 0 and (state.accepted or state.rows):
        return state.base + (state.accepted or (state.k if state.batched else state.rows))
    return request.cursor  # a prefill, a decode, or a verify that got no drafts and became one


def subject(timeline: Timeline, req: int, seq: int | None = None, branch: int | None = None) -> Subject:
    """The live state of ``req`` at an instant.

    Raises:
        NotAvailable: it has no slot there, or its tokens are not known.
    """
    seq, branch = timeline.now if seq is None else seq, timeline.branch if branch is None else branch
    view = timeline.view_at(seq, branch)
    request = view.requests.get(req)
    if request is None or request.slot < 0:
        raise NotAvailable(f"r{req} has no slot at event {seq}, so it has no live state")
    line = line_of(view, lambda at: timeline.view_at(at, branch), request)
    position = right_position(request)
    again = _run_again(timeline, request, seq, branch)
    if again is not None:
        position = request.round.base + again
    tokens = line[:position]
    if len(tokens) < position or any(token < 0 for token in tokens):
        raise NotAvailable(f"the tokens of r{req} are not all known: nothing can be recomputed from them")
    place = Place("live", request.slot)
    future = request.rejected or line[position:]
    chunks, rows = absorbed(request, line, position)
    return Subject(branch, seq, req, place, tokens, chunks, _sources(view, place), future, rows)


def absorbed(request: RequestFact, line: tuple[int, ...], position: int) -> tuple[Chunks, Rows]:
    """How the first ``position`` tokens of ``line`` were absorbed, where it was not one by one: prefill chunks, and
    rows of batched verifies, those of a verify that nothing is accepted of yet included."""
    chunks = tuple(span for span in request.chunks if span[1] <= position)
    rows, state = rows_upto(request.rows, line, position), request.round
    if state.open and state.batched and not state.accepted and state.base < position:
        rows = (*rows, (state.base, position, *line[position : state.base + state.k]))
    elif rows and rows[-1][0] == state.base and rows[-1][1] < position:
        # a plane of a row that was rejected: of the same batch
        start, end, *rejected = rows[-1]
        beyond = position - end
        if tuple(rejected[:beyond]) == line[end:position]:
            rows = (*rows[:-1], (start, position, *rejected[beyond:]))
    return chunks, rows


def bitwise(view: LedgerView) -> bool:
    """Whether golden must meet this session bit for bit: its rows were absorbed one by one, or in batches on a
    processor, where the same shapes give the same bits."""
    batched = view.start.verify_mode != "exact" or view.counters.get("verifies.batched", 0) > 0
    return not batched or view.start.device.startswith("cpu")


def _run_again(timeline: Timeline, request: RequestFact, seq: int, branch: int) -> int | None:
    """Replay mode, between the commit and the end of the round: rows run again so far on the checkpoint that came back;
    None when that is not what is going on."""
    state = request.round
    if timeline.start.rollback_mode != "replay" or not state.open or not 0 < state.accepted < state.k:
        return None
    count: int | None = None
    for event in timeline.events(state.first, seq, branch):
        if event.req != request.req:
            continue
        if event.kind == "commit" and event.replayed:  # type: ignore[attr-defined]
            count = 0
        elif count is not None and event.kind == "replay_row" and event.place.kind == "live":  # type: ignore[attr-defined]
            count += 1
        elif count is not None and event.kind == "emit":
            return None
    return count


def _sources(view: LedgerView, place: Place) -> tuple[Place, Place]:
    found = dict.fromkeys(PARTS, place)
    for copy in view.queued:
        if copy.dst == place:
            found.update({part: copy.src for part in copy.parts.split("+") if part in PARTS})
    return found["h"], found["conv"]


def snapshot(timeline: Timeline, place: Place, seq: int | None = None, branch: int | None = None) -> Subject:
    """A ring entry or a cached snapshot, judged by the label it is found under.

    Raises:
        NotAvailable: nothing is found there, or the tokens are not known.
    """
    seq, branch = timeline.now if seq is None else seq, timeline.branch if branch is None else branch
    view = timeline.view_at(seq, branch)
    fact = view.states.get(place)
    held = view.prefixes.get(place.index) if place.kind == "prefix" else None
    label = held.tokens if held is not None else fact.label if fact is not None else -1
    owner = view.requests.get(view.slot_owner.get(place.slot, -1)) if place.kind == "ring" else None
    entry = next((e for e in owner.ring.entries if e.ring_slot == place.index), None) if owner is not None else None
    if label < 0 and entry is not None:
        label = entry.token_position  # reserved, and nothing was saved there
    if label < 0:
        raise NotAvailable(f"{place} is found under no label at event {seq}: there is nothing it should be")
    writer = held.saved if held is not None else max(fact.h_writer, fact.conv_writer) if fact is not None else 0
    event = timeline.event(writer or seq, branch)
    req = event.req if owner is None else owner.req
    told = timeline.view_at(seq if owner is not None else writer or seq, branch)
    request = told.requests.get(req)
    if request is None:
        raise NotAvailable(f"nobody knows whose tokens {place} holds")
    position = label if place.kind == "prefix" else request.prompt_len + label - 1
    line = line_of(told, lambda at: timeline.view_at(at, branch), request)
    tokens = line[:position]
    if len(tokens) < position or any(token < 0 for token in tokens):
        raise NotAvailable(f"the {position} tokens {place} should hold are not all known")
    chunks, rows = absorbed(request, line, position)
    return Subject(branch, seq, req, place, tokens, chunks, (place, place), line[position:], rows)


def placed(timeline: Timeline, place: Place, seq: int, branch: int) -> Subject:
    """What any place should hold: a ring entry or a cached snapshot by its label, live what its owner should have
    absorbed, a checkpoint or step as many of these tokens as its position says.

    Raises:
        NotAvailable: nothing says what it should hold.
    """
    if place.kind in ("ring", "prefix"):
        return snapshot(timeline, place, seq, branch)
    view = timeline.view_at(seq, branch)
    owner = view.slot_owner.get(place.slot, -1)
    if owner < 0:
        raise NotAvailable(f"{place} belongs to no request at event {seq}, so its golden state is not known")
    if place.kind == "live":
        return subject(timeline, owner, seq, branch)
    fact = view.states.get(place)
    if fact is None or fact.position is None:
        raise NotAvailable(f"{place} has no position of its own here: nothing says what it should hold")
    if fact.h_writer and fact.conv_writer and fact.h_writer != fact.conv_writer:
        raise NotAvailable(f"h and conv of {place} are of two moments, @{fact.h_writer} and @{fact.conv_writer}")
    # what it held when it was written: later rounds have other drafts, and a rollback other tokens
    writer = max(fact.h_writer, fact.conv_writer)
    told = timeline.view_at(writer, branch)
    request = told.requests[fact.h_owner if fact.h_owner in told.requests else owner]
    line, position = line_of(told, lambda at: timeline.view_at(at, branch), request), fact.position
    if position > len(line) or any(token < 0 for token in line[:position]):
        raise NotAvailable(f"the {position} tokens {place} should hold are not all known")
    chunks, rows = absorbed(request, line, position)
    return Subject(branch, seq, request.req, place, line[:position], chunks, (place, place), line[position:], rows)


def read(timeline: Timeline, sources: tuple[Place, Place], seq: int, branch: int) -> dict[int, LayerState]:
    """h and conv of every recurrent layer at an instant.

    Raises:
        NotAvailable: this source cannot show them.
        DivergedError: the bytes contradict the record.
    """
    h, conv = sources
    return {
        layer: LayerState(
            timeline.tensor(TensorRef(h, layer, "h"), seq, branch),
            timeline.tensor(TensorRef(conv, layer, "conv"), seq, branch),
        )
        for layer in timeline.start.recurrent_layers
    }


def states_of(data: StateData) -> dict[int, LayerState]:
    """A recomputed state by model layer number."""
    return {
        layer: LayerState(data.h[i] if data.h else None, data.conv[i] if data.conv else None)
        for i, layer in enumerate(data.layers)
    }


def equal(a: Mapping[int, LayerState], b: Mapping[int, LayerState]) -> bool:
    """Whether two states are the same bytes in all layers."""
    return a.keys() == b.keys() and all(a[n].h == b[n].h and a[n].conv == b[n].conv for n in a)


def instants(timeline: Timeline, kinds: Iterable[str], req: int, low: int, high: int, branch: int) -> list[int]:
    """Events of the given kinds of ``req`` between two events, both included."""
    wanted = frozenset(kinds)
    return [e.seq for e in timeline.events(low, high, branch) if e.kind in wanted and e.req == req]
