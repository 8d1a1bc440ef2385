"""What the words of the screen share: the screen they are mixed into, questions, the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from inspector.tui.frame import Frame
from inspector.tui.screens.dialogs import AskDialog, ConfirmDialog
from inspector.tui.widgets.command_line import CommandLine
from inspector.tui.widgets.pane import Pane

if TYPE_CHECKING:
    from inspector.tui.app import InspectorApp


class ScreenPart:
    """Base of the mixins of the main screen; names what that screen has."""

    if TYPE_CHECKING:
        view: Frame

        @property
        def narrow(self) -> bool: ...

        zoomed: bool
        typing: bool
        layout_name: str
        active: str
        app: Any
        query_one: Any

        @property
        def debugger_app(self) -> InspectorApp: ...
        @property
        def pane(self) -> Pane: ...

        def hint(self, *spans: tuple[str, str]) -> None: ...
        def open_pane(self, name: str) -> None: ...
        def visible_panes(self) -> frozenset[str]: ...
        def _arranged(self) -> None: ...

        call_after_refresh: Any

        def place_panes(self) -> None: ...
        def fit(self, width: int, height: int) -> None: ...

    def go_to_token(self, index: int) -> None:
        """To the event at which a token was written: backwards or forwards."""
        self.debugger_app.worker.go_to_token(index)

    def line(self, text: str, search: bool = False) -> None:
        """Open the command line with ``text`` typed."""
        self.query_one("#mark").update("/" if search else "mtl ›")
        self.typing = True
        self.query_one(CommandLine).begin(text, search)

    # --------------------------------------------------------------------------------------------------- dialogs

    def note(self, text: str) -> None:
        """One sentence in the line that tells why the debugger stands here."""
        self.debugger_app.note(text)

    def ask(self, title: str, about: tuple[str, ...], done: Callable[[str], None], empty: bool = False) -> None:
        """A dialog with one input."""

        def answered(text: str | None) -> None:
            if text is not None and (text or empty):
                done(text)

        self.app.push_screen(AskDialog(title, about), answered)

    def confirm(self, question: str, line: str) -> None:
        """Ask, then run ``line``."""
        self.app.push_screen(
            ConfirmDialog(question), lambda yes: self.debugger_app.run_line(line) if yes else None
        )  # fmt: skip
