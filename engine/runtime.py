"""What the parts of the engine share: model, state memory, KV pool, vocabulary facts, requests, event counter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from engine.config import EngineConfig
from engine.drafters import Drafter
from engine.events import Digests, Event, Landed, Place, StateCopy, Sync, Texts
from engine.model import HybridModel
from engine.request import ActiveRequest
from engine.seams import Change, Seams
from engine.state.memory import StateMemory
from engine.state.paged_kv import PagedKv
from engine.state.prefix_cache import PrefixCache
from engine.tokenizer import Tokenizer
from engine.traits import Moved
from engine.watchdogs import WatchdogConfig

E = TypeVar("E", bound=Event)
C = TypeVar("C", bound=StateCopy)


class EngineRefusal(ValueError):
    """The engine cannot do what was asked; the text says what was found, what is possible and what to do."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Facts about token ids that the scheduler needs. Without a tokenizer there are no boundaries and no texts."""

    size: int
    boundary: Sequence[bool] = ()
    eos: frozenset[int] = frozenset()
    think_open: int | None = None
    think_close: int | None = None
    tool_open: int | None = None
    tool_close: int | None = None
    tokenizer: Tokenizer | None = None

    def is_boundary(self, token: int) -> bool:
        return 0 <= token < len(self.boundary) and self.boundary[token]

    def is_number(self, token: int) -> bool:
        """Whether the token's text is digits (leading space allowed); used by the number-folding loop detector."""
        return self.tokenizer is not None and self.tokenizer.text(token).strip().isdigit()


@dataclass(slots=True)
class Counters:
    """Numbers that must continue across save and load."""

    seq: int = 0
    round: int = 0
    req: int = 0
    turn: int = -1


@dataclass(slots=True)
class Runtime:
    """One engine. ``round`` is the running round's number, 0 outside. ``answers`` holds what a person decided for the
    decision the paused action waits at. ``acted`` has the last event before each time a fault changed something,
    ``fault_memory`` what faults remember between two acts (plain data: images carry it)."""

    model: HybridModel
    memory: StateMemory
    kv: PagedKv
    prefix: PrefixCache | None
    config: EngineConfig
    vocabulary: Vocabulary
    drafters: dict[str, Drafter]
    seams: Seams
    watchdogs: WatchdogConfig
    counters: Counters = field(default_factory=Counters)
    requests: dict[int, ActiveRequest] = field(default_factory=dict)
    answers: dict[str, int | tuple[int, ...]] = field(default_factory=dict)
    told: set[int] = field(default_factory=set)
    faults: set[str] = field(default_factory=set)
    active_faults: dict[str, dict[str, Change]] = field(default_factory=dict)
    acted: dict[str, list[int]] = field(default_factory=dict)
    fault_memory: dict[str, dict[str, Any]] = field(default_factory=dict)
    round: int = 0
    drafts: int = 0
    verify_mode: str = "exact"
    digests_on: bool = True

    def event(self, cls: type[E], req: int = -1, **fields: Any) -> E:
        """Make the next event of the run."""
        self.counters.seq += 1
        return cls(seq=self.counters.seq, round=self.round, req=req, **fields)

    def digests(self, place: Place) -> Digests:
        """Digests of a place, () when they are switched off."""
        return self.memory.digests(place) if self.digests_on else ()

    def copied(self, cls: type[C], req: int, moved: Moved, position: int, **fields: Any) -> C:
        """The event of a copy that the state memory made or queued."""
        return self.event(
            cls,
            req,
            copy=moved.copy,
            src=moved.src,
            dst=moved.dst,
            parts=moved.parts,
            bytes=moved.bytes,
            layers=moved.layers,
            stream=moved.stream,
            landed=moved.landed,
            position=position,
            digests=self.digests(moved.dst) if moved.landed and moved.parts else (),
            **fields,
        )

    def sync_secondary(self, req: int, at: str = "") -> Iterator[Event]:
        """Wait for the secondary stream and tell what landed. Every reader of state on the default stream calls it.

        ``at`` names the caller to the seam, where somebody may forget to wait in one place only: rollback, finish,
        compact."""
        if self.seams("sync.skip", False, req=req, at=at):
            return
        landed = self.memory.sync_secondary()
        for moved in landed:
            yield self.event(
                Landed,
                req,
                copy=moved.copy,
                src=moved.src,
                dst=moved.dst,
                parts=moved.parts,
                bytes=moved.bytes,
                digests=self.digests(moved.dst),
            )
        yield self.event(Sync, req, count=len(landed))

    def tell_texts(self, tokens: Sequence[int]) -> Iterator[Event]:
        """Texts of ids that were not told yet."""
        tokenizer = self.vocabulary.tokenizer
        if tokenizer is None:
            return
        fresh = [token for token in dict.fromkeys(tokens) if token not in self.told]
        if fresh:
            self.told.update(fresh)
            yield self.event(
                Texts,
                ids=tuple(fresh),
                texts=tuple(tokenizer.text(token) for token in fresh),
                boundary=tuple(self.vocabulary.is_boundary(token) for token in fresh),
            )

    def take_answer(self, what: str, default: Any) -> Any:
        """A person's answer to the decision just passed, or ``default``."""
        return self.answers.pop(what, default)

    def find(self, req: int) -> ActiveRequest:
        """The running request ``req``. Raises EngineRefusal."""
        request = self.requests.get(req)
        if request is None:
            running = ", ".join(f"r{r}" for r in self.requests) or "none"
            raise EngineRefusal(f'no running request r{req}; running: {running}. Start one with: new "..."')
        return request
