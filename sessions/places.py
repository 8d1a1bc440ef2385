"""Places by name, made once: folds and checks ask for the same few all the time."""

from __future__ import annotations

from functools import lru_cache

from engine.events import Place


@lru_cache(maxsize=4096)
def live(slot: int) -> Place:
    """The live place of a slot."""
    return Place("live", slot)


@lru_cache(maxsize=4096)
def step(slot: int, row: int) -> Place:
    """The place that keeps the state after a verify row."""
    return Place("step", slot, row)
