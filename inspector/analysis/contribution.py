"""Contribution diff: which block adds error, and which only passes on what it was given.

Two runs, each with the residual stream before and after every block. A layer deep in the model shows a large error
that it mostly inherited; blaming it sends people the wrong way (imp PR 1275 found +0.0156 median in full attention and
-0.0017 in linear blocks by this subtraction). Relative errors are Frobenius, over all rows of the stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from inspector.analysis.arrays import Floats, Tensor, TensorError, as_floats
from inspector.analysis.moments import moments


@dataclass(frozen=True, slots=True)
class BlockStream:
    """The residual stream [rows, hidden] before and after one block. ``kind``: linear, full, mlp, moe, ..."""

    layer: int
    kind: str
    before: Tensor
    after: Tensor


@dataclass(frozen=True, slots=True)
class Contribution:
    """One block. ``inherited`` and ``leaving`` are the relative errors before and after it; ``added`` their difference
    (negative: the block damps). ``own`` is the error of what the block adds to the stream, relative to the stream
    after it; it contains the reaction to the inherited error, so only with ``inherited`` 0 it is the block's alone."""

    layer: int
    kind: str
    inherited: float
    leaving: float
    own: float

    @property
    def added(self) -> float:
        return self.leaving - self.inherited


@dataclass(frozen=True, slots=True)
class KindSummary:
    """All blocks of one kind: how many, the median and the sum of ``added``, the largest ``own``."""

    kind: str
    blocks: int
    median_added: float
    total_added: float
    largest_own: float


@dataclass(frozen=True, slots=True)
class Contributions:
    """Blocks in order, kinds by descending total, and the first block whose inputs were bit-equal and outputs not."""

    blocks: tuple[Contribution, ...]
    kinds: tuple[KindSummary, ...]
    origin: Contribution | None


def contribution_diff(found: Sequence[BlockStream], expected: Sequence[BlockStream]) -> Contributions:
    """Compare two runs block by block.

    Raises:
        TensorError: the runs do not have the same blocks, or streams differ in shape.
    """
    if [(b.layer, b.kind) for b in found] != [(b.layer, b.kind) for b in expected]:
        raise TensorError(f"the runs have different blocks: {len(found)} against {len(expected)}, or another order")
    blocks = tuple(_block(a, b) for a, b in zip(found, expected, strict=True))
    kinds = []
    for kind in dict.fromkeys(block.kind for block in blocks):
        mine = [block for block in blocks if block.kind == kind]
        added = [block.added for block in mine]
        kinds.append(KindSummary(kind, len(mine), median(added), sum(added), max(block.own for block in mine)))
    origin = next((block for block in blocks if block.inherited == 0.0 and block.leaving > 0.0), None)
    return Contributions(blocks, tuple(sorted(kinds, key=lambda k: -k.total_added)), origin)


def _block(a: BlockStream, b: BlockStream) -> Contribution:
    before, after = moments(a.before, b.before, heads=1), moments(a.after, b.after, heads=1)
    own_a, own_b = _own(a), _own(b)
    change = moments(own_a, own_b, heads=1)
    base = float(after.bb.sum())
    own = float(np.sqrt(change.dd.sum() / base)) if base > 0.0 else float(change.dd.sum() > 0.0)
    return Contribution(a.layer, a.kind, before.error, after.error, own)


def _own(block: BlockStream) -> Floats:
    before, after = as_floats(block.before), as_floats(block.after)
    if before.shape != after.shape:
        raise TensorError(f"layer {block.layer} {block.kind}: stream {list(before.shape)} became {list(after.shape)}")
    return np.subtract(after, before)
