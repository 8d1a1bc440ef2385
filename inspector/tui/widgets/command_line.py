"""The ``:`` line: history with the arrows, completion with Tab, an empty line repeats the last command."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from textual import events
from textual.message import Message
from textual.suggester import Suggester
from textual.widgets import Input

Complete = Callable[[str], Awaitable[Sequence[str]]]


class HistorySuggester(Suggester):
    """The rest of the newest history line that begins as typed, else the first completion."""

    def __init__(self, history: list[str], complete: Complete) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._history = history
        self._complete = complete

    async def get_suggestion(self, value: str) -> str | None:
        if not value.strip():
            return None
        for line in reversed(self._history):
            if line.startswith(value) and line != value:
                return line
        found = await self._complete(value)
        return found[0] if found and found[0].startswith(value) else None


class CommandLine(Input):
    """Input of one line. ``prefix`` says what is typed: a command, or a search word."""

    class Entered(Message):
        """A line was entered; ``search`` when it is a word to look for."""

        def __init__(self, line: str, search: bool) -> None:
            super().__init__()
            self.line = line
            self.search = search

    class Left(Message):
        """Escape: back to the panes."""

    def __init__(self, history: list[str], complete: Complete, *, id: str | None = None) -> None:
        super().__init__(
            placeholder=": command   / search   ? help", compact=True, id=id, select_on_focus=False,
            suggester=HistorySuggester(history, complete),
        )  # fmt: skip
        self.cursor_blink = False
        self.history = history
        self.searching = False
        self._complete = complete
        self._place = len(history)
        self._choices: list[str] = []
        self._choice = 0

    def begin(self, text: str = "", search: bool = False) -> None:
        """Take the focus with ``text`` already typed."""
        self.searching = search
        self._place = len(self.history)
        self._choices = []
        self.value = text
        self.cursor_position = len(text)
        self.can_focus = True
        self.focus()

    async def on_key(self, event: events.Key) -> None:
        if event.key == "escape":
            event.stop()
            self.value = ""
            self.post_message(self.Left())
        elif event.key in ("up", "down"):
            event.stop()
            self._recall(-1 if event.key == "up" else 1)
        elif event.key == "tab":
            event.stop()
            event.prevent_default()
            await self._next_choice()
        elif event.key == "enter":
            event.stop()
            event.prevent_default()
            line, self.value = self.value, ""
            self.post_message(self.Entered(line, self.searching))
        else:
            self._choices = []

    def _recall(self, step: int) -> None:
        self._place = max(0, min(len(self.history), self._place + step))
        self.value = self.history[self._place] if self._place < len(self.history) else ""
        self.cursor_position = len(self.value)

    async def _next_choice(self) -> None:
        if not self._choices:
            self._choices = list(await self._complete(self.value))
            self._choice = -1
        if self._choices:
            self._choice = (self._choice + 1) % len(self._choices)
            self.value = self._choices[self._choice]
            self.cursor_position = len(self.value)
