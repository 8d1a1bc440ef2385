"""What a timeline knows and shows: where it is, events, views, findings, tensors, and what people left in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import xxhash

from engine.events import Computation, Decision, EnginePort, Event, Start, StateData, TensorData, TensorRef
from sessions.divergence import Comparison
from sessions.edge import EngineFailed, Oracle
from sessions.errors import Cancelled, DivergedError, NotAvailable
from sessions.finding import Finding
from sessions.invariants import Checker
from sessions.jumps import JUMPS_KEY, Jumps
from sessions.keyframes import BYTES, Keyframes
from sessions.notebook import Notebook
from sessions.opening import Opened, check_engine
from sessions.rows import Branch, Note
from sessions.stop import Cancel, Progress, Stop
from sessions.tensors import EngineFactory, Tensors
from sessions.view import LedgerView


class TimelineLook:
    """``now`` is the event after which everything is shown; ``last`` the newest one of the current ``branch``.

    ``source`` is live, recording or trace. ``remarks`` are sentences for people. ``progress(what, done, total)`` is
    called during long walks. ``meta`` is what the file says about itself."""

    first = 1

    def __init__(
        self,
        opened: Opened,
        *,
        checker: Checker | None,
        factory: EngineFactory | None,
        keyframe_bytes: int = BYTES,
    ) -> None:
        self.source, self.remarks, self.meta = opened.source, opened.remarks, opened.meta
        self.history, self.checker, self._store = opened.history, checker, opened.store
        self.keyframes = Keyframes(keyframe_bytes, opened.store if opened.source == "recording" else None)
        digests = opened.store is None or opened.store.level != "events" or opened.source == "live"
        self._tensors = Tensors(
            self.history, self.keyframes, Comparison(digests), opened.store, factory, self._check_engine
        )
        self._factory, self._recorder = factory, opened.recorder
        self._notebook = Notebook(opened.store)
        self._executable: set[int] = set()
        self._oracle: Oracle | None = None
        self.progress: Progress | None = None
        self.branch, self.now = 0, 0
        self.jumps = Jumps(lambda: (self.branch, self.now), self._jump)
        if opened.store is not None:
            self.jumps.from_text(opened.store.meta(JUMPS_KEY) or "")

    # ---------------------------------------------------------------------------------------------------- where

    @property
    def last(self) -> int:
        """The newest event of the current branch; 0 when there is none."""
        return self.history.record.last(self.branch)

    @property
    def mode(self) -> str:
        """LIVE at the edge of a live run, BRANCH at the edge of a branch, HISTORY everywhere else."""
        if self.now < self.last or self.branch not in self._executable:
            return "HISTORY"
        return "BRANCH" if self.branch else "LIVE"

    @property
    def at_edge(self) -> bool:
        """Whether a forward step would execute."""
        return self.now == self.last and self.branch in self._executable

    @property
    def can_act(self) -> bool:
        """Whether actions are possible, here or on a branch that leaves here."""
        return self._tensors.edge is not None or self._factory is not None

    @property
    def view(self) -> LedgerView:
        """The view at ``now``."""
        return self.history.view(self.branch, self.now)

    @property
    def waiting(self) -> Decision | None:
        """The decision that can be answered at ``now``; in the past the answer opens a branch."""
        if self.at_edge:
            return self._tensors.edge.waiting if self._tensors.edge is not None else None
        event = self.history.event(self.branch, self.now) if self.now else None
        return event if isinstance(event, Decision) and self.can_act else None

    @property
    def paused(self) -> bool:
        """Whether an action is half done at the live edge, and ``now`` is there."""
        edge = self._tensors.edge
        return self.at_edge and edge is not None and edge.open

    @property
    def trouble(self) -> str | None:
        """Why recording stopped, if it did."""
        return self._recorder.trouble if self._recorder is not None else None

    @property
    def path(self) -> Path | None:
        """The session file, when there is one."""
        return self._store.path if self._store is not None else None

    @property
    def branches(self) -> list[Branch]:
        return self.history.record.branches

    @property
    def start(self) -> Start:
        """The geometry of the run."""
        return self.history.record.start

    def runnable(self) -> tuple[int, ...]:
        """Requests with work left, at the edge of the current branch; () where nothing can be executed."""
        edge = self._tensors.edge
        if edge is None or not self.at_edge:
            return ()
        edge.come_back()
        return edge.machine.engine.runnable()

    def tokens(self, text: str) -> tuple[int, ...]:
        """Token ids of a text. Raises NotAvailable without an engine, ValueError without a tokenizer."""
        edge = self._tensors.edge
        machine = edge.machine if edge is not None else self._tensors.machine()
        if machine is None:
            raise NotAvailable("no model is open, so no tokenizer: give token ids")
        return machine.engine.tokens(text)

    def text(self, token: int) -> str | None:
        """Text of a token as the open model's vocabulary has it; None where no engine is at hand (none is made)."""
        edge = self._tensors.edge
        return edge.machine.engine.text(token) if edge is not None else None

    # ----------------------------------------------------------------------------------------------------- look

    def event(self, seq: int, branch: int | None = None) -> Event:
        """Raises NotAvailable when there is no such event."""
        return self.history.event(self.branch if branch is None else branch, seq)

    def events(self, lo: int, hi: int, branch: int | None = None) -> list[Event]:
        """Events ``lo``..``hi``, both included, cut to what there is."""
        return self.history.record.events(self.branch if branch is None else branch, lo, hi)

    def view_at(self, seq: int, branch: int | None = None) -> LedgerView:
        """The ledger after event ``seq``. Raises NotAvailable."""
        return self.history.view(self.branch if branch is None else branch, seq)

    def findings(self, lo: int | None = None, hi: int | None = None, branch: int | None = None) -> list[Finding]:
        """What broke between two events, both included."""
        return self.history.findings(self.branch if branch is None else branch, lo or 0, hi)

    def finding_at(self, seq: int) -> Finding | None:
        """The first finding of one event."""
        return next(iter(self.history.findings(self.branch, seq, seq)), None)

    def add_finding(self, finding: Finding) -> None:
        """Remember what a check outside the ledger found (golden, twin, layer-0 oracle)."""
        owner = self.history.record.owner(self.branch, finding.seq)
        if self.history.add_finding(owner, finding) and self._recorder is not None:
            self._recorder.finding(owner, finding)

    def tensor(
        self, ref: TensorRef, seq: int | None = None, branch: int | None = None, cancel: Cancel | None = None
    ) -> TensorData:
        """The tensor at a place after event ``seq`` (default now).

        Raises:
            NotAvailable: this source cannot show it; the reason is in words.
            DivergedError: executing again, or the bytes, contradict the record. It is remembered as a finding.
            Cancelled: ``cancel`` said yes.
        """
        branch, seq = self.branch if branch is None else branch, self.now if seq is None else seq
        self.history.require(branch, seq)
        self._tensors.progress = self.progress
        try:
            return self._tensors.get(branch, seq, ref, cancel)
        except DivergedError as error:
            self._diverged(error, branch)
            raise

    def compute(
        self, computation: Computation, seq: int | None = None, branch: int | None = None
    ) -> tuple[StateData, ...]:
        """Recompute states beside the session, with the engine at event ``seq`` (default now).

        Raises:
            NotAvailable: no model is open, or it cannot.
            DivergedError: the engine could not be brought to that instant.
        """
        branch, seq = self.branch if branch is None else branch, self.now if seq is None else seq
        self._tensors.progress = self.progress
        try:
            return self._tensors.at(branch, seq).engine.compute(computation)
        except DivergedError as error:
            self._diverged(error, branch)
            raise
        except ValueError as error:
            raise NotAvailable(str(error)) from error

    @property
    def oracle(self) -> Oracle | None:
        """Asked at the live edge after each new event; its findings stop a run like those of the invariants."""
        return self._oracle

    @oracle.setter
    def oracle(self, oracle: Oracle | None) -> None:
        self._oracle = oracle
        if self._tensors.edge is not None:
            self._tensors.edge.oracle = oracle

    def second_engine(self) -> EnginePort:
        """A fresh engine with the settings of this run, for whatever shall not touch the session.

        Raises:
            NotAvailable: no model is open, or nothing can make another engine of it.
        """
        if self._factory is None:
            raise NotAvailable("no second engine can be made here: open the session with its model")
        return self._factory()

    def image_digest(self, seq: int | None = None, branch: int | None = None) -> str | None:
        """A digest of everything the engine at an instant holds; None while an action is half done there. Equal before
        and after a computation, it shows that the computation left no trace."""
        branch, seq = self.branch if branch is None else branch, self.now if seq is None else seq
        machine = self._tensors.at(branch, seq)
        if machine.running is not None:
            return None
        state = xxhash.xxh3_128()
        for name, data in sorted(machine.engine.save().items()):
            state.update(name.encode())
            state.update(data.raw)
        return str(state.hexdigest())

    def prefetch(self, seq: int | None = None, cancel: Cancel | None = None) -> Stop:
        """Bring an engine to an instant (default now), so that ``tensor`` is quick there."""
        seq = self.now if seq is None else seq
        self._tensors.progress = self.progress
        return self._told(lambda: self._arrive(self._tensors.at(self.branch, seq, cancel).seq))

    def _arrive(self, seq: int) -> Stop:
        return Stop("moved", seq)

    # ------------------------------------------------------------------------------------------------- remember

    @property
    def bookmarks(self) -> Mapping[str, int]:
        """Name to event."""
        return self._notebook.bookmarks

    def bookmark(self, name: str) -> Note:
        """A bookmark with its branch. Raises NotAvailable when there is none of that name."""
        return self._notebook.bookmark(name)

    def mark(self, name: str, seq: int | None = None, text: str = "") -> None:
        """Set a bookmark; a keyframe is kept there, or the nearest one before it is never given up."""
        seq = self.now if seq is None else seq
        self.history.require(self.branch, seq)
        self._notebook.add(Note(self.branch, seq, "mark", name, text), self._recorder)
        edge = self._tensors.edge
        if edge is not None and edge.here and (edge.branch, edge.last) == (self.branch, seq) and edge.keep("mark"):
            return
        nearest = self.keyframes.nearest(self.history.record, self.branch, seq)
        if nearest is not None:
            self.keyframes.pin(*nearest)

    @property
    def notes(self) -> list[Note]:
        return list(self._notebook.notes)

    def note(self, text: str, name: str = "", author: str = "", seq: int | None = None) -> None:
        """A remark about an event (default now)."""
        self._notebook.add(
            Note(self.branch, self.now if seq is None else seq, "note", name, text, author), self._recorder
        )

    def command(self, text: str) -> None:
        """Remember what the user typed."""
        self._notebook.typed(self.branch, self.now, text, self._recorder)

    @property
    def commands(self) -> list[tuple[int, int, str]]:
        """(branch, event, text) of everything typed."""
        return list(self._notebook.commands)

    # ------------------------------------------------------------------------------------------------- plumbing

    def _go(self, branch: int, seq: int) -> None:
        self.branch, self.now = branch, seq
        edge = self._tensors.edge
        if edge is not None and branch in self._executable:
            edge.move_to(branch)

    def _jump(self, instant: tuple[int, int]) -> Stop:
        branch, seq = instant
        if not 0 <= branch < len(self.branches) or not 1 <= seq <= self.history.record.last(branch):
            return Stop("refused", self.now, f"branch {branch} has no event {seq} any more")
        self._go(branch, seq)
        return Stop("moved", self.now, finding=self.finding_at(self.now))

    def _check_engine(self, engine: EnginePort) -> None:
        check_engine(engine, self.history.record.start, self._store.path if self._store is not None else "this record")

    def _diverged(self, error: DivergedError, branch: int) -> Finding:
        where = f"layer {error.layer}, {error.part}" if error.part else "facts"
        req = self.history.event(branch, min(error.seq, self.history.record.last(branch))).req
        finding = Finding("diverged", error.seq, req, where, error.expected, error.found, str(error))
        owner = self.history.record.owner(branch, error.seq)
        if self.history.add_finding(owner, finding) and self._recorder is not None:
            self._recorder.finding(owner, finding)
        return finding

    def _told(self, walk: Callable[[], Stop]) -> Stop:
        """What can go wrong on the way becomes a stop with a text."""
        try:
            return walk()
        except DivergedError as error:
            return Stop("diverged", self.now, str(error), (), self._diverged(error, self.branch))
        except Cancelled:
            return Stop("cancelled", self.now, "cancelled")
        except NotAvailable as error:
            return Stop("refused", self.now, str(error))
        except EngineFailed as error:
            self.now = self.last
            return Stop("error", self.now, str(error))
