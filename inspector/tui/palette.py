"""The palette (ctrl+p): every command of the registry and every word of the screen, with the key that does it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider

from inspector.tui.keymaps import KEYMAPS, WORDS, keys_for
from inspector.tui.themes import PALETTES

if TYPE_CHECKING:
    from inspector.tui.app import InspectorApp


class CommandsProvider(Provider):
    """All commands: those without required arguments run, the others open the command line."""

    @property
    def _entries(self) -> Iterator[tuple[str, str, str]]:
        """(name, help, action)."""
        app = cast("InspectorApp", self.app)
        if app.registry is not None:
            for command in app.registry.commands:
                needs = any(not arg.optional and not arg.option for arg in command.args)
                yield command.usage, command.help, f":{command.name}{' ' if needs else ''}"
        for word, about in WORDS.items():
            keys = keys_for(app.keymap, word)
            yield about + (f"  [{keys}]" if keys else ""), "", word
        for name in KEYMAPS:
            yield f"keymap {name}", KEYMAPS[name].about, f"=keymap {name}"
        for name in PALETTES:
            yield f"theme {name}", "colours", f"=theme {name}"

    async def discover(self) -> Hits:
        app = cast("InspectorApp", self.app)
        for name, about, action in self._entries:
            yield DiscoveryHit(name.replace("[", "\\["), partial(app.from_palette, action), name, about or None)

    async def search(self, query: str) -> Hits:
        app = cast("InspectorApp", self.app)
        matcher = self.matcher(query)
        for name, about, action in self._entries:
            score = matcher.match(f"{name} {about}")
            if score > 0:
                yield Hit(score, matcher.highlight(name), partial(app.from_palette, action), name, about or None)
