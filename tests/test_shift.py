"""Best shift along the conv window."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inspector.analysis.arrays import TensorError, tensor_data
from inspector.analysis.shift import ahead, best_shift


def windows(seed: int, shift: int, kernel: int = 4, channels: int = 24) -> tuple[np.ndarray, np.ndarray]:
    """(found, expected) cut from one stream of inputs; found is ``shift`` tokens ahead."""
    stream = np.random.default_rng(seed).standard_normal((channels, 40)).astype(np.float32)
    return stream[:, 20 + shift - kernel : 20 + shift], stream[:, 20 - kernel : 20]


@given(st.integers(0, 10_000), st.integers(2, 8), st.data())
@settings(max_examples=100, deadline=None)
def test_the_shift_is_found_in_both_directions(seed: int, kernel: int, data: st.DataObject) -> None:
    wanted = data.draw(st.integers(-(kernel - 1), kernel - 1))
    shift = best_shift(*windows(seed, wanted, kernel))
    assert shift.best.tokens == wanted
    assert shift.best.error == 0.0
    assert shift.best.columns == kernel - abs(wanted)
    assert shift.matches(1e-6) == (wanted or None)
    assert shift.runner_up is not None
    assert shift.runner_up.error > 0.5


def test_the_words_name_both_columns() -> None:
    assert best_shift(*windows(1, 2)).text("live", "golden") == "live[t-3] == golden[t-1]: 2 tokens ahead"
    assert best_shift(*windows(1, -1)).text("live", "golden") == "live[t] == golden[t-1]: 1 token behind"
    assert "same position" in best_shift(*windows(1, 0)).text()
    assert ahead(-3) == "3 tokens behind"


def test_noise_does_not_hide_a_shift() -> None:
    found, expected = windows(3, 1)
    noisy = found + 0.01 * np.random.default_rng(4).standard_normal(found.shape).astype(np.float32)
    shift = best_shift(tensor_data(noisy, "bfloat16"), tensor_data(expected))
    assert shift.matches(0.05) == 1
    assert shift.matches(0.001) is None


def test_wrong_values_match_no_shift() -> None:
    found, _ = windows(5, 0)
    _, expected = windows(6, 0)
    assert best_shift(found, expected).matches(0.25) is None
    assert best_shift(found, expected).best.error > 0.8


def test_a_window_of_one_token_cannot_tell() -> None:
    column = np.random.default_rng(7).standard_normal((24, 1)).astype(np.float32)
    same = np.repeat(column, 4, axis=1)
    shift = best_shift(same, same)
    assert shift.best.tokens == 0
    assert shift.periodic
    assert shift.matches(1e-6) is None


def test_zero_columns_of_a_short_prompt_give_no_false_shift() -> None:
    stream = np.random.default_rng(8).standard_normal((24, 2)).astype(np.float32)
    two = np.concatenate([np.zeros((24, 2), np.float32), stream], axis=1)
    one = np.concatenate([np.zeros((24, 3), np.float32), stream[:, :1]], axis=1)
    assert best_shift(two, two).best.tokens == 0
    assert best_shift(two, one).matches(1e-6) == 1
    assert best_shift(one, two).matches(1e-6) == -1
    empty = np.zeros((24, 4), np.float32)
    assert best_shift(empty, empty).best.error == 0.0
    assert best_shift(two, empty).matches(1e-6) is None


def test_nan_matches_nothing() -> None:
    found, expected = windows(9, 1)
    found = found.copy()
    found[:] = np.nan
    assert best_shift(found, expected).matches(1e-6) is None


@pytest.mark.parametrize("shapes", [((3, 4), (3, 5)), ((3,), (3,)), ((3, 0), (3, 0))])
def test_shapes_that_are_no_windows_are_refused(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    with pytest.raises(TensorError, match="windows"):
        best_shift(np.zeros(shapes[0], np.float32), np.zeros(shapes[1], np.float32))
