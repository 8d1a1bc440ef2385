"""Difference of two tensors: every number a person compares by, in one pass and bounded memory.

Sources: ``rel`` is the score of SGLang's comparator and of DeepGEMM; ``error`` is the Frobenius ratio; the tolerance
test and its defaults are torch's; the minimum passing tolerance is Polygraphy's idea. Pairs in which a value is NaN or
infinite are counted, never averaged: all other numbers are over pairs of finite values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from inspector.analysis.arrays import Flat, Tensor, coordinate, same_shape
from inspector.analysis.diff_pass import SAMPLES, Sums, fold
from inspector.analysis.moments import head_count, ratio, ratios
from inspector.analysis.tolerance import LOOSE, Passing, Tolerance, default_tolerance

__all__ = ["PERCENTS", "SAMPLES", "Diff", "HeadDiff", "Worst", "diff_tensors"]

PERCENTS = (1.0, 5.0, 50.0, 95.0, 99.0)


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
    ``within`` is the share of elements with |a-b| <= atol + rtol |b|. ``percentiles`` of |a-b| at :data:`PERCENTS` come
    from ``percentile_count`` elements (fewer than ``count``: sampled). ``mismatched`` pairs have a NaN or infinity on
    one side that the other side does not have; ``worst`` is None when no element differs.
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
    zeros_a: int = 0
    zeros_b: int = 0
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
    sums = fold(left, right, parts, given)
    passing = Passing(sums.rtol if sums.rtol <= LOOSE and not sums.counts.mismatched else float("inf"), given)
    return _result(sums, left, right, passing, broken_down=heads is not None or parts > 1)


def _result(sums: Sums, left: Flat, right: Flat, passing: Passing, broken_down: bool) -> Diff:
    aa, bb, dd = float(sums.aa.sum()), float(sums.bb.sum()), float(sums.dd.sum())
    norm_a, norm_b = float(np.sqrt(aa)), float(np.sqrt(bb))
    worst = None
    if sums.at >= 0:
        pair = [float(source.decoded(sums.at, sums.at + 1, np.empty(1))[0]) for source in (left, right)]
        worst = Worst(coordinate(sums.at, left.shape), pair[0], pair[1])
    outside = sums.counts.outside + sums.counts.mismatched
    return Diff(
        shape=left.shape,
        dtype_a=left.dtype,
        dtype_b=right.dtype,
        count=left.size,
        equal=sums.equal,
        max_abs=float(sums.top.max()),
        worst=worst,
        mean_abs=sums.magnitude / sums.counts.pairs if sums.counts.pairs else 0.0,
        percentiles=tuple(np.percentile(sums.samples, PERCENTS).tolist())
        if sums.samples.size
        else (0.0,) * len(PERCENTS),
        percentile_count=int(sums.samples.size),
        rel=dd / (aa + bb) if aa + bb else 0.0,
        error=ratio(dd, bb),
        cosine=_cosine(sums, norm_a * norm_b),
        norm_a=norm_a,
        norm_b=norm_b,
        within=(left.size - outside) / left.size if left.size else 1.0,
        passing=passing,
        nan_a=sums.counts.nan_a,
        nan_b=sums.counts.nan_b,
        inf_a=sums.counts.inf_a,
        inf_b=sums.counts.inf_b,
        mismatched=sums.counts.mismatched,
        zeros_a=sums.counts.zeros_a,
        zeros_b=sums.counts.zeros_b,
        heads=tuple(map(HeadDiff, range(sums.dd.size), ratios(sums.dd, sums.bb), sums.top.tolist()))
        if broken_down
        else (),
    )


def _percentiles(samples: NDArray[np.float64]) -> tuple[float, ...]:
    """At :data:`PERCENTS`; zeros of nothing."""
    if not samples.size:
        return (0.0,) * len(PERCENTS)
    with np.errstate(all="ignore"):  # between two values that are a float64 apart
        return tuple(np.percentile(samples, PERCENTS).tolist())


def _cosine(sums: Sums, norms: float) -> float:
    """Cosine of the angle between both, over pairs of finite values; NaN when one of them vanishes."""
    if norms == 0.0:
        return float("nan")
    return min(1.0, max(-1.0, sums.ab / norms)) if sums.dd.any() else 1.0
