"""The live edge: where events are made. Executes actions, folds, checks and records what they give.

Between two calls the engine may be left paused inside an action; the action is then *open*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from engine.events import Action, Decision, EnginePort, Event
from sessions.errors import ENGINE_ERRORS, NotAvailable
from sessions.finding import Finding
from sessions.history import History
from sessions.invariants import Checker
from sessions.ledger import Ledger
from sessions.machine import Machine
from sessions.recorder import Recorder
from sessions.rows import CANCELLED, DEEPEST, OPEN
from sessions.stop import Cancel
from sessions.view import LedgerView

Oracle = Callable[[LedgerView, Event, LedgerView, EnginePort], Iterable[Finding]]
"""Asked after each new event, with the engine paused right there; it may recompute and read, never act."""


class EngineFailed(RuntimeError):
    """The engine raised inside an action; its events so far are kept, the action counts as cancelled."""


@dataclass(frozen=True, slots=True)
class Step:
    """One new event with the views around it and what the invariants found."""

    before: LedgerView
    event: Event
    after: LedgerView
    findings: tuple[Finding, ...]


class Edge:
    """Grows one branch at a time. ``machine`` executes; it may have been used to look at the past in between."""

    def __init__(self, history: History, machine: Machine, checker: Checker | None, recorder: Recorder | None) -> None:
        self.history, self.machine, self.checker, self.recorder = history, machine, checker, recorder
        self.branch = 0
        self.oracle: Oracle | None = None
        self._ledger = Ledger()
        self._folded = 0
        self._since_keyframe = 0
        self.quiet = False  # nothing is written to the file while it is not sure that a branch stays

    # ------------------------------------------------------------------------------------------------- position

    @property
    def last(self) -> int:
        return self.history.record.last(self.branch)

    @property
    def open(self) -> bool:
        """Whether an action is half done at the end of the branch."""
        row = self.history.record.action(self.branch, self.last)
        return row is not None and row.status == OPEN and row.branch == self.branch

    @property
    def here(self) -> bool:
        """Whether the engine is at the edge now, not somewhere in the past."""
        return (self.machine.branch, self.machine.seq) == (self.branch, self.last)

    def start(self, event: Event) -> None:
        """The first event of a fresh engine."""
        self.history.record.add_branch()
        self._take(event)
        self.machine.adopt(0, event.seq)
        self._keyframe("start", pinned=True)

    def leave(self) -> None:
        """Write down how far the open action got, before the engine goes elsewhere."""
        if self.here and self.machine.running is not None:
            self.history.record.put_action(self.machine.row(OPEN))

    def come_back(self, cancel: Cancel | None = None) -> None:
        """Bring the engine to the edge. Raises DivergedError, NotAvailable, Cancelled."""
        self.machine.goto(self.branch, self.last, cancel)

    def move_to(self, branch: int) -> None:
        """Continue another branch from now on."""
        if branch != self.branch:
            self.leave()
            self.branch, self._folded = branch, 0

    def open_branch(self, parent: int, at: int, reason: str, cancel: Cancel | None = None) -> int:
        """A new branch that leaves ``parent`` after event ``at``, the engine there, decisions after it open again.

        Raises:
            DivergedError, NotAvailable, Cancelled: no branch was made.
        """
        self.leave()
        record = self.history.record
        if record.depth(parent) >= DEEPEST:
            raise NotAvailable(f"{DEEPEST} branches leave each other in a row here; go on from an earlier place")
        row = None if record.boundary(parent, at) else record.action(parent, at)
        self.machine.goto(parent, at, cancel, free=row is not None)
        branch = record.add_branch(record.owner(parent, at), at, reason)
        self.branch, self._folded = branch, 0
        self.machine.branch = branch
        if row is not None and row.status == CANCELLED and row.last == at:
            return branch
        if row is not None:
            self.machine.move_to(branch)
            record.put_action(self.machine.row(OPEN))
        return branch

    def drop_branch(self, back_to: int) -> None:
        """Take back the branch just opened, for which nothing was recorded yet."""
        self.machine.lose()
        self.history.drop_branch(self.branch)
        self.machine.keyframes.forget_branch(self.branch)
        self.branch, self._folded, self.quiet = back_to, 0, False

    # --------------------------------------------------------------------------------------------------- events

    def begin(self, action: Action) -> Step | None:
        """Start an action; its first event, None when it gives none.

        Raises:
            ValueError: refused; nothing happened.
            EngineFailed: the engine raised something else.
        """
        self.come_back()
        if self._since_keyframe >= self.machine.keyframes.spacing or (self.recorder and self.recorder.wants_keyframe):
            self._keyframe("spaced")
        try:
            event = self.machine.begin(action)
        except ValueError:
            raise
        except ENGINE_ERRORS as error:
            self.machine.lose()
            raise EngineFailed(f"{action.kind}: {type(error).__name__}: {error}") from error
        if event is None:
            return None
        step = self._take(event)
        self.history.record.put_action(self.machine.row(OPEN))
        return step

    def advance(self) -> Step | None:
        """The next event of the open action; None when it is over.

        Raises:
            EngineFailed: the engine raised.
        """
        self.come_back()
        if self.machine.running is None:
            return None
        kind = self.machine.running.asked.kind
        try:
            found = self.machine.advance()
        except ENGINE_ERRORS as error:
            self._finish(CANCELLED)
            self.machine.lose()
            self._written()
            raise EngineFailed(f"{kind}: {type(error).__name__}: {error}") from error
        if isinstance(found, Event):
            return self._take(found)
        self.history.record.put_action(found)
        self._written()
        return None

    def settle(self) -> None:
        """After a RoundEnd: let the action end, so that the round is recorded without waiting for the next step."""
        if self.here and self.machine.running is not None and self.machine.running.asked.kind == "round":
            self.advance()

    def abandon(self) -> None:
        """Cancel the open action where it is."""
        self.come_back()
        if self.machine.running is not None:
            self._finish(CANCELLED)
            self.machine.cancel()
            self._written()

    def answer(self, what: str, value: int | tuple[int, ...]) -> None:
        """Answer the decision the engine waits at. Raises ValueError when it does not, or not with that value."""
        self.come_back()
        if self.machine.running is None:
            raise ValueError("no action is half done: there is nothing to answer")
        self.machine.answer(what, value)

    @property
    def waiting(self) -> Decision | None:
        """The decision at the end of the branch, while its action is open there."""
        event = self.history.event(self.branch, self.last) if self.last else None
        return event if isinstance(event, Decision) and self.open else None

    def _finish(self, status: str) -> None:
        self.history.record.put_action(self.machine.row(status))

    def _take(self, event: Event) -> Step:
        if self._folded != self.last:
            self._ledger = Ledger(self.history.view(self.branch, self.last))
        self.history.record.append(self.branch, event)
        before = self._ledger.view
        after = self._ledger.apply(event)
        self._folded = event.seq
        self.history.views.push(self.branch, event, after)
        found = self.checker.check(before, event, after) if self.checker is not None else []
        if self.oracle is not None:
            more = self.oracle(before, event, after, self.machine.engine)
            found = [*found, *(one for one in more if self.checker is None or self.checker.enabled(one.name))]
        for finding in found:
            self.history.add_finding(self.branch, finding)
        if self.recorder is not None:
            self.recorder.capture(self.branch, event, self.machine.read)
        return Step(before, event, after, tuple(found))

    def _written(self) -> None:
        self._since_keyframe += 1
        if self.recorder is not None and not self.quiet:
            self.recorder.write(self.branch)

    def _keyframe(self, kind: str, pinned: bool = False) -> None:
        """An image of the engine, which is between two actions."""
        owner = self.history.record.owner(self.branch, self.last)
        image = self.machine.engine.save()
        self.machine.keyframes.add(owner, self.last, image, pinned=pinned)
        self._since_keyframe = 0
        if self.recorder is not None and not self.quiet and (kind != "spaced" or self.recorder.wants_keyframe):
            self.recorder.write(self.branch)
            self.recorder.keyframe(owner, self.last, kind, image)

    def keep(self, kind: str) -> bool:
        """A keyframe here that is never given up, when the engine is between two actions; says whether it was made."""
        if not self.here or self.machine.running is not None:
            return False
        self._keyframe(kind, pinned=True)
        return True
