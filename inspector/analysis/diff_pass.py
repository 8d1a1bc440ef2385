"""The pass over two tensors that :mod:`inspector.analysis.diff` reports from: block by block, in scratch memory.

A numpy call reads and writes a whole block, so the number of calls is the cost. Eight are made for every block; the
rest only where it can change a result: elements are tested one by one only in blocks with a difference above the
absolute tolerance, and sums are done again in float64 only in blocks whose squares left float32.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from inspector.analysis.arrays import Flat, Floats
from inspector.analysis.moments import TRUSTED, Block, Scratch, blocks, careful, products
from inspector.analysis.tolerance import LOOSE, Tolerance

# Above this many elements the percentiles come from evenly spread samples: sorting would cost more than all the rest.
SAMPLES = 65536
# Above this many elements zeros are not counted (``zero_a`` and ``zero_b`` stay), and elements outside the tolerance
# are counted among the samples; whether there is one is known exactly, as the smallest passing tolerance is.
LARGE = 4 << 20
# The rows of sums: squares of a, squares of b, squares of the difference, magnitudes of the difference.
AA, BB, DD, MAGNITUDE = range(4)


@dataclass(slots=True)
class Sums:
    """What the pass finds; ``aa``, ``bb``, ``dd``, ``top`` are float64 [heads]. ``at`` is the index of the largest
    difference, -1 when there is none; ``rtol`` is the smallest passing one, not exact above :data:`LOOSE`."""

    aa: NDArray[np.float64]
    bb: NDArray[np.float64]
    dd: NDArray[np.float64]
    top: NDArray[np.float64]
    total: float = 0.0
    pairs: int = 0
    outside: int = 0
    at: int = -1
    rtol: float = 0.0
    nan_a: int = 0
    nan_b: int = 0
    inf_a: int = 0
    inf_b: int = 0
    mismatched: int = 0
    zeros_a: int = 0
    zeros_b: int = 0
    samples: list[Floats] = field(default_factory=list)


def fold(left: Flat, right: Flat, parts: int, tolerance: Tolerance, equal: bool) -> Sums:
    """Compare block by block. ``equal``: the caller knows that all bits are the same."""
    todo = list(blocks(left.size, parts))
    walk = _Walk(left, right, todo, tolerance)
    sums = Sums(np.zeros(parts), np.zeros(parts), np.zeros(parts), np.zeros(parts))
    take = walk.norms if equal else walk.differences
    starts = walk.starts.tolist()
    with np.errstate(all="ignore"):
        for block, row, end in zip(todo, starts, starts[1:], strict=False):
            take(sums, block, row, end)
        walk.finish(sums, equal)
    return sums


class _Walk:
    """One comparison: scratch memory, four sums of each row and the largest difference of each piece, to the end."""

    def __init__(self, left: Flat, right: Flat, todo: list[Block], tolerance: Tolerance) -> None:
        self.left, self.right, self.todo, self.tolerance = left, right, todo, tolerance
        self.room = Scratch(left, right, left.size)
        # An odd stride meets every column of a matrix with power-of-two rows.
        self.stride = 1 if left.size <= SAMPLES else (left.size // SAMPLES + 1) | 1
        # First row of each block, and the number of rows; the same of the pieces: what of a head is in a block.
        self.starts = np.cumsum([0, *((block.hi - block.lo) // block.row for block in todo)])
        self.pieces = np.cumsum([0, *(block.count for block in todo)])
        self.rows: Floats = np.zeros((4, int(self.starts[-1])), self.room.a.dtype)
        self.tops: list[Floats] = []
        self.large = left.size > LARGE
        # Blocks of a large tensor with something above the absolute tolerance: size, and samples of |a-b| and b.
        self.outside: list[tuple[int, Floats, Floats]] = []

    def norms(self, sums: Sums, block: Block, row: int, end: int) -> None:
        """A block of two equal tensors."""
        x = self.left.decoded(block.lo, block.hi, self.room.a)
        products(x, x, block, self.rows[AA, row:end])
        finite = bool(np.isfinite(np.add.reduce(self.rows[AA, row:end]))) or bool(np.isfinite(x).all())
        sums.pairs += x.size if finite else int(np.count_nonzero(_finite_pairs(sums, x, x)))
        self._zeros(sums, x, x)

    def differences(self, sums: Sums, block: Block, row: int, end: int) -> None:
        """A block of two tensors that differ somewhere."""
        n = block.hi - block.lo
        x = self.left.decoded(block.lo, block.hi, self.room.a)
        products(x, x, block, self.rows[AA, row:end])
        y = self.right.decoded(block.lo, block.hi, self.room.b)
        d = np.subtract(x, y, out=self.room.d[:n])
        products(y, y, block, self.rows[BB, row:end])
        products(d, d, block, self.rows[DD, row:end])
        np.abs(d, out=d)
        tops = self._magnitudes(d, block, row, end)
        highest = float(np.maximum.reduce(tops))
        sample = slice(-block.lo % self.stride, None, self.stride)
        if highest < np.inf:
            sums.pairs += n
            sampled = d[sample].copy()
            sums.samples.append(sampled)
        else:
            fine = _finite_pairs(sums, x, y)
            # a difference of two finite values that leaves the dtype counts as its largest value
            d[~fine], y = 0.0, np.where(fine, y, 0.0)
            np.minimum(d, np.finfo(d.dtype).max, out=d)
            tops = self._magnitudes(d, block, row, end)
            highest = float(np.maximum.reduce(tops))
            sums.pairs += int(np.count_nonzero(fine))
            sampled = d[sample].copy()
            sums.samples.append(sampled[fine[sample]])
        self.tops.append(tops)
        self._zeros(sums, x, y)
        if highest <= self.tolerance.atol:
            return
        if self.large:
            self.outside.append((n, sampled, y[sample].copy()))
            if sums.rtol <= max(LOOSE, self.tolerance.rtol):
                self._raise(sums, y, d)
        else:
            self._test(sums, y, d)

    def _magnitudes(self, d: Floats, block: Block, row: int, end: int) -> Floats:
        """Sums of the magnitudes ``d`` of each row; the largest of each piece, NaN where there is one."""
        np.vecdot(d.reshape(-1, block.row), self.room.ones[: block.row], out=self.rows[MAGNITUDE, row:end])
        tops: Floats = np.maximum.reduce(d.reshape(block.count, -1), axis=1)
        return tops

    def _zeros(self, sums: Sums, x: Floats, y: Floats) -> None:
        if not self.large:
            sums.zeros_a += int(np.count_nonzero(x == 0))
            sums.zeros_b += int(np.count_nonzero(y == 0))

    def _test(self, sums: Sums, y: Floats, d: Floats) -> None:
        """Count elements outside the tolerance and raise the passing ``rtol``."""
        at = np.flatnonzero(d > self.tolerance.atol)
        d, y = d[at].astype(np.float64) - self.tolerance.atol, np.abs(y[at].astype(np.float64))
        sums.outside += int(np.count_nonzero(d > self.tolerance.rtol * y))
        sums.rtol = max(sums.rtol, float(np.max(d / y)))

    def _raise(self, sums: Sums, y: Floats, d: Floats) -> None:
        """Raise the passing ``rtol`` by the elements that need more: in a first block all, in later ones few."""
        single = d.dtype.type
        t = np.abs(y, out=self.room.t[: d.size])
        np.multiply(t, single(sums.rtol), out=t)
        np.subtract(d, t, out=t)
        if np.maximum.reduce(t) > self.tolerance.atol:
            at = np.flatnonzero(t > single(self.tolerance.atol))
            need = (d[at].astype(np.float64) - self.tolerance.atol) / np.abs(y[at].astype(np.float64))
            sums.rtol = max(sums.rtol, float(np.max(need, initial=0.0)))

    def finish(self, sums: Sums, equal: bool) -> None:
        """From rows to heads; blocks whose squares left float32 are summed again."""
        if equal:
            self.rows[BB] = self.rows[AA]
        low, high = TRUSTED
        aa, bb, dd, magnitude = self.rows
        fine = (aa > low) & (aa < high) & (bb > low) & (bb < high) & (dd < high) & ((dd > low) | (magnitude == 0))
        for at in np.unique(np.searchsorted(self.starts, np.flatnonzero(~fine), side="right") - 1):
            block, here = self.todo[at], slice(self.starts[at], self.starts[at + 1])
            x = self.left.decoded(block.lo, block.hi, self.room.a)
            y = self.right.decoded(block.lo, block.hi, self.room.b)
            part = slice(block.head, block.head + block.count)
            xx, yy, ee, _, _ = careful(x, y, block)
            sums.aa[part] += xx
            sums.bb[part] += yy
            sums.dd[part] += ee
            self.rows[:MAGNITUDE, here] = 0.0
        parts = sums.aa.size
        for mine, rows in zip((sums.aa, sums.bb, sums.dd), self.rows[:MAGNITUDE], strict=True):
            mine += np.add.reduce(rows.reshape(parts, -1), axis=1, dtype=np.float64)
        if self.outside:
            sizes, differences, values = zip(*self.outside, strict=True)
            edge = self.tolerance.atol + self.tolerance.rtol * np.abs(np.concatenate(values))
            share = float(np.mean(np.concatenate(differences) > edge))
            sums.outside = max(1, round(share * sum(sizes))) if sums.rtol > self.tolerance.rtol else 0
        sums.total = float(np.add.reduce(magnitude, dtype=np.float64))
        if self.tops:
            tops = np.concatenate(self.tops)
            sums.top[:] = np.maximum.reduce(tops.reshape(parts, -1), axis=1)
            piece = int(tops.argmax())
            sums.at = self._largest(piece) if tops[piece] else -1

    def _largest(self, piece: int) -> int:
        """Index of the largest difference, which is in ``piece``."""
        at = int(np.searchsorted(self.pieces, piece, side="right")) - 1
        block = self.todo[at]
        width = (block.hi - block.lo) // block.count
        lo = block.lo + (piece - int(self.pieces[at])) * width
        x = self.left.decoded(lo, lo + width, self.room.a)
        y = self.right.decoded(lo, lo + width, self.room.b)
        d = np.where(np.isfinite(x) & np.isfinite(y), np.abs(x - y), 0.0)
        return lo + int(d.argmax())


def _finite_pairs(sums: Sums, x: Floats, y: Floats) -> NDArray[np.bool_]:
    """Count NaN and infinities; which pairs are finite."""
    nan_x, nan_y, inf_x, inf_y = np.isnan(x), np.isnan(y), np.isinf(x), np.isinf(y)
    sums.nan_a += int(np.count_nonzero(nan_x))
    sums.nan_b += int(np.count_nonzero(nan_y))
    sums.inf_a += int(np.count_nonzero(inf_x))
    sums.inf_b += int(np.count_nonzero(inf_y))
    bad = nan_x | nan_y | inf_x | inf_y
    alike = (nan_x & nan_y) | (inf_x & inf_y & (np.signbit(x) == np.signbit(y)))
    sums.mismatched += int(np.count_nonzero(bad & ~alike))
    fine: NDArray[np.bool_] = ~bad
    return fine
