"""Events of a trace under construction: sequences, rounds, outputs, blocks, and copies on the secondary stream.

What a trace does not tell is marked as unknown (-1 bytes, no digests), or derived and said so here:

* Block ids: a trace tells counts only. Ids are handed out lowest first; sums equal the counts.
* Landing: a trace tells when a copy is queued and when somebody waits. A copy lands at that wait; where nobody waits,
  it is taken to land right before its places are used. That is the engine's luck: the ordering check reports the
  missing wait all the same, because only a wait orders.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from engine.events import (
    Claim,
    Emit,
    Event,
    KvAlloc,
    KvFree,
    KvRewind,
    Landed,
    Place,
    Release,
    Request,
    RoundBegin,
    RoundEnd,
    Start,
    StateCopy,
    Sync,
    Trouble,
    Unknown,
    Zero,
)
from sessions.importers.trace_index import Index
from sessions.importers.trace_lines import Note

E = TypeVar("E", bound=Event)
C = TypeVar("C", bound=StateCopy)

BLOCK = 16
"""Tokens of a KV block of the engine that writes these traces."""


@dataclass(slots=True)
class Sequence:
    """A request as the trace goes on. ``length`` is its cursor; ``proposed`` the drafter that spoke last."""

    req: int
    slot: int
    prompt_len: int
    length: int = 0
    outputs: list[int] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)
    ring: list[tuple[int, int]] = field(default_factory=list)
    rollbacks: int = 0
    chunk: int = 0
    open: bool = False
    proposed: str = ""
    prefilling: bool = True


class Builder:
    """Turns calls into events. ``at`` is the index of the item in hand."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self.events: list[Event] = []
        self.at = self.tick = 0
        self.sequences: dict[int, Sequence] = {}
        self.slots: dict[int, int] = {}
        self.swapped: list[tuple[int, int, int]] = []
        self.queue: list[StateCopy] = []
        self.releasing = "finish"
        self.total = index.first_free()
        self.free = list(range(self.total))
        self._copies = 0
        self.start()

    # ---------------------------------------------------------------------------------------------------- events

    def put(self, cls: type[E], req: int = -1, **fields: Any) -> E:
        """Append an event."""
        event = cls(seq=len(self.events) + 1, round=self.tick, req=req, **fields)
        self.events.append(event)
        return event

    def start(self) -> None:
        """What is known of the geometry."""
        self.put(
            Start,
            source="metrale-trace",
            model=f"scenario {self.index.scenario}" if self.index.scenario else "",
            slots=self.index.slots(),
            k=self.index.widest(),
            blocks=self.total,
            block_size=BLOCK,
            verify_mode="batched",
            state_dtype="",
            layout="",
            device="",
        )

    def unknown(self, text: str, line: int) -> None:
        """Keep a line that has no meaning for state memory."""
        self.put(Unknown, text=text, line=line)

    def trouble(self, text: str) -> None:
        """Something in the trace is not as it should be."""
        line = self.index.items[self.at].line
        self.put(Trouble, text=text, place=f"line {line}")

    # ------------------------------------------------------------------------------------------------- sequences

    def find(self, note: Note) -> Sequence:
        """The sequence of a note; one that was never allocated is made up, with an unknown history."""
        req = note.id or self.slots.get(note.slot, 0)
        sequence = self.sequences.get(req)
        if sequence is None:
            sequence = self.admit(req, note.slot, note.length)
            sequence.length = note.length
            self.put(KvRewind, req, before=note.length, cursor=note.length)
            self.trouble(f"s{note.id} appears without an allocation: its state before this line is not known")
        elif note.slot not in (sequence.slot, -1):
            self.trouble(f"s{note.id} is in slot {note.slot}, the trace had put it into slot {sequence.slot}")
            self.claim(sequence, note.slot)
        return sequence

    def at_length(self, note: Note) -> Sequence:
        """The sequence of a note, rewound when the note says that it is shorter now."""
        sequence = self.find(note)
        if note.length < sequence.length:
            self.rewind(sequence, note.length)
        elif note.length > sequence.length:
            self.trouble(
                f"s{note.id} has grown from {sequence.length} to {note.length} tokens by a call that is not known"
            )
            sequence.length = note.length
        return sequence

    def rewind(self, sequence: Sequence, length: int) -> None:
        """Lower the cursor."""
        self.put(KvRewind, sequence.req, before=sequence.length, cursor=length)
        sequence.length = length

    def admit(self, req: int, slot: int, prompt_len: int) -> Sequence:
        """A request appears for the first time."""
        told = self.index.served.get(req)
        sequence = self.sequences[req] = Sequence(req, -1, prompt_len)
        self.put(Request, req, prompt_len=prompt_len, streaming=told is not None and told.streaming)
        self.claim(sequence, slot)
        return sequence

    def claim(self, sequence: Sequence, slot: int) -> None:
        """The sequence owns a slot from here on."""
        if slot < 0:
            return
        if sequence.slot >= 0:
            self.slots.pop(sequence.slot, None)
            self.put(Release, sequence.req, slot=sequence.slot)
        sequence.slot = slot
        self.slots[slot] = sequence.req
        self.put(Claim, sequence.req, slot=slot)

    def zero(self, sequence: Sequence) -> None:
        """Allocation zeroes the live state."""
        live = Place("live", sequence.slot)
        self.touch(sequence.slot)
        self.put(Zero, sequence.req, place=live, bytes=-1)

    def release(self, sequence: Sequence) -> None:
        """Slot and blocks go back."""
        self.touch(sequence.slot)
        if sequence.blocks:
            self.put(KvFree, sequence.req, blocks=tuple(sequence.blocks))
            self.free = sorted([*self.free, *sequence.blocks])
            sequence.blocks.clear()
        if sequence.slot >= 0:
            self.slots.pop(sequence.slot, None)
            self.put(Release, sequence.req, slot=sequence.slot)
        sequence.slot, sequence.length = -1, 0
        sequence.ring.clear()

    # ---------------------------------------------------------------------------------------------------- rounds

    def begin(self, sequence: Sequence, mode: str) -> None:
        """A round of one sequence; a tick may hold several of them."""
        self.end(sequence)
        self.put(RoundBegin, sequence.req, mode=mode)
        sequence.open = True

    def end(self, sequence: Sequence) -> None:
        """Close the open round of a sequence, if any."""
        if sequence.open:
            sequence.open = False
            self.put(RoundEnd, sequence.req)

    def next_tick(self, tick: int) -> None:
        """Close the rounds of this tick, begin another one."""
        for sequence in self.sequences.values():
            self.end(sequence)
        self.tick = tick

    def emit(self, sequence: Sequence, token: int, mark: str) -> bool:
        """Another output, unless the client is known to have got all of them."""
        told = self.index.served.get(sequence.req)
        if told is not None and 0 <= told.total <= len(sequence.outputs):
            return False
        sequence.outputs.append(token)
        self.put(Emit, sequence.req, token=token, index=len(sequence.outputs) - 1, mark=mark)
        return True

    def settle(self, sequence: Sequence, pick: int = -1) -> None:
        """Tell the output that a forward has made: the state is one token ahead of prompt + outputs - 1."""
        if sequence.length <= sequence.prompt_len + len(sequence.outputs) - 1 or sequence.prefilling:
            return
        token = pick
        if token < 0:
            token = self.index.next_fed(self.at, sequence.req, sequence.slot)
        told = self.index.served.get(sequence.req)
        if token < 0 and told is not None and len(sequence.outputs) < len(told.tokens):
            token = told.tokens[len(sequence.outputs)]
        self.emit(sequence, token, "plain")

    # ---------------------------------------------------------------------------------------------------- copies

    def copy(self, cls: type[C], sequence: Sequence, src: Place, dst: Place, queued: bool, **fields: Any) -> C:
        """A copy of both parts of all layers, at once or on the secondary stream."""
        if not queued:
            self.touch(sequence.slot)
        self._copies += 1
        stream = "secondary" if queued else "default"
        event = self.put(
            cls, sequence.req, copy=self._copies, src=src, dst=dst, bytes=-1, stream=stream, landed=not queued, **fields
        )
        if queued:
            self.queue.append(event)
        return event

    def touch(self, slot: int) -> None:
        """The default stream is about to use a slot: what is queued for it is taken to be there (see the module)."""
        last = max((i for i, copy in enumerate(self.queue) if slot in (copy.src.slot, copy.dst.slot)), default=-1)
        self._land(last + 1)

    def _land(self, count: int) -> None:
        for copy in self.queue[:count]:
            self.put(Landed, copy.req, copy=copy.copy, src=copy.src, dst=copy.dst, parts=copy.parts, bytes=copy.bytes)
        del self.queue[:count]

    def sync(self) -> None:
        """The default stream waits for the secondary one."""
        count = len(self.queue)
        self._land(count)
        self.put(Sync, count=count)

    # ---------------------------------------------------------------------------------------------------- blocks

    def reserve(self, sequence: Sequence, count: int) -> None:
        """``count`` more blocks, or as many as the pool has."""
        fresh = self.free[: max(0, count)]
        if fresh:
            del self.free[: len(fresh)]
            sequence.blocks += fresh
            self.put(KvAlloc, sequence.req, blocks=tuple(fresh))

    def cover(self, sequence: Sequence) -> None:
        """Blocks for every token that the sequence has."""
        self.reserve(sequence, -(-sequence.length // BLOCK) - len(sequence.blocks))

    def count_blocks(self, free: int) -> None:
        """The trace tells the free blocks: what is missing was reserved ahead by the sequences that are nearly full."""
        missing = len(self.free) - free
        running = [s for s in self.sequences.values() if s.slot >= 0]
        running.sort(key=lambda s: len(s.blocks) * BLOCK - s.length)
        for sequence in running:
            if missing <= 0:
                break
            self.reserve(sequence, 1)
            missing -= 1
        if missing > 0 and running:
            self.reserve(running[0], missing)


def place_of(sequence: Sequence, kind: str, index: int = 0) -> Place:
    """A place of the slot that a sequence is in."""
    return replace(Place(kind, sequence.slot), index=index)
