"""Seams: named points where a value passes through the engine and a fault may change it.

The engine calls ``seams("commit.row", n - 1, slot=slot)`` where it would have used ``n - 1``. Without faults that is an
attribute test. Faults (``engine.faults``) are functions registered on a point; they never copy engine code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
Change = Callable[..., Any]


class Seams:
    """Registry of active changes, one per engine."""

    __slots__ = ("_changes",)

    def __init__(self) -> None:
        self._changes: dict[str, list[Change]] = {}

    @property
    def active(self) -> bool:
        """Whether any change is registered; lets a hot path pass all its points at once."""
        return bool(self._changes)

    def __call__(self, point: str, value: T, **context: Any) -> T:
        """``value``, after every change registered on ``point`` (in order of registration)."""
        if self._changes:
            for change in self._changes.get(point, ()):
                value = change(value, **context)
        return value

    def add(self, point: str, change: Change) -> None:
        """Let ``change(value, **context)`` replace values that pass ``point``."""
        self._changes.setdefault(point, []).append(change)

    def remove(self, point: str, change: Change) -> None:
        """Undo :meth:`add`. Raises ValueError when it was not there."""
        self._changes[point].remove(change)
        if not self._changes[point]:
            del self._changes[point]
