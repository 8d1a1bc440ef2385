"""The fake engine: its sequences, the calls of the port, and what every action needs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any

import fake_memory as memory
import numpy as np
from fake_memory import BOUNDARY, CONV_SHAPE, END, H_SHAPE, LAYERS, TEXTS, FakeBlocks, FakeMemory

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


class FakeCore:
    """What the port asks for, and the helpers of every action. Arguments are in tokens, slots, rows or blocks."""

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

    def text(self, token: int) -> str | None:
        return TEXTS[token]

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

    def _handler(self, action: Action) -> Iterator[Event]:
        raise NotImplementedError
