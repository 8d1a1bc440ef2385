"""Canonical JSON lines: one event a line, made for ``diff`` and git. ``sessions.importers.jsonl`` reads them back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sessions.exporters.atomic import atomic
from sessions.history import History
from sessions.importers.jsonl import HEADER, line
from sessions.record import PAGE


def lines(history: History, branch: int = 0, lo: int = 1, hi: int | None = None) -> Iterator[str]:
    """The header and events ``lo``..``hi`` of a branch, without line ends. Raises NotAvailable: no such branch."""
    history.record.branch(branch)
    last = history.record.last(branch)
    end = last if hi is None else min(hi, last)
    yield HEADER
    for seq in range(max(1, lo), end + 1, PAGE):
        for event in history.record.events(branch, seq, min(end, seq + PAGE - 1)):
            yield line(event)


def write(history: History, path: str | Path, branch: int = 0, lo: int = 1, hi: int | None = None) -> int:
    """Write :func:`lines`; the number of events. Raises SessionError when it cannot be written."""
    count = -1
    with atomic(path) as part, part.open("w", encoding="ascii", newline="\n") as file:
        for text in lines(history, branch, lo, hi):
            file.write(text + "\n")
            count += 1
    return count
