"""Files of other engines, read as events. Each importer has ``recognises(head)`` and ``load(path)``."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from engine.events import Event
from sessions.importers import jsonl, metrale_trace
from sessions.importers.errors import FormatError

__all__ = ["FormatError", "load", "name_of"]

LOADERS: dict[str, Callable[[str | os.PathLike[str]], list[Event]]] = {
    "metrale-trace": metrale_trace.load,
    "jsonl": jsonl.load,
}
RECOGNISE: dict[str, Callable[[bytes], bool]] = {
    "metrale-trace": metrale_trace.recognises,
    "jsonl": jsonl.recognises,
}


def name_of(path: str | os.PathLike[str]) -> str:
    """Which importer reads a file, "" when none does. Raises OSError."""
    with Path(path).open("rb") as file:
        head = file.read(256)
    return next((name for name, recognises in RECOGNISE.items() if recognises(head)), "")


def load(path: str | os.PathLike[str]) -> list[Event]:
    """Events of a trace or of JSON lines, whichever it is. Raises FormatError and OSError."""
    name = name_of(path)
    if not name:
        with Path(path).open("rb") as file:
            head = file.read(40)
        raise FormatError(path, 1, f"{head!r}", "a scheduler trace (# scenario NAME) or one JSON object per line")
    return LOADERS[name](path)
