"""How the worker opens what was named: model, session or trace, by content. Torch is imported in here, after the first
paint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from inspector.tui.ports import Opener, Options, Progress

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.config import EngineConfig
    from inspector.commands.debugger import Debugger


class OpeningCancelled(RuntimeError):
    """The person did not want to wait."""


def opener_for(source: str | None, options: Options) -> Opener:
    """An opener for a path (None: the bundled model)."""

    def opener(progress: Progress, cancelled: Callable[[], bool]) -> Debugger:
        from engine.errors import UserError
        from inspector.opening import open_live, open_recorded, sniff

        def report(done: int, total: int) -> None:
            if cancelled():
                raise OpeningCancelled("opening was cancelled")
            progress("reading weights", done / total if total else -1.0)

        progress("looking at the file", -1.0)
        found = sniff(source)
        if found.kind == "config":
            raise UserError(
                f"{found.path}: a bare config.json has no weights to run. Open the model's folder, or plan its memory "
                f'with "metrale-inspect info {found.name}".'
            )
        config = engine_config(options)
        if found.kind == "model":
            progress("starting the engine", -1.0)
            record = Path(options.record) if options.record else None
            debugger = open_live(found.path, config, record=record, progress=report)
        else:
            progress("reading the record", -1.0)
            debugger = open_recorded(found, options.model or None, config)
        if cancelled():
            debugger.close()
            raise OpeningCancelled("opening was cancelled")
        return debugger

    return opener


def engine_config(options: Options) -> EngineConfig:
    """The engine's settings: those of the command line, then the named ones. Raises UserError."""
    from engine.config import EngineConfig

    values: dict[str, Any] = dict(options.engine or {})
    for name in ("drafts", "ring", "slots"):
        value = getattr(options, name)
        if value is not None:
            values[name] = value
    return EngineConfig(**values)
