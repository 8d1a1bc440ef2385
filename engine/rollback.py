"""Rolling a request back to a boundary: which one, in which order, and what comes of it.

Lowering the KV cursor undoes attention. A recurrent state must come back from the snapshot taken at exactly that
boundary, so it is restored first: when that fails, nothing else has been touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from engine.emission import truncate_ring
from engine.events import Decision, Event, KvRewind, Place, RingRestore, Rollback, Thinking, Trouble
from engine.request import ActiveRequest
from engine.runtime import Runtime
from engine.state.ring import SsmDecodeRing

ROLLBACK_CAP = 2

ROLLED_BACK = "rolled_back"
DISABLED = "disabled"
STREAM_UNSAFE = "stream_unsafe"
NOT_REWINDABLE = "layer_state_not_rewindable"
CAP_REACHED = "cap_reached"
NO_BOUNDARY = "no_boundary"
NO_SNAPSHOT = "no_ssm_snapshot"


@dataclass(frozen=True, slots=True)
class Declined:
    """Why a rollback is not possible."""

    outcome: str
    reason: str


def find_last_boundary(outputs: Sequence[int], boundary: Sequence[bool], min_drop: int) -> int | None:
    """Index of the newest boundary token that leaves at least ``min_drop`` outputs to drop."""
    for index in range(len(outputs) - 1 - min_drop, -1, -1):
        if outputs[index] < len(boundary) and boundary[outputs[index]]:
            return index
    return None


def find_last_boundary_with_snapshot(
    outputs: Sequence[int], boundary: Sequence[bool], min_drop: int, ring: SsmDecodeRing
) -> int | None:
    """Like :func:`find_last_boundary`, but the boundary must have a live ring entry at exactly index + 1."""
    for index in range(len(outputs) - 1 - min_drop, -1, -1):
        at_boundary = outputs[index] < len(boundary) and boundary[outputs[index]]
        if at_boundary and ring.slot_for_position(index + 1) is not None:
            return index
    return None


def choose(rt: Runtime, request: ActiveRequest, min_drop: int) -> int | Declined:
    """Number of outputs to keep, or why not. The order of the checks is the engine's (reference 1.9)."""
    ring, outputs, boundary = request.seq.ring, request.outputs, rt.vocabulary.boundary
    hybrid = rt.memory.has_ssm_layers()
    if not rt.config.rollback_resteer:
        return Declined(DISABLED, "rollback is switched off for this model")
    if request.seq.streaming:
        return Declined(STREAM_UNSAFE, "the request streams: tokens already sent cannot be taken back")
    if rt.memory.decode_rollback_unsupported():
        return Declined(NOT_REWINDABLE, "a layer keeps state that neither cursor nor snapshot rewinds")
    if request.seq.rollback_count >= ROLLBACK_CAP:
        return Declined(CAP_REACHED, f"already rolled back {request.seq.rollback_count} times, cap {ROLLBACK_CAP}")
    plain = find_last_boundary(outputs, boundary, min_drop)
    if plain is None:
        return Declined(NO_BOUNDARY, f"no line or sentence end with at least {min_drop} tokens after it")
    if not hybrid:
        return plain + 1
    found = find_last_boundary_with_snapshot(outputs, boundary, min_drop, ring)
    if found is None:
        have = ", ".join(map(str, ring.snapshot_positions())) or "none"
        return Declined(NO_SNAPSHOT, f"no snapshot at any boundary up to output {plain + 1}; ring has {have}")
    return found + 1


def rollback_to_boundary(rt: Runtime, request: ActiveRequest, min_drop: int) -> Iterator[Event]:
    """Choose a boundary, let a person override it, restore. The last event is the ``Rollback`` with its outcome."""
    chosen = choose(rt, request, min_drop)
    if isinstance(chosen, Declined):
        yield decline(rt, request, chosen)
        return
    yield rt.event(Decision, request.req, what="boundary", default=chosen, low=1, high=request.output_len - 1)
    yield from restore_to(rt, request, int(rt.take_answer("boundary", chosen)))


def restore_to(rt: Runtime, request: ActiveRequest, keep_len: int) -> Iterator[Event]:
    """Bring ``request`` back to ``keep_len`` outputs from the ring entry of exactly that position."""
    seq = request.seq
    dropped = request.output_len - keep_len
    ring_slot = seq.ring.slot_for_position(keep_len)
    if rt.memory.has_ssm_layers():
        if ring_slot is None:
            have = ", ".join(map(str, seq.ring.snapshot_positions())) or "none"
            yield decline(rt, request, Declined(NO_SNAPSHOT, f"no snapshot after {keep_len} outputs; ring has {have}"))
            return
        if rt.memory.pending:
            yield from rt.sync_secondary(request.req, "rollback")
        try:
            moved = rt.memory.restore_decode_ssm_snapshot(seq, ring_slot)
        except (RuntimeError, ValueError) as error:
            yield rt.event(
                Trouble,
                request.req,
                text=f"ring restore failed: {error}",
                place=str(Place("ring", seq.slot, ring_slot)),
            )
            yield decline(rt, request, Declined(NO_SNAPSHOT, f"restore failed: {error}"))
            return
        yield rt.copied(RingRestore, request.req, moved, seq.prompt_len + keep_len - 1, token_position=keep_len)
    yield from truncate_ring(rt, request, keep_len)
    before = seq.cursor
    del seq.tokens[seq.prompt_len + keep_len :]
    seq.table.rewind(max(0, before - dropped))
    yield rt.event(KvRewind, request.req, before=before, cursor=seq.cursor)
    request.content_tokens = max(0, request.content_tokens - dropped)
    request.prose_tokens = 0
    request.inside_tool = False
    seq.checkpoint_block = min(seq.checkpoint_block, seq.cursor // rt.kv.block_size)
    request.draft.forget(seq.cursor)
    seq.rollback_count += 1
    yield rt.event(
        Rollback,
        request.req,
        outcome=ROLLED_BACK,
        keep_len=keep_len,
        dropped=dropped,
        cursor=seq.cursor,
        pending=seq.tokens[-1],
        count=seq.rollback_count,
    )
    inside = thinking_at_end(rt, request)
    if inside != seq.thinking:
        seq.thinking = inside
        yield rt.event(Thinking, request.req, inside=inside)


def decline(rt: Runtime, request: ActiveRequest, why: Declined) -> Rollback:
    """The event of a rollback that did not happen: buffers are untouched."""
    return rt.event(
        Rollback,
        request.req,
        outcome=why.outcome,
        reason=why.reason,
        keep_len=request.output_len,
        cursor=request.seq.cursor,
        pending=request.seq.tokens[-1],
        count=request.seq.rollback_count,
    )


def thinking_at_end(rt: Runtime, request: ActiveRequest) -> bool:
    """Whether prompt and outputs end inside thinking: the newest of the two tags decides."""
    for token in reversed(request.seq.tokens):
        if token == rt.vocabulary.think_close:
            return False
        if token == rt.vocabulary.think_open:
            return True
    return False
