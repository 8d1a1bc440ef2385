"""The pass over two tensors that every comparison reports from: block by block, whatever the tensors weigh."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from inspector.analysis.arrays import BLOCK, Flat, Floats
from inspector.analysis.tolerance import Tolerance

# Above this many elements the percentiles come from evenly spread samples: sorting would cost more than all the rest.
SAMPLES = 65536


@dataclass(frozen=True, slots=True)
class Block:
    """Elements ``lo`` to ``hi``: ``count`` whole heads from ``head`` on, or a piece of one head."""

    lo: int
    hi: int
    head: int
    count: int


class Counts(NamedTuple):
    """How many pairs are finite and how many of these outside the tolerance; what else there is on either side;
    pieces in which a bit differs."""

    pairs: int
    outside: int
    nan_a: int
    nan_b: int
    inf_a: int
    inf_b: int
    mismatched: int
    zeros_a: int
    zeros_b: int
    unlike: int


@dataclass(frozen=True, slots=True)
class Sums:
    """What the pass finds, over pairs of finite values; ``aa``, ``bb``, ``dd``, ``top`` are float64 [heads], the sums
    of a^2, b^2, (a-b)^2 and the largest |a-b|. ``ab`` and ``magnitude``: sums of a*b and |a-b| over all of it. ``at``
    is the index of the largest difference, -1 when there is none; ``rtol`` is the smallest passing one. ``samples``
    are evenly spread finite |a-b|, all of them in a small tensor. ``equal``: every bit is the same."""

    aa: NDArray[np.float64]
    bb: NDArray[np.float64]
    dd: NDArray[np.float64]
    top: NDArray[np.float64]
    ab: float
    magnitude: float
    rtol: float
    at: int
    counts: Counts
    samples: NDArray[np.float64]
    equal: bool


def blocks(size: int, heads: int, most: int) -> Iterator[Block]:
    """Cut ``size`` elements into blocks of at most ``most`` that hold whole heads or lie within one. ``heads`` divides
    ``size``."""
    if size == 0:
        return
    width = size // heads
    if width <= most:
        step = most // width
        for head in range(0, heads, step):
            count = min(step, heads - head)
            yield Block(head * width, (head + count) * width, head, count)
        return
    for head in range(heads):
        for lo in range(head * width, (head + 1) * width, most):
            yield Block(lo, min(lo + most, (head + 1) * width), head, 1)


def fold(left: Flat, right: Flat, parts: int, tolerance: Tolerance, sampled: bool = True) -> Sums:
    """Compare ``left`` (found) with ``right`` (expected), both of one size, which ``parts`` divides."""
    from inspector.analysis.kernel import measure

    kind = np.dtype(np.float64 if left.wide or right.wide else np.float32)
    kernel = measure(kind == np.float64)
    # what needs no decoding is read where it lies
    plain = left.values.dtype == right.values.dtype == kind
    room: Floats = np.empty((2, 0 if plain else min(left.size, BLOCK)), kind)
    heads, totals, counts = np.zeros((4, parts)), np.zeros(4), np.zeros(len(Counts._fields), np.int64)
    # An odd stride meets every column of a matrix with power-of-two rows.
    stride = 1 if left.size <= SAMPLES else (left.size // SAMPLES + 1) | 1
    samples, taken, at = np.empty(-(-left.size // stride) if sampled else 0), 0, -1
    for block in blocks(left.size, parts, left.size if plain else BLOCK):
        x, y = left.decoded(block.lo, block.hi, room[0]), right.decoded(block.lo, block.hi, room[1])
        here = heads[:, block.head : block.head + block.count]
        found = kernel(x, y, x.size // block.count, tolerance.atol, tolerance.rtol, here, totals, counts)
        if found >= 0:
            at = block.lo + found
        if sampled:
            a, b = (side[-block.lo % stride :: stride] for side in (x, y))
            with np.errstate(all="ignore"):
                np.subtract(a, b, out=samples[taken : taken + a.size], dtype=np.float64)
            taken += a.size
    np.abs(samples, out=samples)
    done = Counts(*counts.tolist())
    if done.pairs < left.size:
        samples = samples[np.isfinite(samples)]
    equal = left.dtype == right.dtype and done.unlike == 0
    if equal and (done.nan_a or left.dtype == "int64"):  # not every bit of these is one of its float64
        equal = bool(np.array_equal(left.bits(0, left.size), right.bits(0, right.size)))
    aa, bb, dd, top = heads
    ab, magnitude, rtol, _ = totals.tolist()
    return Sums(aa, bb, dd, top, ab, magnitude, rtol, at, done, samples, equal)
