"""Inherited against added error of every block."""

from __future__ import annotations

import numpy as np
import pytest

from inspector.analysis.arrays import TensorError
from inspector.analysis.contribution import BlockStream, contribution_diff

KINDS = ("linear", "mlp", "linear", "mlp", "full", "mlp")


def run(wrong: int = -1, size: float = 0.0, seed: int = 0) -> list[BlockStream]:
    """A stream through orthogonal blocks; block ``wrong`` adds an error of its own."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((3, 32)).astype(np.float32)
    blocks = []
    for i, kind in enumerate(KINDS):
        after = (x + 0.5 * np.tanh(x @ rng.standard_normal((32, 32)) / 6)).astype(np.float32)
        if i == wrong:
            after = (after + size * np.random.default_rng(99).standard_normal(after.shape)).astype(np.float32)
        blocks.append(BlockStream(i // 2, kind, x, after))
        x = after
    return blocks


@pytest.mark.parametrize("wrong", range(len(KINDS)))
def test_the_block_that_adds_the_error_is_named_and_the_others_only_inherit(wrong: int) -> None:
    result = contribution_diff(run(wrong, 0.1), run())
    assert result.origin is result.blocks[wrong]
    assert [block.leaving == 0.0 for block in result.blocks] == [i < wrong for i in range(len(KINDS))]
    assert result.blocks[wrong].added == max(block.added for block in result.blocks)
    for before, after in zip(result.blocks, result.blocks[1:], strict=False):
        assert after.inherited == before.leaving
    assert result.kinds[0].kind == KINDS[wrong]


def test_numbers_equal_the_naive_ones() -> None:
    found, expected = run(1, 0.2), run()
    block = contribution_diff(found, expected).blocks[1]
    a, b = (np.asarray(side[1].after, np.float64) for side in (found, expected))
    assert block.leaving == pytest.approx(np.linalg.norm(a - b) / np.linalg.norm(b), rel=1e-5)
    own = (a - found[1].before) - (b - expected[1].before)
    assert block.own == pytest.approx(np.linalg.norm(own) / np.linalg.norm(b), rel=1e-5)
    assert block.inherited == 0.0


def test_equal_runs_have_no_origin() -> None:
    result = contribution_diff(run(), run())
    assert result.origin is None
    assert all(kind.total_added == kind.largest_own == 0.0 for kind in result.kinds)
    assert [(kind.kind, kind.blocks) for kind in result.kinds] == [("linear", 2), ("mlp", 3), ("full", 1)]


def test_runs_of_other_blocks_are_refused() -> None:
    with pytest.raises(TensorError, match="different blocks"):
        contribution_diff(run()[:-1], run())
    odd = run()
    odd[0] = BlockStream(0, "linear", np.zeros((3, 32), np.float32), np.zeros((3, 16), np.float32))
    with pytest.raises(TensorError, match=r"stream \[3, 32\] became \[3, 16\]"):
        contribution_diff(odd, odd)
