"""Statistics and pictures of state tensors, read in the worker when nobody waits for it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from engine.events import Place, TensorData, TensorRef
from inspector.analysis.arrays import TensorError, as_floats, same_bits
from inspector.analysis.tolerance import default_tolerance
from inspector.tui.frame import Slab, TensorRow, TensorTable

Reader = Callable[[TensorRef], TensorData]


def table(
    seq: int,
    layers: tuple[int, ...],
    place: Place,
    read: Reader,
    base_name: str = "",
    base: Reader | None = None,
    since: int | None = None,
) -> TensorTable:
    """One row per layer and part of ``place``, compared with what ``base`` reads under the same layer and part. With
    ``since`` a difference is a change that the stop at that event showed, not an error."""
    judged = since is None
    rows: list[TensorRow] = []
    name = str(place)
    for layer in layers:
        for part in ("h", "conv"):
            found = read(TensorRef(place, layer, part))
            expected = base(TensorRef(place, layer, part)) if base is not None else None
            rows.append(row(layer, part, found, expected, judged))
    words = "" if base is None else verdict(rows) if since is None else changes(rows, seq, since)
    return TensorTable(seq, name, base_name, tuple(rows), words)


def row(layer: int, part: str, found: TensorData, expected: TensorData | None, judged: bool = True) -> TensorRow:
    """Statistics of one tensor. NaN and infinities are flags, never averaged away."""
    values = as_floats(found).astype(np.float64, copy=False)
    finite = values[np.isfinite(values)]
    flags = ""
    if finite.size < values.size:
        flags = "NaN" if np.isnan(values).any() else "Inf"
    elif not values.any():
        flags = "zero" if values.size else ""
    rms = float(math.sqrt(float(np.mean(finite * finite)))) if finite.size else 0.0
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    if expected is None:
        return TensorRow(layer, part, found.shape, rms, low, high, flags=flags)
    if same_bits(found, expected):
        return TensorRow(layer, part, found.shape, rms, low, high, 0.0, 0.0, True, flags)
    try:
        other = as_floats(expected).astype(np.float64, copy=False)
        gap = np.abs(values - other)
        total = float(np.sum(values * values) + np.sum(other * other))
        rel = 1.0 - 2.0 * float(np.sum(values * other)) / total if total > 0 else 0.0
        limit = default_tolerance(found.dtype, expected.dtype)
        within = bool(np.all(gap <= limit.atol + limit.rtol * np.abs(other)))
    except (TensorError, ValueError):
        return TensorRow(layer, part, found.shape, rms, low, high, None, None, False, flags or "shape")
    worst = float(np.nanmax(gap)) if gap.size else 0.0
    return TensorRow(
        layer, part, found.shape, rms, low, high, worst, rel, False, flags or ("" if within or not judged else "NO")
    )


def changes(rows: list[TensorRow], seq: int, since: int) -> str:
    """How much changed since the stop before; when that is nothing, how much did at ``since``, the stop that stays in
    sight."""
    moved = sum(not row.same for row in rows)
    if not moved:
        return "nothing changed since the last stop"
    if since != seq:
        return f"nothing changed now; at event {since} {moved} of {len(rows)} did"
    return f"{moved} of {len(rows)} tensors changed since the last stop"


def verdict(rows: list[TensorRow]) -> str:
    """One sentence on a whole table; the kind of difference is for ``judge``."""
    if not rows:
        return ""
    if all(row.same for row in rows):
        return "bitwise equal in every layer"
    parts = {part: [row for row in rows if row.part == part] for part in ("h", "conv")}
    equal = {part: all(row.same for row in found) for part, found in parts.items()}
    wrong = [row for row in rows if row.flags == "NO"]
    if equal["h"] and not equal["conv"]:
        return "h is bitwise equal, conv differs"
    if equal["conv"] and not equal["h"]:
        return "conv is bitwise equal, h differs"
    if not wrong:
        return "differs within the tolerance of the dtype: rounding"
    first = f"first in layer {wrong[0].layer} ({wrong[0].part})"
    return f"{len(wrong)} of {len(rows)} tensors differ beyond tolerance, {first}"


def slab(
    seq: int, place: Place, layer: int, part: str, read: Reader, base_name: str = "", base: Reader | None = None
) -> Slab:
    """One tensor, and the base's, as [heads, rows, columns]."""
    ref = TensorRef(place, layer, part)
    values = cube(as_floats(read(ref)))
    other: Any = cube(as_floats(base(ref))) if base is not None else None
    return Slab(seq, str(place), layer, part, values, other, base_name)


def cube(values: Any) -> Any:
    """Any shape as [heads, rows, columns] of float32: conv's channels lie across, its time downwards."""
    array = np.asarray(values, dtype=np.float32)
    if array.ndim == 2:
        return array.T[None] if array.shape[0] > array.shape[1] else array[None]
    if array.ndim == 3:
        return array
    return array.reshape(1, 1, -1) if array.ndim < 2 else array.reshape(-1, *array.shape[-2:])
