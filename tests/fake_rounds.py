"""The rounds of the fake engine: prefill with a prefix cache, decode, verify, commit, rollback, finish."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import xxhash
from fake_core import FakeCore, Sequence
from fake_memory import BOUNDARY, END, TEXTS, THINK, UNTHINK

from engine import events as ev
from engine.events import LIVE, Event, Place


class FakeRounds(FakeCore):
    """In the order of events of the real scheduler."""

    def _claim(self, seq: Sequence) -> Event:
        seq.slot = self.free.pop(0)
        self.epochs[seq.slot] += 1
        self.turns.append(seq.req)
        return self._event(ev.Claim, req=seq.req, slot=seq.slot, epoch=self.epochs[seq.slot])  # type: ignore[no-any-return]

    def _admit(self) -> Iterator[Event]:
        while self.waiting and self.free:
            seq = self.sequences[self.waiting.pop(0)]
            yield self._claim(seq)
            if "slot_not_zeroed" not in self.faults:
                size = self.memory.zero(LIVE(seq.slot))
                yield self._event(
                    ev.Zero, req=seq.req, place=LIVE(seq.slot), bytes=size, digests=self._digests(LIVE(seq.slot))
                )

    def _round(self, action: ev.RunRound) -> Iterator[Event]:
        seq = self._sequence(action.req if action.req >= 0 else self.turns[0])
        self._decided["req"] = seq.req
        self.rounds += 1
        self.round = self.rounds
        if seq.cursor < len(seq.prompt):
            yield from self._prefill(seq)
        elif seq.drafter != "none" or action.drafts:
            yield from self._verify(seq, action)
        else:
            yield from self._decode(seq, action)
        yield self._event(ev.RoundEnd, req=seq.req)
        self.round = 0
        if seq.req in self.turns:
            self.turns.remove(seq.req)
            self.turns.append(seq.req)

    def _kv(self, seq: Sequence, tokens: int) -> Iterator[Event]:
        at = seq.cursor // self.block_size
        if at < len(seq.blocks) and self.blocks.refs[seq.blocks[at]] > 1:  # copy on write
            src, (dst,) = seq.blocks[at], self.blocks.alloc(1)
            self.blocks.drop([src])
            seq.blocks[at] = dst
            yield self._event(ev.KvCopy, req=seq.req, src=src, dst=dst, tokens=seq.cursor % self.block_size)
        need = -(-tokens // self.block_size) - len(seq.blocks)
        if need > 0:
            fresh = self.blocks.alloc(need)
            seq.blocks += fresh
            yield self._event(ev.KvAlloc, req=seq.req, blocks=fresh)

    def _prefill(self, seq: Sequence) -> Iterator[Event]:
        yield self._event(ev.RoundBegin, req=seq.req, mode="prefill")
        live = LIVE(seq.slot)
        if not seq.looked_up:
            seq.looked_up = True
            yield from self._look_up(seq)
        count = min(self.prefill_chunk, len(seq.prompt) - seq.cursor)
        yield from self._kv(seq, seq.cursor + count)
        tokens, start = tuple(seq.prompt[seq.cursor : seq.cursor + count]), seq.cursor
        for token in tokens:
            self._absorb(live, token)
            if token in (THINK, UNTHINK):
                seq.thinking = token == THINK
        seq.cursor += count
        last = seq.cursor == len(seq.prompt)
        yield self._event(
            ev.Prefill, req=seq.req, slot=seq.slot, start=start, count=count, tokens=tokens, chunk=seq.chunk, last=last,
            cursor=seq.cursor, position=seq.cursor, digests=self._digests(live),
        )  # fmt: skip
        seq.chunk += 1
        if not last and seq.cursor % self.block_size == 0:
            yield from self._prefix_save(seq, live, "chunk")
        if last:
            if seq.thinking:
                yield self._event(ev.Thinking, req=seq.req, inside=True)
            token, _ = self.memory.pick(live)
            yield from self._emit(seq, token, "plain", live)
            yield from self._finish_if_done(seq)

    def _key(self, tokens: list[int]) -> str:
        return str(xxhash.xxh3_128_hexdigest(np.array(tokens, np.int64).tobytes()))

    def _look_up(self, seq: Sequence) -> Iterator[Event]:
        best = -1
        for index, entry in enumerate(self.prefixes):
            if entry and entry[1] < len(seq.prompt) and entry[0] == self._key(seq.prompt[: entry[1]]):
                best = index if best < 0 or entry[1] > self.prefixes[best][1] else best  # type: ignore[index]
        if best < 0:
            yield self._event(ev.PrefixMiss, req=seq.req, reason="no snapshot of this prefix")
            return
        key, tokens, blocks, _ = self.prefixes[best]  # type: ignore[misc]
        self.clock += 1
        self.prefixes[best][3] = self.clock  # type: ignore[index]
        self.blocks.hold(blocks)
        seq.blocks += blocks
        yield self._event(ev.KvShare, req=seq.req, blocks=tuple(blocks), tokens=tokens)
        src = Place("prefix", -1, best)
        seq.cursor = tokens
        yield self._copy(ev.PrefixHit, seq, src, LIVE(seq.slot), tokens, tokens=tokens, matched=tokens, key=key)

    def _prefix_save(self, seq: Sequence, live: Place, origin: str) -> Iterator[Event]:
        key = self._key(seq.tokens[: seq.cursor])
        if not self.prefixes or any(entry and entry[0] == key for entry in self.prefixes):
            return
        free = [index for index, entry in enumerate(self.prefixes) if entry is None]
        index = free[0] if free else min(range(len(self.prefixes)), key=lambda i: self.prefixes[i][3])  # type: ignore[index]
        old = self.prefixes[index]
        if old:
            self.blocks.drop(old[2])
            yield self._event(ev.KvDrop, index=index, blocks=tuple(old[2]))
            yield self._event(ev.PrefixEvict, index=index, key=old[0], tokens=old[1], reason="least recently used")
        self.clock += 1
        blocks = seq.blocks[: seq.cursor // self.block_size]
        self.prefixes[index] = [key, seq.cursor, blocks, self.clock]
        dst = Place("prefix", -1, index)
        yield self._copy(ev.PrefixSave, seq, live, dst, seq.cursor, tokens=seq.cursor, key=key, origin=origin)
        self.blocks.hold(blocks)
        yield self._event(ev.KvHold, req=seq.req, index=index, blocks=tuple(blocks))

    def _emit(self, seq: Sequence, token: int, mark: str, src: Place) -> Iterator[Event]:
        """Output, and the boundary snapshot from ``src``, the state before ``token`` is absorbed."""
        yield from self._texts([token])
        seq.outputs.append(token)
        yield self._event(ev.Emit, req=seq.req, token=token, index=len(seq.outputs) - 1, mark=mark)
        if (token == UNTHINK and seq.thinking) or (token == THINK and not seq.thinking):
            seq.thinking = token == THINK
            yield self._event(ev.Thinking, req=seq.req, inside=seq.thinking)
        if BOUNDARY[token] and not seq.thinking:
            yield self._event(ev.Boundary, req=seq.req, token=token, output_len=len(seq.outputs))
            if self.depth:
                yield from self._record(seq, src)

    def _record(self, seq: Sequence, src: Place) -> Iterator[Event]:
        label, slot = len(seq.outputs), seq.next_slot
        evicted = [] if "shared_slot" in self.faults else [entry for entry in seq.ring if entry[1] == slot]
        seq.ring = [entry for entry in seq.ring if entry not in evicted] + [[label, slot]]
        seq.next_slot = (slot + 1) % self.depth
        for position, _ in evicted:
            yield self._event(ev.RingEvict, req=seq.req, slot=seq.slot, ring_slot=slot, token_position=position)
        yield self._event(
            ev.RingRecord, req=seq.req, slot=seq.slot, ring_slot=slot, token_position=label, next_slot=seq.next_slot
        )
        position = len(seq.prompt) + label - 1
        yield self._copy(ev.RingSave, seq, src, Place("ring", seq.slot, slot), position, token_position=label)

    def _decode(self, seq: Sequence, action: ev.RunRound) -> Iterator[Event]:
        yield self._event(ev.RoundBegin, req=seq.req, mode="decode")
        yield from self._sync(seq.req)
        yield from self._absorb_one(seq, action)

    def _absorb_one(self, seq: Sequence, action: ev.RunRound) -> Iterator[Event]:
        yield from self._kv(seq, seq.cursor + 1)
        live, token = LIVE(seq.slot), seq.outputs[-1]
        self._absorb(live, token)
        seq.cursor += 1
        pick, margin = self.memory.pick(live)
        yield self._event(
            ev.Decode, req=seq.req, slot=seq.slot, token=token, pick=pick, margin=margin, cursor=seq.cursor,
            position=seq.cursor, digests=self._digests(live),
        )  # fmt: skip
        token, mark = (action.token, "inject") if action.token >= 0 else (pick, "plain")
        yield from self._emit(seq, token, mark, live)
        yield from self._watchdog(seq, action)
        yield from self._finish_if_done(seq)

    def _propose(self, seq: Sequence) -> tuple[int, ...]:
        """The drafts a good drafter would give: the true continuation, wrong about one time in four."""
        saved_h, saved_conv = self.memory.h[LIVE(seq.slot)].copy(), self.memory.conv[LIVE(seq.slot)].copy()
        room = min(self.k - 1, seq.max_tokens - len(seq.outputs) - 1)
        drafts: list[int] = []
        token = seq.outputs[-1]
        for ahead in range(max(0, room)):
            self.memory.absorb(LIVE(seq.slot), token)
            token, _ = self.memory.pick(LIVE(seq.slot))
            if (token * 7 + len(seq.outputs) + ahead * 3) % 4 == 0:
                token = 6 + (token * 5 + ahead) % (len(TEXTS) - 6)
            drafts.append(token)
        self.memory.h[LIVE(seq.slot)][:], self.memory.conv[LIVE(seq.slot)][:] = saved_h, saved_conv
        return tuple(drafts)

    def _draft(self, seq: Sequence, action: ev.RunRound) -> Iterator[Event]:
        """The decision about drafts; what was decided is in ``self._decided``."""
        if action.drafts is not None:
            drafts, source = action.drafts, action.source or "hand"
        else:
            drafts = self._propose(seq)
            source = seq.drafter if drafts else "none"
        yield from self._texts(list(drafts))
        yield from self._decide("drafts", len(drafts), 0, self.k - 1, seq.req, drafts)
        answer = drafts if self._answer is None else self._answer
        if answer != drafts:
            drafts, source = drafts[:answer] if isinstance(answer, int) else answer, "hand"
            yield from self._texts(list(drafts))
        drafts = drafts[: self.k - 1]
        self._decided |= {"drafts": drafts, "source": source}
        yield self._event(ev.Draft, req=seq.req, tokens=drafts, source=source)

    def _verify(self, seq: Sequence, action: ev.RunRound) -> Iterator[Event]:
        live, checkpoint = LIVE(seq.slot), Place("checkpoint", seq.slot)
        replay = self.mode == "replay"
        yield self._event(ev.RoundBegin, req=seq.req, mode="verify")
        yield from self._sync(seq.req)
        yield from self._kv(seq, seq.cursor + self.k)
        yield from self._draft(seq, action)
        drafts = self._decided["drafts"]
        if not drafts:
            yield from self._absorb_one(seq, action)
            return
        k, before = len(drafts) + 1, seq.cursor
        yield self._copy(ev.Checkpoint, seq, live, checkpoint, before)
        rows, picks = (seq.outputs[-1], *drafts), []
        for row, token in enumerate(rows):
            self._absorb(live, token)
            pick, margin = self.memory.pick(live)
            picks.append(pick)
            parts = "" if replay else "h+conv" if row < k - 1 else "conv"
            self.memory.move(live, Place("step", seq.slot, row), parts)
            yield self._event(
                ev.VerifyRow, req=seq.req, slot=seq.slot, row=row, token=token, pick=pick, margin=margin,
                step_parts=parts, position=before + row + 1, digests=self._digests(live),
            )  # fmt: skip
        seq.cursor += k
        yield self._event(
            ev.Verify, req=seq.req, slot=seq.slot, k=k, tokens=rows, picks=tuple(picks), cursor=seq.cursor,
            position=before + k,
        )  # fmt: skip
        natural = 1
        while natural < k and drafts[natural - 1] == picks[natural - 1]:
            natural += 1
        natural = min(natural, max(1, seq.max_tokens - len(seq.outputs)))
        for row in range(natural):
            if picks[row] == END and not seq.ignore_eos:
                natural = row + 1
                break
        default = natural if action.accept is None else action.accept
        yield from self._decide("accept", default, 1, k, seq.req, tuple(picks))
        accepted = max(1, min(default if self._answer is None else self._answer, k))
        self._decided["accept"] = accepted
        emitted = [*drafts[: accepted - 1], picks[accepted - 1]]
        if action.token >= 0:
            emitted[-1] = action.token
        yield self._event(
            ev.Accept, req=seq.req, slot=seq.slot, accepted=accepted, k=k, natural=natural, forced=accepted != natural,
            emitted=tuple(emitted),
        )  # fmt: skip
        yield from self._commit(seq, rows, before, accepted, k)
        replayed = 0
        for index, token in enumerate(emitted):
            inner = index < accepted - 1 or (accepted < k and not replay)
            src = Place("step", seq.slot, index) if inner else live
            if inner and replay and BOUNDARY[token] and not seq.thinking and self.depth:
                for row in range(replayed, index + 1):
                    yield self._replay(seq, checkpoint, rows[row], row, before)
                replayed, src = index + 1, checkpoint
            last = index == accepted - 1
            mark = "inject" if last and action.token >= 0 else "bonus" if last else "accepted"
            yield from self._emit(seq, token, mark, src)
        yield from self._watchdog(seq, action)
        yield from self._finish_if_done(seq)

    def _replay(self, seq: Sequence, place: Place, token: int, row: int, before: int) -> Event:
        self._absorb(place, token)
        return self._event(  # type: ignore[no-any-return]
            ev.ReplayRow, req=seq.req, slot=seq.slot, place=place, row=row, token=token, position=before + row + 1,
            digests=self._digests(place),
        )  # fmt: skip

    def _commit(self, seq: Sequence, rows: tuple[int, ...], before: int, accepted: int, k: int) -> Iterator[Event]:
        live = LIVE(seq.slot)
        if accepted == k:
            last = Place("step", seq.slot, k - 1)
            yield self._copy(ev.Commit, seq, last, live, before + k, parts="", accepted=k, k=k)
            return
        full, seq.cursor = seq.cursor, before + accepted
        yield self._event(ev.KvRewind, req=seq.req, before=full, cursor=seq.cursor)
        if self.mode == "replay":
            checkpoint = Place("checkpoint", seq.slot)
            yield self._copy(ev.Commit, seq, checkpoint, live, before, accepted=accepted, k=k, replayed=accepted)
            for row in range(accepted):
                yield self._replay(seq, live, rows[row], row, before)
            return
        step = Place("step", seq.slot, accepted if "wrong_step" in self.faults and accepted < k - 1 else accepted - 1)
        parts = "" if "stale_live" in self.faults else "h+conv"
        yield self._copy(
            ev.Commit, seq, step, live, before + accepted, queued=bool(parts), parts=parts, accepted=accepted, k=k
        )

    def _watchdog(self, seq: Sequence, action: ev.RunRound) -> Iterator[Event]:
        if not self.watchdog_at or len(seq.outputs) < self.watchdog_at or seq.rollbacks >= 2:
            return
        yield self._event(ev.Watchdog, req=seq.req, name="fake_loop", min_keep=4, detail=f"{len(seq.outputs)} outputs")
        yield from self._to_boundary(seq, 4, action.boundary)

    def _to_boundary(self, seq: Sequence, min_keep: int, wanted: int) -> Iterator[Event]:
        kept = [label for label, _ in seq.ring if label <= len(seq.outputs) - max(1, min_keep)]
        if not kept:
            known = any(BOUNDARY[token] for token in seq.outputs[: -max(1, min_keep)])
            outcome = "no_ssm_snapshot" if known else "no_boundary"
            yield self._event(ev.Rollback, req=seq.req, outcome=outcome, reason=f"nothing to keep before {min_keep}")
            return
        yield from self._decide("boundary", max(kept), 1, len(seq.outputs) - 1, seq.req)
        keep = max(kept) if wanted < 0 else wanted
        keep = self._answer if self._answer is not None else keep
        if keep != max(kept) and isinstance(self._asked, ev.RunRound):
            self._decided["boundary"] = keep
        if keep not in kept:
            yield self._event(ev.Rollback, req=seq.req, outcome="no_ssm_snapshot", reason=f"no snapshot at {keep}")
            return
        yield from self._rewind(seq, keep)

    def _rewind(self, seq: Sequence, keep: int) -> Iterator[Event]:
        slot = next(slot for label, slot in seq.ring if label == keep)
        live, position = LIVE(seq.slot), len(seq.prompt) + keep - 1
        yield from self._sync(seq.req)
        ring = Place("ring", seq.slot, slot)
        yield self._copy(ev.RingRestore, seq, ring, live, position, token_position=keep)
        dropped = tuple(label for label, _ in seq.ring if label > keep)
        seq.ring = [entry for entry in seq.ring if entry[0] <= keep]
        seq.next_slot = (seq.ring[-1][1] + 1) % self.depth if seq.ring else 0
        yield self._event(
            ev.RingTruncate, req=seq.req, slot=seq.slot, keep_len=keep, dropped=dropped, next_slot=seq.next_slot
        )
        before, seq.cursor = seq.cursor, position
        yield self._event(ev.KvRewind, req=seq.req, before=before, cursor=position)
        lost = len(seq.outputs) - keep
        seq.outputs = seq.outputs[:keep]
        seq.rollbacks += 1
        yield self._event(
            ev.Rollback, req=seq.req, outcome="rolled_back", keep_len=keep, dropped=lost, cursor=position,
            pending=seq.outputs[-1], count=seq.rollbacks,
        )  # fmt: skip
        inside = next((token == THINK for token in reversed(seq.tokens) if token in (THINK, UNTHINK)), False)
        if inside != seq.thinking:
            seq.thinking = inside
            yield self._event(ev.Thinking, req=seq.req, inside=inside)

    def _finish_if_done(self, seq: Sequence) -> Iterator[Event]:
        if seq.outputs and seq.outputs[-1] == END and not seq.ignore_eos:
            yield from self._finish(seq, "stop")
        elif len(seq.outputs) >= seq.max_tokens:
            yield from self._finish(seq, "length")

    def _finish(self, seq: Sequence, reason: str) -> Iterator[Event]:
        yield from self._sync(seq.req)
        yield self._event(ev.Finish, req=seq.req, reason=reason)
        self.turns.remove(seq.req)
        blocks, seq.blocks = tuple(seq.blocks), []
        self.blocks.drop(blocks)
        yield self._event(ev.KvFree, req=seq.req, blocks=blocks)
        slot, seq.slot = seq.slot, -1
        self.free = sorted([*self.free, slot])
        yield self._event(ev.Release, req=seq.req, slot=slot, epoch=self.epochs[slot])
        above = [other for other in self.sequences.values() if other.slot > slot]
        if above:
            yield self._compact(max(above, key=lambda other: other.slot), slot)
        yield from self._admit()

    def _compact(self, seq: Sequence, dst: int) -> Event:
        src, seq.slot, size = seq.slot, dst, 0
        self.free = sorted([*(slot for slot in self.free if slot != dst), src])
        self.epochs[dst] += 1
        for place in [place for place in self.memory.h if place.slot == src and place.kind != "prefix"]:
            size += self.memory.move(place, Place(place.kind, dst, place.index))
        return self._event(ev.Compact, req=seq.req, src=src, dst=dst, epoch=self.epochs[dst], bytes=size)  # type: ignore[no-any-return]
