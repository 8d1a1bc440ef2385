"""Event sequences of a healthy run, written by hand: what an engine without a fault tells, in the engine's order.

``Script`` keeps, for h and conv of every place, how many tokens they have absorbed and a hash of them. So positions and
digests in the events are true, and a test makes a run wrong by changing one event with :func:`altered`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import xxhash

from engine import events as ev
from engine.events import Digests, Event, Place

E = TypeVar("E", bound=Event)
Part = tuple[int, int]
State = tuple[Part, Part]
EMPTY: State = ((0, 0), (0, 0))

H_SHAPE, CONV_SHAPE, LAYERS = (2, 4, 4), (24, 4), (0, 1, 2)
H_BYTES, CONV_BYTES = 128, 384


def nbytes(parts: str, layers: int = len(LAYERS)) -> int:
    """Bytes of ``parts`` of one state."""
    return layers * (H_BYTES * ("h" in parts) + CONV_BYTES * ("conv" in parts))


def absorb(state: State, tokens: Sequence[int]) -> State:
    """The state after more tokens."""
    (h, h_hash), (conv, conv_hash) = state
    for token in tokens:
        h, h_hash = h + 1, xxhash.xxh3_64_intdigest(f"{h_hash} {token}".encode())
        conv, conv_hash = conv + 1, xxhash.xxh3_64_intdigest(f"{conv_hash} {token}".encode())
    return (h, h_hash), (conv, conv_hash)


def digest(state: State) -> Digests:
    """Digests of a state, one pair for each layer; zeros are alike in all of them."""
    (_, h), (_, conv) = state
    if state == EMPTY:
        return ((f"{h:016x}", f"{conv:016x}"),) * len(LAYERS)
    mask = (1 << 64) - 1
    return tuple((f"{h ^ (layer * 0x9E3779B97F4A7C15 & mask):016x}", f"{conv ^ layer:016x}") for layer in LAYERS)


@dataclass
class Told:
    """What the script knows about a request."""

    req: int
    slot: int
    prompt: tuple[int, ...]
    outputs: list[int] = field(default_factory=list)
    cursor: int = 0
    blocks: list[int] = field(default_factory=list)
    ring: list[tuple[int, int]] = field(default_factory=list)
    next_slot: int = 0
    rollbacks: int = 0

    @property
    def tokens(self) -> tuple[int, ...]:
        return self.prompt + tuple(self.outputs)


class Script:
    """Writes events. Every method appends to ``events`` what the engine would tell for it."""

    def __init__(
        self, *, k: int = 4, ring: int = 3, slots: int = 2, blocks: int = 16, queued: bool = True, boundary: int = 9
    ) -> None:
        self.events: list[Event] = []
        self.k, self.depth, self.slots, self.queued_commit, self.boundary = k, ring, slots, queued, boundary
        self.states: dict[Place, State] = {}
        self.requests: dict[int, Told] = {}
        self.epochs = [0] * (slots + 1)
        self.free = list(range(slots))
        self.free_blocks = list(range(blocks))
        self.refs: dict[int, int] = {}
        self.pending: list[ev.StateCopy] = []
        self.prefixes: dict[int, tuple[int, tuple[int, ...]]] = {}
        self.round = self._rounds = self._copies = 0
        self.put(
            ev.Start,
            model="script",
            layers=4,
            recurrent_layers=LAYERS,
            h_shape=H_SHAPE,
            conv_shape=CONV_SHAPE,
            h_bytes=H_BYTES,
            conv_bytes=CONV_BYTES,
            vocab=100,
            slots=slots,
            ring_depth=ring,
            k=k,
            prefix_slots=4,
            blocks=blocks,
            block_size=4,
            digests=True,
        )
        self.put(ev.Texts, ids=(boundary,), texts=(".",), boundary=(True,))

    def put(self, cls: type[E], req: int = -1, **fields: Any) -> E:
        """Append an event."""
        event = cls(seq=len(self.events) + 1, round=self.round, req=req, **fields)
        self.events.append(event)
        return event

    # ------------------------------------------------------------------------------------------------- requests

    def new(self, req: int, prompt: Sequence[int], prefix: int | None = None) -> Told:
        """Admit a request: claim, zero, perhaps start from prefix slot ``prefix``."""
        told = Told(req, self.free.pop(0), tuple(prompt))
        self.requests[req] = told
        self.put(ev.Request, req, prompt=tuple(prompt), prompt_len=len(prompt), max_tokens=50, seed=req)
        self._claim(told)
        if prefix is not None:
            self._hit(told, prefix)
        return told

    def _claim(self, told: Told) -> None:
        self.epochs[told.slot] += 1
        self.put(ev.Claim, told.req, slot=told.slot, epoch=self.epochs[told.slot])
        place = Place("live", told.slot)
        self.states[place] = EMPTY
        self.put(
            ev.Zero, told.req, place=place, parts="h+conv", bytes=nbytes("h+conv"), digests=digest(self.states[place])
        )

    def fork(self, parent: int, req: int) -> Told:
        """A child that continues ``parent``, ring included."""
        old = self.requests[parent]
        told = replace(old, req=req, slot=self.free.pop(0), outputs=list(old.outputs), blocks=[], ring=[], next_slot=0)
        self.requests[req] = told
        self.put(ev.Request, req, prompt=old.prompt, prompt_len=len(old.prompt), parent=parent)
        self._claim(told)
        self._copy(ev.StateCopy, told, Place("live", old.slot), Place("live", told.slot))
        self._share(told, old.blocks, old.cursor)
        self.put(ev.Fork, req, parent=parent, outputs=tuple(old.outputs), pending=old.outputs[-1], cursor=old.cursor)
        for position, index in old.ring:
            self._record(told, position, Place("ring", old.slot, index))
        return told

    def finish(self, req: int, reason: str = "length") -> None:
        """End a request and give everything back."""
        told = self.requests.pop(req)
        self.sync(req)
        self.put(ev.Finish, req, reason=reason)
        self.put(ev.KvFree, req, blocks=tuple(told.blocks))
        for block in told.blocks:
            self._unref(block)
        self.put(ev.Release, req, slot=told.slot, epoch=self.epochs[told.slot])
        self.free = sorted([*self.free, told.slot])

    def compact(self, req: int) -> None:
        """Move a request to the lowest free slot."""
        told = self.requests[req]
        src, dst = told.slot, self.free.pop(0)
        self.epochs[dst] += 1
        for place in [p for p in self.states if p.slot == src]:
            self.states[Place(place.kind, dst, place.index)] = self.states.pop(place)
        told.slot = dst
        self.free = sorted([*self.free, src])
        self.put(ev.Compact, req, src=src, dst=dst, epoch=self.epochs[dst], bytes=4 * nbytes("h+conv"))

    # ---------------------------------------------------------------------------------------------------- rounds

    def _begin(self, told: Told, mode: str) -> None:
        self._rounds += 1
        self.round = self._rounds
        self.put(ev.RoundBegin, told.req, mode=mode)

    def _end(self, told: Told) -> None:
        self.put(ev.RoundEnd, told.req)
        self.round = 0

    def prefill(self, req: int, first: int | None = 1, chunk: int = 64) -> None:
        """Absorb the rest of the prompt in chunks; ``first`` is the first output (None: the caller emits later)."""
        told = self.requests[req]
        number = 0
        while told.cursor < len(told.prompt):
            start = told.cursor
            tokens = told.prompt[start : start + chunk]
            self._begin(told, "prefill")
            self._reserve(told, len(tokens))
            self._absorb(told.slot, tokens)
            told.cursor += len(tokens)
            last = told.cursor == len(told.prompt)
            self.put(
                ev.Prefill,
                req,
                slot=told.slot,
                start=start,
                count=len(tokens),
                tokens=tokens,
                chunk=number,
                last=last,
                cursor=told.cursor,
                position=told.cursor,
                digests=self._told("live", told.slot),
            )
            if last and first is not None:
                self._emit(told, first, "plain")
            self._end(told)
            number += 1

    def decode(self, req: int, pick: int = 1) -> None:
        """One plain decode round that emits ``pick``."""
        told = self.requests[req]
        self._begin(told, "decode")
        self.sync(req)
        self._reserve(told, 1)
        token = told.outputs[-1]
        self._absorb(told.slot, (token,))
        told.cursor += 1
        self.put(
            ev.Decode,
            req,
            slot=told.slot,
            token=token,
            pick=pick,
            cursor=told.cursor,
            position=told.cursor,
            digests=self._told("live", told.slot),
        )
        self._emit(told, pick, "plain")
        self._end(told)

    def verify(self, req: int, drafts: Sequence[int], accepted: int, bonus: int = 2) -> None:
        """One speculative round: ``accepted`` rows of ``1 + len(drafts)`` are confirmed."""
        told = self.requests[req]
        k, start, tokens = len(drafts) + 1, told.cursor, (told.outputs[-1], *drafts)
        picks = (*drafts[: accepted - 1], bonus, *(0 for _ in range(k - accepted)))
        self._begin(told, "verify")
        self.sync(req)
        self._reserve(told, k)
        self.put(ev.Draft, req, tokens=tuple(drafts), source="hand")
        self._copy(ev.Checkpoint, told, Place("live", told.slot), Place("checkpoint", told.slot))
        for row, token in enumerate(tokens):
            self._absorb(told.slot, (token,))
            told.cursor += 1
            parts = "h+conv" if row < k - 1 else "conv"
            self._step(told.slot, row, parts)
            self.put(
                ev.VerifyRow,
                req,
                slot=told.slot,
                row=row,
                token=token,
                pick=picks[row],
                step_parts=parts,
                position=told.cursor,
                digests=self._told("live", told.slot),
            )
        self.put(
            ev.Verify, req, slot=told.slot, k=k, tokens=tokens, picks=picks, cursor=told.cursor, position=told.cursor
        )
        self.put(ev.Decision, req, what="accept", default=accepted, low=1, high=k)
        emitted = (*drafts[: accepted - 1], bonus)
        self.put(ev.Accept, req, slot=told.slot, accepted=accepted, k=k, natural=accepted, emitted=emitted)
        if accepted < k:
            told.cursor = start + accepted
            self.put(ev.KvRewind, req, before=start + k, cursor=told.cursor)
        self._commit(told, accepted, k)
        for index, token in enumerate(emitted):
            self._emit(told, token, "bonus" if index == accepted - 1 else "accepted")
        self._end(told)

    def _commit(self, told: Told, accepted: int, k: int) -> None:
        live = Place("live", told.slot)
        if accepted == k:
            self._copies += 1
            self.put(ev.Commit, told.req, copy=self._copies, src=live, dst=live, parts="", accepted=accepted, k=k)
            return
        src = Place("step", told.slot, accepted - 1)
        self._copy(ev.Commit, told, src, live, queued=self.queued_commit, accepted=accepted, k=k)

    def save_ring(self, req: int) -> None:
        """Snapshot live under the number of outputs."""
        told = self.requests[req]
        if self.pending:
            self.sync(req)
        self._record(told, len(told.outputs), Place("live", told.slot))

    def rollback(self, req: int, keep: int, watchdog: int = 0) -> None:
        """Back to ``keep`` outputs from the ring entry of that label; ``watchdog`` is the drop asked for (0: none)."""
        told = self.requests[req]
        if self.pending:
            self.sync(req)
        if watchdog:
            self.put(ev.Watchdog, req, name="content_loop", min_keep=watchdog)
        self.put(ev.Decision, req, what="boundary", default=keep, low=1, high=len(told.outputs) - 1)
        index = next(slot for position, slot in told.ring if position == keep)
        self._copy(ev.RingRestore, told, Place("ring", told.slot, index), Place("live", told.slot), token_position=keep)
        gone = tuple(position for position, _ in told.ring if position > keep)
        told.ring = [entry for entry in told.ring if entry[0] <= keep]
        told.next_slot = (told.ring[-1][1] + 1) % self.depth if told.ring else 0
        self.put(ev.RingTruncate, req, slot=told.slot, keep_len=keep, dropped=gone, next_slot=told.next_slot)
        before, dropped = told.cursor, len(told.outputs) - keep
        del told.outputs[keep:]
        told.cursor = before - dropped
        self.put(ev.KvRewind, req, before=before, cursor=told.cursor)
        told.rollbacks += 1
        self.put(
            ev.Rollback,
            req,
            outcome="rolled_back",
            keep_len=keep,
            dropped=dropped,
            cursor=told.cursor,
            pending=told.outputs[-1],
            count=told.rollbacks,
        )

    def save_prefix(self, req: int, index: int, origin: str = "leaf") -> None:
        """Snapshot live into the prefix cache under all the tokens it has absorbed."""
        told = self.requests[req]
        if self.pending:
            self.sync(req)
        src = Place("live", told.slot)
        self.prefixes[index] = (told.cursor, tuple(told.blocks))
        self._copy(
            ev.PrefixSave, told, src, Place("prefix", -1, index), tokens=told.cursor, key=f"key{index}", origin=origin
        )
        for block in told.blocks:
            self.refs[block] += 1
        self.put(ev.KvHold, req, index=index, blocks=tuple(told.blocks))

    def evict_prefix(self, index: int) -> None:
        """Drop a cached snapshot."""
        tokens, blocks = self.prefixes.pop(index)
        self.put(ev.KvDrop, index=index, blocks=blocks)
        for block in blocks:
            self._unref(block)
        self.put(ev.PrefixEvict, index=index, key=f"key{index}", tokens=tokens, reason="test")

    def _hit(self, told: Told, index: int) -> None:
        tokens, blocks = self.prefixes[index]
        self._share(told, blocks, tokens)
        told.cursor = tokens
        self._copy(
            ev.PrefixHit,
            told,
            Place("prefix", -1, index),
            Place("live", told.slot),
            tokens=tokens,
            matched=tokens,
            key=f"key{index}",
        )

    def sync(self, req: int = -1) -> None:
        """The default stream waits: queued copies land."""
        landed, self.pending = self.pending, []
        for copy in landed:
            self._move(copy)
            self.put(
                ev.Landed,
                req,
                copy=copy.copy,
                src=copy.src,
                dst=copy.dst,
                parts=copy.parts,
                bytes=copy.bytes,
                digests=digest(self.states[copy.dst]),
            )
        self.put(ev.Sync, req, count=len(landed))

    # -------------------------------------------------------------------------------------------------- details

    def _told(self, kind: str, slot: int) -> Digests:
        return digest(self.states[Place(kind, slot)])

    def _absorb(self, slot: int, tokens: Sequence[int]) -> None:
        self.states[Place("live", slot)] = absorb(self.states[Place("live", slot)], tokens)

    def _step(self, slot: int, row: int, parts: str) -> None:
        h, conv = self.states[Place("live", slot)]
        place = Place("step", slot, row)
        self.states[place] = (h if "h" in parts else self.states.get(place, EMPTY)[0], conv)

    def _emit(self, told: Told, token: int, mark: str) -> None:
        told.outputs.append(token)
        self.put(ev.Emit, told.req, token=token, index=len(told.outputs) - 1, mark=mark)
        if token == self.boundary:
            self.put(ev.Boundary, told.req, token=token, output_len=len(told.outputs))
            if mark == "plain":
                self._record(told, len(told.outputs), Place("live", told.slot))

    def _copy(
        self, cls: type[ev.StateCopy], told: Told, src: Place, dst: Place, queued: bool = False, **fields: Any
    ) -> None:
        self._copies += 1
        event = cls(
            copy=self._copies,
            src=src,
            dst=dst,
            parts="h+conv",
            bytes=nbytes("h+conv"),
            layers=len(LAYERS),
            stream="secondary" if queued else "default",
            landed=not queued,
            position=self.states[src][0][0],
            **fields,
        )
        if queued:
            self.pending.append(event)
        else:
            self._move(event)
            event = replace(event, digests=digest(self.states[dst]))
        self.events.append(replace(event, seq=len(self.events) + 1, round=self.round, req=told.req))

    def _move(self, copy: ev.StateCopy) -> None:
        self.states[copy.dst] = self.states[copy.src]

    def _record(self, told: Told, position: int, src: Place) -> None:
        index = told.next_slot
        told.next_slot = (index + 1) % self.depth
        for entry in [e for e in told.ring if e[1] == index or e[0] == position]:
            told.ring.remove(entry)
            self.put(ev.RingEvict, told.req, slot=told.slot, ring_slot=entry[1], token_position=entry[0])
        told.ring.append((position, index))
        self.put(
            ev.RingRecord,
            told.req,
            slot=told.slot,
            ring_slot=index,
            token_position=position,
            next_slot=told.next_slot,
        )
        self._copy(ev.RingSave, told, src, Place("ring", told.slot, index), token_position=position)

    def _reserve(self, told: Told, count: int) -> None:
        for index in range(told.cursor // 4, min(len(told.blocks), -(-(told.cursor + count) // 4))):
            shared = told.blocks[index]
            if self.refs[shared] > 1:
                fresh = self.free_blocks.pop(0)
                self.refs[shared] -= 1
                self.refs[fresh] = 1
                told.blocks[index] = fresh
                self.put(ev.KvCopy, told.req, src=shared, dst=fresh, tokens=max(0, told.cursor - index * 4))
        need = -(-(told.cursor + count) // 4) - len(told.blocks)
        if need > 0:
            fresh = tuple(self.free_blocks[:need])
            del self.free_blocks[:need]
            told.blocks += fresh
            self.refs.update(dict.fromkeys(fresh, 1))
            self.put(ev.KvAlloc, told.req, blocks=fresh)

    def _share(self, told: Told, blocks: Sequence[int], tokens: int) -> None:
        told.blocks = list(blocks)
        for block in blocks:
            self.refs[block] += 1
        self.put(ev.KvShare, told.req, blocks=tuple(blocks), tokens=tokens)

    def _unref(self, block: int) -> None:
        self.refs[block] -= 1
        if not self.refs[block]:
            self.free_blocks = sorted([*self.free_blocks, block])


def healthy() -> Script:
    """A run that uses everything once: two requests, partial and full accepts, ring, rollback, prefix hit, fork."""
    script = Script()
    script.new(1, (5, 6, 7, 8, 5))
    script.prefill(1, first=3, chunk=4)
    script.verify(1, (4, 5, 6), accepted=2, bonus=9)
    script.save_ring(1)
    script.save_prefix(1, 0, "decode")
    script.verify(1, (4, 5, 6), accepted=4, bonus=7)
    script.decode(1, pick=9)
    script.verify(1, (4, 5), accepted=1, bonus=4)
    script.rollback(1, keep=3)
    script.decode(1, pick=8)
    script.fork(1, 2)
    script.verify(2, (1, 2, 3), accepted=3, bonus=4)
    script.finish(1)
    script.compact(2)
    script.decode(2, pick=6)
    script.new(3, (5, 6, 7, 8, 5, 3, 4, 1), prefix=0)
    script.prefill(3, first=2)
    script.finish(2)
    script.finish(3)
    script.evict_prefix(0)
    return script


def altered(
    events: Sequence[Event], pick: Callable[[Event], bool], change: Callable[[Any], Event | None]
) -> Iterator[Event]:
    """``events`` with the first one that ``pick`` accepts replaced by ``change`` of it (None: left out).

    Raises LookupError when none was picked, so that a test cannot pass by changing nothing."""
    done = False
    for event in events:
        if not done and pick(event):
            done = True
            changed = change(event)
            if changed is not None:
                yield changed
        else:
            yield event
    if not done:
        raise LookupError("no event to change")
