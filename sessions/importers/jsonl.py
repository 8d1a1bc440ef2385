"""Events as JSON lines: the format in which any other engine can tell what it does to its states.

One event per line, as ``engine.codec`` writes it: ``{"kind": ..., field: value, ...}``, fields at their default left
out. An optional first line ``{"format": "metrale-events", "version": 1}`` says what the file is. Fields and units are
described in ``docs/event-format.md``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from engine.codec import CodecError
from engine.events import Event, Start, Trouble, event_from_dict
from sessions.canonical import canonical
from sessions.importers.errors import FormatError

FORMAT, VERSION = "metrale-events", 1
HEADER = f'{{"format":"{FORMAT}","version":{VERSION}}}'
LONGEST_LINE = 64 << 20


def recognises(head: bytes) -> bool:
    """Whether a file that begins with ``head`` may hold events: its first character opens an object."""
    return head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{"


def line(event: Event) -> str:
    """One event as canonical JSON, without the end of the line."""
    return canonical(event)


def load(path: str | os.PathLike[str]) -> list[Event]:
    """Events of a file, numbered from 1; a ``Start`` is put first when the file has none.

    A last line that was cut off is reported as ``Trouble``.

    Raises:
        FormatError: a line that is not an event; names file, line, kind and field, found and expected.
        OSError: the file cannot be read.
    """
    data = Path(path).read_bytes()
    if not data.strip():
        raise FormatError(path, 0, "an empty file", "one JSON object per line")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise FormatError(path, number, f"byte 0x{data[error.start]:02x}", "UTF-8 text") from None
    return list(read(text.split("\n"), str(path)))


def read(lines: Iterable[str], name: str = "events") -> Iterator[Event]:
    """Events of lines without their ends. The last line was cut off when it is not empty and no event.

    Raises FormatError like :func:`load`."""
    seq, failed = 0, None
    for number, text in enumerate(lines, start=1):
        if failed is not None:
            raise failed
        if not text.strip():
            continue
        try:
            event = _event(text, name, number)
        except FormatError as error:
            failed = error  # of the last line: cut off; of any other: raised when the next one comes
            continue
        if event is None:
            continue
        if seq and isinstance(event, Start):
            raise FormatError(name, number, "a second start event", "one run per file: split it there")
        if seq == 0 and not isinstance(event, Start):
            seq += 1
            yield Start(seq=seq, source="jsonl")
        seq += 1
        yield replace(event, seq=seq)
    if failed is not None:
        if not seq:
            raise failed
        seq += 1
        yield Trouble(seq=seq, text=f"the file ends in the middle of a line: {failed}", place=f"line {failed.line}")


def _event(text: str, name: str, number: int) -> Event | None:
    """The event of a line, None for the header."""
    if len(text) > LONGEST_LINE:
        raise FormatError(name, number, f"a line of {len(text)} characters", f"at most {LONGEST_LINE}")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(name, number, f"{text!r:.80} ({error})", "a JSON object") from None
    if isinstance(data, dict) and "format" in data and "kind" not in data:
        if data.get("format") != FORMAT or data.get("version") != VERSION:
            found = f"format {data.get('format')!r:.40} version {data.get('version')!r:.20}"
            raise FormatError(name, number, found, f"format {FORMAT!r} version {VERSION}")
        return None
    try:
        return event_from_dict(data)
    except CodecError as error:
        raise FormatError(name, number, str(error), "an event as docs/event-format.md describes it") from None
