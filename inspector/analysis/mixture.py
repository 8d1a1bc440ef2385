"""The rule for a state mixed by heads or by channels: some heads of h or channels of conv differ, the others are right.

What the differing ones are is found out by judging them alone: the two states cut down to them, and the candidates too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from inspector.analysis.arrays import Tensor, as_floats, flat
from inspector.analysis.case import CLEAR, Case
from inspector.analysis.kinds import Verdict, differ, listed, numbers
from inspector.analysis.noise import NoiseFloor
from inspector.analysis.profile import Candidate, LayerState, States, windows

Judge = Callable[[States, States, Mapping[str, Candidate], NoiseFloor], Verdict]
Squares = NDArray[np.float64]
# Channels of another position or owner are off by about 1.4, a part that rounds by much less than this.
GROSS = 0.3
# Of the channels that hold anything, at least this share must be right: a few may agree by chance.
FEW = 1 / 64


@dataclass(frozen=True, slots=True)
class Cut(Mapping[int, LayerState]):
    """Some layers of a state, of which only some heads and channels are kept (() keeps all of them)."""

    states: States
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    channels: tuple[int, ...]

    def __getitem__(self, layer: int) -> LayerState:
        state = self.states[layer]
        return LayerState(_rows(state.h, self.heads), _rows(state.conv, self.channels))

    def __iter__(self) -> Iterator[int]:
        return (layer for layer in self.layers if layer in self.states)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _rows(tensor: Tensor | None, wanted: tuple[int, ...]) -> Tensor | None:
    if tensor is None or not wanted or wanted[-1] >= flat(tensor).shape[0]:
        return tensor
    return np.ascontiguousarray(as_floats(tensor)[list(wanted)])


def mixed(case: Case, judge: Judge) -> Verdict | None:
    """``judge`` is asked about the differing heads and channels alone."""
    few = heads(case)
    if not case.touched or (case.off["h"] and not few):
        return None
    torn = channels(case)
    if case.off["conv"] and not torn:
        return None
    layers = case.touched
    cut = {label: replace(one, states=Cut(one.states, layers, few, torn)) for label, one in case.candidates.items()}
    inner = judge(Cut(case.found, layers, few, torn), Cut(case.expected, layers, few, torn), cut, case.floor)
    if inner.benign:
        return None
    columns = abs(inner.tokens or 0) if torn and not few else 0
    by = f" by {columns} column{'' if columns == 1 else 's'}" if columns else ""
    verb = differ(few) if few and not torn else "differ"
    where = f"only {_named(case, few, torn)} {verb}{by} in {listed('layer', layers)}, the others agree"
    return Verdict(
        "partial_heads" if few else "torn_conv",
        f"{where}; taken alone: {inner.evidence}",
        parts="+".join(part for part, some in (("h", few), ("conv", torn)) if some),
        layers=layers,
        heads=few,
        channels=torn,
        tokens=inner.tokens,
        owner=inner.owner,
        match=inner.match,
        inner=inner.kind,
        flags=inner.flags,
        confidence=inner.confidence,
    )


def _named(case: Case, few: tuple[int, ...], torn: tuple[int, ...]) -> str:
    """heads 2-3 of 4 and 128 of 256 conv channels (32-63, ...), those of these heads"""
    expected = case.expected[case.touched[0]]
    words = []
    if few and expected.h is not None:
        words.append(f"{listed('head', few)} of {flat(expected.h).shape[0]}")
    if torn and expected.conv is not None:
        total = flat(expected.conv).shape[0]
        words.append(f"{len(torn)} of {total} conv channels ({numbers(torn)})")
        if few and expected.h is not None and torn == channels_of(few, flat(expected.h).shape, total):
            words[-1] += ", those of these heads,"
    return " and ".join(words)


def channels_of(few: tuple[int, ...], h_shape: tuple[int, ...], total: int) -> tuple[int, ...]:
    """Conv channels that value heads are made from: queries and keys of their key heads, and values. ``h_shape`` is
    [value heads, key dim, value dim], the channels are queries | keys | values; () when the sizes say otherwise."""
    value_heads, key, value = h_shape
    key_heads, rest = divmod(total - value_heads * value, 2 * key)
    if rest or key_heads < 1 or value_heads % key_heads:
        return ()
    shared = sorted({head // (value_heads // key_heads) for head in few})
    found = [part * key_heads * key + head * key + i for part in (0, 1) for head in shared for i in range(key)]
    found += [2 * key_heads * key + head * value + i for head in few for i in range(value)]
    return tuple(found)


def heads(case: Case) -> tuple[int, ...]:
    """Heads that differ in every touched layer while the others are untouched there; () when all differ, or none.

    Untouched means bit-equal, or within a measured or fp32 noise floor: a slow head of a wrong position may be near."""
    common: set[int] | None = None
    for line in case.lines(case.touched) if case.off["h"] else ():
        quiet = _quiet(case, line.layer, "h")
        off = {i for i, error in enumerate(line.h.heads) if error > quiet}
        if not off or len(off) == len(line.h.heads) or (common is not None and off != common):
            return ()
        common = off
    return tuple(sorted(common or ()))


def _quiet(case: Case, layer: int, part: str) -> float:
    limit = case.limit(layer, part)
    return limit if case.floor.measured or limit < 1e-3 else 0.0


def channels(case: Case) -> tuple[int, ...]:
    """Conv channels that differ, grossly and in every layer, while the others are untouched; () when all differ, or
    none. Untouched means what it does for :func:`heads`."""
    layers = [line.layer for line in case.lines(case.touched) if line.layer in case.off["conv"]]
    sums: dict[int, tuple[Squares, Squares]] = {}
    off = told = np.zeros(0, np.bool_)
    for layer in layers:
        sums[layer] = dd, bb = _squares(case, layer)
        if off.size not in (0, dd.size) or not np.isfinite(dd).all():
            return ()
        # a quiet channel rounds like the loud ones: both come out of one product
        beyond = dd > _quiet(case, layer, "conv") ** 2 * np.maximum(bb, bb.mean())
        off, told = (beyond, bb > 0.0) if not off.size else (off | beyond, told | (bb > 0.0))
        if np.count_nonzero(told & ~off) <= FEW * np.count_nonzero(told):
            return ()
    for layer, (dd, bb) in sums.items():
        wrong, right = (_error(dd, bb, which) for which in (off, ~off))
        if wrong < GROSS or right > min(_quiet(case, layer, "conv"), CLEAR * wrong):
            return ()
    return tuple(int(i) for i in np.flatnonzero(off))


def _squares(case: Case, layer: int) -> tuple[Squares, Squares]:
    """Per channel: sum of squared differences, and of squares of expected."""
    a, b = windows(case.found[layer].conv, case.expected[layer].conv)
    if a is None or b is None:
        return np.zeros(1), np.zeros(1)
    x, y = as_floats(a).astype(np.float64), as_floats(b).astype(np.float64)
    return ((x - y) ** 2).sum(axis=1), (y * y).sum(axis=1)


def _error(dd: Squares, bb: Squares, which: NDArray[np.bool_]) -> float:
    base = float(bb[which].sum())
    return float(np.sqrt(dd[which].sum() / base)) if base > 0.0 else float("inf") if dd[which].any() else 0.0
