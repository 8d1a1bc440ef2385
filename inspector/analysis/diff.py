"""Difference of two tensors: every number a person compares by, in one pass and bounded memory.

Sources: ``rel`` is the score of SGLang's comparator and of DeepGEMM; ``error`` is the Frobenius ratio; the tolerance
test and its defaults are torch's; the minimum passing tolerance is Polygraphy's idea. Pairs in which a value is NaN or
infinite are counted, never averaged: all other numbers are over pairs of finite values.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from inspector.analysis.arrays import (
    Flat,
    Floats,
    Tensor,
    coordinate,
    same_bits,
    same_shape,
)
from inspector.analysis.moments import (
    Block,
    Scratch,
    blocks,
    careful,
    cosine,
    head_count,
    lost,
    per_head,
    products,
    ratio,
    trusted,
)
from inspector.analysis.tolerance import Passing, Tolerance, default_tolerance

PERCENTS = (1.0, 5.0, 50.0, 95.0, 99.0)
# Above this many elements the percentiles come from evenly spread samples: sorting would cost more than all the rest.
SAMPLES = 65536
# Above this many elements zeros are not counted: that is a quarter of the whole pass. ``zero_a`` and ``zero_b`` stay.
COUNT_ZEROS = 4 << 20


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
    one side that the other side does not have; ``worst`` is None when no element differs. Zeros are counted up to
    :data:`COUNT_ZEROS` elements, else None.
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


@dataclass(slots=True)
class _Sums:
    """What the pass accumulates; per head arrays are float64 [heads]."""

    aa: NDArray[np.float64]
    bb: NDArray[np.float64]
    dd: NDArray[np.float64]
    top: NDArray[np.float64]
    tolerance: Tolerance
    stride: int
    equal: bool = False
    total: float = 0.0
    pairs: int = 0
    outside: int = 0
    best: float = 0.0
    at: int = -1
    rtol: float = 0.0
    atol: float = 0.0
    nan_a: int = 0
    nan_b: int = 0
    inf_a: int = 0
    inf_b: int = 0
    mismatched: int = 0
    zeros_a: int = 0
    zeros_b: int = 0
    samples: list[Floats] = field(default_factory=list)


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
    # An odd stride meets every column of a matrix with power-of-two rows.
    stride = 1 if left.size <= SAMPLES else (left.size // SAMPLES + 1) | 1
    sums = _Sums(np.zeros(parts), np.zeros(parts), np.zeros(parts), np.zeros(parts), given, stride)
    sums.equal = same_bits(a, b)
    room = Scratch(left, right, left.size)
    with np.errstate(all="ignore"):
        for block in blocks(left.size, parts):
            _pass(sums, left, right, block, room)
    return _result(sums, left, right, broken_down=heads is not None or parts > 1)


def _pass(sums: _Sums, left: Flat, right: Flat, block: Block, room: Scratch) -> None:
    """Fold one block into ``sums``."""
    n = block.hi - block.lo
    part = slice(block.head, block.head + block.count)
    x = left.decoded(block.lo, block.hi, room.a)
    rows = room.rows(block)
    products(x, x, block, rows[0])
    if sums.equal and trusted(xx := per_head(rows[:1], block)[0]):
        sums.aa[part] += xx
        sums.bb[part] += xx
        sums.pairs += n
        _count_zeros(sums, left.size, x, x, room.mask[:n])
        return
    y = right.decoded(block.lo, block.hi, room.b)
    d = np.subtract(x, y, out=room.d[:n])
    products(y, y, block, rows[1])
    products(d, d, block, rows[2])
    np.abs(d, out=d)
    products(d, room.ones[: block.row], block, rows[3])
    xx, yy, dd, magnitude = found = per_head(rows, block)
    sample = d[-block.lo % sums.stride :: sums.stride].copy()
    valid = n
    if not trusted(found[:2]) or lost(dd, d):
        xx, yy, dd, wrong_x, wrong_y = careful(x, y, block)
        if wrong_x or wrong_y:
            valid = _not_finite(sums, x, y, d)
            sample = sample[np.isfinite(sample)]
        magnitude = d.sum(dtype=np.float64, keepdims=True)
    sums.aa[part] += xx
    sums.bb[part] += yy
    sums.dd[part] += dd
    sums.pairs += valid
    sums.samples.append(sample)
    _count_zeros(sums, left.size, x, y, room.mask[:n])
    tops = np.maximum.reduce(d.reshape(block.count, -1), axis=1)
    np.maximum(sums.top[part], tops, out=sums.top[part])
    highest = max(tops.tolist())
    if highest == 0.0:
        return
    if highest > sums.best:
        sums.best, sums.at = highest, block.lo + int(d.argmax())
    sums.total += float(np.add.reduce(magnitude))
    _tolerances(sums, y, d, highest, room.t[:n], room.mask[:n])


def _count_zeros(sums: _Sums, size: int, x: Floats, y: Floats, mask: NDArray[np.bool_]) -> None:
    if size <= COUNT_ZEROS:
        sums.zeros_a += int(np.count_nonzero(np.equal(x, 0, out=mask)))
        sums.zeros_b += int(np.count_nonzero(np.equal(y, 0, out=mask)))


def _tolerances(sums: _Sums, y: Floats, d: Floats, highest: float, t: Floats, mask: NDArray[np.bool_]) -> None:
    """Count elements outside the tolerance and raise the two minimum tolerances. Passes that cannot change the result
    are skipped: a block whose largest difference is below the absolute part has nothing outside and needs no rtol."""
    rtol, atol = sums.tolerance.rtol, sums.tolerance.atol
    if highest <= min(atol, sums.atol):
        return
    np.abs(y, out=t)
    lowest = float(np.minimum.reduce(t)) if highest > atol else 0.0
    # Only an element with |b| below (highest - atol) / rtol can ask for more than the rtol found so far.
    if highest > atol and (sums.rtol == 0.0 or lowest * sums.rtol < highest - atol):
        need = np.divide(d - d.dtype.type(atol), t)
        sums.rtol = max(sums.rtol, float(np.nanmax(need, initial=0.0)))
    np.multiply(t, t.dtype.type(rtol), out=t)
    np.subtract(d, t, out=t)
    if highest > sums.atol:
        sums.atol = max(sums.atol, float(np.maximum.reduce(t)))
    if highest > atol:
        sums.outside += int(np.count_nonzero(np.greater(t, t.dtype.type(atol), out=mask)))


def _not_finite(sums: _Sums, x: Floats, y: Floats, d: Floats) -> int:
    """Count NaN and infinities, take their pairs out of ``d`` (set to 0), and return how many pairs are finite."""
    nan_x, nan_y, inf_x, inf_y = np.isnan(x), np.isnan(y), np.isinf(x), np.isinf(y)
    sums.nan_a += int(np.count_nonzero(nan_x))
    sums.nan_b += int(np.count_nonzero(nan_y))
    sums.inf_a += int(np.count_nonzero(inf_x))
    sums.inf_b += int(np.count_nonzero(inf_y))
    bad = nan_x | nan_y | inf_x | inf_y
    alike = (nan_x & nan_y) | (inf_x & inf_y & (np.signbit(x) == np.signbit(y)))
    sums.mismatched += int(np.count_nonzero(bad & ~alike))
    d[bad] = 0.0
    return int(x.size - np.count_nonzero(bad))


def _result(sums: _Sums, left: Flat, right: Flat, broken_down: bool) -> Diff:
    aa, bb, dd = float(sums.aa.sum()), float(sums.bb.sum()), float(sums.dd.sum())
    worst = None
    if sums.at >= 0:
        pair = [float(source.decoded(sums.at, sums.at + 1, np.empty(1))[0]) for source in (left, right)]
        worst = Worst(coordinate(sums.at, left.shape), pair[0], pair[1])
    sample = np.concatenate(sums.samples) if sums.samples else np.zeros(0 if left.size == 0 else 1)
    outside = sums.outside + sums.mismatched
    infinite = float("inf")
    passing = Passing(
        infinite if sums.mismatched else sums.rtol, infinite if sums.mismatched else sums.atol, sums.tolerance
    )
    return Diff(
        shape=left.shape,
        dtype_a=left.dtype,
        dtype_b=right.dtype,
        count=left.size,
        equal=sums.equal,
        max_abs=abs(worst.difference) if worst else 0.0,
        worst=worst,
        mean_abs=sums.total / sums.pairs if sums.pairs else 0.0,
        percentiles=tuple(float(v) for v in np.percentile(sample, PERCENTS)) if sample.size else (0.0,) * len(PERCENTS),
        percentile_count=left.size if sums.equal else int(sample.size),
        rel=dd / (aa + bb) if aa + bb else 0.0,
        error=ratio(dd, bb),
        cosine=cosine(aa, bb, dd),
        norm_a=float(np.sqrt(aa)),
        norm_b=float(np.sqrt(bb)),
        within=1.0 - outside / left.size if left.size else 1.0,
        passing=passing,
        nan_a=sums.nan_a,
        nan_b=sums.nan_b,
        inf_a=sums.inf_a,
        inf_b=sums.inf_b,
        mismatched=sums.mismatched,
        zeros_a=sums.zeros_a if left.size <= COUNT_ZEROS else None,
        zeros_b=sums.zeros_b if left.size <= COUNT_ZEROS else None,
        heads=tuple(
            HeadDiff(i, ratio(float(d), float(b)), float(top))
            for i, (d, b, top) in enumerate(zip(sums.dd, sums.bb, sums.top, strict=True))
        )
        if broken_down
        else (),
    )
