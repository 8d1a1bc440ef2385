"""The prefix cache at work: snapshots at chunk ends, at the end of prompts and during decode; hits at admission."""

from __future__ import annotations

from collections.abc import Iterator

from engine.blocks import evict_prefix, reserve
from engine.events import Event, KvHold, KvShare, PrefixHit, PrefixMiss, PrefixSave
from engine.request import ActiveRequest
from engine.runtime import Runtime
from engine.state.prefix_cache import decode_checkpoint_due


def save_prefix(rt: Runtime, request: ActiveRequest, origin: str) -> Iterator[Event]:
    """Snapshot live under the tokens it has absorbed - all of them, never rounded down to a block."""
    if rt.prefix is None:
        return
    seq = request.seq
    count = rt.seams("prefix.coverage", seq.cursor, req=request.req, block_size=rt.kv.block_size)
    covered = seq.tokens[:count]
    if not covered or rt.prefix.contains(covered):
        return
    if rt.memory.pending:
        yield from rt.sync_secondary(request.req)
    if rt.memory.snapshots.prefix_free == 0:
        oldest = rt.prefix.oldest()
        assert oldest is not None, "prefix slots are in use but no entry holds one"
        yield from evict_prefix(rt, oldest, "slots needed")
    index = rt.memory.snapshots.claim_prefix()
    moved = rt.memory.save_prefix(seq, index)
    blocks = tuple(seq.table.blocks[: rt.kv.blocks_for(len(covered))])
    rt.kv.share(blocks)
    entry = rt.prefix.insert(covered, index, blocks, origin, seq.session)
    yield rt.copied(
        PrefixSave,
        request.req,
        moved,
        seq.cursor,
        tokens=entry.tokens,
        key=entry.key,
        origin=origin,
        session=seq.session,
    )
    yield rt.event(KvHold, request.req, index=index, blocks=blocks)


def checkpoint_if_due(rt: Runtime, request: ActiveRequest) -> Iterator[Event]:
    """The decode-time checkpoint: every few whole blocks, so that the next turn can start from decoded state."""
    seq, size = request.seq, rt.kv.block_size
    if rt.prefix is None:
        return
    due = decode_checkpoint_due(seq.cursor, size, seq.checkpoint_block, len(seq.table.blocks))
    if due is not None:
        seq.checkpoint_block = due.end_block
        yield from save_prefix(rt, request, "decode")


def restore_prefix(rt: Runtime, request: ActiveRequest) -> Iterator[Event]:
    """Start ``request`` from the deepest cached snapshot of its prompt, or tell why it cannot."""
    if rt.prefix is None:
        return
    seq = request.seq
    found = rt.prefix.lookup(seq.tokens, limit=seq.prompt_len - 1, session=seq.session)
    if found.entry is None or rt.seams("prefix.refuse", False, req=request.req):
        yield rt.event(PrefixMiss, request.req, matched=found.matched, reason=found.reason)
        return
    entry = found.entry
    seq.table.share_from(entry.blocks)
    yield rt.event(KvShare, request.req, blocks=tuple(entry.blocks), tokens=entry.tokens)
    seq.table.cursor = request.draft.fed = entry.tokens
    moved = rt.memory.restore_prefix(seq, entry.index)
    yield rt.copied(
        PrefixHit, request.req, moved, entry.tokens, tokens=entry.tokens, matched=found.matched, key=entry.key
    )
    if entry.tokens % rt.kv.block_size:
        yield from reserve(rt, request, 1)
