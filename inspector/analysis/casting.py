"""Difference after casting: what is left of it in a lower dtype tells rounding from error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inspector.analysis.arrays import BLOCK, Floats, Tensor, float32_to_bf16, lower, same_shape, spans


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
    kind = np.float64 if left.wide or right.wide else np.float32
    room: Floats = np.empty((2, min(left.size, BLOCK)), kind)
    differing = steps = 0
    for lo, hi in spans(left.size):
        x = _bits(left.decoded(lo, hi, room[0]), name)
        y = _bits(right.decoded(lo, hi, room[1]), name)
        unlike = x != y
        if not unlike.any():
            continue
        # Only the few that differ are counted out; +0 and -0 are one value.
        gap = np.abs(_ordered(x[unlike]) - _ordered(y[unlike]))
        differing += int(np.count_nonzero(gap))
        steps = max(steps, int(gap.max()))
    return CastDiff(name, left.size, differing, steps)


def _bits(values: Floats, dtype: str) -> NDArray[np.unsignedinteger[Any]]:
    """``values`` rounded to ``dtype``, as its bit patterns."""
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype == "bfloat16":
            return float32_to_bf16(values.astype(np.float32, copy=False))
        if dtype == "float16":
            return values.astype(np.float16).view(np.uint16)
        return np.ascontiguousarray(values, np.float32).view(np.uint32)


def _ordered(bits: NDArray[np.unsignedinteger[Any]]) -> NDArray[np.int64]:
    """Integers that count representable values from zero, sign included: neighbours differ by 1."""
    width = bits.dtype.itemsize * 8
    whole = bits.astype(np.int64)
    magnitude = whole & ((1 << (width - 1)) - 1)
    return np.where(whole >> (width - 1) != 0, -magnitude, magnitude)
