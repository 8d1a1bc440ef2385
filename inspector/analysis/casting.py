"""Difference after casting: what is left of it in a lower dtype tells rounding from error."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from inspector.analysis.arrays import Floats, Tensor, float32_to_bf16, lower, same_shape, spans
from inspector.analysis.moments import Scratch


@dataclass(frozen=True, slots=True)
class CastDiff:
    """What remains after both sides went to ``dtype``: elements that still differ, and by how many representable values
    at most. A rounding difference mostly disappears; an error does not."""

    dtype: str
    count: int
    differing: int
    max_steps: int

    @property
    def share_equal(self) -> float:
        return 1.0 - self.differing / self.count if self.count else 1.0


def cast_difference(a: Tensor, b: Tensor, dtype: str = "") -> CastDiff:
    """Compare after casting to ``dtype``; default the lower of the two, one lower still when they are alike.

    Raises:
        TensorError: shapes differ, or bytes do not fit.
    """
    left, right = same_shape(a, b)
    name = dtype or lower(left.dtype, right.dtype)
    room = Scratch(left, right, left.size)
    differing = steps = 0
    for lo, hi in spans(left.size):
        x = _ordered(left.decoded(lo, hi, room.a), name)
        y = _ordered(right.decoded(lo, hi, room.b), name)
        gap = np.abs(x - y)
        differing += int(np.count_nonzero(gap))
        steps = max(steps, int(gap.max()))
    return CastDiff(name, left.size, differing, steps)


def _ordered(values: Floats, dtype: str) -> NDArray[np.int64]:
    """Integers that count representable values of ``dtype`` from zero, sign included: neighbours differ by 1."""
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype == "bfloat16":
            bits, width = float32_to_bf16(values.astype(np.float32)).astype(np.int64), 16
        elif dtype == "float16":
            bits, width = values.astype(np.float16).view(np.uint16).astype(np.int64), 16
        else:
            bits, width = values.astype(np.float32).view(np.uint32).astype(np.int64), 32
    magnitude = bits & ((1 << (width - 1)) - 1)
    return np.where(bits >> (width - 1) != 0, -magnitude, magnitude)
