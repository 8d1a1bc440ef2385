"""Two recordings, or two branches of one, side by side: the first event, then the first layer and place that differ."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from engine.events import Event, Start
from sessions.divergence import Comparison
from sessions.errors import DivergedError
from sessions.history import History
from sessions.invariants import Checker
from sessions.opening import open_source
from sessions.record import PAGE
from sessions.recorder import written_places
from sessions.store import Store


@dataclass(frozen=True, slots=True)
class Difference:
    """``seq`` is the first event that differs (0: none does); ``a`` and ``b`` are the two events, None where one side
    has ended. ``layer``, ``part`` and ``place`` name the first tensor when only digests differ. ``settings`` lists what
    differs in how the runs were set up. ``text`` is one sentence."""

    seq: int
    text: str
    a: Event | None = None
    b: Event | None = None
    layer: int = -1
    part: str = ""
    place: str = ""
    settings: tuple[str, ...] = ()
    compared: int = 0

    @property
    def same(self) -> bool:
        return self.seq == 0


def compare(path_a: str | Path, path_b: str | Path, branch_a: int = 0, branch_b: int = 0) -> Difference:
    """Compare two recordings or imported traces.

    Raises:
        SessionError, FormatError: one of them cannot be read.
        NotAvailable: no such branch.
    """
    opened = [open_source(Path(path), Checker(), write=False) for path in (path_a, path_b)]
    try:
        a, b = (side.history for side in opened)
        stores = [side.store for side in opened]
        digests = all(store is None or store.level != "events" for store in stores)
        lo = 1
        if stores[0] is not None and stores[1] is not None and stores[0].level == stores[1].level:
            lo = _first_by_chain(stores[0], a, branch_a, stores[1], b, branch_b)
        return first_difference(a, branch_a, b, branch_b, lo=lo, comparison=Comparison(digests))
    finally:
        for side in opened:
            if side.store is not None:
                side.store.close()


def compare_branches(history: History, a: int, b: int, comparison: Comparison | None = None) -> Difference:
    """Compare two branches of one session, from where their paths part. Raises NotAvailable: no such branch."""
    record = history.record
    record.branch(a), record.branch(b)
    lo = 1
    hi = min(record.last(a), record.last(b))
    while lo <= hi:  # the last event that both paths share
        middle = (lo + hi) // 2
        if record.owner(a, middle) == record.owner(b, middle):
            lo = middle + 1
        else:
            hi = middle - 1
    return first_difference(history, a, history, b, lo=max(1, lo), comparison=comparison or Comparison())


def first_difference(
    a: History, branch_a: int, b: History, branch_b: int, *, lo: int = 1, comparison: Comparison | None = None
) -> Difference:
    """The first event from ``lo`` on that differs. ``Start`` events are settings, not differences."""
    comparison = comparison or Comparison()
    a.record.branch(branch_a), b.record.branch(branch_b)
    settings = _settings(a.record.start, b.record.start)
    layers = a.record.start.recurrent_layers
    ends = (a.record.last(branch_a), b.record.last(branch_b))
    seq = lo
    while seq <= min(ends):
        pages = zip(
            a.record.events(branch_a, seq, seq + PAGE - 1), b.record.events(branch_b, seq, seq + PAGE - 1), strict=False
        )
        for left, right in pages:
            if not comparison.equal(left, right) and not (isinstance(left, Start) and isinstance(right, Start)):
                return _found(comparison.describe(left, right, layers), left, right, settings)
        seq += PAGE
    compared = min(ends)
    if ends[0] == ends[1]:
        return Difference(0, f"all {compared} events are the same", settings=settings, compared=compared)
    seq = compared + 1
    left_over = a.event(branch_a, seq) if ends[0] > ends[1] else None
    right_over = b.event(branch_b, seq) if ends[1] > ends[0] else None
    which = "second" if left_over is not None else "first"
    text = f"the {which} ends after event {compared}, the other goes on to {max(ends)}"
    return Difference(seq, text, left_over, right_over, settings=settings, compared=compared)


def _found(error: DivergedError, a: Event, b: Event, settings: tuple[str, ...]) -> Difference:
    places = written_places(a)
    place = str(places[0][0]) if error.part and places else ""
    text = str(error).replace("diverged", "differs").replace("recorded", "first").replace(", now", ", second")
    return Difference(
        a.seq, text + (f" of {place}" if place else ""), a, b, error.layer, error.part, place, settings, a.seq
    )


def _settings(a: Start, b: Start) -> tuple[str, ...]:
    return tuple(
        f"{field.name}: {getattr(a, field.name)} and {getattr(b, field.name)}"
        for field in fields(Start)
        if getattr(a, field.name) != getattr(b, field.name)
    )


def _first_by_chain(a: Store, left: History, branch_a: int, b: Store, right: History, branch_b: int) -> int:
    """The first event whose chained digest differs, by bisection; 1 when the histories differ from the start."""
    left.record.branch(branch_a), right.record.branch(branch_b)
    ends = (left.record.last(branch_a), right.record.last(branch_b))
    lo, hi = 1, min(ends)

    def equal(seq: int) -> bool:
        owners = left.record.owner(branch_a, seq), right.record.owner(branch_b, seq)
        return a.chain_at(owners[0], seq) == b.chain_at(owners[1], seq)

    while lo <= hi:
        middle = (lo + hi) // 2
        if equal(middle):
            lo = middle + 1
        else:
            hi = middle - 1
    if lo > min(ends):  # equal chains say equal histories only of files that are what they say
        a.check_chain()
        b.check_chain()
    return max(1, lo)
