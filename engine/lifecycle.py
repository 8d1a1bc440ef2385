"""A request's beginning and end: admission, fork, finish, and moving survivors onto the lowest slots."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from engine.events import (
    Claim,
    Compact,
    Event,
    Finish,
    Fork,
    KvFree,
    KvShare,
    NewRequest,
    Place,
    Release,
    Request,
    RingRecord,
    RingSave,
    StateCopy,
    Thinking,
    Trouble,
    Zero,
)
from engine.prefixes import restore_prefix, save_prefix
from engine.request import ActiveRequest
from engine.rollback import thinking_at_end
from engine.runtime import EngineRefusal, Runtime
from engine.sampler import Sampling
from engine.state.errors import KvExhausted
from engine.state.paged_kv import KvTable
from engine.state.ring import SsmDecodeRing
from engine.traits import SequenceState


def free_slots(rt: Runtime) -> int:
    """Free slots as the scheduler counts them: requests are admitted by this number, and events tell it. A change at
    ``slot.free`` counts others than those on the free list."""
    return rt.seams("slot.free", len(rt.memory.pool.free))


def check_new(rt: Runtime, action: NewRequest) -> None:
    """Raises EngineRefusal when the request cannot be admitted."""
    capacity = rt.kv.blocks * rt.kv.block_size
    if not action.prompt:
        raise EngineRefusal("the prompt is empty: at least one token is needed")
    bad = [token for token in action.prompt if not 0 <= token < rt.vocabulary.size]
    if bad:
        raise EngineRefusal(f"prompt token id {bad[0]} is outside the vocabulary of {rt.vocabulary.size} ids")
    if action.max_tokens < 1:
        raise EngineRefusal(f"max_tokens is {action.max_tokens}, at least 1 is needed")
    if len(action.prompt) + 1 > capacity:
        raise EngineRefusal(
            f"the prompt has {len(action.prompt)} tokens and the KV pool holds {capacity}; "
            f"start with --kv-tokens {len(action.prompt) + action.max_tokens} or shorten the prompt"
        )
    if not free_slots(rt):
        raise EngineRefusal(
            f"all {rt.config.slots} slots are in use by {', '.join(f'r{r}' for r in rt.requests)}; "
            f"free one or start with --slots {rt.config.slots + 1}"
        )
    if action.drafter and action.drafter not in rt.drafters:
        raise EngineRefusal(f"drafter {action.drafter!r} is not available; this model has {', '.join(rt.drafters)}")


def admit(rt: Runtime, action: NewRequest) -> Iterator[Event]:
    """Claim a slot, zero it, look the prompt up in the prefix cache."""
    drafter = action.drafter or (rt.config.drafter if rt.config.drafter in rt.drafters else "none")
    request = _claim(rt, list(action.prompt), len(action.prompt), drafter)
    request.sampling = Sampling(action.temperature, action.top_k, action.top_p, action.seed)
    request.max_tokens, request.ignore_eos = action.max_tokens, action.ignore_eos
    request.seq.streaming, request.seq.session = action.streaming, action.session
    yield from rt.tell_texts(action.prompt)
    yield _told(rt, request, action.prompt, -1)
    yield from _zeroed(rt, request)
    try:
        yield from restore_prefix(rt, request)
    except KvExhausted as error:
        yield rt.event(Trouble, request.req, text=str(error), place="kv")
        yield from finish(rt, request, "length", "kv_exhausted")
        return
    if thinking_at_end(rt, request):
        request.seq.thinking = True
        yield rt.event(Thinking, request.req, inside=True)


def fork(rt: Runtime, parent: ActiveRequest, seed: int | None) -> Iterator[Event]:
    """A second request that continues ``parent``: state and ring copied, KV blocks shared until written."""
    yield from rt.sync_secondary(parent.req)
    old = parent.seq
    request = _claim(rt, list(old.tokens), old.prompt_len, parent.drafter)
    new = request.seq
    sampling = parent.sampling
    request.sampling = (
        sampling if seed is None else Sampling(sampling.temperature, sampling.top_k, sampling.top_p, seed)
    )
    for name in ("max_tokens", "ignore_eos", "chunk", "content_tokens", "prose_tokens", "inside_tool"):
        setattr(request, name, getattr(parent, name))
    for name in ("thinking", "rollback_count", "session", "streaming", "checkpoint_block"):
        setattr(new, name, getattr(old, name))
    request.draft = replace(parent.draft)
    new.table.cursor = old.cursor
    yield _told(rt, request, tuple(old.tokens[: old.prompt_len]), parent.req)
    yield from _zeroed(rt, request)
    moved = rt.memory.copy(Place("live", old.slot), Place("live", new.slot))
    yield rt.copied(StateCopy, request.req, moved, old.cursor)
    blocks = tuple(old.table.blocks)
    new.table.share_from(blocks)
    yield rt.event(KvShare, request.req, blocks=blocks, tokens=old.cursor)
    yield rt.event(
        Fork,
        request.req,
        parent=parent.req,
        outputs=tuple(old.tokens[old.prompt_len :]),
        pending=old.tokens[-1] if parent.output_len else -1,
        cursor=old.cursor,
    )
    for entry in old.ring.entries:
        recorded = new.ring.record(entry.token_position)
        if recorded is None:
            break
        yield rt.event(
            RingRecord,
            request.req,
            slot=new.slot,
            ring_slot=recorded.slot,
            token_position=entry.token_position,
            next_slot=recorded.next_slot,
        )
        moved = rt.memory.copy(Place("ring", old.slot, entry.snapshot_slot), Place("ring", new.slot, recorded.slot))
        position = old.prompt_len + entry.token_position - 1
        yield rt.copied(RingSave, request.req, moved, position, token_position=entry.token_position)


def finish_reason(rt: Runtime, request: ActiveRequest) -> str:
    """stop, tool_calls or length when the request has ended; "" while it goes on."""
    if request.finished or request.output_len == 0:
        return ""
    if request.seq.tokens[-1] in rt.vocabulary.eos and not request.ignore_eos:
        closing = rt.vocabulary.tool_close
        return "tool_calls" if closing is not None and closing in request.outputs else "stop"
    return "length" if request.remaining <= 0 else ""


def finish(rt: Runtime, request: ActiveRequest, reason: str, guard: str) -> Iterator[Event]:
    """End ``request``: its last state may enter the prefix cache, everything it held goes back, others move down."""
    seq = request.seq
    yield from rt.sync_secondary(request.req, "finish")
    if reason in ("stop", "tool_calls") and not guard:
        yield from save_prefix(rt, request, "leaf")
    request.finished = True
    yield rt.event(Finish, request.req, reason=reason, guard=guard)
    if not rt.seams("kv.leak", False, req=request.req):
        yield rt.event(KvFree, request.req, blocks=seq.table.release())
    if not rt.seams("slot.leak", False, slot=seq.slot, req=request.req):
        assert seq.claim is not None
        # entries on the free list for this slot: a double free makes it 2
        seq.claim.release(rt.seams("slot.entries", 1, slot=seq.slot, req=request.req))
        yield rt.event(Release, request.req, slot=seq.slot, epoch=seq.epoch, free=free_slots(rt))
    del rt.requests[request.req]
    yield from _compact(rt)


def _claim(rt: Runtime, tokens: list[int], prompt_len: int, drafter: str) -> ActiveRequest:
    claim = rt.memory.pool.claim()
    rt.counters.req += 1
    seq = SequenceState(
        req=rt.counters.req,
        prompt_len=prompt_len,
        tokens=tokens,
        table=KvTable(rt.kv),
        ring=SsmDecodeRing(rt.memory.decode_rollback_ring_slots(), rt.seams),
    )
    seq.attach(claim)
    request = ActiveRequest(seq, Sampling(), max_tokens=0, drafter=drafter)
    rt.requests[seq.req] = request
    return request


def _told(rt: Runtime, request: ActiveRequest, prompt: tuple[int, ...], parent: int) -> Event:
    return rt.event(
        Request,
        request.req,
        prompt=tuple(prompt),
        prompt_len=len(prompt),
        max_tokens=request.max_tokens,
        seed=request.sampling.seed,
        temperature=request.sampling.temperature,
        top_k=request.sampling.top_k,
        top_p=request.sampling.top_p,
        streaming=request.seq.streaming,
        drafter=request.drafter,
        session=request.seq.session,
        parent=parent,
    )


def _zeroed(rt: Runtime, request: ActiveRequest) -> Iterator[Event]:
    seq = request.seq
    yield rt.event(Claim, request.req, slot=seq.slot, epoch=seq.epoch, free=free_slots(rt))
    moved = rt.memory.zero(seq.slot)
    if moved.bytes:
        place = Place("live", seq.slot)
        yield rt.event(Zero, request.req, place=place, parts=moved.parts, bytes=moved.bytes, digests=rt.digests(place))


def _compact(rt: Runtime) -> Iterator[Event]:
    for src, dst in rt.memory.pool.compact_plan():
        request = next(r for r in rt.requests.values() if r.seq.slot == src)
        if rt.memory.pending:
            yield from rt.sync_secondary(request.req, "compact")
        moved = rt.memory.compact(request.seq, dst)
        yield rt.event(
            Compact,
            request.req,
            src=src,
            dst=request.seq.slot,
            epoch=request.seq.epoch,
            parts=moved.parts,
            bytes=moved.bytes,
            free=free_slots(rt),
        )
