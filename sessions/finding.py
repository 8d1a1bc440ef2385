"""A broken invariant: what was expected, what was found, where and since when."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """``name`` of the invariant, the event at which it broke, the request or place concerned, both values, and one
    sentence for people."""

    name: str
    seq: int
    req: int = -1
    where: str = ""
    expected: str = ""
    found: str = ""
    text: str = ""
