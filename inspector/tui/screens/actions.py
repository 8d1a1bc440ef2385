"""From a bound action to what is done: a movement of the pane, a word of the screen, or a command line."""

from __future__ import annotations

from collections.abc import Callable

from inspector.tui.screens.acting import Acting
from inspector.tui.screens.looking import Looking
from inspector.tui.widgets.pane import Pane

MOVES: dict[str, Callable[[Pane, int], None]] = {
    "top": lambda pane, count: pane.edge(False),
    "bottom": lambda pane, count: pane.edge(True),
    "up": lambda pane, count: pane.move(-count),
    "down": lambda pane, count: pane.move(count),
    "left": lambda pane, count: pane.slide(-count),
    "right": lambda pane, count: pane.slide(count),
    "half-down": lambda pane, count: pane.page(count / 2),
    "half-up": lambda pane, count: pane.page(-count / 2),
    "page-down": lambda pane, count: pane.page(count),
    "page-up": lambda pane, count: pane.page(-count),
}
REPEATABLE = ("step", "event", "next", "chunk", "finish", "continue", "back", "forward")


class Actions(Acting, Looking):
    """Mixed into the main screen."""

    def act(self, action: str, count: int = 1) -> None:
        """Do a bound action: a word of the screen, or a command line."""
        if not action.startswith("@"):
            name = action.split()[-1]
            self.debugger_app.run_line(f"{action} {count}" if count > 1 and name in REPEATABLE else action, key=True)
            return
        word, _, rest = action[1:].partition(" ")
        move = MOVES.get(word)
        if move is not None:
            move(self.pane, count)
            return
        method = getattr(self, "do_" + word.replace("-", "_"), None)
        if method is None:
            raise LookupError(f"keymap: no screen word @{word}")
        method(rest) if rest else method()
