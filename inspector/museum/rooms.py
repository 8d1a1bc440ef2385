"""Rooms as they are written: a note (title, what happened, what to look at, who must find it), then commands."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from engine.errors import UserError

FIELDS = ("title", "detectors", "verdicts", "happened", "look", "settings")


@dataclass(frozen=True, slots=True)
class Room:
    """``name`` is that of its fault. ``detectors`` are the findings of which one comes first, ``verdicts`` the kinds a
    right judgement may have ("none": no state is concerned). ``settings`` differ from the museum's own."""

    name: str
    title: str
    detectors: tuple[str, ...]
    verdicts: tuple[str, ...]
    happened: str
    look: str
    settings: tuple[tuple[str, int], ...]
    script: tuple[str, ...]

    @property
    def healthy(self) -> tuple[str, ...]:
        """The script without the fault."""
        return tuple(line for line in self.script if not line.startswith("fault "))


def read_room(name: str, text: str) -> Room:
    """Raises UserError naming the room and the line."""
    head, mark, body = text.partition("\n---\n")
    if not mark:
        raise UserError(f"room {name}: no line --- between the note and the script.")
    found: dict[str, str] = {}
    for number, line in enumerate(head.splitlines(), 1):
        key, colon, value = line.partition(": ")
        if not colon or key not in FIELDS:
            raise UserError(f"room {name}, line {number}: expected one of {', '.join(FIELDS)}, found {key!r:.40}.")
        found[key] = value.strip()
    missing = [key for key in FIELDS[:-1] if not found.get(key)]
    if missing:
        raise UserError(f"room {name}: {missing[0]} is missing.")
    pairs = [word.partition("=") for word in found.get("settings", "").split()]
    script = tuple(line for line in body.splitlines() if line.strip())
    return Room(
        name, found["title"], tuple(found["detectors"].split()), tuple(found["verdicts"].split()), found["happened"],
        found["look"], tuple((key, int(value)) for key, _, value in pairs), script,
    )  # fmt: skip


@cache
def rooms() -> dict[str, Room]:
    """All rooms by name."""
    folder = files("inspector.museum").joinpath("rooms")
    found = sorted((item.name.removesuffix(".room"), item) for item in folder.iterdir() if item.name.endswith(".room"))
    return {name: read_room(name, item.read_text(encoding="utf-8")) for name, item in found}


def find_room(name: str) -> Room:
    """Raises UserError with what there is."""
    room = rooms().get(name)
    if room is None:
        from inspector.text import suggest

        raise UserError(f"there is no room {name!r:.60}.{suggest(name, rooms())} metrale-inspect museum lists them.")
    return room
