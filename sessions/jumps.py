"""The jump list: where movements left from, to walk back and forward in, as in an editor."""

from __future__ import annotations

import json
from collections.abc import Callable

from sessions.stop import Stop

JUMPS_KEPT = 100
JUMPS_KEY = "jumps"
Instant = tuple[int, int]
"""(branch, event)."""


class Jumps:
    """``now`` tells the present instant, ``go`` moves to another. Consecutive steps count as one movement."""

    def __init__(self, now: Callable[[], Instant], go: Callable[[Instant], Stop]) -> None:
        self._now, self._go = now, go
        self._left: list[Instant] = []
        self._ahead: list[Instant] = []
        self._stepping = False

    def leave(self, stepping: bool = False) -> None:
        """A movement starts at the present instant."""
        now = self._now()
        if not (stepping and self._stepping) and (not self._left or self._left[-1] != now):
            self._left = [*self._left[1 - JUMPS_KEPT :], now]
            self._ahead = []
        self._stepping = stepping

    def back(self) -> Stop:
        """To where the last movement left from."""
        now = self._now()
        while self._left and self._left[-1] == now:
            self._left.pop()
        if not self._left:
            return Stop("refused", now[1], "the oldest place of the jump list")
        self._ahead.append(now)
        self._stepping = False
        return self._go(self._left.pop())

    def forward(self) -> Stop:
        """The inverse of :meth:`back`."""
        now = self._now()
        if not self._ahead:
            return Stop("refused", now[1], "the newest place of the jump list")
        self._left.append(now)
        self._stepping = False
        return self._go(self._ahead.pop())

    def to_text(self) -> str:
        return json.dumps(self._left)

    def from_text(self, text: str) -> None:
        """Entries that do not have the form of an instant are left out."""
        try:
            plain = json.loads(text)
        except (ValueError, RecursionError):
            return
        pairs = [tuple(entry) for entry in plain if isinstance(entry, list)] if isinstance(plain, list) else []
        self._left = [pair for pair in pairs if len(pair) == 2 and all(type(part) is int for part in pair)]
