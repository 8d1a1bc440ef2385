"""Which tensors are looked at, against which base; read once per stop, when the debugger has nothing else to do."""

from __future__ import annotations

from collections.abc import Callable

from engine.events import Place, TensorData, TensorRef
from inspector.tui import tensorwork
from inspector.tui.frame import Slab, TensorTable
from inspector.tui.ports import DebuggerPort

LAST_STOP = "last stop"
KEEP_BYTES = 64 << 20
Read = Callable[[TensorRef], TensorData]


class TensorJobs:
    """Belongs to the worker thread. ``wanted`` are the panes in sight ("tensors", "examine")."""

    def __init__(self, debugger: DebuggerPort) -> None:
        self.debugger = debugger
        self.wanted: frozenset[str] = frozenset()
        self.place: Place | None = None
        self.base = LAST_STOP
        self.part = "h"
        self._table_due = True
        self._slab_due = True
        self._seen: dict[TensorRef, TensorData] = {}
        self._seen_at = (-1, -1)
        self._seen_place: Place | None = None
        self._older: dict[TensorRef, TensorData] = {}
        # event of the stop at which the bytes in sight were new
        self._new_at = -1

    def moved(self) -> None:
        """The present changed: everything is to be read again."""
        self._table_due = self._slab_due = True

    @property
    def layer(self) -> int | None:
        """The layer in focus, else the first recurrent one."""
        layers = self.debugger.timeline.view.start.recurrent_layers
        focused = self.debugger.focus.layer
        return focused if focused in layers else layers[0] if layers else None

    def look_into(self, part: str) -> None:
        """The part that the examine pane shows."""
        self.part = part
        self._slab_due = True

    def compare(self, base: str, place: Place | None = None) -> None:
        """Another base, and perhaps another place."""
        self.base = base
        if place is not None:
            self.place = place
        self.moved()

    def next(self) -> tuple[TensorTable | None, Slab | None]:
        """Do one piece of what is due and wanted."""
        if self._table_due and "tensors" in self.wanted:
            self._table_due = False
            return self._table(), None
        if self._slab_due and "examine" in self.wanted:
            self._slab_due = False
            return None, self._slab()
        return None, None

    # ------------------------------------------------------------------------------------------------------ reading

    @property
    def _where(self) -> Place | None:
        """The chosen place; else live of the focused request."""
        if self.place is not None and self.place.kind != "live":
            return self.place
        view = self.debugger.timeline.view
        request = view.requests.get(self.debugger.request)
        return Place("live", request.slot) if request is not None and request.slot >= 0 else None

    def _read(self, ref: TensorRef) -> TensorData:
        timeline = self.debugger.timeline
        now = (timeline.branch, timeline.view.seq)
        if now != self._seen_at:
            place = self._where
            if self._untouched(place, now):
                # the bytes are those of the stop before: what changed them last stays in sight
                self._seen = {ref: data for ref, data in self._seen.items() if ref.place == place}
            else:
                self._older, self._seen = self._seen, {}
                self._new_at = now[1]
            self._seen_at, self._seen_place = now, place
        known = self._seen.get(ref)
        if known is None:
            known = self.debugger.timeline.tensor(ref)
            if sum(len(data.raw) for data in self._seen.values()) + len(known.raw) <= KEEP_BYTES:
                self._seen[ref] = known
        return known

    def _untouched(self, place: Place | None, now: tuple[int, int]) -> bool:
        """Whether the step that led here, forwards, did not write the place that is looked at."""
        state = self.debugger.timeline.view.states.get(place)
        written = 0 if state is None else max(state.h_writer, state.conv_writer)
        (branch, seq), same = self._seen_at, place == self._seen_place
        return same and branch == now[0] and written <= seq < now[1] and bool(self._older)

    def _base_reader(self) -> Read | None:
        """Reads the base of a tensor. Raises LookupError or ValueError when it cannot be had."""
        if not self.base:
            return None
        if self.base == LAST_STOP:
            return self._older.__getitem__ if self._older else None
        from inspector.commands.parser import Words
        from inspector.commands.places import take_base

        timeline, view = self.debugger.timeline, self.debugger.timeline.view
        base = take_base(Words(self.base))
        if base.place is not None and base.place.when is None:
            place = base.place.at(view, self.debugger.request)
            return lambda ref: self._read(TensorRef(place, ref.layer, ref.part))
        if base.when is not None:
            at = self.debugger.instant(base.when)
            return lambda ref: timeline.tensor(ref, at.seq, at.branch)
        if base.name == "previous":
            return self._before_last_write()
        if base.name == "golden":
            return self._golden()
        raise LookupError(f"{self.base}: this pane compares places and instants; : diff live {self.base} computes it")

    def _before_last_write(self) -> Read:
        place, timeline = self._where, self.debugger.timeline
        state = timeline.view.states.get(place)
        written = 0 if state is None else max(state.h_writer, state.conv_writer)
        if written <= timeline.first:
            raise LookupError(f"{place} was written only once so far: there is nothing before it")
        return lambda ref: timeline.tensor(ref, written - 1)

    def _golden(self) -> Read:
        from inspector.commands.golden import golden_of

        place = self._where
        assert place is not None
        state = golden_of(self.debugger, place, self.debugger.here)  # type: ignore[arg-type]
        return lambda ref: state.tensor(ref.layer, ref.part)

    def _table(self) -> TensorTable | None:
        view = self.debugger.timeline.view
        place = self._where
        if place is None:
            return TensorTable(view.seq, "live", "", reason="no state: no request has a slot")
        try:
            self._touch(place)
            base = self._base_reader()
            usable = base is not None and self._same_refs(place)
            return tensorwork.table(
                view.seq, view.start.recurrent_layers, place, self._read,
                self._base_name if usable else "", base if usable else None, self._since,
            )  # fmt: skip
        except (LookupError, ValueError, OSError, RuntimeError) as error:
            return TensorTable(view.seq, str(place), self.base, reason=_reason(error))

    @property
    def _since(self) -> int | None:
        """The event at which the bytes in sight were new, when they are compared with the stop before; else None."""
        return self._new_at if self.base == LAST_STOP else None

    @property
    def _base_name(self) -> str:
        """What the bytes are compared with: the last stop, or the one before what changed them last."""
        since = self._since
        late = since is not None and since != self.debugger.timeline.view.seq
        return f"before event {since}" if late else self.base

    def _touch(self, place: Place) -> None:
        """Read all of a place, so that the tensors of the stop before become the older ones."""
        for layer in self.debugger.timeline.view.start.recurrent_layers:
            for part in ("h", "conv"):
                self._read(TensorRef(place, layer, part))

    def _same_refs(self, place: Place) -> bool:
        if self.base != LAST_STOP:
            return True
        layers = self.debugger.timeline.view.start.recurrent_layers
        return all(TensorRef(place, layer, part) in self._older for layer in layers for part in ("h", "conv"))

    def _slab(self) -> Slab | None:
        place, view, layer, part = self._where, self.debugger.timeline.view, self.layer, self.part
        if place is None or layer is None:
            return Slab(view.seq, "live", 0, "h", None, reason="no state: no request has a slot")
        ref = TensorRef(place, layer, part)
        try:
            self._read(ref)
            base = self._base_reader()
            if self.base == LAST_STOP and ref not in self._older:
                base = None
            return tensorwork.slab(view.seq, place, layer, part, self._read, self._base_name, base)
        except (LookupError, ValueError, OSError, RuntimeError) as error:
            return Slab(view.seq, str(place), layer, part, None, reason=_reason(error))


def _reason(error: BaseException) -> str:
    return str(error.args[0] if error.args else error)
