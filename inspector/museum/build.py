"""Making a room's session: its script on the bundled model, recorded, with bookmark, story and verdict as notes.

Digests depend on the machine, so rooms are not shipped as recordings: they are made on first use and kept in the user's
cache folder, under a name that changes with the room, the model and the library that computes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xxhash

from inspector.judging.judgement import Judgement
from inspector.judging.oracles import Oracles
from inspector.judging.verdicts import Judge
from inspector.museum.rooms import Room
from inspector.trials.scenario import SETTINGS
from sessions.errors import DivergedError, NotAvailable
from sessions.finding import Finding
from sessions.stop import Stop

if TYPE_CHECKING:
    from engine.config import EngineConfig
    from engine.events import EnginePort
    from inspector.commands.debugger import Debugger
    from sessions.timeline import Timeline

FORMAT = 3
MOVES = ("run", "continue", "accept", "verify", "new", "rollback", "free")


class RoomError(RuntimeError):
    """A room did not show what its note says."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What came of a room's script: the first finding and the judgement on it (None: no state is concerned)."""

    finding: Finding | None
    judgement: Judgement | None
    findings: int


def config_of(room: Room) -> EngineConfig:
    """The settings a room is played with."""
    from engine.config import EngineConfig

    values: dict[str, Any] = {**SETTINGS, "dtype": "float32", **dict(room.settings)}
    return EngineConfig(**values)


def play(timeline: Timeline, script: tuple[str, ...]) -> Debugger:
    """Run a script without a screen. Raises RoomError when a command cannot be carried out."""
    from inspector.commands.debugger import Debugger

    debugger = Debugger(timeline)
    for line in script:
        result = debugger.execute(line)
        if result.status == "error":
            raise RoomError(f"{line}: {result.lines[-1] if result.lines else 'could not be done'}")
        if line.startswith(MOVES) and timeline.findings():
            break
    return debugger


def show(debugger: Debugger) -> Shown:
    """The first finding and its judgement."""
    timeline = debugger.timeline
    found = timeline.findings()
    first = next(iter(found), None)
    return Shown(first, judge_first(timeline, first) if first is not None else None, len(found))


def judge_first(timeline: Timeline, first: Finding) -> Judgement | None:
    """The judgement on a finding; once more after the queue was waited for, when nothing was wrong yet."""
    judge = Judge(timeline)

    def ask(finding: Finding) -> Judgement | None:
        try:
            return judge.finding(finding)
        except (NotAvailable, DivergedError):
            return None

    judgement = ask(first)
    if judgement is None or not judgement.right or not timeline.view.queued or not timeline.at_edge:
        return judgement
    from engine.events import SyncSecondary

    stop: Stop = timeline.perform(SyncSecondary())
    return ask(Finding(first.name, stop.seq, first.req, first.where)) or judgement


def problem(room: Room, shown: Shown) -> str:
    """Why the room does not show what it says; "" when it does."""
    if shown.finding is None:
        return f"{room.name}: nothing was found, expected {' or '.join(room.detectors)}"
    if shown.finding.name not in room.detectors:
        return f"{room.name}: found by {shown.finding.name}, expected {' or '.join(room.detectors)}"
    kind = shown.judgement.verdict.kind if shown.judgement is not None else "none"
    if kind not in room.verdicts:
        return f"{room.name}: judged {kind}, expected {' or '.join(room.verdicts)}"
    return ""


def cache_folder() -> Path:
    """Where made rooms lie."""
    from platformdirs import user_cache_path

    return user_cache_path("metrale-inspect") / "museum"


def path_of(room: Room, folder: Path, fingerprint: str) -> Path:
    """The file of a room; another one when the room, the model, the library or the format changes."""
    from importlib.metadata import version

    state = xxhash.xxh3_64()
    for part in (str(FORMAT), fingerprint, version("torch"), repr(room)):
        state.update(part.encode() + b"\0")
    return folder / f"{room.name}-{state.hexdigest()[:12]}.session"


def build(room: Room, folder: Path, factory: Callable[[], EnginePort], meta: dict[str, str]) -> Path:
    """Make the session of a room unless it is there; its path.

    Raises:
        RoomError: the room does not show what its note says.
        OSError: the folder cannot be written.
    """
    from sessions.meta import MUSEUM
    from sessions.store import Store
    from sessions.timeline import Timeline

    engine = factory()
    path = path_of(room, folder, engine.start().fingerprint)
    if path.is_file():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.part")
    part.unlink(missing_ok=True)
    timeline = Timeline.live(
        engine,
        Store(part, "x", level="digests", meta={**meta, MUSEUM: room.name, "title": room.title}),
        factory=factory,
    )
    timeline.oracle = Oracles()
    try:
        shown = show(play(timeline, room.script))
        wrong = problem(room, shown)
        if wrong:
            raise RoomError(wrong)
        assert shown.finding is not None
        timeline.mark("finding", shown.finding.seq, shown.finding.text)
        timeline.note(room.happened, name="story", seq=shown.finding.seq)
        timeline.note(f"look: {room.look}", name="look", seq=shown.finding.seq)
        if shown.judgement is not None:
            timeline.note(f"judge: {shown.judgement.sentence()}", name="judge", seq=shown.finding.seq)
    except BaseException:
        timeline.close()
        part.unlink(missing_ok=True)
        raise
    timeline.close()
    for leftover in (part.with_name(part.name + "-wal"), part.with_name(part.name + "-shm")):
        leftover.unlink(missing_ok=True)
    part.replace(path)
    return path
