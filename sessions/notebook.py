"""What people leave in a session: bookmarks, notes and typed commands."""

from __future__ import annotations

from sessions.errors import NotAvailable
from sessions.recorder import Recorder
from sessions.rows import Note
from sessions.store_reader import StoreReader


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
