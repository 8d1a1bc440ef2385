"""Grammar of the scheduler trace: one line of text to a call with its arguments, result and sequence notes.

name(args) -> result       a call; args are values or key=value, the result is optional, "ERR text" is a failure
sID@SLOT:len=N             a sequence note: trace id, pool slot, sequence length
fx ...                     an effect that is about to be executed; the call follows
out sID: ...               what a client received
-- tick N                  a scheduler iteration
# scenario NAME            header
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NoReturn

NOTE = re.compile(r"s(\d{1,20})@(\d{1,20}):len=(\d{1,9})(?: start=(\d{1,9}) len=(\d{1,9}) last=(true|false))?")
CALL = re.compile(r"([a-z_][a-z0-9_]*)\((.*)\)(?: -> (.*))?")
KEY = re.compile(r"([a-z_]+)=(.*)")
NUMBER = re.compile(r"-?\d{1,18}|0x[0-9a-f]{1,15}")
TICK = re.compile(r"-- tick (.*)")
OUT = re.compile(r"out s(\d{1,18}): (.*)")
TOKEN = re.compile(r"(?<!\S)TL?(\d{1,18})(?::\d+)?(?!\S)")
DONE = re.compile(r"Done\((\w+), n=(\d{1,18})")
GUARD = re.compile(r"guard=Some\(\"([^\"]*)\"\)")
RESPONSE = re.compile(r"Response\(tokens=\[([\d, ]*)\], (\w+)")
DETACHED = 1 << 20
DEEPEST = 8

Value = object
"""int, bool, str, Note, or a tuple of values."""


class TraceSyntax(ValueError):
    """Found and expected in a line that is not right; the importer adds file and number."""

    def __init__(self, found: str, expected: str) -> None:
        super().__init__(f"found {found}; expected {expected}")
        self.found, self.expected = found, expected


@dataclass(frozen=True, slots=True)
class Note:
    """A sequence as a trace spells it. ``slot`` is -1 for a detached one; ``start``, ``count`` and ``last`` describe a
    prefill chunk (count -1: none)."""

    id: int
    slot: int
    length: int
    start: int = 0
    count: int = -1
    last: bool = True


@dataclass(frozen=True, slots=True)
class Call:
    """One line. ``error`` is the text of an ``ERR`` result: the call had no effect. The methods raise TraceSyntax."""

    text: str
    name: str
    values: tuple[Value, ...] = ()
    named: dict[str, Value] = field(default_factory=dict)
    result: Value = None
    error: str = ""

    def note(self) -> Note:
        """The sequence the call is about."""
        for value in self.values:
            if isinstance(value, Note):
                return value
        self._wrong("a sequence note such as s1@0:len=15")

    def all_notes(self) -> tuple[Note, ...]:
        """Every sequence the line mentions."""
        found: list[Note] = []
        for value in (*self.values, *self.named.values()):
            found += [item for item in (value if isinstance(value, tuple) else (value,)) if isinstance(item, Note)]
        return tuple(found)

    def notes(self, key: str) -> tuple[Note, ...]:
        """A list of sequence notes."""
        listed = self.named.get(key)
        found = tuple(item for item in listed if isinstance(item, Note)) if isinstance(listed, tuple) else ()
        if not isinstance(listed, tuple) or len(found) != len(listed):
            self._wrong(f'{key}=["s1@0:len=15", ...]')
        return found

    def number(self, key: str) -> int:
        """A number given as key=value."""
        value = self.named.get(key)
        if isinstance(value, bool) or not isinstance(value, int):
            self._wrong(f"{key}=NUMBER")
        return value

    def numbers(self, key: str) -> tuple[int, ...]:
        """A list of numbers given as key=[...]."""
        return self._whole(self.named.get(key), f"{key}=[NUMBER, ...]")

    def results(self) -> tuple[int, ...]:
        """The result as numbers; a single one counts as a list of one."""
        value = self.result if isinstance(self.result, tuple) else (self.result,)
        return self._whole(value, "-> NUMBER or -> [NUMBER, ...]")

    def _whole(self, value: Value, expected: str) -> tuple[int, ...]:
        items = value if isinstance(value, tuple) else (None,)
        numbers = tuple(item for item in items if isinstance(item, int) and not isinstance(item, bool))
        if len(numbers) != len(items):
            self._wrong(expected)
        return numbers

    def _wrong(self, expected: str) -> NoReturn:
        raise TraceSyntax(f"{self.text!r:.160}", f"{expected} in {self.name}")


@dataclass(frozen=True, slots=True)
class Served:
    """An ``out`` line: what the client of a request received and how it ended (total -1: not told)."""

    id: int
    tokens: tuple[int, ...]
    reason: str
    total: int
    guard: str
    streaming: bool


def split(text: str) -> list[str]:
    """``text`` cut at commas outside brackets and quotes. Raises TraceSyntax when those do not match."""
    parts, depth, quoted, start = [], 0, False, 0
    for at, char in enumerate(text):
        if char == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
        if depth < 0 or depth > DEEPEST:
            break
    if depth or quoted:
        raise TraceSyntax(f"{text!r:.160}", "matching brackets and quotes")
    rest = text[start:].strip()
    return [*parts, rest] if rest or parts else []


def value(text: str) -> Value:
    """A number, true or false, a note, a list, a quoted text; anything else stays as it is."""
    note = NOTE.fullmatch(text)
    if note is not None:
        id_, slot, length, start, count, last = note.groups()
        place = int(slot) if int(slot) < DETACHED else -1
        chunk = (int(start), int(count), last == "true") if count is not None else (0, -1, True)
        return Note(int(id_), place, int(length), *chunk)
    if NUMBER.fullmatch(text):
        return int(text, 0) if text.startswith("0x") else int(text)
    if text in ("true", "false"):
        return text == "true"
    if text[:1] == "[" and text[-1:] == "]":
        return tuple(value(item) for item in split(text[1:-1]))
    if len(text) > 1 and text[0] == text[-1] == '"':
        return value(text[1:-1])
    return text


def name_of(text: str) -> str:
    """Name of the call on a line, "" when it is not one."""
    found = CALL.fullmatch(text)
    return found.group(1) if found is not None else ""


def call(text: str) -> Call:
    """The call on a line. Raises TraceSyntax."""
    found = CALL.fullmatch(text)
    if found is None:
        raise TraceSyntax(f"{text!r:.160}", "name(args) or name(args) -> result")
    name, args, result = found.groups()
    values: list[Value] = []
    named: dict[str, Value] = {}
    for item in split(args):
        pair = None if NOTE.fullmatch(item) else KEY.fullmatch(item)
        if pair is None:
            values.append(value(item))
        else:
            named[pair.group(1)] = value(pair.group(2))
    if result is not None and result.startswith("ERR"):
        return Call(text, name, tuple(values), named, None, result[3:].strip() or "failed")
    told = None
    if result is not None:
        told = value(result.removeprefix("slot "))
    return Call(text, name, tuple(values), named, told)


def served(text: str) -> Served | None:
    """An ``out`` line, None when the line is another one."""
    found = OUT.fullmatch(text)
    if found is None:
        return None
    id_, rest = int(found.group(1)), found.group(2)
    whole = RESPONSE.search(rest)
    if whole is not None:
        tokens = tuple(int(item) for item in whole.group(1).split(",") if item.strip())
        total = len(tokens) if whole.group(2) == "length" else -1  # a stop token may be left out
        return Served(id_, tokens, whole.group(2), total, "", False)
    done, guard = DONE.search(rest), GUARD.search(rest)
    return Served(
        id_,
        tuple(int(item) for item in TOKEN.findall(rest)),
        done.group(1) if done is not None else "",
        int(done.group(2)) if done is not None else -1,
        guard.group(1) if guard is not None else "",
        True,
    )
