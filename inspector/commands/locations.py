"""Where a stop can be: an event kind, an event number, a position, a token, a slot, a place, an invariant, a condition.

A location is a pure question about (view before, event, view after), so it means the same live and in the past.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.events import EVENTS, Emit, Event
from inspector.commands.access import slots_of, touches
from inspector.commands.errors import UsageError
from inspector.commands.expressions import Expression, compile_expression
from inspector.commands.parser import Words, split_if
from inspector.commands.places import PlaceSpec, try_place
from inspector.text import quoted, suggest, visible
from sessions.view import LedgerView

if TYPE_CHECKING:
    from inspector.commands.debugger import Debugger
    from inspector.commands.values import Scope

# Answers what happened ("" for nothing) at one event; the scope is made only when asked for.
Match = Callable[[LedgerView, Event, LedgerView, "Scopes"], str]

KINDS = sorted(kind for kind in EVENTS)
FORMS = {
    "KIND": "an event kind: verify, accept, commit, rollback, ring_save, ... (several with commas)",
    "@1043": "an event number; 'a is the event a bookmark stands at",
    "pos 318": "the live state of a request comes to 318 absorbed tokens",
    'token 42, token "text", "text"': "a token with this id or this text in it is emitted",
    "slot 3": "an event touches row 3 of the pools",
    "ring 2, live, place checkpoint": "the place is written",
    "invariant [NAME]": "an invariant breaks",
    "if EXPR, EXPR": "the expression becomes true",
}


class Scopes:
    """Makes the scopes a stop is evaluated in: after the event and, on demand, before it."""

    def __init__(self, after: Callable[[], Scope], before: Callable[[], Scope]) -> None:
        self._after, self._before = after, before
        self._made: dict[str, Scope] = {}

    @property
    def after(self) -> Scope:
        if "after" not in self._made:
            self._made["after"] = self._after()
        return self._made["after"]

    @property
    def before(self) -> Scope:
        if "before" not in self._made:
            self._made["before"] = self._before()
        return self._made["before"]


@dataclass(frozen=True, slots=True)
class Location:
    """``text`` as it is listed; ``match`` the question; ``heavy`` when it reads tensors; ``kinds`` when only these
    event kinds can match (others need not be asked)."""

    text: str
    match: Match
    kinds: frozenset[str] = frozenset()
    heavy: bool = False
    finding: bool = False


def parse_location(text: str, debugger: Debugger) -> tuple[Location, Expression | None]:
    """A location and its condition. Raises UsageError or ExpressionError."""
    where, condition = split_if(text)
    if not where and condition:
        return condition_location(compile_expression(condition)), None
    location = _parse(where, debugger)
    return location, compile_expression(condition) if condition else None


def condition_location(expression: Expression) -> Location:
    """Hit when the expression is true and was not before the event."""

    def match(before: LedgerView, event: Event, after: LedgerView, scopes: Scopes) -> str:
        if not expression.true(scopes.after) or expression.true(scopes.before):
            return ""
        return f"{expression.source} is true"

    return Location(f"if {expression.source}", match, heavy=expression.heavy)


def place_location(spec: PlaceSpec, reads: bool, writes: bool) -> Location:
    """Hit when the place is read or written."""

    def match(before: LedgerView, event: Event, after: LedgerView, scopes: Scopes) -> str:
        place = spec.find(after, scopes.after.req) or spec.find(before, scopes.after.req)
        if place is None:
            return ""
        did = touches(event, before, place, spec.part, reads=reads, writes=writes)
        return f"{place}{'.' + spec.part if spec.part else ''} {did} by {event.kind}" if did else ""

    return Location(str(spec), match)


def _parse(where: str, debugger: Debugger) -> Location:
    if not where:
        return _at_event(debugger.timeline.now)
    words = Words(where)
    first = words.peek()
    if first is None:
        raise UsageError("a place to stop at is missing")
    if first.quoted:
        words.take()
        return _end(words, _token_text(first.text))
    if re.fullmatch(r"@\d{1,12}", first.text):
        words.take()
        return _end(words, _at_event(int(first.text[1:])))
    if first.text.startswith("'"):
        words.take()
        return _end(words, _at_event(debugger.instant_of_mark(first.text[1:])))
    if first.text in ("@pos", "pos", "position") and re.fullmatch(r"\s*\d{1,12}", words.line[first.end :]):
        words.take()
        return _position(int(words.rest()))
    if first.text == "token":
        words.take()
        return _token(words)
    if first.text == "slot" and re.fullmatch(r"\s*\d{1,9}", words.line[first.end :]):
        words.take()
        return _slot(int(words.rest()))
    if first.text == "invariant":
        words.take()
        name = words.take()
        return _end(words, _invariant(name.text if name else "", debugger))
    if first.text == "place":
        words.take()
    elif all(part in EVENTS for part in first.text.split(",") if part) and first.end == len(where):
        return _kinds(first.text)
    spec = try_place(words)
    if spec is not None and not words.left():
        return place_location(spec, reads=False, writes=True)
    if re.fullmatch(r"[a-z_]+(,[a-z_]+)*", where):
        return _kind_or_name(where)
    return condition_location(compile_expression(where))


def _end(words: Words, location: Location) -> Location:
    if words.left():
        raise UsageError(f'nothing more is expected after {location.text}, found "{visible(words.left()):.60}"')
    return location


def _kind_or_name(where: str) -> Location:
    """One word: a name of the language that can become true, or a mistyped event kind."""
    try:
        return condition_location(compile_expression(where))
    except ValueError:
        unknown = next(part for part in where.split(",") if part not in EVENTS)
        near = [kind for kind in KINDS if kind.startswith(unknown)]
        if len(near) == 1 and "," not in where:
            return _kinds(near[0])
        hint = f" It could be {', '.join(near)}." if near else suggest(unknown, KINDS)
        raise UsageError(
            f'"{unknown}" is neither an event kind nor a name.{hint} "help break" lists the forms'
        ) from None


def _kinds(text: str) -> Location:
    kinds = frozenset(part for part in text.split(",") if part)

    def match(before: LedgerView, event: Event, after: LedgerView, scopes: Scopes) -> str:
        return event.kind if event.kind in kinds else ""

    return Location(text, match, kinds)


def _at_event(seq: int) -> Location:
    def match(before: LedgerView, event: Event, after: LedgerView, scopes: Scopes) -> str:
        return f"event {seq}" if event.seq == seq else ""

    return Location(f"@{seq}", match)


def _position(wanted: int) -> Location:
    def match(before: LedgerView, event: Event, after: LedgerView, scopes: Scopes) -> str:
        old, new = before.live(event.req), after.live(event.req)
        here = new.h_position if new else None
        there = old.h_position if old else None
        if here is None or here == there:
            return ""
        came = here == wanted or ((there or 0) < wanted <= here)
        return f"position {wanted} reached" if came else ""

    return Location(f"pos {wanted}", match)


def _token(words: Words) -> Location:
    word = words.take()
    if word is None:
        raise UsageError('token needs an id or a text: token 42, token "text"')
    if word.quoted:
        return _end(words, _token_text(word.text))
    if not re.fullmatch(r"\d{1,9}", word.text):
        raise UsageError(f'token needs an id or a quoted text, found "{visible(word.text):.60}"')
    wanted = int(word.text)

    def match(before: LedgerView, event: Event, after: LedgerView, scopes: Scopes) -> str:
        return f"token {wanted}" if isinstance(event, Emit) and event.token == wanted else ""

    return _end(words, Location(f"token {wanted}", match, frozenset(("emit",))))


def _token_text(wanted: str) -> Location:
    if not wanted:
        raise UsageError("an empty text is in every token")

    def match(before: LedgerView, event: Event, after: LedgerView, scopes: Scopes) -> str:
        text = after.texts.get(event.token) if isinstance(event, Emit) else None
        return f"token {quoted(text, 60)}" if text is not None and wanted in text else ""

    return Location(f"token {quoted(wanted, 60)}", match, frozenset(("emit",)))


def _slot(slot: int) -> Location:
    def match(before: LedgerView, event: Event, after: LedgerView, scopes: Scopes) -> str:
        return f"slot {slot} in {event.kind}" if slot in slots_of(event) else ""

    return Location(f"slot {slot}", match)


def _invariant(name: str, debugger: Debugger) -> Location:
    if name and name not in debugger.invariants:
        raise UsageError(f'there is no invariant "{visible(name):.60}".{suggest(name, debugger.invariants)}')

    def match(before: LedgerView, event: Event, after: LedgerView, scopes: Scopes) -> str:
        for finding in debugger.findings_at(before, event, after):
            if not name or finding.name == name:
                return f"invariant {finding.name}"
        return ""

    return Location(f"invariant {name}".strip(), match, finding=True)
