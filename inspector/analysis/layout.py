"""State layouts of other engines, conversion to ours, and detection of a transposed h.

Ours is ``h[head,key,value] conv[channel,time]``, newest input last; that string form is also how a layout is written.
The named layouts are those of engines.md E.5. Key and value dimensions are both 128 in the published models, so a
transposed h has the same shape and only its contents tell.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inspector.analysis.arrays import Floats, Tensor, TensorError, as_floats
from inspector.analysis.moments import moments

H_AXES = ("head", "key", "value")
CONV_AXES = ("channel", "time")
LEADING = ("layer", "slot", "batch")


class LayoutError(ValueError):
    """A layout nobody knows, or a tensor that does not have it."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Order of the axes of both parts. Leading axes (layer, slot, batch) may be missing in a tensor."""

    h: tuple[str, ...] = H_AXES
    conv: tuple[str, ...] = CONV_AXES

    def __str__(self) -> str:
        return f"h[{','.join(self.h)}] conv[{','.join(self.conv)}]"


OURS = Layout()
LAYOUTS: dict[str, Layout] = {
    "ours": OURS,
    "transformers": Layout(("batch", "head", "key", "value"), ("batch", "channel", "time")),
    "fla": Layout(("batch", "head", "key", "value"), ("batch", "channel", "time")),
    "fla-v-first": Layout(("batch", "head", "value", "key"), ("batch", "channel", "time")),
    "vllm": Layout(("slot", "head", "value", "key"), ("slot", "time", "channel")),
    "vllm-sd": Layout(("slot", "head", "value", "key"), ("slot", "time", "channel")),
    "vllm-ds": Layout(("slot", "head", "value", "key"), ("slot", "channel", "time")),
    "sglang": Layout(("layer", "slot", "head", "value", "key"), ("layer", "slot", "channel", "time")),
    "tensorrt-llm": Layout(("slot", "head", "value", "key"), ("slot", "channel", "time")),
}


def parse_layout(text: str) -> Layout:
    """A name of :data:`LAYOUTS` or ``h[axis,...] conv[axis,...]``.

    Raises:
        LayoutError: neither; the text lists what is known.
    """
    known = LAYOUTS.get(text.strip().lower())
    if known is not None:
        return known
    match = re.fullmatch(r"\s*h\[([a-z,]{1,80})\]\s+conv\[([a-z,]{1,80})\]\s*", text)
    if match is None:
        raise LayoutError(
            f"unknown layout {text!r:.80}: expected one of {', '.join(LAYOUTS)}, or axes such as '{OURS}'"
        )
    h, conv = (tuple(axes.split(",")) for axes in match.groups())
    for part, axes, needed in (("h", h, H_AXES), ("conv", conv, CONV_AXES)):
        extra = [axis for axis in axes if axis not in needed]
        if sorted(axis for axis in axes if axis in needed) != sorted(needed) or len(set(axes)) != len(axes):
            raise LayoutError(f"layout of {part}: expected the axes {', '.join(needed)} once each, found {list(axes)}")
        if any(axis not in LEADING for axis in extra):
            raise LayoutError(f"layout of {part}: leading axes may be {', '.join(LEADING)}, found {extra}")
    return Layout(h, conv)


def _ordered(array: NDArray[Any], axes: tuple[str, ...], needed: tuple[str, ...], pick: dict[str, int]) -> NDArray[Any]:
    """Select the leading axes by ``pick`` and order the rest as ``needed``. A missing leading axis is fine."""
    names = list(axes)
    while len(names) > array.ndim and names[0] in LEADING:
        names.pop(0)
    if len(names) != array.ndim:
        raise LayoutError(f"expected a tensor [{', '.join(axes)}], found shape {list(array.shape)}")
    for axis in [name for name in names if name in LEADING]:
        at, size = names.index(axis), array.shape[names.index(axis)]
        index = pick.get(axis, 0 if size == 1 else -1)
        if not 0 <= index < size:
            raise LayoutError(f"axis {axis} has {size} entries: say which one, from 0 to {size - 1}")
        array = array.take(index, axis=at)
        names.pop(at)
    return array.transpose([names.index(axis) for axis in needed])


