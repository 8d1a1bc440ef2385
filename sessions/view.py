"""What everybody looks at: the immutable view of a run after some event. Made by ``sessions.ledger``, read by panes,
commands, invariants and expressions. Plain frozen data; maps are ``immutables.Map`` so that views share what did not
change and thousands of them can be kept. The records have no ``__slots__``: ``sessions.evolve`` copies them faster."""

from __future__ import annotations

from dataclasses import dataclass, field

from immutables import Map

from engine.events import Digests, Event, Place, Start, StateCopy
from sessions import places


@dataclass(frozen=True)
class StateFact:
    """Provenance of one place.

    ``h_position`` and ``conv_position`` are the tokens its bytes have absorbed, None when nobody wrote it in this
    epoch or when that cannot be derived. ``h_owner`` and ``conv_owner`` are the requests whose tokens those are (a fork
    and a prefix hit adopt the bytes they copy). ``h_writer`` and ``conv_writer`` are the sequence numbers of the events
    that wrote them last (0: never). ``dirty`` is set on live between verify and commit. ``queued`` is True while a copy
    into it waits on the secondary stream. ``label`` is the ring token position or the prefix key length the place is
    found under (-1: none).
    """

    place: Place
    owner: int = -1
    epoch: int = 0
    h_position: int | None = None
    conv_position: int | None = None
    h_writer: int = 0
    conv_writer: int = 0
    h_owner: int = -1
    conv_owner: int = -1
    sealed: bool = False
    dirty: bool = False
    queued: bool = False
    label: int = -1
    layout: str = ""
    dtype: str = ""
    digests: Digests = ()

    @property
    def position(self) -> int | None:
        """The common position of h and conv, or None when they differ or nothing was written."""
        return self.h_position if self.h_position == self.conv_position else None


@dataclass(frozen=True)
class RingEntry:
    """One live ring entry: label, ring slot, event that recorded it, saved or still only reserved."""

    token_position: int
    ring_slot: int
    recorded: int
    saved: bool = False


@dataclass(frozen=True)
class RingFact:
    """The ring of one request, oldest entry first."""

    capacity: int = 0
    next_slot: int = 0
    entries: tuple[RingEntry, ...] = ()
    evictions: int = 0


@dataclass(frozen=True)
class RoundFact:
    """The running or last round: number, mode (prefill, decode, verify), drafts, picks, accepted rows.

    ``base`` is the cursor when it began, ``rows`` the verify rows absorbed so far, ``min_keep`` what a watchdog asked
    for in it, ``boundary`` the outputs the policy would keep (-1: no such decision yet). ``batched``: the rows were
    absorbed at once. ``phase``: begin, prefill,
    decode, draft, verify, accept, emit, rollback, end, or decide:drafts, decide:accept, decide:boundary."""

    number: int = 0
    mode: str = ""
    first: int = 0
    drafts: tuple[int, ...] = ()
    picks: tuple[int, ...] = ()
    accepted: int = 0
    k: int = 0
    source: str = ""
    open: bool = False
    phase: str = ""
    base: int = -1
    rows: int = 0
    min_keep: int = 0
    boundary: int = -1
    batched: bool = False


def rows_upto(rows: tuple[tuple[int, ...], ...], tokens: tuple[int, ...], position: int) -> tuple[tuple[int, ...], ...]:
    """The batched rows among the first ``position`` tokens. A batch that goes on past it had the same shape: what was
    accepted after ``position`` counts with what was rejected."""
    if not rows or rows[-1][1] <= position:
        return rows
    kept = []
    for start, end, *rejected in rows:
        if start >= position:
            break
        cut = min(end, position)
        kept.append((start, cut, *tokens[cut:end], *rejected))
    return tuple(kept)


