"""Help: what the focused pane shows, which keys do what, and every command, all from the registries."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen

from inspector.tui.keymaps import WORDS, Keymap
from inspector.tui.panes.output import TextPane
from inspector.tui.text import Line, fit
from inspector.tui.widgets.pane import Pane

if TYPE_CHECKING:
    from inspector.commands.registry import Registry
    from inspector.tui.app import InspectorApp

TITLES = {
    "move": "Movement",
    "act": "Acting (in the past it opens a branch)",
    "stop": "Stops",
    "look": "Looking",
    "compare": "Comparing",
    "session": "Session",
}


def pane_help(pane: Pane, app: InspectorApp) -> tuple[Line, ...]:
    """Help of one pane, then keys, then commands."""
    lines: list[Line] = [((f" {pane.NUMBER} {pane.NAME}", "strong"), (f"   {pane.SUMMARY}", "dim")), ()]
    lines += [((f"   {text}", "text"),) for text in pane.HELP_TEXT.splitlines()]
    lines += [(), *key_help(app.keymap, app.registry), (), *command_help(app.registry)]
    return tuple(lines)


def key_help(keymap: Keymap, registry: Registry | None) -> list[Line]:
    """All bindings of a keymap."""
    lines: list[Line] = [((f" Keys: {keymap.name}", "strong"), (f"   {keymap.about}", "dim")), ()]
    for keys, action in keymap.bindings.items():
        lines.append((("   ", ""), (fit(keys, 11), "key"), (meaning(action, registry), "text")))
    return lines


def meaning(action: str, registry: Registry | None) -> str:
    """What an action does, in words."""
    if action in WORDS:
        return WORDS[action]
    if action.startswith("@pane"):
        return f"pane {action[6:]}"
    if action.startswith("@mark"):
        return "set the bookmark of that name here"
    if action.startswith("@goto-mark"):
        return "go to the bookmark of that name"
    back, name = action.startswith("rev "), action.removeprefix("rev ")
    text = registry.get(name).help if registry is not None else name
    forth, _, other = text.partition(" (with rev: ")
    if not back:
        return forth
    other = other.removesuffix(")")
    return f"back: {forth.removeprefix('go ').removesuffix(' on')}" if other in ("", "back") else f"back: {other}"


def command_help(registry: Registry | None) -> list[Line]:
    """All commands by group."""
    if registry is None:
        return []
    lines: list[Line] = [
        ((" Commands", "strong"), ("   : opens the line; the shortest unambiguous prefix works", "dim"))
    ]
    group = ""
    for command in registry.commands:
        if command.group != group:
            group = command.group
            lines += [(), ((f"   {TITLES.get(group, group)}", "accent"),)]
        names = ", ".join(command.aliases)
        lines.append((("   ", ""), (fit(command.usage, 34), "key"), (command.help, "text")))
        if names:
            lines.append(((" " * 37, ""), (names, "faint")))
    return lines


class HelpScreen(ModalScreen[None]):
    """Text to scroll and search; Escape, q or ? closes it."""

    CSS_PATH: ClassVar[str] = "../styles/dialogs.tcss"

    def __init__(self, lines: tuple[Line, ...]) -> None:
        super().__init__()
        self.lines = lines

    def compose(self) -> ComposeResult:
        with Vertical(classes="box help"):
            yield TextPane(self.lines, id="text")

    def on_mount(self) -> None:
        from inspector.tui.app import InspectorApp

        pane = self.query_one(TextPane)
        if isinstance(self.app, InspectorApp):
            pane.recolour(self.app.role_styles)
        pane.focus()

    def on_key(self, event: events.Key) -> None:
        event.stop()
        pane = self.query_one(TextPane)
        moves = {
            "down": 1,
            "j": 1,
            "up": -1,
            "k": -1,
            "pagedown": 20,
            "space": 20,
            "pageup": -20,
            "ctrl+d": 10,
            "ctrl+u": -10,
        }
        if event.key in ("escape", "q", "question_mark"):
            self.dismiss(None)
        elif event.key in moves:
            pane._wheel(moves[event.key])
        elif event.key in ("home", "g"):
            pane._wheel(-(10**6))
        elif event.key in ("end", "G", "upper_g"):
            pane._wheel(10**6)
