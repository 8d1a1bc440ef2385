"""What the screen asks of the debugger. ``inspector.commands.debugger.Debugger`` is one; tests may bring another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from engine.events import Decision, Event, TensorData, TensorRef
    from inspector.commands.debugger import Debugger
    from sessions.finding import Finding
    from sessions.view import LedgerView

Progress = Callable[[str, float], None]
"""(what is being done, share 0..1; negative when unknown)."""


class TimelinePort(Protocol):
    """The part of a timeline that frames are made from."""

    source: str
    now: int
    first: int
    last: int
    branch: int
    progress: Callable[[str, int, int], None] | None

    @property
    def mode(self) -> str: ...
    @property
    def view(self) -> LedgerView: ...
    @property
    def waiting(self) -> Decision | None: ...
    @property
    def paused(self) -> bool: ...
    @property
    def branches(self) -> list[Any]: ...
    @property
    def bookmarks(self) -> Mapping[str, int]: ...
    def text(self, token: int) -> str | None: ...
    def events(self, lo: int, hi: int) -> list[Event]: ...
    def view_at(self, seq: int) -> LedgerView: ...
    def findings(self, lo: int | None = None, hi: int | None = None) -> list[Finding]: ...
    def tensor(self, ref: TensorRef, seq: int | None = None) -> TensorData: ...


class DebuggerPort(Protocol):
    """Text in, results out; used by one thread, except :meth:`cancel`."""

    name: str
    registry: Any
    timeline: Any
    stops: Any
    displays: Any
    focus: Any
    settings: Any

    @property
    def request(self) -> int: ...
    @property
    def invariants(self) -> Mapping[str, Any]: ...
    @property
    def can_act(self) -> bool: ...
    @property
    def cancelled(self) -> bool: ...
    def execute(self, line: str) -> Any: ...
    def cancel(self) -> None: ...
    def on_progress(self, report: Callable[[str, int, int], None] | None) -> None: ...
    def set_focus(self, **what: Any) -> None: ...
    def display_lines(self) -> list[str]: ...
    def instant(self, when: Any) -> Any: ...
    @property
    def here(self) -> Any: ...
    def close(self) -> None: ...


Opener: TypeAlias = "Callable[[Progress, Callable[[], bool]], Debugger]"
"""Opens whatever was named; told a place to report to and a question whether it was cancelled. Raises ValueError,
OSError or LookupError with one paragraph for people."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line asked of the screen. ``script`` is a command file to run first."""

    prompt: str = ""
    drafts: int | None = None
    ring: int | None = None
    slots: int | None = None
    record: str = ""
    keymap: str = ""
    theme: str = ""
    layout: str = ""
    script: str = ""
    model: str = ""
    engine: Mapping[str, Any] | None = None
    commands: tuple[str, ...] = ()
