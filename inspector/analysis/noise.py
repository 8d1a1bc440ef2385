"""Noise floors: how far two computations of the same state may be apart on this model and device.

Measure it whenever possible: run the same tokens twice along the two paths that will be compared (a benign run) and
hand the pairs to :func:`measured_floor`. Without a measurement conservative limits by arithmetic are used; they come
from engines.md C.4 and say so in the verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# engines.md C.3 rule 4 draws the line at five times the measured floor for logits; the same factor keeps states apart:
# in C.4 the smallest corruption stands 13x (deepest layer) to 85x (first layer) above one benign bf16 round.
MARGIN = 5.0
# Below this any difference is fp32 rounding: 32 units in the last place (2^-24) of relative error.
LEAST = 32 * 2.0**-24


@dataclass(frozen=True, slots=True)
class DefaultLimit:
    """Largest relative Frobenius error that still passes as rounding, by depth: first layer, last layer, conv."""

    first: float
    last: float
    conv: float


# Between the largest benign and the smallest corrupt values of C.4 and of the tests' own toy model.
# fp32: benign up to 1.5e-7 / 3e-6 / 2e-6, smallest wrong thing a round trip through fp16 at 2.1e-4.
# bf16: benign 5.7e-3 / 1.1e-1 / 4.5e-2 after hundreds of tokens, smallest corruption 0.11 / 0.2 / 1.2.
# fp16 has three bits more than bf16: an eighth of it, rounded up.
DEFAULTS = {
    "float32": DefaultLimit(6e-6, 6e-5, 1e-4),
    "bfloat16": DefaultLimit(1.2e-2, 1.5e-1, 2.5e-1),
    "float16": DefaultLimit(1.8e-3, 2e-2, 4e-2),
    "float64": DefaultLimit(1e-12, 1e-10, 1e-10),
}


# When every conv window of every layer is bit-equal, all layers had equal inputs up to fp32 rounding: a larger h error
# would have flipped the rounding of some activation below. Holds for the unmeasured limits of any arithmetic.
EQUAL_INPUTS = 1e-4


@dataclass(frozen=True, slots=True)
class NoiseFloor:
    """Limits for rounding, by model layer number. ``source`` names where they come from; ``measured`` is False for the
    defaults, which are compared with more care."""

    h: Mapping[int, float]
    conv: Mapping[int, float]
    source: str
    measured: bool

    def limit(self, layer: int, part: str) -> float:
        """Largest relative error of ``part`` (h or conv) of ``layer`` that passes as rounding."""
        limits = self.h if part == "h" else self.conv
        return limits.get(layer, max(limits.values(), default=LEAST))


def measured_floor(
    runs: Iterable[Mapping[int, tuple[float, float]]], margin: float = MARGIN, least: float = LEAST
) -> NoiseFloor:
    """Limits from benign runs: each maps a layer to its relative (h, conv) errors, as in ``Verdict.errors``.

    The largest error of all runs and of all layers up to this one counts (rounding grows with depth), times ``margin``.

    Raises:
        ValueError: no run, or an error that is not a finite number.
    """
    worst: dict[int, tuple[float, float]] = {}
    for run in runs:
        for layer, (h, conv) in run.items():
            if not (0.0 <= h < float("inf") and 0.0 <= conv < float("inf")):
                raise ValueError(f"layer {layer}: errors {h} and {conv} are no noise floor; the runs were not alike")
            before = worst.get(layer, (0.0, 0.0))
            worst[layer] = (max(before[0], h), max(before[1], conv))
    if not worst:
        raise ValueError("a noise floor needs at least one benign run")
    h_limits, conv_limits = {}, {}
    h_top = conv_top = 0.0
    for layer in sorted(worst):
        h_top, conv_top = max(h_top, worst[layer][0]), max(conv_top, worst[layer][1])
        h_limits[layer], conv_limits[layer] = max(least, margin * h_top), max(least, margin * conv_top)
    return NoiseFloor(h_limits, conv_limits, f"{margin:g}x the measured floor", True)


def default_floor(layers: Iterable[int], arithmetic: str) -> NoiseFloor:
    """Limits by the dtype of the activations; h limits rise geometrically from the first to the last layer.

    Raises:
        ValueError: no limits for that dtype.
    """
    limit = DEFAULTS.get(arithmetic)
    if limit is None:
        raise ValueError(f"no default noise floor for {arithmetic!r}: expected one of {', '.join(DEFAULTS)}")
    order = sorted(layers)
    steps = max(1, len(order) - 1)
    h = {layer: limit.first * (limit.last / limit.first) ** (i / steps) for i, layer in enumerate(order)}
    return NoiseFloor(
        h, dict.fromkeys(order, limit.conv), f"the default for {arithmetic} arithmetic, not measured", False
    )
