"""The command line while it is open: which keys and pasted texts go into it, and what becomes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import events

from inspector.tui.keys import Keys
from inspector.tui.screens.parts import ScreenPart
from inspector.tui.widgets.command_line import CommandLine
from inspector.tui.widgets.editing import first_line, insert
from inspector.tui.widgets.pane import Pane


class OpenLine(ScreenPart):
    """Mixed into the main screen."""

    if TYPE_CHECKING:
        keys: Keys

        def search(self, word: str) -> None: ...

    def take_paste(self, text: str) -> None:
        """Pasted text goes into the command line, and is never run: its first line only."""
        line = first_line(text)
        if not self.typing:
            search = line.startswith("/")
            line = line.removeprefix("/" if search else ":")
            self.keys.reset()
            self.line("", search)
        insert(self.query_one(CommandLine), line)

    def type_key(self, event: events.Key) -> None:
        """A key of the open line: Enter runs it or searches, escape leaves it."""
        line = self.query_one(CommandLine)
        if event.key not in ("enter", "escape"):
            line.take_key(event)
            return
        text, search = line.value, line.searching
        self.leave_line()
        if event.key == "enter" and search:
            self.search(text)
        elif event.key == "enter":
            self.debugger_app.run_line(text)

    def leave_line(self) -> None:
        """From the command line back to the pane."""
        self.typing = False
        line = self.query_one(CommandLine)
        line.can_focus = False
        line.value = ""
        line.placeholder = ": command   / search   ? help"
        self.query_one("#mark").update("mtl ›")
        self.query_one(f"#{self.active}", Pane).focus()
