"""Runs state copies: numbers them, passes their seams, puts them on a stream, and remembers which landed."""

from __future__ import annotations

from torch import Tensor

from engine.events import Place
from engine.seams import Seams
from engine.state.geometry import StateGeometry
from engine.state.places import Places
from engine.state.streams import DEFAULT, Streams
from engine.state.transfer import Change, Transfer, Whole, clear, execute, plan, without_h
from engine.traits import Moved


class Copier:
    """``copies`` counts the copies of a run. ``touched`` are places written that no claim covers: by a
    plain copy, or at another address than meant. ``unreported`` copies have
    landed, but nobody was told yet."""

    def __init__(
        self, geometry: StateGeometry, seams: Seams, places: Places, streams: Streams[Transfer], copies: int = 0
    ) -> None:
        self._whole, self._seams, self._places = Whole.of(geometry), seams, places
        self.streams = streams
        self.copies = copies
        self.touched: set[Place] = set()
        self.unreported: list[Moved] = []

    def copy(
        self, op: str, src: Place, dst: Place, parts: str = "h+conv", stream: str = DEFAULT, replay: int = 0
    ) -> Moved:
        """Copy, or queue, ``parts`` of ``src`` to ``dst``. Raises StateError when a place does not exist.

        Where one of them has no h plane only conv is copied, and told so."""
        if not self._whole.layers:
            return Moved(src, dst, op=op)
        transfer = plan(self._whole, self._seams, self.copies + 1, op, src, dst, parts, stream, replay)
        source, target = self._places.view(transfer.src_at), self._places.view(transfer.dst_at)
        if transfer.h_elems and (source.h is None or target.h is None):
            transfer = without_h(transfer)
        self.copies += 1
        if transfer.dst_at is not dst or op == "copy":
            self.touched.add(transfer.dst_at)
        if stream == DEFAULT:
            execute(transfer, source, target, self._whole, self._change(transfer) if self._seams.active else None)
            return transfer.moved(True)
        return self.submit(transfer)

    def submit(self, transfer: Transfer) -> Moved:
        """Queue a planned copy on its stream."""
        return transfer.moved(self.streams.run(lambda: self._execute(transfer), transfer.stream, transfer))

    def zero(self, place: Place) -> Moved:
        """Fill ``place`` with zeros, now; not numbered."""
        if not self._whole.layers:
            return Moved(place, place, op="zero")
        transfer = plan(self._whole, self._seams, 0, "zero", place, place, "h+conv", DEFAULT)
        change = self._change(transfer) if self._seams.active else None
        clear(transfer, self._places.view(transfer.dst_at), self._whole, change)
        if transfer.dst_at is not place:
            self.touched.add(transfer.dst_at)
        return transfer.moved(True)

    def settle(self) -> None:
        """Wait for the secondary stream; what landed is to be reported."""
        self.unreported += [transfer.moved(True) for transfer in self.streams.sync_secondary()]

    def report(self) -> tuple[Moved, ...]:
        """Landed copies nobody was told of yet."""
        landed, self.unreported = tuple(self.unreported), []
        return landed

    def _execute(self, transfer: Transfer) -> None:
        source, target = self._places.view(transfer.src_at), self._places.view(transfer.dst_at)
        execute(transfer, source, target, self._whole, self._change(transfer) if self._seams.active else None)

    def _change(self, transfer: Transfer) -> Change:
        def change(value: Tensor, part: str) -> Tensor:
            context = {"op": transfer.op, "src": transfer.src, "dst": transfer.dst}
            return self._seams(f"{transfer.op}.value", value, part=part, **context)

        return change
