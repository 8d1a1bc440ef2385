"""Sums of squares of two tensors and of their difference, per head: what every relative error is made of."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite, sqrt

import numpy as np
from numpy.typing import NDArray

from inspector.analysis.arrays import Tensor, TensorError, same_shape
from inspector.analysis.diff_pass import fold
from inspector.analysis.tolerance import Tolerance

# Everything passes: only the sums are wanted.
ANY = Tolerance(0.0, float("inf"))


@dataclass(frozen=True, slots=True)
class Moments:
    """Per head (float64 [heads]): ``aa`` sum a^2, ``bb`` sum b^2, ``dd`` sum (a-b)^2, over pairs of finite values.

    ``bad_a`` and ``bad_b`` count NaN and infinities."""

    aa: NDArray[np.float64]
    bb: NDArray[np.float64]
    dd: NDArray[np.float64]
    bad_a: int = 0
    bad_b: int = 0

    @property
    def error(self) -> float:
        """Frobenius norm of the difference over that of ``b``; 0 when both vanish, infinite when only ``b`` does."""
        return ratio(float(self.dd.sum()), float(self.bb.sum()))

    @property
    def rel(self) -> float:
        """1 - 2 sum(ab) / sum(a^2 + b^2), written as sum (a-b)^2 / sum(a^2 + b^2): the same number without
        cancellation. 0 equal, 1 unrelated or one of them zero, 2 opposite; quadratic in the error."""
        both = float(self.aa.sum() + self.bb.sum())
        return float(self.dd.sum()) / both if both else 0.0

    @property
    def norm_ratio(self) -> float:
        """Norm of a over norm of b."""
        return ratio(float(self.aa.sum()), float(self.bb.sum()))

    @property
    def head_errors(self) -> tuple[float, ...]:
        """:attr:`error` of each head."""
        return ratios(self.dd, self.bb)


def ratio(squares: float, base: float) -> float:
    """sqrt(squares / base) with 0/0 = 0, x/0 = infinity, and infinity when ``squares`` left float64."""
    if squares == 0.0:
        return 0.0
    return sqrt(squares) / sqrt(base) if base > 0.0 and isfinite(squares) else inf


def ratios(squares: NDArray[np.float64], base: NDArray[np.float64]) -> tuple[float, ...]:
    """:func:`ratio` of each head."""
    return tuple(map(ratio, squares.tolist(), base.tolist()))


def head_count(shape: tuple[int, ...], heads: int | None) -> int:
    """Parts to break down into: ``heads``, or the first dimension of a [heads, key, value] tensor, or one.

    Raises:
        TensorError: ``heads`` does not divide the number of elements.
    """
    count = heads if heads is not None else (shape[0] if len(shape) == 3 and shape[0] else 1)
    size = int(np.prod(shape, dtype=np.int64))
    if count < 1 or size % count:
        raise TensorError(f"{count} heads do not divide the {size} elements of shape {list(shape)}")
    return count


def moments(a: Tensor, b: Tensor, heads: int | None = None) -> Moments:
    """The sums for two tensors of one shape; their dtypes may differ.

    Raises:
        TensorError: shapes differ, or bytes do not fit shape and dtype.
    """
    left, right = same_shape(a, b)
    sums = fold(left, right, head_count(left.shape, heads), ANY, sampled=False)
    n = sums.counts
    return Moments(sums.aa, sums.bb, sums.dd, n.nan_a + n.inf_a, n.nan_b + n.inf_b)
