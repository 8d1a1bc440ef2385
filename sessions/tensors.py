"""Tensors of any instant: read where the engine is, taken from the file, or by executing again up to there.

Whatever the way, the bytes must have the digest that the events say the place has at that instant.
"""

from __future__ import annotations

from collections.abc import Callable

import xxhash

from engine.events import EnginePort, Option, TensorData, TensorRef, VerifyRow
from sessions.divergence import Comparison
from sessions.edge import Edge
from sessions.errors import DivergedError, NotAvailable
from sessions.history import History
from sessions.keyframes import Keyframes
from sessions.machine import Machine
from sessions.stop import Cancel, Progress
from sessions.store_reader import StoreReader
from sessions.units import search_back

EngineFactory = Callable[[], EnginePort]


class Tensors:
    """``factory`` makes a second engine for the past, so that the live one stays where it is; without it the live one
    is used and brought back when it has to go on. ``check`` looks at a fresh engine before it is used."""

    def __init__(
        self,
        history: History,
        keyframes: Keyframes,
        comparison: Comparison,
        store: StoreReader | None,
        factory: EngineFactory | None,
        check: Callable[[EnginePort], None],
    ) -> None:
        self._history, self._keyframes, self._comparison = history, keyframes, comparison
        self._store, self._factory, self._check = store, factory, check
        self._scratch: Machine | None = None
        self.edge: Edge | None = None
        self.progress: Progress | None = None

    def machine(self) -> Machine | None:
        """The engine for the past, made when first needed; None when there is none."""
        if self._scratch is None and self._factory is not None:
            self._scratch = self.fresh_machine()
        if self._scratch is not None:
            return self._scratch
        return self.edge.machine if self.edge is not None else None

    def fresh_machine(self) -> Machine:
        """One more engine from the factory. Raises SessionError when it does not fit the record."""
        assert self._factory is not None
        engine = self._factory()
        self._check(engine)
        machine = Machine(engine, self._history.record, self._keyframes, self._comparison)
        if self._keyframes.nearest(self._history.record, 0, 1) is None:
            machine.adopt(0, 1)
        return machine

    def at(self, branch: int, seq: int, cancel: Cancel | None = None) -> Machine:
        """An engine at that instant. Raises DivergedError, NotAvailable, Cancelled."""
        edge = self.edge
        if edge is not None and edge.here and (edge.branch, edge.last) == (branch, seq):
            return edge.machine
        machine = self.machine()
        if machine is None:
            raise NotAvailable(
                f"no model is open, and tensors after event {seq} are not in the recording: open it with its model, or "
                "record at level full"
            )
        if edge is not None and machine is edge.machine:
            edge.leave()
        machine.progress = self.progress
        machine.goto(branch, seq, cancel)
        return machine

    def get(self, branch: int, seq: int, ref: TensorRef, cancel: Cancel | None = None) -> TensorData:
        """The tensor at ``ref`` after event ``seq``.

        Raises:
            NotAvailable: this source cannot show it; the reason is in words.
            DivergedError: its bytes do not have the recorded digest.
        """
        layers = self._history.record.start.recurrent_layers
        if ref.part not in ("h", "conv") or ref.layer not in layers:
            raise NotAvailable(
                f"no {ref.part} in layer {ref.layer}; recurrent layers are {', '.join(map(str, layers))}"
            )
        data = self._stored(branch, seq, ref)
        if data is None:
            machine = self.at(branch, seq, cancel)
            try:
                data = machine.read(ref)
            except KeyError:
                raise NotAvailable(f"this engine has no place {ref.place}") from None
        self._verify(branch, seq, ref, data, layers.index(ref.layer))
        return data

    def _stored(self, branch: int, seq: int, ref: TensorRef) -> TensorData | None:
        if self._store is None or self._store.level != "full":
            return None
        record = self._history.record
        fact = self._history.view(branch, seq).states.get(ref.place)
        # A round that is half done is not in the file yet, and what it wrote is newer than what is stored.
        newest = 0 if fact is None or fact.queued else fact.h_writer if ref.part == "h" else fact.conv_writer
        while True:
            row = self._store.stored_tensor(branch, seq, str(ref.place), ref.layer, ref.part)
            if row is not None:
                return self._store.tensor_data(row) if row.seq >= newest else None
            here = record.branch(branch)
            if here.parent < 0:
                return None
            branch, seq = here.parent, min(seq, here.at)

    def _verify(self, branch: int, seq: int, ref: TensorRef, data: TensorData, index: int) -> None:
        fact = self._history.view(branch, seq).states.get(ref.place)
        if fact is None or fact.queued or index >= len(fact.digests) or not self._comparison.bitwise:
            return
        expected = fact.digests[index][0 if ref.part == "h" else 1]
        found = xxhash.xxh3_64_hexdigest(data.raw)
        if expected and found != expected and not self._told_late(branch, seq):
            writer = fact.h_writer if ref.part == "h" else fact.conv_writer
            text = f"{ref.place}, layer {ref.layer}, {ref.part}: bytes changed without an event since event {writer}"
            raise DivergedError(seq, text, ref.layer, ref.part, expected, found)

    def _told_late(self, branch: int, seq: int) -> bool:
        """Whether event ``seq`` is a row of a batched verify: its rows are told one by one after all were absorbed."""
        record = self._history.record
        if not isinstance(record.event(branch, seq), VerifyRow):
            return False
        option = search_back(record, branch, seq, lambda event: isinstance(event, Option) and event.name == "verify")
        event = record.event(branch, option) if option is not None else None
        return (event.value if isinstance(event, Option) else record.start.verify_mode) == "batched"
