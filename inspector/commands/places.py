"""The written forms of places and instants: ``ring 2.h[3]``, ``live@1043``, ``'a``, ``previous``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from engine.events import Place
from inspector.commands.errors import CommandError, UsageError
from inspector.commands.parser import Words
from inspector.text import suggest, visible
from sessions.view import LedgerView

MARK = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
WORDS_OF_TIME = ("start", "end", "now")


@dataclass(frozen=True, slots=True)
class When:
    """An instant: an event number (of another branch when ``branch`` is given), a bookmark, or a word (start, end,
    now)."""

    kind: str
    value: int = 0
    name: str = ""
    branch: int | None = None

    def __str__(self) -> str:
        if self.kind == "event":
            return f"@{self.value}" + (f"/{self.branch}" if self.branch is not None else "")
        return f"'{self.name}" if self.kind == "mark" else self.kind


@dataclass(frozen=True, slots=True)
class PlaceSpec:
    """A place as typed. ``slot`` is None for "of the current request" (or of ``req``); ``part``, ``layer`` and
    ``head`` narrow it; ``when`` is the instant it is meant at, None for now."""

    kind: str
    index: int = 0
    slot: int | None = None
    req: int | None = None
    part: str = ""
    layer: int | None = None
    head: int | None = None
    when: When | None = None

    def __str__(self) -> str:
        if self.slot is not None:
            name = Place(self.kind, self.slot, self.index).to_text()
        elif self.kind in ("live", "checkpoint"):
            name = self.kind + (f" r{self.req}" if self.req is not None else "")
        else:
            name = f"{self.kind} {self.index}"
        if self.part:
            inner = ", ".join(str(n) for n in (self.layer, self.head) if n is not None)
            name += f".{self.part}" + (f"[{inner}]" if inner else "")
        return name + (f" {self.when}" if self.when else "")

    def find(self, view: LedgerView, req: int) -> Place | None:
        """The place in a view, None while the request has no slot."""
        if self.kind == "prefix":
            return Place("prefix", -1, self.index)
        if self.slot is not None:
            return Place(self.kind, self.slot, self.index)
        request = view.requests.get(req if self.req is None else self.req)
        return Place(self.kind, request.slot, self.index) if request is not None and request.slot >= 0 else None

    def at(self, view: LedgerView, req: int) -> Place:
        """Like :meth:`find`; raises CommandError instead of None."""
        place = self.find(view, req)
        if place is None:
            number = req if self.req is None else self.req
            if number < 0:
                raise CommandError(f"{self}: there is no request at event {view.seq}, so nobody has a state there")
            raise CommandError(f"{self}: r{number} has no slot at event {view.seq}, so it has no state there")
        return place


@dataclass(frozen=True, slots=True)
class Base:
    """What to compare with: a place, an instant of the same place, or a computed state by name."""

    place: PlaceSpec | None = None
    when: When | None = None
    name: str = ""

    def __str__(self) -> str:
        return str(self.place or self.when or self.name)


_PLACE = re.compile(
    r"(?P<kind>live|checkpoint|ckpt|step|ring|prefix)"
    r"(?::(?P<first>\d{1,9})(?:\.(?P<second>\d{1,9}))?|\(\s*(?P<call>r?\d{1,9})\s*\)|\s+(?P<space>r?\d{1,9})(?![\w]))?"
    r"(?:\.(?P<part>h|conv)(?:\[\s*(?P<layer>\d{1,9})\s*(?:,\s*(?P<head>\d{1,9})\s*)?\])?)?"
    r"(?:(?P<blank>\s*)(?P<when>@\d{1,12}(?:/\d{1,6})?|@'[A-Za-z0-9_][A-Za-z0-9_.-]*))?"
)


def take_place(words: Words, spaced: bool = True) -> PlaceSpec:
    """Raises UsageError when no place stands here. ``spaced`` False: an instant belongs to the place only when no
    blank is before it (``live@1043``), because another argument follows."""
    spec = try_place(words, spaced)
    if spec is None:
        word = words.peek()
        found = f'found "{visible(word.text):.60}"' if word else "nothing is there"
        hint = suggest(word.text, ("live", "checkpoint", "step", "ring", "prefix")) if word else ""
        raise UsageError(f"a place is expected (live, checkpoint, step 1, ring 2, prefix 0, ring:0.2), {found}.{hint}")
    return spec


def try_place(words: Words, spaced: bool = True) -> PlaceSpec | None:
    """The place that stands here, taken; None (nothing taken) when there is none."""
    match = words.match(_PLACE)
    if match is None:
        return None
    when = match["when"]
    if when and match["blank"] and not spaced:
        words.at, when = match.start("blank"), None
    kind = "checkpoint" if match["kind"] == "ckpt" else match["kind"]
    indexed = kind in ("step", "ring")
    slot: int | None = None
    index, req = 0, None
    number = match["call"] or match["space"]
    if match["first"] is not None:
        if indexed != (match["second"] is not None):
            raise UsageError(f'"{match[0]}" is written {"ring:SLOT.INDEX" if indexed else kind + ":NUMBER"}')
        if kind == "prefix":
            index = int(match["first"])
        else:
            slot, index = int(match["first"]), int(match["second"] or 0)
    elif kind in ("step", "ring", "prefix"):
        if number is None or number.startswith("r"):
            raise UsageError(f"{kind} needs a number: {kind} 0")
        index = int(number)
    elif number is not None:
        req = int(number.removeprefix("r"))
    layer, head = match["layer"], match["head"]
    return PlaceSpec(
        kind, index, slot, req, match["part"] or "",
        int(layer) if layer else None, int(head) if head else None,
        parse_when(when.replace("@'", "'")) if when else None,
    )  # fmt: skip


def parse_when(text: str) -> When:
    """``@1043``, ``@1043/0`` (of branch 0), ``'a``, ``start``, ``end``, ``now``, or a bare event number.

    Raises UsageError otherwise."""
    match = re.fullmatch(r"@?(\d{1,12})(?:/(\d{1,6}))?", text)
    if match:
        return When("event", int(match[1]), "", int(match[2]) if match[2] else None)
    if text.startswith("'"):
        name = text[1:].removesuffix("'")
        if not MARK.fullmatch(name):
            raise UsageError(f"a bookmark is written 'name, found {visible(text):.60}")
        return When("mark", 0, name)
    if text in WORDS_OF_TIME:
        return When(text)
    raise UsageError(
        f'an instant is written @1043, \'name, start or end, found "{visible(text):.60}".{suggest(text, WORDS_OF_TIME)}'
    )


def take_when(words: Words) -> When:
    word = words.take()
    if word is None:
        raise UsageError("an instant is missing: @1043, 'name, start or end")
    return parse_when(word.text)


COMPUTED: dict[str, str] = {
    "previous": "the same place one event earlier",
    "golden": "the state recomputed from the committed tokens",
    "twin": "the same request without speculation",
}


def take_base(words: Words) -> Base:
    """A place, an instant, or one of :data:`COMPUTED`."""
    spec = try_place(words)
    if spec is not None:
        return Base(place=spec)
    word = words.peek()
    if word is None:
        raise UsageError("a base is missing: a place, previous, @1043, 'name, golden or twin")
    near = [name for name in COMPUTED if name.startswith(word.text)] if word.text else []
    if len(near) == 1:
        words.take()
        return Base(name=near[0])
    if word.text[:1] in "@'" or word.text in WORDS_OF_TIME:
        return Base(when=take_when(words))
    names = ("live", "checkpoint", "step", "ring", "prefix", *COMPUTED)
    raise UsageError(
        f"a base is a place (live, ring 2, ...), previous, @1043, 'name, golden or twin, "
        f'found "{visible(word.text):.60}".{suggest(word.text, names)}'
    )
