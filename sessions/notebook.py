"""What people leave in a session: bookmarks, notes, typed commands, and the list of places they jumped from."""

from __future__ import annotations

import json
from collections.abc import Callable

from sessions.errors import NotAvailable
from sessions.recorder import Recorder
from sessions.rows import Note
from sessions.store_reader import StoreReader

JUMPS_KEPT = 100
JUMPS_KEY = "jumps"
Instant = tuple[int, int]
"""(branch, event)."""


class Jumps:
    """A list to walk back and forward in, as in an editor: a movement remembers where it left; consecutive steps count
    as one movement."""

    def __init__(self, go: Callable[[int, int], object]) -> None:
        self._go = go
        self._left: list[Instant] = []
        self._ahead: list[Instant] = []
        self._stepping = False

    def leave(self, instant: Instant, stepping: bool = False) -> None:
        """A movement starts at ``instant``."""
        if not (stepping and self._stepping) and (not self._left or self._left[-1] != instant):
            self._left = [*self._left[1 - JUMPS_KEPT :], instant]
            self._ahead = []
        self._stepping = stepping

    def back(self, now: Instant) -> Instant | None:
        """Where the last movement left from; None at the oldest."""
        while self._left and self._left[-1] == now:
            self._left.pop()
        if not self._left:
            return None
        self._ahead.append(now)
        self._stepping = False
        return self._left.pop()

    def forward(self, now: Instant) -> Instant | None:
        """The inverse of :meth:`back`."""
        if not self._ahead:
            return None
        self._left.append(now)
        self._stepping = False
        return self._ahead.pop()

    def to_text(self) -> str:
        return json.dumps(self._left)

    def from_text(self, text: str) -> None:
        """Entries that do not have the form of an instant are left out."""
        try:
            plain = json.loads(text)
        except ValueError:
            return
        pairs = [tuple(entry) for entry in plain if isinstance(entry, list)] if isinstance(plain, list) else []
        self._left = [pair for pair in pairs if len(pair) == 2 and all(type(part) is int for part in pair)]


class Notebook:
    """Kept in memory and, with a recorder, in the file."""

    def __init__(self, store: StoreReader | None = None) -> None:
        self.notes: list[Note] = store.notes() if store is not None else []
        self.commands: list[tuple[int, int, str]] = store.commands() if store is not None else []

    @property
    def bookmarks(self) -> dict[str, int]:
        """Name to event, in the order they were set."""
        return {note.name: note.seq for note in self.notes if note.kind == "mark"}

    def bookmark(self, name: str) -> Note:
        """Raises NotAvailable when there is none of that name."""
        for note in self.notes:
            if note.kind == "mark" and note.name == name:
                return note
        known = ", ".join(sorted(self.bookmarks)) or "none"
        raise NotAvailable(f"no bookmark {name!r}; there are: {known}")

    def add(self, note: Note, recorder: Recorder | None) -> None:
        """A bookmark takes the place of an older one of its name."""
        if note.kind == "mark":
            self.notes = [old for old in self.notes if (old.kind, old.name) != ("mark", note.name)]
        self.notes.append(note)
        if recorder is not None:
            recorder.note(note)

    def typed(self, branch: int, seq: int, text: str, recorder: Recorder | None) -> None:
        self.commands.append((branch, seq, text))
        if recorder is not None:
            recorder.command(branch, seq, text)