def h_to_ours(h: Tensor, layout: Layout = OURS, **pick: int) -> Floats:
    """h as [value heads, key dim, value dim] float32. ``pick`` chooses layer, slot or batch where there are several.

    Raises:
        LayoutError: the tensor does not have this layout.
    """
    return np.ascontiguousarray(_ordered(as_floats(h), layout.h, H_AXES, pick))


def conv_to_ours(
    conv: Tensor, layout: Layout = OURS, kernel: int | None = None, offset: int = 0, **pick: int
) -> Floats:
    """conv as [channels, columns] float32, newest column last.

    Engines keep 3 columns (all that is needed) or 4, and vLLM keeps ``num_spec`` more: the running window then starts
    at column ``accepted - 1``, given as ``offset``. ``kernel`` cuts the result to that many columns from ``offset``;
    without it all columns from ``offset`` on are kept.

    Raises:
        LayoutError: the tensor does not have this layout, or has too few columns.
    """
    window = _ordered(as_floats(conv), layout.conv, CONV_AXES, pick)
    width = window.shape[1] - offset if kernel is None else kernel
    if offset < 0 or width < 1 or offset + width > window.shape[1]:
        raise LayoutError(f"window of {window.shape[1]} columns has no {width} columns from column {offset} on")
    return np.ascontiguousarray(window[:, offset : offset + width])


def common_window(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """The newest columns that both windows hold: 4 against 3 compares the last 3."""
    width = min(a.shape[1], b.shape[1])
    return a[:, a.shape[1] - width :], b[:, b.shape[1] - width :]


@dataclass(frozen=True, slots=True)
class Transposition:
    """How found h relates to expected h [heads, key, value].

    ``kind``: "none", "transposed" (found equals the transpose), "similar" (norm and sorted singular values of every
    head are kept, yet it is no transpose: rows or columns permuted, or rotated), "different".
    ``direct`` and ``transposed`` are Frobenius errors; ``singular`` is the relative error of sorted singular values,
    NaN when it was not needed."""

    kind: str
    direct: float
    transposed: float
    singular: float = float("nan")


def transposition(found: Tensor, expected: Tensor, error: float = 1e-5) -> Transposition:
    """Compare h with h and with its transpose; singular values only when the norm is kept and neither matches.

    ``error`` is what counts as a match. Found may have shape [heads, value, key].

    Raises:
        TensorError: the shapes are neither equal nor transposed.
    """
    a, b = as_floats(found), as_floats(expected)
    if a.ndim != 3 or b.ndim != 3 or (a.shape != b.shape and a.shape != b.transpose(0, 2, 1).shape):
        raise TensorError(f"expected two h [heads, key, value], found {list(a.shape)} and {list(b.shape)}")
    direct = moments(a, b).error if a.shape == b.shape else float("inf")
    turned = b.transpose(0, 2, 1)
    crossed = moments(a, np.ascontiguousarray(turned)).error if a.shape == turned.shape else float("inf")
    if direct <= error:
        return Transposition("none", direct, crossed)
    if crossed <= error:
        return Transposition("transposed", direct, crossed)
    kept = moments(a.reshape(-1), b.reshape(-1), heads=a.shape[0])
    if not np.isfinite(a).all() or not np.isfinite(b).all():
        return Transposition("different", direct, crossed)
    # The singular values are kept only if the norm of every head is; that is cheap to see first.
    if not np.allclose(kept.aa, kept.bb, rtol=max(1e-4, 2 * error), atol=0.0) or not kept.bb.any():
        return Transposition("different", direct, crossed)
    values_a, values_b = (np.linalg.svd(x.astype(np.float64), compute_uv=False) for x in (a, b))
    off = float(np.linalg.norm(values_a - values_b) / np.linalg.norm(values_b))
    return Transposition("similar" if off <= max(1e-4, error) else "different", direct, crossed, off)
