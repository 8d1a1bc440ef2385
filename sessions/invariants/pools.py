"""Pools: free and used are disjoint and together are the pool; what ends gives everything back."""

from __future__ import annotations

from collections.abc import Iterable

from engine.events import (
    Claim,
    Decode,
    Event,
    KvAlloc,
    KvCopy,
    KvDrop,
    KvFree,
    KvHold,
    KvRewind,
    KvShare,
    Prefill,
    Release,
    Rollback,
    RoundBegin,
    RoundEnd,
    Verify,
)
from sessions.finding import Finding
from sessions.invariants.base import OK, broken, invariant
from sessions.view import LedgerView

CAP = 2
"""Rollbacks a watchdog may cause per request (ROLLBACK_RESTEER_CAP)."""


@invariant(
    "pool-partition",
    at=("claim", "release", "compact", "kv_alloc", "kv_share", "kv_copy", "kv_hold", "kv_drop", "kv_free"),
    says="Free and used entries are disjoint and together are the pool: nothing is handed out twice or freed twice.",
    cause="A double free, an aliased free list, a padding row counted as free, or a leak after a failed allocation.",
)
def pool_partition(before: LedgerView, event: Event, after: LedgerView) -> Iterable[Finding]:
    name = "blocks" if event.kind.startswith("kv_") else "slots"
    pool = after.pools.get(name)
    if pool is not None and pool.used > pool.total > 0:
        text = f"{pool.used} {name} are in use, the pool has {pool.total}"
        return broken("pool-partition", event, name, pool.total, pool.used, text)
    if name == "slots":
        return _counted(event, after)
    fresh, used = _blocks(event)
    total = after.start.blocks
    for block in (*fresh, *used):
        if block < 0 or block >= total > 0:
            text = f"{event.kind} names block {block}, the pool has {total}"
            return broken("pool-partition", event, f"block {block}", f"0..{total - 1}", block, text)
    for block in fresh:
        refs = before.block_refs.get(block, 0)
        if refs:
            text = f"block {block} is handed to r{event.req} as free while {refs} hold it"
            return broken("pool-partition", event, f"block {block}", "free", f"{refs} references", text)
    for block in used:
        if not before.block_refs.get(block, 0):
            text = f"{event.kind} of r{event.req} names block {block}, which is free"
            return broken("pool-partition", event, f"block {block}", "in use", "free", text)
    if isinstance(event, KvFree):
        request = before.requests.get(event.req)
        if request is not None and sorted(event.blocks) != sorted(request.blocks):
            expected, found = _list(request.blocks), _list(event.blocks)
            text = f"r{event.req} gives back blocks {found}, its table has {expected}"
            return broken("pool-partition", event, f"r{event.req}", expected, found, text)
    return OK


def _counted(event: Event, after: LedgerView) -> Iterable[Finding]:
    """Free slots as the engine counts them, and the owned ones of the ledger. The dummy row of padding is neither."""
    total, used, free = after.start.slots, len(after.slot_owner), getattr(event, "free", -1)
    if free < 0 or total <= 0 or free + used == total:
        return OK
    text = f"slots the engine counts as free: {free}, slots with an owner: {used}; together {free + used} of {total}"
    return broken("pool-partition", event, "slots", f"{total - used} free", f"{free} free", text)


