"""Per layer errors of two states that are claimed equal: the layer profile every verdict is read from.

One pass over the layers, each loaded once, so that two states of 160 MiB from files need memory for a layer or two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from inspector.analysis.arrays import (
    BLOCK,
    Floats,
    Tensor,
    TensorError,
    as_floats,
    fits,
    flat,
    same_bits,
    spans,
    through,
)
from inspector.analysis.layout import common_window
from inspector.analysis.moments import moments, ratios
from inspector.analysis.shift import Shift, best_shift

LOW_DTYPES = ("bfloat16", "float16")
PARTS = ("h", "conv")


@dataclass(frozen=True, slots=True)
class LayerState:
    """One recurrent layer of a state: h [heads, key, value] and conv [channels, columns]; None when not known."""

    h: Tensor | None = None
    conv: Tensor | None = None


States = Mapping[int, LayerState]


@dataclass(frozen=True, slots=True)
class Candidate:
    """Something found may be instead of what it should be, such as the checkpoint or another request's live state.

    ``tokens``: its position relative to the expected state (+1 has absorbed one more, 0 the same position by another
    path, None unknown). ``owner``: the request it belongs to when that is not the expected one."""

    states: States
    tokens: int | None = None
    owner: str = ""


@dataclass(frozen=True, slots=True)
class PartError:
    """Found against expected, one part of one layer. ``error`` is Frobenius, relative to expected; ``heads`` the same
    per head (conv: one entry); ``unlike`` is 1 - cosine per head: 0 same direction, 1 unrelated. ``cast``: found is
    exactly expected after a round trip through that dtype. ``only``: found, not expected, has but values of that dtype.
    ``transposed``: error against the transpose, when it was worth a look. ``dtypes``: both, when they differ.
    ``compared`` is False for a part that one side lacks: then nothing is known about it."""

    error: float
    equal: bool
    heads: tuple[float, ...] = ()
    unlike: tuple[float, ...] = ()
    zero_found: bool = False
    zero_expected: bool = False
    bad_found: int = 0
    bad_expected: int = 0
    cast: str = ""
    only: str = ""
    transposed: float = float("inf")
    dtypes: str = ""
    compared: bool = True


# Adds nothing to any error; rules that claim that a part is right must ask for ``compared``.
ABSENT = PartError(0.0, True, compared=False)


@dataclass(frozen=True, slots=True)
class Match:
    """A candidate against found, one layer: errors of both parts, 0 meaning bitwise equality only with ``*_equal``.
    A part that one of them lacks is infinitely far: nothing is equal to what is not there."""

    h: float = float("inf")
    conv: float = float("inf")
    h_equal: bool = False
    conv_equal: bool = False


@dataclass(frozen=True, slots=True)
class LayerError:
    """One line of the profile. ``columns`` holds the relative error of each conv column, oldest first; ``repeats`` is
    set when the expected window equals itself shifted: the same tokens again and again, which hides a shift."""

    layer: int
    h: PartError
    conv: PartError
    shift: Shift | None = None
    columns: tuple[float, ...] = ()
    repeats: bool = False
    matches: Mapping[str, Match] = field(default_factory=dict)

    def part(self, name: str) -> PartError:
        return self.h if name == "h" else self.conv


def measure(found: States, expected: States, candidates: Mapping[str, Candidate]) -> tuple[LayerError, ...]:
    """The profile over the layers both states have, in order.

    Raises:
        TensorError: no common layer, no part that both have, or tensors whose shapes cannot be compared.
    """
    layers = sorted(set(found) & set(expected))
    if not layers:
        raise TensorError(f"no layer in common: found {sorted(found)[:8]}, expected {sorted(expected)[:8]}")
    profile = tuple(_layer(n, found[n], expected[n], candidates) for n in layers)
    if not any(line.part(part).compared for line in profile for part in PARTS):
        raise TensorError("no part in common: one side has only h, the other only conv")
    return profile


def _layer(number: int, found: LayerState, expected: LayerState, candidates: Mapping[str, Candidate]) -> LayerError:
    try:
        h = _h_error(found.h, expected.h)
        a, b = windows(found.conv, expected.conv)
        conv = ABSENT if a is None or b is None else _part_error(a, b)
    except TensorError as error:
        raise TensorError(f"layer {number}: {error}") from None
    shift: Shift | None = None
    columns: tuple[float, ...] = ()
    if a is not None and b is not None and not conv.equal and not conv.bad_found + conv.bad_expected:
        x, y = as_floats(a), as_floats(b)
        shift, columns = best_shift(x, y), _columns(x, y)
    matches = {
        label: _match(found, other)
        for label, candidate in candidates.items()
        if (other := candidate.states.get(number)) is not None
    }
    return LayerError(number, h, conv, shift, columns, b is not None and _repeats(b), matches)


def _repeats(window: Tensor) -> bool:
    columns = as_floats(window)
    last = columns.shape[1] - 1
    return any(np.array_equal(columns[:, n:], columns[:, : last + 1 - n]) for n in range(1, last + 1))


def windows(a: Tensor | None, b: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """Both conv windows, cut to the newest columns they share when their widths differ."""
    if a is None or b is None:
        return None, None
    left, right = flat(a), flat(b)
    if len(left.shape) != 2 or len(right.shape) != 2:
        raise TensorError(f"expected conv [channels, columns], found {list(left.shape)} and {list(right.shape)}")
    return (a, b) if left.shape == right.shape else common_window(as_floats(a), as_floats(b))


def _h_error(a: Tensor | None, b: Tensor | None) -> PartError:
    if a is None or b is None:
        return ABSENT
    left, right = flat(a).shape, flat(b).shape
    if len(left) != 3 or len(right) != 3:
        raise TensorError(f"expected h [heads, key, value], found {list(left)} and {list(right)}")
    if left != right and left == (right[0], right[2], right[1]):
        # Not square: the shape alone shows the transposition.
        turned = np.ascontiguousarray(as_floats(b).transpose(0, 2, 1))
        return PartError(float("inf"), False, transposed=moments(a, turned).error)
    return _part_error(a, b, turn=True)


def _part_error(a: Tensor, b: Tensor, turn: bool = False) -> PartError:
    """Errors of one part; dtype and transposition are looked into only where there is a difference."""
    same = same_bits(a, b)
    if same and np.isfinite(np.add.reduce(as_floats(a).reshape(-1))):
        return PartError(0.0, True)
    sums = moments(a, b)
    norms = np.sqrt(sums.aa) * np.sqrt(sums.bb)
    cosines = np.divide((sums.aa + sums.bb - sums.dd) / 2.0, norms, out=np.zeros_like(norms), where=norms > 0.0)
    stored = (flat(a).dtype, flat(b).dtype)
    equal = same or (stored[0] != stored[1] and not sums.dd.any() and not sums.bad_a + sums.bad_b)
    bad = sums.bad_a + sums.bad_b > 0
    kind = "" if equal or bad else next((name for name in LOW_DTYPES if is_cast(a, b, name)), "")
    only = "" if equal or bad else next((d for d in LOW_DTYPES if fits(a, d) and not fits(b, d)), "")
    crossed = float("inf")
    # A transpose keeps the norm: seen first, because it costs nothing.
    if turn and not equal and not bad and abs(sums.norm_ratio - 1.0) < 1e-2:
        turned = as_floats(b).transpose(0, 2, 1)
        if turned.shape == flat(a).shape:
            crossed = moments(a, np.ascontiguousarray(turned)).error
    return PartError(
        error=sums.error,
        equal=equal,
        heads=sums.head_errors,
        unlike=tuple(float(1.0 - c) for c in cosines),
        zero_found=not sums.aa.any() and not sums.bad_a,
        zero_expected=not sums.bb.any() and not sums.bad_b,
        bad_found=sums.bad_a,
        bad_expected=sums.bad_b,
        cast=kind,
        only=only if sums.aa.any() else "",
        transposed=crossed,
        dtypes=f"{stored[0]} against {stored[1]}" if stored[0] != stored[1] else "",
    )


def is_cast(a: Tensor, b: Tensor, dtype: str) -> bool:
    """True when ``a`` is exactly ``b`` after one round trip through ``dtype``; leaves at the first difference."""
    left, right = flat(a), flat(b)
    if left.wide or right.wide:
        return False
    x_room: Floats = np.empty(min(left.size, BLOCK), np.float32)
    y_room: Floats = np.empty(min(left.size, BLOCK), np.float32)
    return all(
        np.array_equal(left.decoded(lo, hi, x_room), through(right.decoded(lo, hi, y_room), dtype))
        for lo, hi in spans(left.size, first=256)
    )


def _match(found: LayerState, other: LayerState) -> Match:
    """Found against a candidate; a part that is not there or cannot be compared counts as infinitely far."""
    values: list[tuple[float, bool]] = []
    for a, b in ((found.h, other.h), windows(found.conv, other.conv)):
        if a is None or b is None or flat(a).shape != flat(b).shape:
            values.append((float("inf"), False))
        elif same_bits(a, b):
            values.append((0.0, True))
        else:
            sums = moments(a, b, heads=1)
            values.append((float("inf") if sums.bad_a + sums.bad_b else sums.error, False))
    return Match(values[0][0], values[1][0], values[0][1], values[1][1])


def _columns(a: Floats, b: Floats) -> tuple[float, ...]:
    """Relative error of each column on its own."""
    d2 = ((a.astype(np.float64) - b) ** 2).sum(axis=0)
    b2 = (b.astype(np.float64) ** 2).sum(axis=0)
    return ratios(d2, b2)
