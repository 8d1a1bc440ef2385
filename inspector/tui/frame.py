"""What the screen is drawn from: one immutable frame per instant, made by the worker, read by panes. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.events import Decision, Place
from sessions.finding import Finding
from sessions.view import LedgerView, RequestFact

Key = tuple[str, object]


@dataclass(frozen=True, slots=True)
class EventRow:
    """One event as the list shows it."""

    seq: int
    kind: str
    req: int
    text: str
    finding: bool = False


@dataclass(frozen=True, slots=True)
class StopRow:
    """A breakpoint, watch, display or invariant as the list shows it. ``value`` and ``before`` are for watches."""

    name: str
    text: str
    hits: int = 0
    value: str = ""
    before: str = ""
    hit: bool = False
    enabled: bool = True


@dataclass(frozen=True, slots=True)
class TensorRow:
    """Statistics of one state tensor; ``worst`` and ``rel`` are against the base (None: no base or not comparable)."""

    layer: int
    part: str
    shape: tuple[int, ...]
    rms: float
    low: float
    high: float
    worst: float | None = None
    rel: float | None = None
    same: bool | None = None
    flags: str = ""


@dataclass(frozen=True, slots=True)
class TensorTable:
    """All state tensors of one place against one base, at event ``seq``. ``reason`` says why there are none."""

    seq: int
    place: str
    base: str
    rows: tuple[TensorRow, ...] = ()
    verdict: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Slab:
    """One tensor to look into: ``values`` and ``base`` are float32 arrays of shape [heads, rows, columns]."""

    seq: int
    place: str
    layer: int
    part: str
    values: Any
    base: Any = None
    base_name: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PoolSample:
    """Use of the pools at an event: name to (used, total)."""

    seq: int
    pools: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class Marks:
    """What the timeline bar shows, each list ascending by event number."""

    keyframes: tuple[int, ...] = ()
    bookmarks: tuple[tuple[int, str], ...] = ()
    rollbacks: tuple[int, ...] = ()
    findings: tuple[int, ...] = ()
    rounds: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class VerifyRows:
    """Rows of a verify round as far as they are known: (input, pick) of each, -1 for what is not known yet. ``texts``
    are those of the tokens in them. ``decision`` is the event of the round's accept decision (0: none is recorded)."""

    round: int
    rows: tuple[tuple[int, int], ...] = ()
    texts: tuple[tuple[int, str], ...] = ()
    decision: int = 0
    open: bool = False


@dataclass(frozen=True, slots=True)
class Frame:
    """One instant of the debugger.

    ``changed`` holds the keys that the last step changed (``LedgerView.changed`` form), ``findings`` what is broken
    now, newest event first, ``known_findings`` how many are known in all, ``elsewhere`` other branches that have
    findings of their own (number, how many). ``events`` are rows around ``view.seq``; ``first`` and ``last`` bound the
    run. ``layer`` and ``head`` are -1 while the focus is further out.
    """

    view: LedgerView = field(default_factory=LedgerView)
    mode: str = "LIVE"
    source: str = "live"
    title: str = ""
    branch: int = 0
    branches: int = 1
    first: int = 0
    last: int = 0
    req: int = -1
    layer: int = -1
    head: int = -1
    place: Place | None = None
    base: str = ""
    findings: tuple[Finding, ...] = ()
    known_findings: int = 0
    elsewhere: tuple[tuple[int, int], ...] = ()
    invariants: int = 0
    stop: str = ""
    stop_kind: str = ""
    waiting: Decision | None = None
    running: bool = False
    speed: float = 0.0
    stops: tuple[StopRow, ...] = ()
    events: tuple[EventRow, ...] = ()
    marks: Marks = Marks()
    history: tuple[PoolSample, ...] = ()
    changed: frozenset[Key] = frozenset()
    recording: str = ""
    unsaved: bool = False
    verify: VerifyRows | None = None

    @property
    def request(self) -> RequestFact | None:
        """The focused request."""
        return self.view.requests.get(self.req)

    @property
    def broken(self) -> frozenset[str]:
        """Names of the invariants broken now."""
        return frozenset(finding.name for finding in self.findings)

    def touched(self, kind: str, key: object) -> bool:
        """Whether the last step changed ``(kind, key)``."""
        return (kind, key) in self.changed


def difference(before: LedgerView, after: LedgerView) -> frozenset[Key]:
    """Keys whose facts differ between two views: what a step changed, forwards or backwards."""
    if before is after:
        return frozenset()
    out: set[Key] = set()
    pairs: tuple[tuple[str, Mapping[Any, object], Mapping[Any, object]], ...] = (
        ("state", before.states, after.states),
        ("request", before.requests, after.requests),
        ("pool", before.pools, after.pools),
        ("prefix", before.prefixes, after.prefixes),
        ("block", before.block_refs, after.block_refs),
        ("slot", before.slot_owner, after.slot_owner),
        ("counter", before.counters, after.counters),
    )
    for kind, old, new in pairs:
        if old is new:
            continue
        for key, value in new.items():
            other = old.get(key)
            if other is not value and other != value:
                out.add((kind, key))
        out.update((kind, key) for key in old if key not in new)
    if before.queued != after.queued:
        out.add(("stream", "secondary"))
    return frozenset(out)
