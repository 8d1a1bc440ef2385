"""Refusals of the state memory. All are ValueErrors: nothing was changed when one is raised."""

from __future__ import annotations


class StateError(ValueError):
    """A state-memory operation that cannot be done as asked; the text says what was found and expected."""


class SlotsExhausted(StateError):
    """No free slot in the state pool."""


class KvExhausted(StateError):
    """Fewer free KV blocks than asked for."""
