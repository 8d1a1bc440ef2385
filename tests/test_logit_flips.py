"""Flipped picks and their margins against the noise of the logits."""

from __future__ import annotations

import numpy as np
import pytest

from inspector.analysis.arrays import TensorError, tensor_data
from inspector.analysis.flips import DEFAULT_NOISE, flipped, logit_noise


def test_a_near_tie_is_benign_and_a_wide_margin_is_not() -> None:
    expected = np.array([[1.0, 0.99, 0], [1.0, 0.95, 0], [3.0, 1.0, 0], [2.0, 1.0, 0]], np.float32)
    found = np.array([[1.0, 1.01, 0], [1.0, 1.01, 0], [1.0, 3.0, 0], [2.1, 1.0, 0]], np.float32)
    result = flipped(tensor_data(found), tensor_data(expected), noise=0.02)
    assert [(flip.row, flip.expected, flip.found, flip.kind) for flip in result.flips] == [
        (0, 0, 1, "benign"),
        (1, 0, 1, "unclear"),
        (2, 0, 1, "suspicious"),
    ]
    assert result.flips[2].margin == pytest.approx(2.0)
    assert result.flips[2].other_margin == pytest.approx(2.0)
    assert (result.kind, result.rows, result.largest) == ("suspicious", 4, pytest.approx(2.0))
    assert "3 of 4 picks differ, largest margin 2 " in result.text()
    assert result.text().endswith(
        ": suspicious, far more than rounding does: other inputs or another state made these picks"
    )
    assert "3 of 4 picks differ (mine against yours)," in result.text("mine against yours")
    near = flipped(found[:1], expected[:1], noise=0.02)
    assert near.text().endswith("noise floor of 0.02: benign, rounding alone can turn one token into the other")


def test_the_margin_is_to_the_other_pick_not_to_the_runner_up() -> None:
    expected = np.array([[5.0, 4.9, 1.0]], np.float32)
    found = np.array([[1.0, 1.0, 6.0]], np.float32)
    flip = flipped(found, expected, noise=0.2).flips[0]
    assert flip.gap == pytest.approx(0.1)
    assert flip.margin == pytest.approx(4.0)
    assert flip.kind == "suspicious"


def test_noise_alone_gives_benign_flips_and_corruption_suspicious_ones() -> None:
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((400, 200))
    noisy = logits + 0.02 * rng.standard_normal(logits.shape)
    noise = logit_noise(noisy, logits)
    again = logits + 0.02 * rng.standard_normal(logits.shape)
    assert flipped(again, logits, noise).flips
    assert flipped(again, logits, noise).kind in ("benign", "unclear")
    assert flipped(logits + rng.standard_normal(logits.shape), logits, noise).kind == "suspicious"


def test_no_flip() -> None:
    logits = np.random.default_rng(1).standard_normal((3, 8)).astype(np.float32)
    result = flipped(logits, logits)
    assert (result.kind, result.flips, result.largest) == ("none", (), 0.0)
    assert result.text() == "no pick differs in 3 rows"
    assert not result.measured
    assert result.noise == DEFAULT_NOISE["float32"]


def test_equal_logits_pick_the_lower_id() -> None:
    assert flipped(np.array([[1.0, 1.0]]), np.array([[1.0, 0.5]])).flips == ()


def test_a_measured_floor_of_zero_calls_every_flip_suspicious_but_a_tie() -> None:
    expected, found = np.array([[1.0, 1.0 - 1e-6]]), np.array([[1.0 - 1e-6, 1.0]])
    assert flipped(found, expected, noise=0.0).kind == "suspicious"


def test_shapes_that_do_not_fit_are_refused() -> None:
    for a, b in (((2, 3), (3, 3)), ((3,), (3,)), ((2, 1), (2, 1))):
        with pytest.raises(TensorError, match="logits"):
            flipped(np.zeros(a), np.zeros(b))
    with pytest.raises(TensorError, match="NaN"):
        logit_noise(np.array([[np.nan, 0.0]]), np.array([[0.0, 0.0]]))
