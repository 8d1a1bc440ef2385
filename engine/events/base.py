"""Places and the base of every event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from engine.codec import Named, Record

Digests = tuple[tuple[str, str], ...]


PLACE_KINDS = ("live", "checkpoint", "step", "ring", "prefix")


@dataclass(frozen=True, slots=True, order=True)
class Place(Named):
    """Somewhere a recurrent state can be: ``live:2``, ``checkpoint:2``, ``step:2.0``, ``ring:2.3``, ``prefix:5``.

    ``slot`` is the row of the state pool that the place belongs to (-1 for the prefix region, which has no slot);
    ``index`` is the verify row, ring slot or prefix slot.
    """

    kind: str
    slot: int
    index: int = 0

    def to_text(self) -> str:
        if self.kind == "prefix":
            return f"prefix:{self.index}"
        return f"{self.kind}:{self.slot}.{self.index}" if self.kind in ("step", "ring") else f"{self.kind}:{self.slot}"

    __str__ = to_text

    @classmethod
    def from_text(cls, text: str) -> Place:
        """Inverse of :meth:`to_text`. Raises ValueError on anything else."""
        kind, _, rest = text.partition(":")
        slot, dot, index = rest.partition(".")
        indexed = kind in ("step", "ring")
        numbers = (slot, index) if indexed else (slot,)
        if kind not in PLACE_KINDS or indexed != bool(dot) or not all(n.isdecimal() and len(n) < 10 for n in numbers):
            raise ValueError(f"expected a place such as live:0, step:0.1 or prefix:3, found {text!r:.40}")
        if kind == "prefix":
            return cls("prefix", -1, int(slot))
        return cls(kind, int(slot), int(index) if indexed else 0)


def LIVE(slot: int) -> Place:
    """The live place of a slot."""
    return Place("live", slot)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event(Record):
    """A fact. ``seq`` is its number in the run (from 1), ``round`` the round it belongs to (0 = outside any), ``req``
    the request it is about (-1 = none)."""

    kind: ClassVar[str] = "event"
    seq: int = 0
    round: int = 0
    req: int = -1
