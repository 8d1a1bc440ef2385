"""Best shift along the conv window: right values at the wrong position, or wrong values?

A window of ``K`` columns holds the inputs of the last ``K`` tokens, newest last. When ``found`` is ``n`` tokens ahead
of ``expected``, its column ``j`` is the other's column ``j + n``: ``found[t-3] == expected[t-1]`` for n = 2 and K = 4.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from inspector.analysis.arrays import Tensor, TensorError, as_floats
from inspector.analysis.moments import ratio


@dataclass(frozen=True, slots=True)
class ShiftScore:
    """``tokens`` > 0: found is ahead. ``error`` is the Frobenius error of the ``columns`` that overlap, relative to the
    expected ones; infinite when the expected columns are all zero and the found ones are not."""

    tokens: int
    error: float
    columns: int


@dataclass(frozen=True, slots=True)
class Shift:
    """All shifts tried, best first, and how they compare.

    ``periodic`` is set when the expected window equals itself shifted (the same token again and again, or zeros): then
    the window cannot tell positions apart."""

    scores: tuple[ShiftScore, ...]
    kernel: int
    periodic: bool

    @property
    def best(self) -> ShiftScore:
        return self.scores[0]

    @property
    def runner_up(self) -> ShiftScore | None:
        return self.scores[1] if len(self.scores) > 1 else None

    @property
    def unshifted(self) -> ShiftScore:
        return next(score for score in self.scores if score.tokens == 0)

    def matches(self, close: float, off: float | None = None) -> int | None:
        """The shift whose columns agree within ``close`` and ten times better than the unshifted ones, which are off by
        more than ``off`` (default ``close``); None when there is none."""
        here = self.unshifted.error
        if self.periodic or self.best.tokens == 0 or here <= (close if off is None else off):
            return None
        return self.best.tokens if self.best.error <= min(close, 0.1 * here) else None

    def text(self, found: str = "found", expected: str = "expected") -> str:
        """The match in words, such as ``live[t-3] == golden[t-1]: 2 tokens ahead``."""
        n = self.best.tokens
        if n == 0:
            return f"{found} and {expected} are at the same position"
        mine, other = (self.kernel - 1, self.kernel - 1 - n) if n > 0 else (0, -n)
        return f"{found}[{_time(mine)}] == {expected}[{_time(other)}]: {ahead(n)}"


def _time(back: int) -> str:
    return f"t-{back}" if back else "t"


def ahead(tokens: int) -> str:
    """``2 tokens ahead``, ``1 token behind``."""
    side = "ahead" if tokens > 0 else "behind"
    return f"{abs(tokens)} token{'' if abs(tokens) == 1 else 's'} {side}"


def best_shift(found: Tensor, expected: Tensor, limit: int | None = None) -> Shift:
    """Compare two conv windows [channels, kernel] at every shift from -limit to limit (default kernel - 1).

    Shifts whose expected columns are all zero say nothing (a short prompt) and are left out, except 0.

    Raises:
        TensorError: not two-dimensional, or shapes differ.
    """
    a, b = as_floats(found).astype(np.float64), as_floats(expected).astype(np.float64)
    if a.ndim != 2 or a.shape != b.shape or a.shape[1] == 0:
        raise TensorError(f"expected two windows [channels, kernel], found {list(a.shape)} and {list(b.shape)}")
    kernel = a.shape[1]
    reach = kernel - 1 if limit is None else min(limit, kernel - 1)
    scores = []
    for n in range(-reach, reach + 1):
        error = _error(a, b, n)
        if n == 0 or error is not None:
            scores.append(ShiftScore(n, error if error is not None else _absent(a), kernel - abs(n)))
    # Equal scores: prefer no shift, then the shorter one, then the one with the wider overlap.
    scores.sort(key=lambda score: (score.error, abs(score.tokens), score.tokens))
    itself = [_error(b, b, n) for n in range(1, reach + 1)]
    return Shift(tuple(scores), kernel, any(error is not None and error < 1e-6 for error in itself))


def _error(
    a: np.ndarray[tuple[int, ...], np.dtype[np.float64]], b: np.ndarray[tuple[int, ...], np.dtype[np.float64]], n: int
) -> float | None:
    """Relative error of the overlap when found is ``n`` ahead; None when the expected part is zero, inf with NaN."""
    width = a.shape[1] - abs(n)
    x, y = (a[:, :width], b[:, n:]) if n >= 0 else (a[:, -n:], b[:, :width])
    base = float((y * y).sum())
    if base == 0.0:
        return None
    error = ratio(float(((x - y) ** 2).sum()), base)
    return error if np.isfinite(error) else float("inf")


def _absent(a: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
    return float("inf") if a.any() else 0.0
