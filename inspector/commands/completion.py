"""Completion of a command line: what could stand where the cursor is."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from inspector.commands.errors import CommandError
from inspector.commands.fields import ATTRIBUTES
from inspector.commands.functions import FUNCTIONS
from inspector.commands.locations import KINDS
from inspector.commands.names import NAMES, WORDS
from inspector.commands.parser import Words
from inspector.commands.places import COMPUTED
from inspector.commands.registry import Arg, Command

if TYPE_CHECKING:
    from inspector.commands.debugger import Debugger

PLACES = ("live", "checkpoint", "step", "ring", "prefix")
WHERE_WORDS = ("pos", "token", "slot", "place", "invariant", "if")
_TAIL = re.compile(r"[A-Za-z_][A-Za-z_0-9]*\Z")


@dataclass(frozen=True, slots=True)
class Completion:
    """``text`` replaces the line from ``start`` to the cursor; ``about`` is a word on it."""

    text: str
    start: int
    about: str = ""


def complete(debugger: Debugger, line: str) -> list[Completion]:
    """Candidates for the end of ``line``, in alphabetical order; nothing for a line that cannot be read."""
    try:
        return _complete(debugger, line)
    except CommandError:
        return []


def _complete(debugger: Debugger, line: str) -> list[Completion]:
    words = Words(line)
    first = words.take()
    if first is not None and first.text in ("rev", "reverse") and first.end < len(line):
        first = words.take()
        start = first.start if first is not None else len(line)
        if first is None or first.end == len(line):
            movements = [command for command in debugger.registry.commands if command.reversible]
            return _matching(((c.name, c.help) for c in movements), line, start)
    if first is None:
        return _matching(_commands(debugger), line, len(line))
    if first.end == len(line):
        return _matching(_commands(debugger), line, first.start)
    command, _ = debugger.registry.resolve(first.text)
    return _argument(debugger, command, words, line)


def _commands(debugger: Debugger) -> list[tuple[str, str]]:
    return [(command.name, command.help) for command in debugger.registry.commands]


def _matching(candidates: Iterable[tuple[str, str]], line: str, start: int) -> list[Completion]:
    prefix = line[start:]
    return [Completion(text, start, about) for text, about in sorted(set(candidates)) if text.startswith(prefix)]


def _argument(debugger: Debugger, command: Command, words: Words, line: str) -> list[Completion]:
    places = [arg for arg in command.args if not arg.option]
    begin = words.at
    texts: list[str] = []
    start = len(line)
    while (word := words.take()) is not None:
        if word.end == len(line):
            start = word.start
            break
        texts.append(word.text)
    prefix = line[start:]
    if prefix.startswith("--"):
        return _matching(((f"--{arg.name}", arg.about) for arg in command.args if arg.option), line, start)
    if not places:
        return []
    # An argument that takes the rest of the line stays the current one, whatever was typed before.
    at = min(len(texts), len(places) - 1)
    rest = next(
        (i for i, arg in enumerate(places) if arg.type in ("rest", "expr", "text", "words", "place", "side", "base")),
        at,
    )
    arg = places[min(at, rest) if at >= rest and places[rest].type not in ("place", "side", "base") else at]
    if arg.type in ("rest", "expr"):
        return _expression(debugger, command, arg, line, begin)
    return _matching(_candidates(debugger, command, arg, prefix), line, start)


def _candidates(debugger: Debugger, command: Command, arg: Arg, prefix: str) -> list[tuple[str, str]]:
    if arg.choices:
        return [(choice, "") for choice in (arg.choices if isinstance(arg.choices, tuple) else arg.choices(debugger))]
    marks = [(f"'{name}", f"event {seq}") for name, seq in debugger.timeline.bookmarks.items()]
    times = [("start", "the first event"), ("end", "the last event"), *marks]
    if arg.type == "when":
        return times
    if arg.type in ("place", "side"):
        return [(place, "") for place in PLACES]
    if arg.type == "base":
        return [*((place, "") for place in PLACES), *COMPUTED.items(), *times]
    if arg.type == "request":
        return [(f"r{req}", "") for req in debugger.view.requests]
    if arg.name in ("stop", "stops"):
        return [(str(point.number), point.text) for point in debugger.stops]
    if arg.name == "displays":
        return [(str(number), expression.source) for number, expression in debugger.displays.items()]
    if arg.type == "file":
        return files(prefix)
    return []


def files(prefix: str) -> list[tuple[str, str]]:
    """Files and folders that begin so."""
    found = sorted(glob.glob(glob.escape(os.path.expanduser(prefix)) + "*"))[:100]
    return [(path + ("/" if os.path.isdir(path) else ""), "") for path in found]


def _expression(debugger: Debugger, command: Command, arg: Arg, line: str, begin: int) -> list[Completion]:
    tail = _TAIL.search(line)
    start = tail.start() if tail else len(line)
    if start > 0 and line[start - 1] == ".":
        return _matching(((name, "") for name in ATTRIBUTES), line, start)
    if start > 0 and line[start - 1] == "'":
        return _matching(((f"{name}", "bookmark") for name in debugger.timeline.bookmarks), line, start)
    known = [
        *((name, item.about) for name, item in NAMES.items()),
        *((name, item.about) for name, item in FUNCTIONS.items()),
        *((word, "") for word in WORDS),
    ]
    if arg.name in ("where", "what") and not line[begin:start].strip():
        known += [*((kind, "event kind") for kind in KINDS), *((word, "") for word in WHERE_WORDS)]
        known += [(place, "place") for place in PLACES]
    if arg.name == "where" and line[begin:start].strip() == "invariant":
        known = [(name, "") for name in debugger.invariants]
    return _matching(known, line, start)
