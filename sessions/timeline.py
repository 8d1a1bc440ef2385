"""INTERFACE, being filled in: one timeline over a live engine, a recording or an imported trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from engine.events import Action, Decision, EnginePort, Event, TensorData, TensorRef
from sessions.errors import Cancelled, DivergedError, NotAvailable, SessionError
from sessions.finding import Finding
from sessions.stop import Cancel, Predicate, Progress, Stop
from sessions.view import LedgerView

__all__ = ["Cancelled", "DivergedError", "NotAvailable", "SessionError", "Stop", "Timeline"]

UNITS = ("event", "token", "round", "chunk", "request")


class Timeline:
    source: str  # live | recording | trace
    now: int
    first: int
    last: int  # of the current branch
    branch: int  # current, 0 = the main line
    progress: Progress | None  # called in long walks
    remarks: list[str]  # e.g. "was not closed properly", recording trouble

    @classmethod
    def live(
        cls,
        engine: EnginePort,
        store: Any = None,
        checker: Any = None,
        *,
        factory: Callable[[], EnginePort] | None = None,
        keyframe_bytes: int = 256 << 20,
    ) -> Timeline: ...
    @classmethod
    def open(
        cls,
        path: str | Path,
        engine_factory: Callable[[], EnginePort] | None = None,
        *,
        checker: Any = None,
        write: bool = True,
    ) -> Timeline: ...

    # where
    @property
    def mode(self) -> str: ...  # LIVE | HISTORY | BRANCH
    @property
    def view(self) -> LedgerView: ...
    @property
    def waiting(self) -> Decision | None: ...  # the Decision at now, when it can be answered (in the past: by a branch)
    @property
    def paused(self) -> bool: ...  # an action is half done at the live edge
    @property
    def trouble(self) -> str | None: ...  # recording trouble, e.g. disk full
    @property
    def branches(self) -> list[Any]: ...  # Branch(id, parent, at, reason, last)

    # look (branch=None: the current one)
    def event(self, seq: int, branch: int | None = None) -> Event: ...
    def events(self, lo: int, hi: int, branch: int | None = None) -> list[Event]: ...  # both inclusive
    def view_at(self, seq: int, branch: int | None = None) -> LedgerView: ...
    def findings(self, lo: int | None = None, hi: int | None = None, branch: int | None = None) -> list[Finding]: ...
    def finding_at(self, seq: int) -> Finding | None: ...
    def tensor(self, ref: TensorRef, seq: int | None = None, branch: int | None = None) -> TensorData: ...
    def prefetch(self, seq: int | None = None) -> Stop: ...  # bring an engine to an instant so that tensor() is fast

    # move
    def step(
        self, unit: str, count: int = 1, back: bool = False, req: int | None = None, cancel: Cancel | None = None
    ) -> Stop: ...
    def seek(self, seq: int, branch: int | None = None) -> Stop: ...
    def checkout(self, branch: int) -> Stop: ...  # to the end of another branch
    def run(
        self,
        stops: Predicate | None = None,
        back: bool = False,
        limit: int | None = None,
        cancel: Cancel | None = None,
        findings: bool = True,
    ) -> Stop: ...

    # act
    def perform(
        self, action: Action, pause_at: Callable[[Event], object] | None = None, cancel: Cancel | None = None
    ) -> Stop: ...
    def answer(self, what: str, value: int | tuple[int, ...]) -> Stop: ...  # does not resume: step/run/resume do
    def resume(
        self, pause_at: Callable[[Event], object] | None = None, cancel: Cancel | None = None
    ) -> Stop: ...  # to the end of the paused action
    def abandon(self) -> Stop: ...  # cancel the paused action
    def runnable(self) -> tuple[int, ...]: ...
    def tokens(self, text: str) -> tuple[int, ...]: ...

    # remember (stored in the file when there is one)
    bookmarks: Mapping[str, int]
    notes: list[Any]  # Note(seq, branch, kind, name, text, author)
    jumps: Any  # .back() -> Stop, .forward() -> Stop

    def mark(self, name: str, seq: int | None = None, text: str = "") -> None: ...
    def note(self, text: str, name: str = "", author: str = "") -> None: ...
    def command(self, text: str) -> None: ...  # what the user typed
    def save_as(self, path: str | Path) -> None: ...  # the whole session as a session file
    def close(self) -> None: ...
