"""Difference of two tensors: every number a person compares by, in one pass and bounded memory.

Sources: ``rel`` is the score of SGLang's comparator and of DeepGEMM; ``error`` is the Frobenius ratio; the tolerance
test and its defaults are torch's; the minimum passing tolerance is Polygraphy's idea. Pairs in which a value is NaN or
infinite are counted, never averaged: all other numbers are over pairs of finite values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from inspector.analysis.arrays import BLOCK, Flat, Tensor, coordinate, same_bits, same_shape, spans
from inspector.analysis.diff_pass import LARGE, SAMPLES, Sums, fold
from inspector.analysis.moments import head_count, ratio
from inspector.analysis.tolerance import LOOSE, Passing, Tolerance, default_tolerance

__all__ = ["LARGE", "PERCENTS", "SAMPLES", "Diff", "HeadDiff", "Worst", "diff_tensors"]

PERCENTS = (1.0, 5.0, 50.0, 95.0, 99.0)
# Squared norms further apart than this: 2 ab = aa + bb - dd would cancel, ab is summed by itself.
APART = 256.0


@dataclass(frozen=True, slots=True)
class Worst:
    """The element with the largest absolute difference."""

    at: tuple[int, ...]
    a: float
    b: float

    @property
    def difference(self) -> float:
        return self.a - self.b


@dataclass(frozen=True, slots=True)
class HeadDiff:
    """One head: Frobenius error relative to ``b``, and the largest absolute difference."""

    head: int
    error: float
    max_abs: float


@dataclass(frozen=True, slots=True)
class Diff:
    """``a`` (found) against ``b`` (expected).

    ``equal`` is bitwise, dtype included. ``error`` = ||a-b|| / ||b||, ``rel`` = 1 - 2 sum(ab) / sum(a^2 + b^2).
    ``within`` is the share of elements with |a-b| <= atol + rtol |b|; of more than :data:`LARGE` elements it is that of
    samples, but 1 only if all are. ``percentiles`` of |a-b| at :data:`PERCENTS` come from ``percentile_count`` elements
    (fewer than ``count``: sampled). ``mismatched`` pairs have a NaN or infinity on one side that the other side does
    not have; ``worst`` is None when no element differs. Zeros are counted up to :data:`LARGE` elements, else None.
    """

    shape: tuple[int, ...]
    dtype_a: str
    dtype_b: str
    count: int
    equal: bool
    max_abs: float
    worst: Worst | None
    mean_abs: float
    percentiles: tuple[float, ...]
    percentile_count: int
    rel: float
    error: float
    cosine: float
    norm_a: float
    norm_b: float
    within: float
    passing: Passing
    nan_a: int = 0
    nan_b: int = 0
    inf_a: int = 0
    inf_b: int = 0
    mismatched: int = 0
    zeros_a: int | None = None
    zeros_b: int | None = None
    heads: tuple[HeadDiff, ...] = ()

    @property
    def passes(self) -> bool:
        """Whether every element is within the tolerance."""
        return self.mismatched == 0 and self.within == 1.0

    @property
    def zero_a(self) -> bool:
        """All of ``a`` is zero."""
        return self.count > 0 and self.norm_a == 0.0 and self.nan_a + self.inf_a == 0

    @property
    def zero_b(self) -> bool:
        """All of ``b`` is zero."""
        return self.count > 0 and self.norm_b == 0.0 and self.nan_b + self.inf_b == 0


def diff_tensors(a: Tensor, b: Tensor, tolerance: Tolerance | None = None, heads: int | None = None) -> Diff:
    """Compare found ``a`` with expected ``b``.

    Args:
        a, b: tensors of one shape; dtypes may differ.
        tolerance: default by the two dtypes, as torch.
        heads: equal parts to break down into; None takes the first dimension of a three-dimensional tensor.

    Raises:
        TensorError: shapes differ, bytes do not fit, or ``heads`` does not divide the tensor.
    """
    left, right = same_shape(a, b)
    parts = head_count(left.shape, heads)
    given = tolerance or default_tolerance(left.dtype, right.dtype)
    equal = same_bits(a, b)
    sums = fold(left, right, parts, given, equal)
    passing = Passing(sums.rtol if sums.rtol <= LOOSE and not sums.mismatched else float("inf"), given)
    return _result(sums, left, right, passing, equal, broken_down=heads is not None or parts > 1)


def _result(sums: Sums, left: Flat, right: Flat, passing: Passing, equal: bool, broken_down: bool) -> Diff:
    aa, bb, dd = float(sums.aa.sum()), float(sums.bb.sum()), float(sums.dd.sum())
    worst = None
    if sums.at >= 0:
        pair = [float(source.decoded(sums.at, sums.at + 1, np.empty(1))[0]) for source in (left, right)]
        worst = Worst(coordinate(sums.at, left.shape), pair[0], pair[1])
    sample = np.concatenate(sums.samples) if sums.samples else np.zeros(0 if left.size == 0 else 1)
    outside = sums.outside + sums.mismatched
    return Diff(
        shape=left.shape,
        dtype_a=left.dtype,
        dtype_b=right.dtype,
        count=left.size,
        equal=equal,
        max_abs=abs(worst.difference) if worst else 0.0,
        worst=worst,
        mean_abs=sums.total / sums.pairs if sums.pairs else 0.0,
        percentiles=tuple(float(v) for v in np.percentile(sample, PERCENTS)) if sample.size else (0.0,) * len(PERCENTS),
        percentile_count=left.size if equal else int(sample.size),
        rel=dd / (aa + bb) if aa + bb else 0.0,
        error=ratio(dd, bb),
        cosine=_cosine(left, right, aa, bb, dd),
        norm_a=float(np.sqrt(aa)),
        norm_b=float(np.sqrt(bb)),
        within=1.0 - outside / left.size if left.size else 1.0,
        passing=passing,
        nan_a=sums.nan_a,
        nan_b=sums.nan_b,
        inf_a=sums.inf_a,
        inf_b=sums.inf_b,
        mismatched=sums.mismatched,
        zeros_a=sums.zeros_a if left.size <= LARGE else None,
        zeros_b=sums.zeros_b if left.size <= LARGE else None,
        heads=tuple(
            HeadDiff(i, ratio(float(d), float(b)), float(top))
            for i, (d, b, top) in enumerate(zip(sums.dd, sums.bb, sums.top, strict=True))
        )
        if broken_down
        else (),
    )


def _cosine(left: Flat, right: Flat, aa: float, bb: float, dd: float) -> float:
    """Cosine of the angle between both, over pairs of finite values; NaN when one of them vanishes."""
    norms = float(np.sqrt(aa) * np.sqrt(bb))
    if norms == 0.0:
        return float("nan")
    if dd == 0.0:
        return 1.0
    if max(aa, bb) <= APART * min(aa, bb):
        ab = (aa + bb - dd) / 2.0
    else:
        ab, room = 0.0, np.empty((2, BLOCK))
        for lo, hi in spans(left.size):
            x, y = (side.decoded(lo, hi, row).astype(np.float64) for side, row in zip((left, right), room, strict=True))
            fine = np.isfinite(x) & np.isfinite(y)
            ab += float(np.dot(np.where(fine, x, 0.0), np.where(fine, y, 0.0)))
    return min(1.0, max(-1.0, ab / norms))
