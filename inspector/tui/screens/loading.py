"""What is seen while a model or a session is opened. Escape or ctrl+c cancels."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Label, ProgressBar

from inspector.tui.text import visible


class LoadingScreen(Screen[None]):
    """Name, progress, and how to leave."""

    CSS_PATH: ClassVar[str] = "../styles/dialogs.tcss"

    class Cancelled(Message):
        """The person does not want to wait."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.caption = name

    def compose(self) -> ComposeResult:
        with Vertical(id="loading"):
            yield Label(f"metrale-inspect   {visible(self.caption)}", markup=False, classes="name")
            yield Label("opening", markup=False, classes="what", id="what")
            yield ProgressBar(total=100, show_eta=False, show_percentage=True, id="bar")
            yield Label("esc cancels", markup=False, classes="hint", id="hint")

    def report(self, what: str, share: float) -> None:
        """Loading goes on."""
        self.query_one("#what", Label).update(visible(what))
        bar = self.query_one("#bar", ProgressBar)
        if share >= 0:
            bar.update(total=100, progress=round(share * 100))
        else:
            bar.update(total=None)

    def failed(self, text: str) -> None:
        """It did not work: say why, and stay."""
        self.query_one("#what", Label).update(visible(text))
        self.query_one("#bar").display = False
        self.query_one("#hint", Label).update("q quits")

    def on_key(self, event: events.Key) -> None:
        if event.key in ("escape", "ctrl+c", "q"):
            event.stop()
            self.post_message(self.Cancelled())
