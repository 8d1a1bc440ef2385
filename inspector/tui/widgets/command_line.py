"""The ``:`` line: history with the arrows, completion with Tab, an empty line repeats the last command."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from textual import events
from textual.suggester import Suggester
from textual.widgets import Input

from inspector.tui.widgets.editing import press

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
    """Input of one line: a command, or (``searching``) a word to look for. Its keys come from the main screen, which
    also takes the line when it is entered: what is typed in a burst must not be split between line and panes."""

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
        """Begin a line with ``text`` already typed."""
        self.searching = search
        self._place = len(self.history)
        self._choices = []
        self.value = text
        self.cursor_position = len(text)
        self.can_focus = True
        self.screen.set_focus(self)

    def take_key(self, event: events.Key) -> None:
        """A key that edits the line."""
        if event.key in ("up", "down"):
            self._recall(-1 if event.key == "up" else 1)
        elif event.key == "tab":
            self.run_worker(self._next_choice(), exclusive=True)
        else:
            self._choices = []
            press(self, event)

    def _recall(self, step: int) -> None:
        self._place = max(0, min(len(self.history), self._place + step))
        self.value = self.history[self._place] if self._place < len(self.history) else ""
        self.cursor_position = len(self.value)

    async def _next_choice(self) -> None:
        if not self._choices:
            typed = self.value
            found = list(await self._complete(typed))
            if self.value != typed:
                return
            self._choices, self._choice = found, -1
        if self._choices:
            self._choice = (self._choice + 1) % len(self._choices)
            self.value = self._choices[self._choice]
            self.cursor_position = len(self.value)
