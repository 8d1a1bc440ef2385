"""Flipped tokens and their margins: was the other token a near tie, or is something wrong?

A count of flips alone misleads: emulated bf16 noise flipped 36 of 320 picks, all with margins up to 0.14, one rejected
token left in h flipped 227 of 240 with margins up to 1.45 (engines.md C.4). A flip whose margin lies inside the noise
of the logits is benign, from five times the noise on it is not (C.3 rule 4).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from inspector.analysis.arrays import Tensor, TensorError, as_floats

SUSPICIOUS = 5.0
# Noise of logits when none was measured: largest benign margins seen, 0.14 in emulated bf16 (C.4), an eighth for fp16;
# fp32 differs by about 1e-6 of a logit range of ten.
DEFAULT_NOISE = {"bfloat16": 0.14, "float16": 0.02, "float32": 1e-4}
MEANING = {
    "benign": "rounding alone can turn one token into the other",
    "unclear": "more than rounding was seen to do, but not much more",
    "suspicious": "far more than rounding does: other inputs or another state made these picks",
}


@dataclass(frozen=True, slots=True)
class Flip:
    """Row ``row``: the reference picks ``expected``, the other run ``found``. ``margin`` is how far the reference puts
    its own pick above the other one, ``other_margin`` the same seen from the other run, ``gap`` top-1 minus top-2 of
    the reference. ``kind``: benign, unclear, suspicious."""

    row: int
    found: int
    expected: int
    margin: float
    other_margin: float
    gap: float
    kind: str


@dataclass(frozen=True, slots=True)
class Flips:
    """All flips of ``rows`` rows. ``noise`` is the floor used, ``measured`` whether it was handed in."""

    rows: int
    flips: tuple[Flip, ...]
    noise: float
    measured: bool

    @property
    def kind(self) -> str:
        """The worst of them; "none" without a flip."""
        kinds = {flip.kind for flip in self.flips}
        return next((kind for kind in ("suspicious", "unclear", "benign") if kind in kinds), "none")

    @property
    def largest(self) -> float:
        return max((abs(flip.margin) for flip in self.flips), default=0.0)

    def text(self, between: str = "") -> str:
        """One sentence; ``between`` says which picks were compared."""
        between = f" ({between})" if between else ""
        if not self.flips:
            return f"no pick differs in {self.rows} rows{between}"
        how = "measured" if self.measured else "default"
        return (
            f"{len(self.flips)} of {self.rows} picks differ{between}, largest margin {self.largest:.3g} against a "
            f"{how} noise floor of {self.noise:.3g}: {self.kind}, {MEANING[self.kind]}"
        )


def logit_noise(found: Tensor, expected: Tensor) -> float:
    """Noise floor of logits from a benign pair of runs [rows, vocab]: the largest absolute difference.

    Raises:
        TensorError: shapes differ, or values are not finite.
    """
    a, b = _rows(found, expected)
    noise = float(np.abs(a - b).max()) if a.size else 0.0
    if not np.isfinite(noise):
        raise TensorError("logits hold NaN or infinities: no noise floor")
    return noise


def flipped(found: Tensor, expected: Tensor, noise: float | None = None, arithmetic: str = "float32") -> Flips:
    """Rows in which the greedy picks of two runs differ. Ties pick the lower id, as the engine's sampler does.

    Args:
        found, expected: logits [rows, vocab]; ``expected`` is the reference.
        noise: measured floor (:func:`logit_noise`); None takes the default of ``arithmetic``.

    Raises:
        TensorError: shapes differ, or no vocabulary.
    """
    a, b = _rows(found, expected)
    floor = DEFAULT_NOISE.get(arithmetic, DEFAULT_NOISE["bfloat16"]) if noise is None else noise
    picks_a, picks_b = a.argmax(axis=1), b.argmax(axis=1)
    flips = []
    for row in np.flatnonzero(picks_a != picks_b):
        mine, other = int(picks_a[row]), int(picks_b[row])
        margin = float(b[row, other] - b[row, mine])
        top = np.partition(b[row], -2)[-2:]
        flips.append(
            Flip(
                row=int(row),
                found=mine,
                expected=other,
                margin=margin,
                other_margin=float(a[row, mine] - a[row, other]),
                gap=float(top[1] - top[0]),
                kind=margin_kind(margin, floor),
            )
        )
    return Flips(len(a), tuple(flips), floor, noise is not None)


def margin_kind(margin: float, noise: float) -> str:
    """benign inside the noise floor, suspicious from five times it on, unclear between."""
    if margin <= noise:
        return "benign"
    return "suspicious" if not margin < SUSPICIOUS * noise else "unclear"


def _rows(found: Tensor, expected: Tensor) -> tuple[np.ndarray[tuple[int, ...], np.dtype[np.float64]], ...]:
    a, b = as_floats(found).astype(np.float64), as_floats(expected).astype(np.float64)
    if a.ndim != 2 or a.shape != b.shape or (a.size and a.shape[1] < 2):
        raise TensorError(f"expected two logits [rows, vocab], found {list(a.shape)} and {list(b.shape)}")
    return a, b
