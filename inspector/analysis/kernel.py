"""The inner loop of every comparison, compiled: two tensors are read once and everything about them is known.

numpy would go through its operands again for each number, about fifteen times in all; this is bound by memory instead.
numba compiles it when it is first needed (a few seconds) and keeps the result beside this file, in the user's cache
folder, or nowhere if neither can be written. Importing this module imports numba: do it where a comparison is made.

All sums are float64, of exact differences: squares of float32 values neither overflow nor vanish there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias, TypeVar, cast

import numba
import numpy as np
from numba import types
from numpy.typing import NDArray

# Elements that are looked at together: both sides stay in a first-level cache, should a second look be needed.
CHUNK = 4096
# Rows of ``heads``: squares of x, of y, of the difference; largest magnitude of the difference.
AA, BB, DD, TOP = range(4)
# ``totals``: sum of x*y, sum of the magnitudes of the difference, the smallest passing rtol, the largest magnitude.
XY, MAGNITUDE, RTOL, HIGHEST = range(4)
# ``counts``: pairs of finite values, those outside the tolerance, what else there is, and chunks with an unlike bit.
PAIRS, OUTSIDE, NAN_X, NAN_Y, INF_X, INF_Y, MISMATCHED, ZEROS_X, ZEROS_Y, UNLIKE = range(10)
# Bits of the float64 infinity: as integers, magnitudes of finite values are smaller.
INFINITE = 0x7FF0000000000000
LARGEST = float(np.finfo(np.float64).max)

# Sums may be added up in any order, or no vector register would be used. NaN and infinities keep their meaning.
OPTIONS: dict[str, Any] = {"fastmath": {"reassoc", "contract", "nsz"}, "error_model": "numpy", "nogil": True}

Counts: TypeAlias = NDArray[np.int64]
Row: TypeAlias = NDArray[Any]
Doubles: TypeAlias = NDArray[np.float64]
Measure: TypeAlias = Callable[[Row, Row, int, float, float, Doubles, Doubles, Counts], int]
Function = TypeVar("Function", bound=Callable[..., Any])


def _part(function: Function) -> Function:
    """A piece of :func:`_measure`, compiled with it."""
    return cast(Function, numba.njit(**OPTIONS)(function))


@_part
def _all(
    x: Row, y: Row, atol: float, rtol: float, need: float
) -> tuple[float, float, float, float, float, Any, Any, int, int, int, int]:
    """Sums and counts of a chunk, as vector instructions: no branch, and the largest magnitude ``bits`` as an integer,
    because integers have an order with NaN in it."""
    xx = yy = xy = dd = magnitude = 0.0
    bits, unlike, outside, beyond, zeros_x, zeros_y = np.int64(0), np.int64(0), 0, 0, 0, 0
    for i in range(x.size):
        u, v = np.float64(x[i]), np.float64(y[i])
        d = u - v
        a, w = abs(d), abs(v)
        xx += u * u
        yy += v * v
        xy += u * v
        dd += d * d
        magnitude += a
        bits = max(bits, np.float64(a).view(np.int64))
        unlike |= np.float64(u).view(np.int64) ^ np.float64(v).view(np.int64)
        outside += int(a > atol + rtol * w)
        beyond += int(a > atol + need * w)
        zeros_x += int(u == 0.0)
        zeros_y += int(v == 0.0)
    return xx, yy, xy, dd, magnitude, bits, unlike, outside, beyond, zeros_x, zeros_y


@_part
def _finite(
    x: Row, y: Row, atol: float, rtol: float, need: float, counts: Counts
) -> tuple[float, float, float, float, float, float, int, int]:
    """The same over the pairs of finite values of a chunk that has others, which are counted. A difference beyond
    float64 counts as its largest value. Returns ``top`` for ``bits``, and no zeros."""
    xx = yy = xy = dd = magnitude = top = 0.0
    outside = beyond = 0
    for i in range(x.size):
        u, v = np.float64(x[i]), np.float64(y[i])
        if np.isfinite(u) and np.isfinite(v):
            a, w = min(abs(u - v), LARGEST), abs(v)
            xx += u * u
            yy += v * v
            xy += u * v
            dd += a * a
            magnitude += a
            top = max(top, a)
            outside += int(a > atol + rtol * w)
            beyond += int(a > atol + need * w)
            continue
        counts[PAIRS] -= 1
        counts[NAN_X] += np.isnan(u)
        counts[NAN_Y] += np.isnan(v)
        counts[INF_X] += np.isinf(u)
        counts[INF_Y] += np.isinf(v)
        counts[MISMATCHED] += not (np.isnan(u) and np.isnan(v)) and u != v
    return xx, yy, xy, dd, magnitude, top, outside, beyond


@_part
def _needed(x: Row, y: Row, atol: float, need: float) -> float:
    """The smallest rtol with which every finite pair passes, if more than ``need``."""
    for i in range(x.size):
        u, v = np.float64(x[i]), np.float64(y[i])
        a, w = min(abs(u - v), LARGEST), abs(v)
        if a > atol + need * w and np.isfinite(u) and np.isfinite(v):
            need = max(need, (a - atol) / w)
    return need


@_part
def _place(x: Row, y: Row, top: float) -> int:
    """Where the difference is ``top``."""
    for i in range(x.size):
        u, v = np.float64(x[i]), np.float64(y[i])
        if min(abs(u - v), LARGEST) == top and np.isfinite(u) and np.isfinite(v):
            return i
    return -1


def _measure(
    x: Row, y: Row, width: int, atol: float, rtol: float, heads: Doubles, totals: Doubles, counts: Counts
) -> int:
    """Add what ``x`` [n * width] against ``y`` is to ``heads`` [4, n], ``totals`` [4] and ``counts`` [10].

    Returns the index of the largest difference if it is larger than ``totals[HIGHEST]`` was, otherwise -1. Pairs that
    are not finite are counted and otherwise left out.
    """
    found = -1
    for head in range(x.size // width):
        for lo in range(head * width, (head + 1) * width, CHUNK):
            hi = min(lo + CHUNK, (head + 1) * width)
            a, b, need = x[lo:hi], y[lo:hi], totals[RTOL]
            xx, yy, xy, dd, magnitude, bits, unlike, outside, beyond, zeros_x, zeros_y = _all(a, b, atol, rtol, need)
            counts[PAIRS] += hi - lo
            top: float = np.int64(bits).view(np.float64)
            if bits >= INFINITE:
                xx, yy, xy, dd, magnitude, top, outside, beyond = _finite(a, b, atol, rtol, need, counts)
            heads[AA, head] += xx
            heads[BB, head] += yy
            heads[DD, head] += dd
            heads[TOP, head] = max(heads[TOP, head], top)
            totals[XY] += xy
            totals[MAGNITUDE] += magnitude
            counts[OUTSIDE] += outside
            counts[ZEROS_X] += zeros_x
            counts[ZEROS_Y] += zeros_y
            counts[UNLIKE] += unlike != 0
            if beyond:
                totals[RTOL] = _needed(a, b, atol, need)
            if top > totals[HIGHEST]:
                totals[HIGHEST] = top
                found = lo + _place(a, b, top)
    return found


@cache
def measure(wide: bool) -> Measure:
    """:func:`_measure` for two float64 (``wide``) or two float32 tensors, compiled."""
    real = types.float64 if wide else types.float32
    # Bytes that were read from somewhere: not writable, and at any address.
    side = types.Array(real, 1, "C", readonly=True, aligned=False)
    heads, totals = types.Array(types.float64, 2, "A"), types.Array(types.float64, 1, "C")
    counts = types.Array(types.int64, 1, "C")
    signature = types.int64(side, side, types.int64, types.float64, types.float64, heads, totals, counts)
    try:
        return cast(Measure, numba.njit(signature, cache=True, **OPTIONS)(_measure))
    except RuntimeError:  # there is no folder to keep it in
        return cast(Measure, numba.njit(signature, **OPTIONS)(_measure))
