"""A fake at the port: a small deterministic ``EnginePort`` in numpy, with the event order of the real scheduler.

Several requests, prefill in chunks with a prefix cache, decode, verify with a drafter that is right about three times
in four, both rollback modes, a deferred secondary stream, boundary ring, watchdog rollback, fork, compaction, save and
load. ``drift_at`` makes a run that cannot be reproduced; ``noise`` makes one that is equal only within a tolerance.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import fake_memory as memory
import numpy as np
import xxhash
from fake_memory import BOUNDARY, CONV_SHAPE, END, H_SHAPE, LAYERS, TEXTS, THINK, UNTHINK, FakeBlocks, FakeMemory

from engine import events as ev
from engine.events import LIVE, Action, Event, Place, TensorData, TensorRef

FAULTS = ("conv_omitted", "stale_live", "wrong_step", "zero_bytes", "slot_not_zeroed", "no_sync", "shared_slot")


def _data(values: np.ndarray) -> TensorData:
    return TensorData("float32", values.shape, np.ascontiguousarray(values).tobytes())


class EngineRefusal(ValueError):
    """An action that cannot be done now; raised before its first event."""


@dataclasses.dataclass
class Sequence:
    """One request."""

    req: int
    prompt: list[int]
    max_tokens: int
    ignore_eos: bool
    drafter: str
    streaming: bool
    outputs: list[int] = dataclasses.field(default_factory=list)
    slot: int = -1
    cursor: int = 0
    blocks: list[int] = dataclasses.field(default_factory=list)
    ring: list[list[int]] = dataclasses.field(default_factory=list)  # [token position, ring slot], oldest first
    next_slot: int = 0
    thinking: bool = False
    rollbacks: int = 0
    chunk: int = 0
    looked_up: bool = False

    @property
    def tokens(self) -> list[int]:
        return self.prompt + self.outputs


class FakeEngine:
    """See the module; every argument is in tokens, slots, rows or blocks."""

    def __init__(
        self,
        *,
        slots: int = 2,
        k: int = 4,
        ring_depth: int = 3,
        rollback: str = "snapshot",
        prefix_slots: int = 2,
        blocks: int = 256,
        block_size: int = 4,
        prefill_chunk: int = 8,
        drafter: str = "mtp",
        digests: bool = True,
        watchdog_at: int = 0,
        drift_at: int = 0,
        noise: float = 0.0,
        fingerprint: str = "fake-1",
    ) -> None:
        self.slots, self.k, self.depth, self.mode = slots, k, ring_depth, rollback
        self.block_size, self.prefill_chunk, self.drafter = block_size, prefill_chunk, drafter
        self.with_digests, self.watchdog_at, self.drift_at, self.fingerprint = (
            digests,
            watchdog_at,
            drift_at,
            fingerprint,
        )
        self.memory = FakeMemory(slots, k, ring_depth, prefix_slots, noise)
        self.blocks = FakeBlocks(blocks)
        self.sequences: dict[int, Sequence] = {}
        self.waiting: list[int] = []
        self.turns: list[int] = []
        self.free = list(range(slots))
        self.epochs = [0] * slots
        self.prefixes: list[list[Any] | None] = [None] * prefix_slots  # [key, tokens, blocks, last use]
        self.queue: list[tuple[int, Place, Place, str]] = []
        self.seq, self.round, self.rounds, self.copies, self.next_req, self.clock = 1, 0, 0, 0, 1, 0
        self.told: set[int] = set()
        self.faults: set[str] = set()
        self._generator: Iterator[Event] | None = None
        self._asked: Action = Action()
        self._decided: dict[str, Any] = {}
        self._decision: ev.Decision | None = None
        self._answer: Any = None

    # ------------------------------------------------------------------------------------------------ the port

    def start(self) -> ev.Start:
        bytes_h, bytes_conv = int(np.prod(H_SHAPE)) * 4, int(np.prod(CONV_SHAPE)) * 4
        return ev.Start(
            seq=1, source="engine", model="fake", fingerprint=self.fingerprint, layers=4, recurrent_layers=LAYERS,
            h_shape=H_SHAPE, conv_shape=CONV_SHAPE, h_bytes=bytes_h, conv_bytes=bytes_conv, vocab=len(TEXTS),
            slots=self.slots, ring_depth=self.depth, k=self.k, prefix_slots=len(self.prefixes),
            blocks=len(self.blocks.refs), block_size=self.block_size, rollback_mode=self.mode, dtype="float32",
            eos=(END,), digests=self.with_digests,
        )  # fmt: skip

    def tokens(self, text: str) -> tuple[int, ...]:
        return memory.encode(text)

    def runnable(self) -> tuple[int, ...]:
        return tuple(req for req in self.turns if self.sequences[req].slot >= 0)

    def perform(self, action: Action) -> Iterator[Event]:
        if self._generator is not None:
            raise EngineRefusal(f"{self._asked.kind} is still under way: step on, or cancel it")
        handler = self._handler(action)
        self._asked, self._decided, self._decision, self._answer = action, {}, None, None
        self._generator = self._run(handler)
        return self._generator

    def _run(self, events: Iterator[Event]) -> Iterator[Event]:
        yield from events
        self.round = 0
        self._generator = self._decision = None

    def answer(self, what: str, value: int | tuple[int, ...]) -> None:
        waiting = self._decision
        if waiting is None or waiting.what != what:
            found = "no decision" if waiting is None else f"a decision about {waiting.what}"
            raise EngineRefusal(f"answer {what}: expected the engine to wait for it, found {found}")
        if isinstance(value, int) and not waiting.low <= value <= waiting.high:
            raise EngineRefusal(f"answer {what}: expected {waiting.low}..{waiting.high}, found {value}")
        self._answer = value

    def taken(self) -> Action:
        return dataclasses.replace(self._asked, **self._decided)

    def cancel(self) -> None:
        if self._generator is not None:
            self._generator.close()  # type: ignore[attr-defined]
        self._generator = self._decision = None
        self.round = 0

    def read(self, ref: TensorRef) -> TensorData:
        store = {"h": self.memory.h, "conv": self.memory.conv}[ref.part]
        values = store[ref.place][LAYERS.index(ref.layer)]
        return TensorData("float32", values.shape, values.tobytes())

    def compute(self, computation: ev.Computation) -> tuple[ev.StateData, ...]:
        scratch = FakeMemory(1, 1, 0, 0, self.memory.noise)
        live, layers = LIVE(0), LAYERS[:1] if isinstance(computation, (ev.FirstLayer, ev.Columns)) else LAYERS
        if isinstance(computation, ev.Rerun):
            scratch.h[live][:] = self.memory.h[computation.place]
            scratch.conv[live][:] = self.memory.conv[computation.place]
        elif not isinstance(computation, (ev.Golden, ev.FirstLayer, ev.Columns)):
            raise EngineRefusal(f"{computation.kind}: not a computation of this engine")
        states: list[ev.StateData] = []
        for count, token in enumerate(computation.tokens, 1):
            scratch.absorb(live, token)
            h, conv = ([_data(store[live][i]) for i in range(len(layers))] for store in (scratch.h, scratch.conv))
            states.append(ev.StateData(layers, tuple(h), tuple(conv), None, count))
        if isinstance(computation, ev.Columns):
            newest = [np.frombuffer(s.conv[0].raw, np.float32).reshape(s.conv[0].shape)[:, -1] for s in states]
            return (ev.StateData(layers, (), (_data(np.stack(newest)),), None, len(states)),)
        return tuple(states) if isinstance(computation, ev.Rerun) else tuple(states[-1:])

    def save(self) -> dict[str, TensorData]:
        if self._generator is not None:
            raise EngineRefusal("save: an action is under way")
        plain = {
            "sequences": [dataclasses.asdict(sequence) for sequence in self.sequences.values()],
            "queue": [[copy, str(src), str(dst), parts] for copy, src, dst, parts in self.queue],
            **{name: sorted(getattr(self, name)) for name in ("told", "faults")},
            **{name: getattr(self, name) for name in (
                "waiting", "turns", "free", "epochs", "prefixes", "seq", "rounds", "copies", "next_req", "clock",
                "drafter", "watchdog_at", "with_digests",
            )},
            "refs": self.blocks.refs,
        }  # fmt: skip
        text = json.dumps(plain).encode()
        return {"plain": TensorData("uint8", (len(text),), text), **self.memory.save()}

    def load(self, image: Mapping[str, TensorData]) -> None:
        self.cancel()
        plain = json.loads(image["plain"].raw)
        self.sequences = {fields["req"]: Sequence(**fields) for fields in plain.pop("sequences")}
        self.queue = [
            (copy, Place.from_text(src), Place.from_text(dst), parts) for copy, src, dst, parts in plain.pop("queue")
        ]
        self.told, self.faults = set(plain.pop("told")), set(plain.pop("faults"))
        self.blocks.refs = plain.pop("refs")
        for name, value in plain.items():
            setattr(self, name, value)
        self.memory.load(dict(image))

    # ------------------------------------------------------------------------------------------------ helpers

    def _event(self, cls: type[Any], **fields: Any) -> Any:
        self.seq += 1
        return cls(seq=self.seq, round=self.round, **fields)

    def _digests(self, place: Place) -> ev.Digests:
        return self.memory.digests(place) if self.with_digests else ()

    def _absorb(self, place: Place, token: int) -> None:
        self.memory.absorb(place, token)
        if self.drift_at and self.seq >= self.drift_at:
            self.memory.h[place][1] += 1.0

    def _copy(self, cls: type[Any], seq: Sequence, src: Place, dst: Place, position: int, **more: Any) -> Any:
        queued, parts = more.pop("queued", False), more.pop("parts", "h+conv")
        if parts and "conv_omitted" in self.faults and cls in (ev.Commit, ev.RingSave, ev.RingRestore):
            parts = "h"
        self.copies += 1
        real = "" if "zero_bytes" in self.faults and cls is ev.RingSave else parts
        layers = len(LAYERS) if real else 0
        size = sum(len(LAYERS) * {"h": 32, "conv": 36 + 12}[part] for part in real.split("+") if part)
        if queued:
            self.queue.append((self.copies, src, dst, real))
        else:
            self.memory.move(src, dst, real)
        return self._event(
            cls, req=seq.req, copy=self.copies, src=src, dst=dst, parts=parts, bytes=size, layers=layers,
            stream="secondary" if queued else "default", landed=not queued, position=position,
            digests=() if queued or not parts else self._digests(dst), **more,
        )  # fmt: skip

    def _sync(self, req: int) -> Iterator[Event]:
        if "no_sync" in self.faults:
            return
        landed, self.queue = self.queue, []
        for _, src, dst, parts in landed:
            self.memory.move(src, dst, parts)
        for copy, src, dst, parts in landed:
            size = sum(len(LAYERS) * {"h": 32, "conv": 48}[part] for part in parts.split("+") if part)
            yield self._event(
                ev.Landed, req=req, copy=copy, src=src, dst=dst, parts=parts, bytes=size, digests=self._digests(dst)
            )
        yield self._event(ev.Sync, req=req, count=len(landed))

    def _decide(
        self, what: str, default: Any, low: int, high: int, req: int, tokens: tuple[int, ...] = ()
    ) -> Iterator[Event]:
        """Yields the decision; afterwards ``self._answer`` is an outside answer or None."""
        self._answer = None
        self._decision = self._event(
            ev.Decision, req=req, what=what, default=default, low=low, high=high, tokens=tokens
        )
        yield self._decision
        self._decision = None

    def _sequence(self, req: int) -> Sequence:
        if req not in self.sequences or self.sequences[req].slot < 0:
            raise EngineRefusal(f"request {req}: expected one that owns a slot, found {sorted(self.runnable())}")
        return self.sequences[req]

    def _texts(self, ids: list[int]) -> Iterator[Event]:
        fresh = tuple(sorted({token for token in ids if token not in self.told}))
        if fresh:
            self.told.update(fresh)
            yield self._event(
                ev.Texts, ids=fresh, texts=tuple(TEXTS[i] for i in fresh), boundary=tuple(BOUNDARY[i] for i in fresh)
            )

    # ------------------------------------------------------------------------------------------------ actions

    def _handler(self, action: Action) -> Iterator[Event]:
        handlers: dict[type[Action], Callable[[Any], Iterator[Event]]] = {
            ev.NewRequest: self._new, ev.RunRound: self._round, ev.RollBack: self._roll_back,
            ev.SaveRing: self._save_ring, ev.RestoreRing: self._restore_ring, ev.TakeCheckpoint: self._checkpoint,
            ev.ForkRequest: self._fork,
            ev.RestoreCheckpoint: self._restore_checkpoint, ev.SyncSecondary: lambda a: self._sync(-1),
            ev.FreeRequest: self._free, ev.InjectToken: self._inject, ev.SetFault: self._fault,
            ev.SetOption: self._option,
        }  # fmt: skip
        if type(action) not in handlers:
            raise EngineRefusal(f"{action.kind}: not an action of this engine")
        if isinstance(action, (ev.SaveRing, ev.RestoreRing, ev.TakeCheckpoint, ev.RestoreCheckpoint, ev.ForkRequest,
                               ev.FreeRequest, ev.InjectToken, ev.RollBack)):  # fmt: skip
            self._sequence(action.req)
        if isinstance(action, ev.RunRound):
            if action.req >= 0:
                self._sequence(action.req)
            elif not self.runnable():
                raise EngineRefusal("round: no request has work left")
        if isinstance(action, ev.NewRequest) and not action.prompt:
            raise EngineRefusal("new: expected a prompt of at least one token, found none")
        if isinstance(action, ev.SetFault) and action.name not in FAULTS:
            raise EngineRefusal(f"fault: expected one of {', '.join(FAULTS)}, found {action.name!r}")
        if isinstance(action, ev.RestoreRing) and not 0 <= action.ring_slot < self.depth:
            raise EngineRefusal(f"restore: expected a ring slot below {self.depth}, found {action.ring_slot}")
        if isinstance(action, ev.ForkRequest) and not self.free:
            raise EngineRefusal(f"fork: expected a free slot, all {self.slots} are owned")
        return handlers[type(action)](action)

    def _new(self, action: ev.NewRequest) -> Iterator[Event]:
        yield from self._texts(list(action.prompt))
        req, self.next_req = self.next_req, self.next_req + 1
        drafter = action.drafter or self.drafter
        self.sequences[req] = Sequence(
            req, list(action.prompt), action.max_tokens, action.ignore_eos, drafter, action.streaming
        )
        self.waiting.append(req)
        yield self._event(
            ev.Request, req=req, prompt=action.prompt, prompt_len=len(action.prompt), max_tokens=action.max_tokens,
            seed=action.seed, temperature=action.temperature, top_k=action.top_k, top_p=action.top_p,
            streaming=action.streaming, drafter=drafter, session=action.session,
        )  # fmt: skip
        yield from self._admit()

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

    def _roll_back(self, action: ev.RollBack) -> Iterator[Event]:
        seq = self._sequence(action.req)
        if seq.streaming:
            yield self._event(ev.Rollback, req=seq.req, outcome="stream_unsafe", reason="the request is streaming")
            return
        if action.to == "boundary":
            yield from self._to_boundary(seq, action.value, -1)
            return
        column = {"ring": 1, "length": 0}.get(action.to, 0)
        labels = [entry[0] for entry in seq.ring if entry[column] == action.value]
        if not labels or labels[0] > len(seq.outputs):
            reason = f"no ring entry with {action.to} {action.value}"
            yield self._event(ev.Rollback, req=seq.req, outcome="no_ssm_snapshot", reason=reason)
            return
        yield from self._rewind(seq, labels[0])

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

    def _save_ring(self, action: ev.SaveRing) -> Iterator[Event]:
        yield from self._sync(action.req)
        if self.depth:
            yield from self._record(self._sequence(action.req), LIVE(self._sequence(action.req).slot))

    def _restore_ring(self, action: ev.RestoreRing) -> Iterator[Event]:
        seq = self._sequence(action.req)
        yield from self._sync(action.req)
        label = next((label for label, slot in seq.ring if slot == action.ring_slot), 0)
        src = Place("ring", seq.slot, action.ring_slot)
        position = len(seq.prompt) + label - 1
        yield self._copy(ev.RingRestore, seq, src, LIVE(seq.slot), position, token_position=label)

    def _checkpoint(self, action: ev.TakeCheckpoint) -> Iterator[Event]:
        seq = self._sequence(action.req)
        yield from self._sync(action.req)
        dst = Place("checkpoint", seq.slot)
        yield self._copy(ev.Checkpoint, seq, LIVE(seq.slot), dst, seq.cursor, queued=action.queued)

    def _restore_checkpoint(self, action: ev.RestoreCheckpoint) -> Iterator[Event]:
        seq = self._sequence(action.req)
        yield from self._sync(action.req)
        src = Place("step", seq.slot, action.accepted - 1) if action.accepted else Place("checkpoint", seq.slot)
        yield self._copy(ev.StateRollback, seq, src, LIVE(seq.slot), -1, accepted=action.accepted)

    def _fork(self, action: ev.ForkRequest) -> Iterator[Event]:
        parent = self._sequence(action.req)
        yield from self._sync(action.req)
        req, self.next_req = self.next_req, self.next_req + 1
        child = dataclasses.replace(
            parent, req=req, slot=-1, outputs=list(parent.outputs), ring=[], next_slot=0, blocks=[], rollbacks=0
        )
        self.sequences[req] = child
        yield self._event(
            ev.Request, req=req, prompt=tuple(child.prompt), prompt_len=len(child.prompt), max_tokens=child.max_tokens,
            drafter=child.drafter, parent=parent.req,
        )  # fmt: skip
        yield self._claim(child)
        yield self._event(
            ev.Fork, req=req, parent=parent.req, outputs=tuple(child.outputs),
            pending=child.outputs[-1] if child.outputs else -1, cursor=child.cursor,
        )  # fmt: skip
        shared = tuple(parent.blocks)
        self.blocks.hold(shared)
        child.blocks += shared
        yield self._event(ev.KvShare, req=req, blocks=shared, tokens=child.cursor)
        yield self._copy(ev.StateCopy, child, LIVE(parent.slot), LIVE(child.slot), child.cursor)
        for label, slot in parent.ring:
            new = child.next_slot
            child.ring.append([label, new])
            child.next_slot = (new + 1) % self.depth
            yield self._event(
                ev.RingRecord, req=req, slot=child.slot, ring_slot=new, token_position=label, next_slot=child.next_slot
            )
            src, dst = Place("ring", parent.slot, slot), Place("ring", child.slot, new)
            yield self._copy(ev.RingSave, child, src, dst, len(child.prompt) + label - 1, token_position=label)

    def _free(self, action: ev.FreeRequest) -> Iterator[Event]:
        yield from self._finish(self._sequence(action.req), "freed")

    def _inject(self, action: ev.InjectToken) -> Iterator[Event]:
        seq = self._sequence(action.req)
        yield from self._texts([action.token])
        if seq.outputs:
            seq.outputs[-1] = action.token
            yield self._event(ev.Emit, req=seq.req, token=action.token, index=len(seq.outputs) - 1, mark="inject")

    def _fault(self, action: ev.SetFault) -> Iterator[Event]:
        (self.faults.add if action.on else self.faults.discard)(action.name)
        yield self._event(ev.Fault, name=action.name, on=action.on)

    def _option(self, action: ev.SetOption) -> Iterator[Event]:
        if action.name == "drafter":
            for seq in self.sequences.values():
                seq.drafter = action.value
            self.drafter = action.value
        if action.name == "digests":
            self.with_digests = action.value in ("on", "true", "1")
        yield self._event(ev.Option, name=action.name, value=action.value)
