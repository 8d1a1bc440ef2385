"""Which of many positions to give up: those left are spaced exponentially away from the present."""

from __future__ import annotations

from collections.abc import Sequence


def crowded(positions: Sequence[int], present: int) -> int:
    """Index of the position to give up so that the rest is spaced exponentially away from ``present``: the one whose
    neighbours lie closest together, measured against their distance from the present."""

    def crowding(index: int) -> float:
        before = positions[index - 1] if index else 0
        after = positions[index + 1] if index + 1 < len(positions) else max(present, positions[index])
        return (after - before) / (abs(present - positions[index]) + 1)

    return min(range(len(positions)), key=crowding)
