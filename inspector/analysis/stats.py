"""What one tensor looks like: the numbers of a row in a state pane, in one pass and bounded memory.

The form follows lovely-tensors: shape, size, range, mean, deviation, a small histogram, and flags that no average
hides. NaN and infinities are counted and left out of every other number.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from inspector.analysis.arrays import BLOCK, STORED, Floats, Tensor, flat, spans

BINS = 16
SIGMAS = 3.0
# Above this many elements the histogram is drawn from evenly spread ones.
SAMPLES = 65536


@dataclass(frozen=True, slots=True)
class Stats:
    """``count`` elements, of which ``nan``, ``inf`` and ``zeros``; the rest describes the finite ones.

    ``histogram``: :data:`BINS` counts over mean - 3 std .. mean + 3 std, what lies beyond in the outer bins; of large
    tensors it counts :data:`SAMPLES` evenly spread elements.
    """

    shape: tuple[int, ...]
    dtype: str
    count: int
    nbytes: int
    rms: float
    low: float
    high: float
    mean: float
    std: float
    mean_abs: float
    nan: int
    inf: int
    zeros: int
    histogram: tuple[int, ...]

    @property
    def all_zero(self) -> bool:
        return self.count > 0 and self.zeros == self.count

    @property
    def flags(self) -> tuple[str, ...]:
        """What must catch the eye: "nan", "inf", "zero" (all of it), "constant", "empty"."""
        found = (("nan", self.nan > 0), ("inf", self.inf > 0), ("empty", self.count == 0), ("zero", self.all_zero))
        constant = self.count > 1 and self.low == self.high and not self.all_zero and self.nan + self.inf == 0
        return tuple(name for name, on in found if on) + (("constant",) if constant else ())


def tensor_stats(tensor: Tensor) -> Stats:
    """Statistics of ``tensor``.

    Raises:
        TensorError: bytes do not fit shape and dtype, or the dtype is unknown.
    """
    source = flat(tensor)
    room: Floats = np.empty(max(1, min(source.size, BLOCK)), np.float64 if source.wide else np.float32)
    wide_room, mask = np.empty(room.size), np.empty(room.size, np.bool_)
    nan = inf = zeros = 0
    low, high = float("inf"), float("-inf")
    total = magnitude = squares = 0.0
    # An odd stride meets every column of a matrix with power-of-two rows.
    stride = 1 if source.size <= SAMPLES else (source.size // SAMPLES + 1) | 1
    samples = []
    for lo, hi in spans(source.size):
        values, bad_nan, bad_inf = _finite(source.decoded(lo, hi, room))
        nan += bad_nan
        inf += bad_inf
        if not values.size:
            continue
        zeros += int(np.count_nonzero(np.equal(values, 0, out=mask[: values.size])))
        low, high = min(low, float(np.minimum.reduce(values))), max(high, float(np.maximum.reduce(values)))
        wide = wide_room[: values.size]
        wide[...] = values
        samples.append(wide[-lo % stride :: stride].copy())
        total += float(np.add.reduce(wide))
        squares += float(np.dot(wide, wide))
        magnitude += float(np.add.reduce(np.abs(wide, out=wide)))
    finite = source.size - nan - inf
    mean = total / finite if finite else 0.0
    std = float(np.sqrt(max(0.0, squares / finite - mean * mean))) if finite else 0.0
    bins = np.zeros(BINS, np.int64)
    if std > 0.0:
        place = (np.concatenate(samples) - (mean - SIGMAS * std)) * (BINS / (2.0 * SIGMAS * std))
        bins += np.bincount(np.clip(place, 0, BINS - 1).astype(np.int64), minlength=BINS)
    return Stats(
        shape=source.shape,
        dtype=source.dtype,
        count=source.size,
        nbytes=source.size * STORED[source.dtype].itemsize,
        rms=float(np.sqrt(squares / finite)) if finite else 0.0,
        low=low if finite else 0.0,
        high=high if finite else 0.0,
        mean=mean,
        std=std,
        mean_abs=magnitude / finite if finite else 0.0,
        nan=nan,
        inf=inf,
        zeros=zeros,
        histogram=tuple(int(n) for n in bins),
    )


def _finite(values: Floats) -> tuple[Floats, int, int]:
    """The finite values, and how many are NaN and infinite."""
    # A sum is finite only if all its terms are; the other way round is looked at closely.
    if np.isfinite(np.add.reduce(values)):
        return values, 0, 0
    good = np.isfinite(values)
    nan = int(np.count_nonzero(np.isnan(values)))
    return values[good], nan, int(values.size - np.count_nonzero(good)) - nan