@dataclass(frozen=True)
class RequestFact:
    """One request.

    ``tokens`` are prompt and outputs (-1: a token that is not known); the last output is the pending one. ``marks``
    has one letter for each: p prompt, . plain, a accepted draft, b bonus or correction, i injected; upper case when the
    token is a boundary outside thinking (N for a plain one). ``think`` holds t where the request was inside thinking
    after the token, space otherwise. ``status``: queued, running, finished. ``rejected`` are the drafts the last round
    threw away. ``chunks`` are the (start, end) spans of tokens absorbed as prefill chunks, those of the snapshot it
    began from included; ``rows`` the (start, end, rejected ids ...) of those accepted from a batched verify. All other
    tokens were absorbed one by one.
    """

    req: int
    status: str = "queued"
    slot: int = -1
    prompt_len: int = 0
    tokens: tuple[int, ...] = ()
    marks: str = ""
    think: str = ""
    cursor: int = 0
    thinking: bool = False
    streaming: bool = False
    rollbacks: int = 0
    blocks: tuple[int, ...] = ()
    ring: RingFact = RingFact()
    round: RoundFact = RoundFact()
    rejected: tuple[int, ...] = ()
    finish: str = ""
    guard: str = ""
    parent: int = -1
    accepted_rows: int = 0
    drafted: int = 0
    accepted_by_depth: tuple[int, ...] = ()
    max_tokens: int = 0
    last_rollback: int = 0
    session: int = 0
    chunks: tuple[tuple[int, int], ...] = ()
    rows: tuple[tuple[int, ...], ...] = ()

    @property
    def outputs(self) -> int:
        """Number of generated tokens."""
        return max(0, len(self.tokens) - self.prompt_len)

    @property
    def pending(self) -> int:
        """Id of the pending input token, -1 when there is none."""
        return self.tokens[-1] if self.outputs else -1

    @property
    def expected(self) -> int:
        """Position the live state must have between rounds: prompt + outputs - 1 once there are outputs."""
        return self.prompt_len + self.outputs - 1 if self.outputs else self.cursor


@dataclass(frozen=True)
class PoolFact:
    """Occupancy of a pool: slots, blocks, prefix, ring."""

    name: str
    used: int = 0
    total: int = 0
    peak: int = 0


@dataclass(frozen=True)
class PrefixFact:
    """One cached snapshot, the blocks it holds, and the chunks and rows its tokens were absorbed in."""

    index: int
    tokens: int
    key: str
    origin: str
    session: int = 0
    blocks: tuple[int, ...] = ()
    saved: int = 0
    chunks: tuple[tuple[int, int], ...] = ()
    rows: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class InFlight:
    """A copy queued since the default stream last waited for the secondary one. ``landed`` may be told before that
    wait, but only the wait orders it: ``touched`` is the first event that used its places too early (0: none did)."""

    copy: StateCopy
    landed: bool = False
    touched: int = 0


@dataclass(frozen=True)
class LedgerView:
    """The run after event ``seq``. ``changed`` holds the keys that the last event touched: ("state", place),
    ("request", req), ("slot", n), ("pool", name), ("block", n), ("prefix", i), ("stream", name), ("counter", name).

    ``queued`` are copies whose bytes are not there yet, ``in_flight`` those no Sync has covered yet. ``lingering`` are
    finished requests that still hold a slot or blocks, ``leaked`` those that did so when a later round began."""

    seq: int = 0
    round: int = 0
    last: Event | None = None
    start: Start = field(default_factory=Start)
    requests: Map[int, RequestFact] = Map()
    states: Map[Place, StateFact] = Map()
    slot_owner: Map[int, int] = Map()
    slot_epoch: Map[int, int] = Map()
    pools: Map[str, PoolFact] = Map()
    block_refs: Map[int, int] = Map()
    prefixes: Map[int, PrefixFact] = Map()
    queued: tuple[StateCopy, ...] = ()
    in_flight: tuple[InFlight, ...] = ()
    lingering: tuple[int, ...] = ()
    leaked: tuple[int, ...] = ()
    texts: Map[int, str] = Map()
    boundaries: Map[int, bool] = Map()
    counters: Map[str, int] = Map()
    faults: tuple[str, ...] = ()
    troubles: int = 0
    changed: frozenset[tuple[str, object]] = frozenset()

    def live(self, req: int) -> StateFact | None:
        """The live place of a request, None while it has no slot."""
        request = self.requests.get(req)
        return self.states.get(places.live(request.slot)) if request is not None and request.slot >= 0 else None
