"""Keys go to whoever was asked for by the key before. The app hands them out itself, one after the other: the focus
moves through queues, and what is typed or pasted in one burst would reach the pane that had it before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from textual import events
from textual.app import App
from textual.message import Message

PASS = ("ctrl+c", "ctrl+q")


@runtime_checkable
class TakesKeys(Protocol):
    """A screen that takes its keys in order. ``ready``: everything in it is mounted."""

    ready: bool

    def take_key(self, event: events.Key) -> None: ...
    def take_paste(self, text: str) -> None: ...


class Ready(Message):
    """A screen can take the keys that were held back for it."""


class Routing(App[int]):
    """Part of the app. ``holding`` keeps keys back while something is about to open that they are meant for."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        self.holding = False
        self._held: list[events.Key | events.Paste] = []

    if TYPE_CHECKING:

        def forget_reply(self) -> None: ...

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key | events.Paste) and not event.is_forwarded and self._route(event):
            return
        await super().on_event(event)

    def _route(self, event: events.Key | events.Paste) -> bool:
        """Give a key to the screen on top. False when that screen gets its keys from Textual."""
        if isinstance(event, events.Key) and event.key in PASS:
            return False
        screen = self.screen
        if not isinstance(screen, TakesKeys):
            return False
        self.app_focus = True
        if self.holding or self._held or not screen.ready:
            self._held.append(event)
        else:
            self._give(screen, event)
        return True

    def _give(self, screen: TakesKeys, event: events.Key | events.Paste) -> None:
        self.forget_reply()
        if isinstance(event, events.Key):
            screen.take_key(event)
        else:
            screen.take_paste(event.text)

    def release(self) -> None:
        """Hand out what was held back, as far as somebody can take it."""
        while self._held and not self.holding:
            screen = self.screen
            if not isinstance(screen, TakesKeys):
                self._held.clear()
            elif screen.ready:
                self._give(screen, self._held.pop(0))
            else:
                return

    def on_ready(self) -> None:
        self.release()
