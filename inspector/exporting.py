"""What ``export`` writes: the events of a line of history, or one instant of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from inspector.commands.errors import CommandError
from inspector.text import plural

if TYPE_CHECKING:
    from inspector.commands.debugger import Debugger

FORMATS = {
    "json": "events as canonical JSON lines",
    "trace": "Chrome trace, opens in Perfetto",
    "tensors": "the states at this instant as safetensors",
    "test": "a pytest file that runs to this instant and asserts its finding",
    "session": "the whole session",
}


def export(debugger: Debugger, name: str, path: Path) -> str:
    """Write the file; what was written in a few words. An existing file is not overwritten.

    Raises:
        SessionError, OSError: it cannot be written.
        NotAvailable, DivergedError: the tensors of this instant cannot be had.
    """
    timeline = debugger.timeline
    if path.exists():
        raise CommandError(f"{path}: there is such a file already; choose another name or remove it")
    if name == "session":
        timeline.save_as(path)
        return plural(timeline.last, "event")
    if name == "json":
        from sessions.exporters import jsonl

        return plural(jsonl.write(timeline.history, path, timeline.branch), "event")
    if name == "trace":
        from sessions.exporters import chrome_trace

        return plural(chrome_trace.write(timeline.history, path, timeline.branch), "entry", "entries")
    if name == "tensors":
        from sessions.exporters import safetensors_file

        return plural(safetensors_file.write(timeline, path), "tensor") + f" of event {timeline.now}"
    from sessions.exporters import pytest_file

    session = pytest_file.write(timeline, path)
    return f"a test of event {timeline.now}, with {session.name}"