def _blocks(event: Event) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(blocks that must have been free, blocks that must have been in use)."""
    if isinstance(event, KvAlloc):
        return event.blocks, ()
    if isinstance(event, KvCopy):
        return (), (event.src,)
    if isinstance(event, (KvShare, KvHold, KvDrop, KvFree)):
        return (), event.blocks
    return (), ()


def _list(blocks: tuple[int, ...]) -> str:
    return ",".join(map(str, sorted(blocks)[:8])) + (",..." if len(blocks) > 8 else "")


@invariant(
    "blocks-exclusive",
    at=("prefill", "decode", "verify"),
    says="KV is written only into blocks that nobody else holds.",
    cause="The copy on write was left out: a cached or forked prefix is overwritten for everybody.",
)
def blocks_exclusive(before: LedgerView, event: Prefill | Decode | Verify, after: LedgerView) -> Iterable[Finding]:
    old, new = before.requests.get(event.req), after.requests.get(event.req)
    size = after.start.block_size
    if old is None or new is None or not new.blocks or size <= 0 or new.cursor <= old.cursor:
        return OK
    refs = after.block_refs
    for block in new.blocks[old.cursor // size : (new.cursor - 1) // size + 1]:
        if refs.get(block, 1) > 1:
            text = (
                f"r{event.req} writes tokens {old.cursor}..{new.cursor - 1} to block {block}, which {refs[block]} hold"
            )
            return broken("blocks-exclusive", event, f"block {block}", "1 reference", f"{refs[block]} references", text)
    return OK


@invariant(
    "released-on-finish",
    at=("round",),
    says="A request that ended holds no slot and no blocks when the next round begins.",
    cause="An error path returns before the slot or the blocks are given back.",
)
def released_on_finish(before: LedgerView, event: RoundBegin, after: LedgerView) -> Iterable[Finding]:
    if not before.lingering:
        return OK
    findings: list[Finding] = []
    for req in before.lingering:
        request = before.requests[req]
        slot = f"slot {request.slot}" if request.slot >= 0 else ""
        blocks = f"{len(request.blocks)} blocks" if request.blocks else ""
        held = " and ".join(filter(None, (slot, blocks)))
        text = f"r{req} has ended ({request.finish}) and still holds {held}"
        findings += broken("released-on-finish", event, slot or f"r{req}", "nothing", held, text, req)
    return findings


@invariant(
    "blocks-cover-cursor",
    at=("round_end", "rollback"),
    says="The block table of a request has room for every token its cursor counts.",
    cause="Blocks were freed by a rewind, or not reserved before the tokens were written.",
)
def blocks_cover_cursor(before: LedgerView, event: RoundEnd | Rollback, after: LedgerView) -> Iterable[Finding]:
    request = after.requests.get(event.req)
    if request is None or request.slot < 0 or request.status == "finished" or after.start.blocks <= 0:
        return OK
    room = len(request.blocks) * after.start.block_size
    if request.cursor <= room:
        return OK
    text = f"r{event.req} counts {request.cursor} tokens in {len(request.blocks)} blocks, which hold {room}"
    return broken("blocks-cover-cursor", event, f"r{event.req}", f"at most {room}", request.cursor, text)


@invariant(
    "rollback-frees-nothing",
    at=("kv_rewind", "rollback"),
    says="A rollback lowers the cursor and frees no block: what lies beyond it is overwritten before it is read.",
    cause="The rewind was implemented as a free of the tail blocks.",
)
def rollback_frees_nothing(before: LedgerView, event: KvRewind | Rollback, after: LedgerView) -> Iterable[Finding]:
    request = after.requests.get(event.req)
    if request is None or after.start.blocks <= 0 or (isinstance(event, Rollback) and event.outcome != "rolled_back"):
        return OK
    length = event.before if isinstance(event, KvRewind) else event.cursor + event.dropped
    have, need = len(request.blocks), -(-length // max(1, after.start.block_size))
    if have >= need:
        return OK
    text = f"r{event.req} had {length} tokens in at least {need} blocks, after the rewind its table has {have}"
    return broken("rollback-frees-nothing", event, f"r{event.req}", f"{need} blocks", f"{have} blocks", text)


@invariant(
    "rollback-cap",
    at=("rollback",),
    says=f"Watchdogs roll a request back at most {CAP} times, and drop at least what they asked for.",
    cause="The count is not kept with the sequence, or the search starts at the wrong output.",
)
def rollback_cap(before: LedgerView, event: Rollback, after: LedgerView) -> Iterable[Finding]:
    request = after.requests.get(event.req)
    if request is None or event.outcome != "rolled_back" or not request.round.min_keep:
        return OK
    where = f"r{event.req}"
    if request.rollbacks > CAP:
        text = f"r{event.req} was rolled back {request.rollbacks} times, the cap is {CAP}"
        return broken("rollback-cap", event, where, f"at most {CAP}", request.rollbacks, text)
    # A person may have chosen another boundary than the policy.
    own = request.round.boundary in (-1, event.keep_len)
    if own and event.dropped < request.round.min_keep:
        text = f"the watchdog asked to drop at least {request.round.min_keep} outputs, {event.dropped} were dropped"
        return broken("rollback-cap", event, where, f"at least {request.round.min_keep}", event.dropped, text)
    return OK


@invariant(
    "epochs-count",
    at=("claim", "release"),
    says="The epoch of a slot grows by one with each allocation, and its release names the same epoch.",
    cause="A stale handle: somebody kept a slot across its release.",
)
def epochs_count(before: LedgerView, event: Claim | Release, after: LedgerView) -> Iterable[Finding]:
    known = before.slot_epoch.get(event.slot, 0)
    expected = known + 1 if isinstance(event, Claim) else known
    if event.epoch <= 0 or event.epoch == expected:
        return OK
    text = f"{event.kind} of slot {event.slot} by r{event.req} names epoch {event.epoch}, it is epoch {expected}"
    return broken("epochs-count", event, f"slot {event.slot}", expected, event.epoch, text)
