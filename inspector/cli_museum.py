"""``museum``: the rooms, opened on the screen; ``--check`` plays them without one."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from inspector.cli_options import remark

if TYPE_CHECKING:
    from engine.events import EnginePort
    from inspector.museum.rooms import Room


def register(app: typer.Typer) -> None:
    app.command("museum", help="Recorded sessions of famous faults, each with its story; opened on the screen.")(
        _museum
    )


def _museum(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A room; without it they are listed.")] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Play it (or all) without a screen: its finding, its verdict.")
    ] = False,
    build: Annotated[
        bool, typer.Option("--build", help="Make the session (or all) now, and say where it lies.")
    ] = False,
    folder: Annotated[
        Path | None, typer.Option("--folder", help="Where sessions are kept; a cache folder without it.")
    ] = None,
    theme: Annotated[str, typer.Option("--theme", help="Name of a theme.")] = "",
) -> None:
    from engine.errors import UserError
    from inspector.museum.rooms import find_room, rooms

    try:
        chosen = [find_room(name)] if name else list(rooms().values())
    except UserError as error:
        raise typer.BadParameter(str(error)) from None
    if check:
        raise typer.Exit(1 if sum(not _check(room) for room in chosen) else 0)
    if build:
        for room in chosen:
            sys.stdout.write(f"{_made(room, folder)}\n")
        return
    if not name:
        _list(chosen)
        return
    _open(chosen[0], folder, theme)


def _list(chosen: list[Room]) -> None:
    from inspector.commands.render import table

    rows = [(room.name, room.title, room.detectors[0]) for room in chosen]
    sys.stdout.write("".join(f"{line}\n" for line in table(("room", "title", "found by"), rows)))
    remark("metrale-inspect museum NAME opens a room; docs/museum.md tells the stories")


def _factory(room: Room) -> Callable[[], EnginePort]:
    """Engines on the bundled model, loaded once."""
    import torch

    from engine.checkpoint import load_checkpoint
    from engine.demo import demo_path
    from engine.engine import Engine
    from inspector.museum.build import config_of

    torch.set_num_threads(1)
    loaded = load_checkpoint(demo_path(), dtype="float32", device="cpu")
    config = config_of(room)
    return lambda: Engine(loaded, config)


def _made(room: Room, folder: Path | None) -> Path:
    """The session of a room, made when it is not there. Raises ValueError in words."""
    from inspector.museum.build import RoomError, build, cache_folder, config_of
    from inspector.opening import recording_meta

    try:
        return build(room, folder or cache_folder(), _factory(room), recording_meta(None, config_of(room)))
    except RoomError as error:
        raise ValueError(f"the room cannot be shown: {error}") from None


def _check(room: Room) -> bool:
    """Play the script with its fault and without. Says what came of it."""
    from inspector.judging.oracles import Oracles
    from inspector.museum.build import play, problem, show
    from sessions.timeline import Timeline

    factory = _factory(room)
    begun = time.perf_counter()
    timeline = Timeline.live(factory(), factory=factory)
    timeline.oracle = Oracles()
    shown = show(play(timeline, room.script))
    wrong = problem(room, shown)
    healthy = Timeline.live(factory(), factory=factory)
    healthy.oracle = Oracles()
    play(healthy, room.healthy)
    if healthy.findings():
        wrong = wrong or f"{room.name}: the healthy run has findings: {healthy.findings()[0].text}"
    seconds = time.perf_counter() - begun
    kind = shown.judgement.verdict.kind.replace("_", " ") if shown.judgement is not None else "no state concerned"
    told = (
        f"found by {shown.finding.name} @{shown.finding.seq}, {kind}" if shown.finding is not None else "nothing found"
    )
    sys.stdout.write(f"{'ok  ' if not wrong else 'FAIL'} {room.name:26} {told}; {seconds:.1f} s\n")
    if wrong:
        remark(wrong)
    return not wrong


def _open(room: Room, folder: Path | None, theme: str) -> None:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        remark("metrale-inspect: the screen needs a terminal; museum NAME --check plays the room without one.")
        raise typer.Exit(2)
    path = _made(room, folder)
    remark(f"{room.title}: {room.happened}\nLook at: {room.look}")
    from inspector.tui.app import run_app
    from inspector.tui.ports import Options

    commands = ("goto 'finding",)
    raise typer.Exit(run_app(str(path), Options(model="demo", theme=theme, commands=commands)))
