"""Numbers as colours: two rows of values per line of cells (half blocks), one sign per value without colour."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from rich.color import Color
from rich.segment import Segment
from rich.style import Style

from inspector.tui.themes import Palette, mix

LEVELS = 33
SIGNS = " .:-=+*%@#"
NAN_LEVEL = LEVELS
LOW_DECADE, HIGH_DECADE = -8.0, 1.0


def pool(values: Any, rows: int, columns: int) -> tuple[Any, int, int]:
    """``values`` [r, c] reduced to at most [rows, columns] by the value farthest from zero in each block (NaN wins).

    Returns the picture and the block size (rows, columns per cell). A picture never hides the worst value.
    """
    height, length = values.shape
    down, across = -(-height // max(1, rows)), -(-length // max(1, columns))
    if down == 1 and across == 1:
        return values, 1, 1
    tall, long = -(-height // down), -(-length // across)
    padded = np.zeros((tall * down, long * across), dtype=np.float32)
    padded[:height, :length] = values
    blocks = padded.reshape(tall, down, long, across).transpose(0, 2, 1, 3).reshape(tall, long, down * across)
    keys = np.where(np.isnan(blocks), np.inf, np.abs(blocks))
    place = keys.argmax(axis=2)
    return np.take_along_axis(blocks, place[:, :, None], axis=2)[:, :, 0], down, across


def value_levels(values: Any, limit: float) -> Any:
    """Signed values to levels 0..LEVELS-1 around the middle; clipped at ``limit``; NaN to NAN_LEVEL."""
    half = LEVELS // 2
    scale = half / limit if limit > 0 else 0.0
    levels = np.rint(np.clip(np.nan_to_num(values, nan=0.0) * scale, -half, half)).astype(np.int16) + half
    levels[np.isnan(values)] = NAN_LEVEL
    return levels


def difference_levels(values: Any) -> Any:
    """Absolute differences to levels on a log10 scale from 1e-8 to 10; exactly equal is level 0."""
    size = np.abs(values).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        decade = (np.log10(size) - LOW_DECADE) / (HIGH_DECADE - LOW_DECADE)
    levels = np.where(size > 0, np.clip(np.rint(decade * (LEVELS - 2)) + 1, 1, LEVELS - 1), 0)
    levels = np.nan_to_num(levels).astype(np.int16)
    levels[np.isnan(values)] = NAN_LEVEL
    return levels


def enlarge(levels: Any, rows: int, columns: int) -> tuple[Any, int]:
    """A small picture drawn larger by a whole factor, the same both ways, as far as it fits."""
    height, length = levels.shape
    factor = max(1, min(rows // max(1, height), columns // max(1, length)))
    return (levels.repeat(factor, axis=0).repeat(factor, axis=1) if factor > 1 else levels), factor


class HeatColours:
    """Level to colour for one palette, and the styles of every pair of levels, made when first met."""

    def __init__(self, palette: Palette) -> None:
        signed = (palette.cold, palette.zero, palette.warm)
        self._tables = {
            "value": [mix(signed, level / (LEVELS - 1)) for level in range(LEVELS)],
            "diff": [mix(palette.ramp, level / (LEVELS - 1)) for level in range(LEVELS)],
        }
        nan = Color.parse(palette.nan).get_truecolor()
        for table in self._tables.values():
            table.append((nan.red, nan.green, nan.blue))
        self.pair = lru_cache(maxsize=8192)(self._pair)

    def _pair(self, kind: str, above: int, below: int) -> Style:
        table = self._tables[kind]
        return Style(color=Color.from_rgb(*table[above]), bgcolor=Color.from_rgb(*table[below]))

    def line(self, kind: str, above: Any, below: Any) -> list[Segment]:
        """Half-block segments for two rows of levels; equal neighbours are joined."""
        out: list[Segment] = []
        top, low = above.tolist(), below.tolist()
        start, count = 0, len(top)
        while start < count:
            end = start + 1
            while end < count and top[end] == top[start] and low[end] == low[start]:
                end += 1
            out.append(Segment("▀" * (end - start), self.pair(kind, top[start], low[start])))
            start = end
        return out

    def swatch(self, kind: str, cells: int) -> list[Segment]:
        """A legend strip from the lowest to the highest level."""
        levels = [round(number * (LEVELS - 1) / max(1, cells - 1)) for number in range(cells)]
        return [Segment("█", self.pair(kind, level, level)) for level in levels]


def signs(levels: Any, kind: str) -> str:
    """One row of levels as signs of rising density: for terminals without colour. Negative values are letters."""
    out: list[str] = []
    half = LEVELS // 2
    for level in levels.tolist():
        if level == NAN_LEVEL:
            out.append("N")
        elif kind == "diff":
            out.append(SIGNS[level * (len(SIGNS) - 1) // (LEVELS - 1)])
        else:
            size = abs(level - half) * (len(SIGNS) - 1) // half
            out.append(SIGNS[size] if level >= half else " abcdefghi"[size])
    return "".join(out)
