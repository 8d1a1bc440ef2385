"""Changed copies of frozen records, several times faster than ``dataclasses.replace``: a fold makes a few per event."""

from __future__ import annotations

from typing import Any, TypeVar

R = TypeVar("R")


def evolve(record: R, **changes: Any) -> R:
    """A copy of ``record``, a dataclass without slots, with ``changes``. Raises TypeError for an unknown field."""
    cls = record.__class__
    copy = cls.__new__(cls)
    # The instance dictionary is written past the frozen __setattr__; nobody can see the object yet.
    fields = copy.__dict__
    fields.update(record.__dict__)
    count = len(fields)
    fields.update(changes)
    if len(fields) != count:
        raise TypeError(f"{cls.__name__} has no field {', '.join(changes.keys() - record.__dict__.keys())}")
    return copy
