"""Importer of the scheduler trace that the Metrale engine writes.

Every line becomes events or is kept as ``Unknown`` with its text and number: nothing is dropped. Ticks are rounds; a
tick may hold rounds of several requests, and several of one. Positions follow from what was absorbed and copied, the
lengths in the notes are the engine's claims. ``trace_builder`` lists what is derived rather than told.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterable
from pathlib import Path

from engine.events import Event
from sessions.importers import trace_forward, trace_state
from sessions.importers.errors import FormatError
from sessions.importers.trace_builder import Builder
from sessions.importers.trace_index import Index, Item
from sessions.importers.trace_lines import TraceSyntax

HANDLERS: dict[str, trace_forward.Handler] = {**trace_forward.HANDLERS, **trace_state.HANDLERS}
ALSO_READ = ("gdn_fold_accepted",)
RELEASES = {"preempt_requeue": "preempt", "spill_out_sequence": "swap"}


def recognises(head: bytes) -> bool:
    """Whether a file that begins with ``head`` is such a trace."""
    return head.removeprefix(codecs.BOM_UTF8).startswith((b"# scenario ", b"-- tick "))


def load(path: str | os.PathLike[str]) -> list[Event]:
    """Events of a trace file, the first of them a ``Start``.

    A last line that was cut off is reported as ``Trouble``; the events before it are as good as ever.

    Raises:
        FormatError: not such a trace, or a known call with a wrong argument; names file, line, found and expected.
        OSError: the file cannot be read.
    """
    data = Path(path).read_bytes()
    if not recognises(data):
        raise FormatError(path, 1, f"{data[:40]!r}", "# scenario NAME or -- tick 1")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise FormatError(path, line, f"byte 0x{data[error.start]:02x}", "UTF-8 text") from None
    return read(text.splitlines(), str(path), text.endswith("\n"))


def read(lines: Iterable[str], name: str = "trace", complete: bool = True) -> list[Event]:
    """Events of the lines of a trace; ``complete`` is False when the last one may have been cut off.

    Raises FormatError like :func:`load`."""
    index = Index(name, list(lines), (*HANDLERS, *ALSO_READ), complete)
    builder = Builder(index)
    for at, item in enumerate(index.items):
        builder.at = at
        try:
            _follow(builder, item)
        except TraceSyntax as error:
            raise FormatError(name, item.line, error.found, error.expected) from None
    builder.next_tick(builder.tick)
    if index.trouble:
        builder.trouble(index.trouble)
    return builder.events


def _follow(builder: Builder, item: Item) -> None:
    count = len(builder.events)
    if item.tick >= 0:
        builder.next_tick(item.tick)
        builder.unknown(item.text, item.line)
        return
    if item.text.startswith("fx apply ReleaseSeq"):
        builder.releasing = next((how for word, how in RELEASES.items() if word in item.text), "finish")
    if item.call is not None and item.call.error:
        builder.trouble(f"{item.call.name} failed: {item.call.error}")
        return
    handler = HANDLERS.get(item.call.name) if item.call is not None else None
    if handler is not None and item.call is not None:
        handler(builder, item.call)
    if len(builder.events) == count and item.text.strip():
        builder.unknown(item.text, item.line)
