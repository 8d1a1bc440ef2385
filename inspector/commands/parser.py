"""A command line taken apart: words with their places, quotes, comments, scripts.

Quotes: ``"..."`` with the escapes ``\\n \\t \\r \\e \\" \\\\ \\xNN \\uNNNN \\UNNNNNNNN``. A single quote is not a
quote here: it starts the name of a bookmark (``'a``), as in an editor. A ``#`` after a blank, outside quotes, starts a
comment.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from inspector.commands.errors import UsageError

MAX_LINE = 64 * 1024
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U00([0-9a-fA-F]{6})|(.))", re.DOTALL)
_SIMPLE = {"n": "\n", "t": "\t", "r": "\r", "e": "\x1b", '"': '"', "\\": "\\", "'": "'", "0": "\0"}


@dataclass(frozen=True, slots=True)
class Word:
    """``text`` without its quotes; ``start`` and ``end`` are its place in the line."""

    text: str
    start: int
    end: int
    quoted: bool = False


def unescape(body: str) -> str:
    """The text between two quotes. Raises UsageError for an escape that is not listed above."""

    def one(match: re.Match[str]) -> str:
        code = match[1] or match[2] or match[3]
        if code and int(code, 16) <= sys.maxunicode:
            return chr(int(code, 16))
        found = _SIMPLE.get(match[4] or "")
        if found is None:
            raise UsageError(f'"{match[0]}" is not an escape; a backslash is written "\\\\"')
        return found

    return _ESCAPE.sub(one, body)


def _closing(line: str, start: int) -> int:
    """Index of the quote that closes the one at ``start``, or -1."""
    at = start + 1
    while at < len(line):
        if line[at] == "\\":
            at += 2
            continue
        if line[at] == line[start]:
            return at
        at += 1
    return -1


def strip_comment(line: str) -> str:
    """``line`` without its comment. A ``#`` inside a closed pair of quotes of either kind is text."""
    at = 0
    while at < len(line):
        char = line[at]
        if char in "\"'":
            close = _closing(line, at)
            # An apostrophe that no other one closes is a bookmark.
            at = close + 1 if close > 0 else at + 1
            continue
        if char == "#" and (at == 0 or line[at - 1].isspace()):
            return line[:at]
        at += 1
    return line


class Words:
    """The words of a line, taken one by one; ``rest`` gives what is left exactly as written."""

    def __init__(self, line: str, start: int = 0) -> None:
        if len(line) > MAX_LINE:
            raise UsageError(f"a command has at most {MAX_LINE:,} characters, this one {len(line):,}")
        self.line = line
        self.at = start

    def _skip(self) -> None:
        while self.at < len(self.line) and self.line[self.at].isspace():
            self.at += 1

    def peek(self) -> Word | None:
        """The next word, not taken. Raises UsageError when its quote is never closed."""
        self._skip()
        if self.at >= len(self.line):
            return None
        start = self.at
        if self.line[start] == '"':
            close = _closing(self.line, start)
            if close < 0:
                raise UsageError(f"the quote at column {start + 1} is never closed")
            return Word(unescape(self.line[start + 1 : close]), start, close + 1, True)
        end = start
        while end < len(self.line) and not self.line[end].isspace():
            if self.line[end] == '"':
                close = _closing(self.line, end)
                if close < 0:
                    raise UsageError(f"the quote at column {end + 1} is never closed")
                end = close
            end += 1
        return Word(self.line[start:end], start, end)

    def take(self) -> Word | None:
        word = self.peek()
        if word is not None:
            self.at = word.end
        return word

    def rest(self) -> str:
        """Everything that is left, without blanks around it; takes it."""
        self._skip()
        left, self.at = self.line[self.at :].rstrip(), len(self.line)
        return left

    def left(self) -> str:
        """Like :meth:`rest`, not taken."""
        self._skip()
        return self.line[self.at :].rstrip()

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Take what ``pattern`` matches here, when a blank or the end follows it."""
        self._skip()
        found = pattern.match(self.line, self.at)
        if found is None or (found.end() < len(self.line) and not self.line[found.end()].isspace()):
            return None
        self.at = found.end()
        return found


def script_lines(text: str) -> Iterator[tuple[int, str]]:
    """(number from 1, command) of each line of a script that says something."""
    for number, line in enumerate(text.splitlines(), 1):
        command = strip_comment(line).strip()
        if command:
            yield number, command


def split_if(text: str) -> tuple[str, str]:
    """``WHERE if CONDITION`` into its halves; the condition is "" without one. ``if`` in quotes does not count."""
    at = 0
    while at < len(text):
        char = text[at]
        if char in "\"'":
            close = _closing(text, at)
            at = close + 1 if close > 0 else at + 1
            continue
        starts = at == 0 or text[at - 1].isspace()
        if starts and text.startswith("if", at) and (at + 2 == len(text) or text[at + 2].isspace()):
            return text[:at].strip(), text[at + 2 :].strip()
        at += 1
    return text.strip(), ""


def split_commas(text: str) -> list[str]:
    """Expressions separated by commas that are outside brackets and quotes."""
    parts, depth, start, at = [], 0, 0, 0
    while at < len(text):
        char = text[at]
        if char in "\"'":
            close = _closing(text, at)
            at = close + 1 if close > 0 else at + 1
            continue
        if char in "([":
            depth += 1
        elif char in ")]":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
        at += 1
    return [*parts, text[start:].strip()]
