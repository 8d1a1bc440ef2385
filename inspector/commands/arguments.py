"""Typed arguments: how each kind is read off a line, and how a whole line becomes the arguments of a command."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from inspector.commands.errors import UsageError
from inspector.commands.expressions import compile_expression
from inspector.commands.parser import Words
from inspector.commands.places import take_base, take_place, take_when
from inspector.commands.registry import Arg, Command
from inspector.text import suggest, visible

if TYPE_CHECKING:
    from inspector.commands.debugger import Debugger

Reader = Callable[[Words, Arg, "Debugger"], Any]


def _word(words: Words, arg: Arg, debugger: Debugger) -> str:
    word = words.take()
    if word is None:
        raise UsageError(f"{arg.name} is missing" + (f": {arg.about}" if arg.about else ""))
    return word.text


def _choice(words: Words, arg: Arg, debugger: Debugger) -> str:
    text = _word(words, arg, debugger)
    known = list(arg.choices if isinstance(arg.choices, tuple) else arg.choices(debugger))
    if text in known or not arg.closed:
        return text
    near = [choice for choice in known if choice.startswith(text)]
    if len(near) == 1:
        return near[0]
    shown = ", ".join(near or known)
    can = "is one of" if "," in shown else "must be"
    hint = suggest(text, known)
    raise UsageError(f'{arg.name} {can} {shown}, not "{visible(text):.60}"' + (f".{hint}" if hint else ""))


def _int(words: Words, arg: Arg, debugger: Debugger) -> int:
    text = _word(words, arg, debugger)
    if not re.fullmatch(r"[+-]?[\d_,]{1,20}", text) or not any(char.isdigit() for char in text):
        raise UsageError(f'{arg.name} is a whole number, not "{visible(text):.60}"')
    return int(text.replace(",", "").replace("_", ""))


def _count(words: Words, arg: Arg, debugger: Debugger) -> int:
    value = _int(words, arg, debugger)
    if value < 0:
        raise UsageError(f"{arg.name} is a number from 0, not {value}")
    return value


def _times(words: Words, arg: Arg, debugger: Debugger) -> int:
    value = _int(words, arg, debugger)
    if value < 1:
        raise UsageError(f"{arg.name} is a number from 1, not {value}")
    return value


def _float(words: Words, arg: Arg, debugger: Debugger) -> float:
    text = _word(words, arg, debugger)
    try:
        value = float(text)
    except ValueError:
        raise UsageError(f'{arg.name} is a number such as 1e-5, not "{visible(text):.60}"') from None
    if not math.isfinite(value):
        raise UsageError(f"{arg.name} is a finite number, not {text}")
    return value


def _rest(words: Words, arg: Arg, debugger: Debugger) -> str:
    text = words.rest()
    if not text:
        raise UsageError(f"{arg.name} is missing" + (f": {arg.about}" if arg.about else ""))
    return text


def _text(words: Words, arg: Arg, debugger: Debugger) -> str:
    """One quoted text, or the rest of the line as it is."""
    word = words.peek()
    if word is not None and word.quoted:
        words.take()
        return word.text
    return _rest(words, arg, debugger)


def _words(words: Words, arg: Arg, debugger: Debugger) -> str:
    """Quoted texts and numbers up to the first option, exactly as written; or the rest of the line."""
    start = None
    while (word := words.peek()) is not None:
        spelled = start is None and word.text == "ids"
        if not word.quoted and not spelled and not re.fullmatch(r"[\d,]+", word.text):
            break
        start = word.start if start is None else start
        words.take()
    return _rest(words, arg, debugger) if start is None else words.line[start : words.at].rstrip()


def _expr(words: Words, arg: Arg, debugger: Debugger) -> Any:
    return compile_expression(_rest(words, arg, debugger))


def _request(words: Words, arg: Arg, debugger: Debugger) -> int:
    text = _word(words, arg, debugger)
    match = re.fullmatch(r"r?(\d{1,9})", text)
    if match is None:
        raise UsageError(f'{arg.name} is a request such as r0 or 0, not "{visible(text):.60}"')
    return int(match[1])


def _flag(words: Words, arg: Arg, debugger: Debugger) -> bool:
    return True


TYPES: dict[str, tuple[str, Reader]] = {
    "word": ("a word", _word),
    "choice": ("one of the words listed", _choice),
    "int": ("a whole number", _int),
    "count": ("a number from 0", _count),
    "times": ("a number from 1", _times),
    "float": ("a number", _float),
    "text": ('"a quoted text", or the rest of the line', _text),
    "words": ('"texts" and numbers, or the rest of the line', _words),
    "rest": ("the rest of the line", _rest),
    "expr": ("an expression", _expr),
    "request": ("a request, r0 or 0", _request),
    "when": ("an instant: @1043, 'a, start, end", lambda words, arg, debugger: take_when(words)),
    "place": ("a place: live, checkpoint, step 1, ring 2, prefix 0, ring:0.2", lambda w, arg, debugger: take_place(w)),
    "side": ("a place, with @1043 written close to it", lambda w, arg, debugger: take_place(w, spaced=False)),
    "base": ("a place, or previous, @1043, 'a, golden, twin", lambda w, arg, debugger: take_base(w)),
    "file": ("a file name", _word),
    "flag": ("an option without a value", _flag),
}  # fmt: skip

_OPTION = re.compile(r"--([a-z][a-z-]*)(?:=(.*))?\Z", re.DOTALL)
_PAIR = re.compile(r"([a-z][a-z_-]*)=(?!=)")


def bind(command: Command, words: Words, debugger: Debugger) -> dict[str, Any]:
    """The arguments of ``command``. Raises UsageError naming the argument, what was found, and the usage."""
    try:
        return _bind(command, words, debugger)
    except UsageError as error:
        said = str(error)
        end = "" if said.endswith((".", "?", "!")) else "."
        raise UsageError(f"{command.name}: {said}{end} Usage: {command.usage}") from None


def _bind(command: Command, words: Words, debugger: Debugger) -> dict[str, Any]:
    values: dict[str, Any] = {arg.name: [] if arg.repeated else arg.default for arg in command.args}
    options = {arg.name: arg for arg in command.args if arg.option}
    places = [arg for arg in command.args if not arg.option]
    at = 0
    while (word := words.peek()) is not None:
        option = None if word.quoted else _option(word.text, options)
        if option is not None:
            arg, width = option
            words.at = word.start + width
            values[arg.name] = TYPES[arg.type][1](words, arg, debugger)
            continue
        if at >= len(places):
            raise UsageError(f'nothing more is expected here, found "{visible(word.text):.60}"')
        arg = places[at]
        value = TYPES[arg.type][1](words, arg, debugger)
        if arg.repeated:
            values[arg.name].append(value)
        else:
            values[arg.name] = value
            at += 1
    for arg in places[at:]:
        if not arg.optional and not (arg.repeated and values[arg.name]):
            raise UsageError(f"{arg.name} is missing" + (f": {arg.about}" if arg.about else ""))
    return values


def _option(text: str, options: dict[str, Arg]) -> tuple[Arg, int] | None:
    """The option a word begins, and how many characters its name takes (the value follows, after = or a blank)."""
    dashed = _OPTION.match(text)
    if dashed is not None:
        name = dashed[1]
        near = [option for option in options if option == name] or [o for o in options if o.startswith(name)]
        if len(near) != 1:
            raise UsageError(f'there is no option "--{name}".{suggest(name, options)}')
        return options[near[0]], len(name) + 2 + (1 if dashed[2] is not None else 0)
    pair = _PAIR.match(text)
    if pair is not None and pair[1] in options:
        return options[pair[1]], pair.end()
    return None
