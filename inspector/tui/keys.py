"""From keys to actions: sequences, counts, and what is still awaited. No Textual: a test feeds strings."""

from __future__ import annotations

from dataclasses import dataclass

from inspector.tui.keymaps import Keymap


@dataclass(frozen=True, slots=True)
class Outcome:
    """``action`` to do (``count`` times), or "" while keys of a sequence are missing (``awaiting`` says which so far);
    ``unknown`` when the keys mean nothing."""

    action: str = ""
    count: int = 1
    awaiting: str = ""
    unknown: str = ""


class Keys:
    """The state of a person typing keys."""

    def __init__(self, keymap: Keymap) -> None:
        self.keymap = keymap
        self._typed: list[str] = []
        self._count = ""

    def reset(self) -> None:
        """Forget what was typed so far."""
        self._typed, self._count = [], ""

    @property
    def awaiting(self) -> str:
        """What was typed of an unfinished sequence."""
        return " ".join([self._count, *self._typed]).strip()

    def feed(self, key: str) -> Outcome:
        """One key: a printable character as itself, others by Textual's name ("ctrl+d", "enter")."""
        if key == "escape" and self.awaiting:
            self.reset()
            return Outcome()
        if self.keymap.counts and not self._typed and key.isdigit() and (key != "0" or self._count):
            self._count = (self._count + key)[:6]
            return Outcome(awaiting=self.awaiting)
        self._typed.append(key)
        typed = " ".join(self._typed)
        action = self.keymap.bindings.get(typed)
        if action is None and len(self._typed) > 1 and len(key) == 1:
            wild = self.keymap.bindings.get(" ".join([*self._typed[:-1], "*"]))
            action = wild.replace("{}", key) if wild is not None else None
        if action is not None:
            count = int(self._count or "1")
            self.reset()
            return Outcome(action, count)
        if any(keys.startswith(typed + " ") for keys in self.keymap.bindings):
            return Outcome(awaiting=self.awaiting)
        self.reset()
        return Outcome(unknown=typed)


def spell(key: str, character: str | None) -> str:
    """The keymap's spelling of a Textual key event: printable characters as themselves, space as a word."""
    if character == " ":
        return "space"
    if character and character.isprintable() and len(character) == 1:
        return character
    return key
