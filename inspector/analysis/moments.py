"""Sums of squares of two tensors and of their difference, per head: what every relative error is made of.

Blocks of :data:`~inspector.analysis.arrays.BLOCK` elements go through scratch memory allocated once, so memory stays
bounded by a few blocks whatever the tensors weigh. Inside a block float32 products are summed by BLAS in rows of at
most 2048; rows are added in float64, so sums are good to about 1e-7 relative. Blocks that hold NaN, infinities or
values whose squares leave float32 are done again in float64 over the pairs where both values are finite.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from inspector.analysis.arrays import BLOCK, Flat, Floats, Tensor, TensorError, same_bits, same_shape

ROW = 2048
# Block sums of squares outside this range may have lost small terms to underflow or are not finite.
TRUSTED = (1e-25, 1e30)


@dataclass(frozen=True, slots=True)
class Block:
    """Elements ``lo`` to ``hi``: ``count`` whole heads from ``head`` on, or a piece of one head. ``row`` divides it."""

    lo: int
    hi: int
    head: int
    count: int
    row: int


def blocks(size: int, heads: int) -> Iterator[Block]:
    """Cut ``size`` elements into blocks that hold whole heads or lie within one. ``heads`` divides ``size``."""
    if size == 0:
        return
    width = size // heads
    row = next((w for w in range(min(width, ROW), 31, -1) if width % w == 0), 0)
    if width <= BLOCK // 2:
        step = BLOCK // width
        for head in range(0, heads, step):
            count = min(step, heads - head)
            yield Block(head * width, (head + count) * width, head, count, row or width)
        return
    piece = BLOCK // row * row if row else BLOCK
    for head in range(heads):
        for lo in range(head * width, (head + 1) * width, piece):
            hi = min(lo + piece, (head + 1) * width)
            yield Block(lo, hi, head, 1, row or hi - lo)


def products(x: Floats, y: Floats, block: Block, out: Floats) -> None:
    """Sums of x*y over each row of ``block`` into ``out`` [rows]."""
    np.vecdot(x.reshape(-1, block.row), y.reshape(-1, block.row), out=out)


def per_head(rows: Floats, block: Block) -> NDArray[np.float64]:
    """Row sums [n, rows] to sums per head [n, count], in float64."""
    sums: NDArray[np.float64] = np.add.reduce(rows.reshape(len(rows), block.count, -1), axis=2, dtype=np.float64)
    return sums


def trusted(sums: NDArray[np.float64]) -> bool:
    """False when sums of squares may have overflowed, underflowed or met a NaN. Python is quicker for the few heads of
    a block than numpy would be."""
    low, high = TRUSTED
    return all(low < value < high for value in sums.ravel().tolist())


def lost(sums: NDArray[np.float64], d: Floats) -> bool:
    """True when sums of squares of the differences ``d`` overflowed, or are tiny although ``d`` is not zero."""
    low, high = TRUSTED
    values = sums.tolist()
    return not all(value < high for value in values) or (any(value < low for value in values) and bool(d.any()))


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
        return tuple(ratio(float(d), float(b)) for d, b in zip(self.dd, self.bb, strict=True))


def ratio(squares: float, base: float) -> float:
    """sqrt(squares / base) with 0/0 = 0 and x/0 = infinity."""
    if squares == 0.0:
        return 0.0
    return float(np.sqrt(squares) / np.sqrt(base)) if base > 0.0 else float("inf")


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


class Scratch:
    """Memory for one comparison: a few rows of one block each."""

    __slots__ = ("_rows", "a", "b", "d", "mask", "ones", "t")

    def __init__(self, left: Flat, right: Flat, size: int) -> None:
        kind = np.float64 if left.wide or right.wide else np.float32
        room = max(1, min(size, BLOCK))
        self.a: Floats = np.empty(room, kind)
        self.b: Floats = np.empty(room, kind)
        self.d: Floats = np.empty(room, kind)
        self.t: Floats = np.empty(room, kind)
        self.ones: Floats = np.ones(room, kind)
        self.mask: NDArray[np.bool_] = np.empty(room, np.bool_)
        self._rows: Floats = np.empty(4, kind)

    def rows(self, block: Block) -> Floats:
        """Room for four sums of each row of ``block``: [4, rows]."""
        count = (block.hi - block.lo) // block.row
        if self._rows.size < 4 * count:
            self._rows = np.empty(4 * count, self.a.dtype)
        return self._rows[: 4 * count].reshape(4, count)


def moments(a: Tensor, b: Tensor, heads: int | None = None) -> Moments:
    """The sums for two tensors of one shape; their dtypes may differ.

    Raises:
        TensorError: shapes differ, or bytes do not fit shape and dtype.
    """
    left, right = same_shape(a, b)
    parts = head_count(left.shape, heads)
    aa, bb, dd = np.zeros(parts), np.zeros(parts), np.zeros(parts)
    bad_a = bad_b = 0
    equal = same_bits(a, b)
    room = Scratch(left, right, left.size)
    with np.errstate(all="ignore"):
        for block in blocks(left.size, parts):
            part = slice(block.head, block.head + block.count)
            x = left.decoded(block.lo, block.hi, room.a)
            rows = room.rows(block)
            products(x, x, block, rows[0])
            if equal and trusted(xx := per_head(rows[:1], block)[0]):
                aa[part] += xx
                bb[part] += xx
                continue
            y = right.decoded(block.lo, block.hi, room.b)
            d = np.subtract(x, y, out=room.d[: block.hi - block.lo])
            products(y, y, block, rows[1])
            products(d, d, block, rows[2])
            xx, yy, ee = sums = per_head(rows[:3], block)
            if not trusted(sums[:2]) or lost(ee, d):
                xx, yy, ee, wrong_x, wrong_y = careful(x, y, block)
                bad_a += wrong_x
                bad_b += wrong_y
            aa[part] += xx
            bb[part] += yy
            dd[part] += ee
    return Moments(aa, bb, dd, bad_a, bad_b)


def careful(
    x: Floats, y: Floats, block: Block
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], int, int]:
    """The three sums of a block in float64 over pairs of finite values, and how many of x and of y are not finite."""
    fine_x, fine_y = np.isfinite(x), np.isfinite(y)
    both = fine_x & fine_y
    x64 = np.where(both, x, 0.0).astype(np.float64).reshape(block.count, -1)
    y64 = np.where(both, y, 0.0).astype(np.float64).reshape(block.count, -1)
    d64 = x64 - y64
    sums = tuple((v * v).sum(axis=1) for v in (x64, y64, d64))
    return sums[0], sums[1], sums[2], int(np.count_nonzero(~fine_x)), int(np.count_nonzero(~fine_y))
