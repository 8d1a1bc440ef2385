"""What happens when a token becomes an output: thinking, tool calls, boundaries and their snapshots, loop detectors."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from engine import watchdogs
from engine.events import (
    Boundary,
    Emit,
    Event,
    Place,
    RingEvict,
    RingRecord,
    RingSave,
    RingTruncate,
    Thinking,
    Trouble,
)
from engine.request import ActiveRequest
from engine.runtime import Runtime
from engine.watchdogs import Alarm

Source = Callable[[], Iterator[Event]]


def emit(rt: Runtime, request: ActiveRequest, token: int, mark: str) -> Iterator[Event]:
    """Push ``token`` as the next output; it becomes the pending input. Tells thinking, and a boundary outside it."""
    yield from rt.tell_texts([token])
    request.seq.tokens.append(token)
    yield rt.event(Emit, request.req, token=token, index=request.output_len - 1, mark=mark)
    yield from _think(rt, request, token)
    if not request.seq.thinking:
        request.content_tokens += 1
        _track_tools(rt, request, token)
        if rt.vocabulary.is_boundary(token):
            yield rt.event(Boundary, request.req, token=token, output_len=request.output_len)


def at_boundary(rt: Runtime, request: ActiveRequest) -> bool:
    """Whether the last output ends a line or sentence outside thinking."""
    return request.output_len > 0 and not request.seq.thinking and rt.vocabulary.is_boundary(request.seq.tokens[-1])


def snapshot_boundary(rt: Runtime, request: ActiveRequest, source: Place) -> Iterator[Event]:
    """Record the current number of outputs in the ring and save ``source`` under it.

    ``source`` must hold prompt + outputs - 1 tokens: the boundary token is the pending input and not in it yet. When
    the save fails the entry is taken back and generation goes on, one anchor poorer.
    """
    seq, position = request.seq, request.output_len
    if not seq.ring.is_enabled:
        return
    if source.kind == "live" and rt.memory.pending:
        yield from rt.sync_secondary(request.req)
    recorded = seq.ring.record(position)
    if recorded is None:
        return
    for entry in recorded.evicted:
        yield rt.event(
            RingEvict,
            request.req,
            slot=seq.slot,
            ring_slot=entry.snapshot_slot,
            token_position=entry.token_position,
        )
    yield rt.event(
        RingRecord,
        request.req,
        slot=seq.slot,
        ring_slot=recorded.slot,
        token_position=position,
        next_slot=recorded.next_slot,
    )
    absorbed, target = seq.prompt_len + position - 1, Place("ring", seq.slot, recorded.slot)
    try:
        moved = rt.memory.save_ring(seq, recorded.slot, source)
    except (RuntimeError, ValueError) as error:
        yield rt.event(Trouble, request.req, text=f"ring save failed: {error}", place=str(target))
        if not rt.seams("ring.keep_failed", False, req=request.req):
            yield from truncate_ring(rt, request, position - 1)
        return
    yield rt.copied(RingSave, request.req, moved, absorbed, token_position=position)


def truncate_ring(rt: Runtime, request: ActiveRequest, keep_len: int) -> Iterator[Event]:
    """Drop ring entries past ``keep_len`` outputs."""
    seq = request.seq
    cut = seq.ring.truncate_after(keep_len)
    yield rt.event(
        RingTruncate,
        request.req,
        slot=seq.slot,
        keep_len=keep_len,
        dropped=cut.dropped,
        next_slot=cut.next_slot,
    )


def detect(rt: Runtime, request: ActiveRequest) -> Alarm | None:
    """The first loop detector that fires on the outputs as they are now."""
    config = rt.watchdogs
    if not config.enabled or request.seq.thinking or request.output_len == 0:
        return None
    if config.loop and not request.inside_tool:
        outputs = request.outputs
        alarm = watchdogs.content_loop(outputs, request.content_tokens, rt.vocabulary.is_number, config)
        if alarm is None:
            alarm = watchdogs.fuzzy_repetition(outputs, config)
        if alarm is not None:
            return alarm
    return None if request.inside_tool else watchdogs.inter_tool_prose(request.prose_tokens, config)


def thinks_in_circles(rt: Runtime, request: ActiveRequest) -> bool:
    """Whether the loop detector inside thinking wants the closing tag as the next output."""
    opening = rt.vocabulary.think_open
    if not (rt.watchdogs.enabled and rt.watchdogs.loop and request.seq.thinking) or opening is None:
        return False
    outputs = request.outputs
    start = len(outputs) - outputs[::-1].index(opening) if opening in outputs else 0
    return watchdogs.thinking_loop(outputs[start:])


def _think(rt: Runtime, request: ActiveRequest, token: int) -> Iterator[Event]:
    inside = request.seq.thinking
    if token == rt.vocabulary.think_open:
        inside = True
    elif token == rt.vocabulary.think_close:
        inside = False
    if inside != request.seq.thinking:
        request.seq.thinking = inside
        yield rt.event(Thinking, request.req, inside=inside)


def _track_tools(rt: Runtime, request: ActiveRequest, token: int) -> None:
    if token == rt.vocabulary.tool_open:
        request.inside_tool = True
    elif token == rt.vocabulary.tool_close:
        request.inside_tool, request.prose_tokens = False, 0
    elif not request.inside_tool:
        request.prose_tokens += 1
