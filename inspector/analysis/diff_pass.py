"""The pass over two tensors that :mod:`inspector.analysis.diff` reports from: block by block, in scratch memory."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from inspector.analysis.arrays import Flat, Floats
from inspector.analysis.moments import Block, Scratch, careful, lost, per_head, products, trusted
from inspector.analysis.tolerance import Tolerance

# Above this many elements the percentiles come from evenly spread samples: sorting would cost more than all the rest.
SAMPLES = 65536
# Above this many elements zeros are not counted: that is a quarter of the whole pass. ``zero_a`` and ``zero_b`` stay.
COUNT_ZEROS = 4 << 20


@dataclass(slots=True)
class Sums:
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

    def merge(self, other: Sums) -> None:
        """Take in what another worker found in later blocks."""
        for mine, more in ((self.aa, other.aa), (self.bb, other.bb), (self.dd, other.dd)):
            mine += more
        np.maximum(self.top, other.top, out=self.top)
        if other.best > self.best:
            self.best, self.at = other.best, other.at
        self.rtol, self.atol = max(self.rtol, other.rtol), max(self.atol, other.atol)
        for name in ADDED:
            setattr(self, name, getattr(self, name) + getattr(other, name))


ADDED = (
    "total", "pairs", "outside", "nan_a", "nan_b", "inf_a", "inf_b", "mismatched", "zeros_a", "zeros_b", "samples"
)  # fmt: skip


def fold(left: Flat, right: Flat, todo: list[Block], parts: int, tolerance: Tolerance, equal: bool) -> Sums:
    """One worker: its own sums and scratch memory."""
    # An odd stride meets every column of a matrix with power-of-two rows.
    stride = 1 if left.size <= SAMPLES else (left.size // SAMPLES + 1) | 1
    sums = Sums(np.zeros(parts), np.zeros(parts), np.zeros(parts), np.zeros(parts), tolerance, stride, equal)
    room = Scratch(left, right, left.size)
    with np.errstate(all="ignore"):
        for block in todo:
            _pass(sums, left, right, block, room)
    return sums


def _pass(sums: Sums, left: Flat, right: Flat, block: Block, room: Scratch) -> None:
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


def _count_zeros(sums: Sums, size: int, x: Floats, y: Floats, mask: NDArray[np.bool_]) -> None:
    if size <= COUNT_ZEROS:
        sums.zeros_a += int(np.count_nonzero(np.equal(x, 0, out=mask)))
        sums.zeros_b += int(np.count_nonzero(np.equal(y, 0, out=mask)))


def _tolerances(sums: Sums, y: Floats, d: Floats, highest: float, t: Floats, mask: NDArray[np.bool_]) -> None:
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


def _not_finite(sums: Sums, x: Floats, y: Floats, d: Floats) -> int:
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
