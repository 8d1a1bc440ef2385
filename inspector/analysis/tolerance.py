"""Tolerances: the usual ones by dtype, and the smallest that would have passed.

The test is that of ``torch.testing.assert_close`` and ``numpy.isclose``: ``|a - b| <= atol + rtol * |b|``, ``b`` being
the expected value.
"""

from __future__ import annotations

from dataclasses import dataclass

from inspector.analysis.arrays import PRECISION


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Relative and absolute part."""

    rtol: float
    atol: float


# Defaults of torch.testing.assert_close; anything that is not floating must be equal.
DEFAULTS = {
    "float16": Tolerance(1e-3, 1e-5),
    "bfloat16": Tolerance(1.6e-2, 1e-5),
    "float32": Tolerance(1.3e-6, 1e-5),
    "float64": Tolerance(1e-7, 1e-7),
}
EXACT = Tolerance(0.0, 0.0)


def default_tolerance(a: str, b: str = "") -> Tolerance:
    """Default for one dtype name; of two, the wider in each part, as torch does for mixed dtypes."""
    first = DEFAULTS.get(a, EXACT)
    second = DEFAULTS.get(b or a, EXACT)
    return Tolerance(max(first.rtol, second.rtol), max(first.atol, second.atol))


# A relative tolerance above this one lets zeros pass for everything: it is not looked for.
LOOSE = 1.0


@dataclass(frozen=True, slots=True)
class Passing:
    """The smallest ``rtol`` that would pass with ``atol`` as ``given``.

    0 means that the absolute part alone is enough; infinity that no value up to :data:`LOOSE` passes."""

    rtol: float
    given: Tolerance

    def dtype(self) -> str:
        """The most precise dtype whose torch default would have passed, "" when none would."""
        order = sorted(DEFAULTS, key=PRECISION.__getitem__, reverse=True)
        return next((name for name in order if self.rtol <= DEFAULTS[name].rtol), "")
