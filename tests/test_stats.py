"""Row statistics and exact decoding, against float64 numpy on the whole tensor."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from engine.events import TensorData
from inspector.analysis.arrays import (
    BLOCK,
    TensorError,
    as_floats,
    bf16_to_float32,
    fits,
    float32_to_bf16,
    lower,
    same_bits,
    tensor_data,
    through,
)
from inspector.analysis.stats import BINS, SAMPLES, tensor_stats


def test_bfloat16_is_the_upper_half_of_a_float32() -> None:
    bits = np.arange(65536, dtype=np.uint32).astype(np.uint16)
    decoded = bf16_to_float32(bits)
    for value in (0x0000, 0x8000, 0x3F80, 0x7F80, 0xFF80, 0x0001, 0x4049):
        assert decoded[value].tobytes() == struct.pack("<I", value << 16)
    finite = np.isfinite(decoded)
    assert np.array_equal(float32_to_bf16(decoded[finite]), bits[finite])


def test_rounding_to_bfloat16_goes_to_the_nearest_and_ties_to_even() -> None:
    one = 1.0
    step = 2.0**-7
    cases = {
        one + step / 2: one,  # tie: 1.0 is even
        one + 1.5 * step: one + 2 * step,  # tie: odd goes up
        one + 0.51 * step: one + step,
        3.4e38: float("inf"),
        -0.0: -0.0,
    }
    for value, expected in cases.items():
        found = through(np.array([value], np.float32), "bfloat16")
        assert found.tobytes() == np.array([expected], np.float32).tobytes(), value
    assert np.isnan(through(np.array([np.nan], np.float32), "bfloat16"))[0]
    nan_with_low_bits = np.array([0x7F800001], np.uint32).view(np.float32)
    assert np.isnan(through(nan_with_low_bits, "bfloat16"))[0]


@given(arrays_of.arrays(np.float32, st.integers(0, 200), elements=st.floats(-(2.0**100), 2.0**100, width=32)))
@settings(max_examples=100, deadline=None)
def test_rounding_to_bfloat16_is_never_farther_than_half_a_step(values: np.ndarray) -> None:
    rounded = through(values, "bfloat16").astype(np.float64)
    exact = values.astype(np.float64)
    assert np.all(np.abs(rounded - exact) <= 2.0**-8 * np.abs(exact) + 2.0**-134)
    assert fits(rounded.astype(np.float32), "bfloat16")


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int32", "int8", "bool", "int64"])
def test_every_dtype_decodes_to_its_values(dtype: str) -> None:
    values = np.array([[0, 1], [1, 0], [1, 1]], np.float32)
    data = tensor_data(values, dtype)
    assert (data.dtype, data.shape) == (dtype, (3, 2))
    assert np.array_equal(as_floats(data), values)
    stats = tensor_stats(data)
    assert (stats.low, stats.high, stats.mean, stats.zeros) == (0.0, 1.0, pytest.approx(2 / 3), 2)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (TensorData("float32", (2, 2), b"\0" * 15), "16 bytes, found 15"),
        (TensorData("float8", (1,), b"\0"), "float8"),
        (TensorData("float32", (-1, 4), b""), "negative"),
        (TensorData("float32", (1 << 40, 1 << 40), b"\0" * 8), "found 8"),
    ],
)
def test_bytes_that_do_not_fit_are_refused(data: TensorData, words: str) -> None:
    with pytest.raises(TensorError, match=words):
        tensor_stats(data)


@given(
    arrays_of.arrays(
        np.float32,
        st.tuples(st.integers(0, 7), st.integers(0, 9)),
        elements=st.one_of(st.floats(-1e6, 1e6, width=32), st.sampled_from([0.0, -0.0, float("nan"), float("inf")])),
    )
)
@settings(max_examples=150, deadline=None)
def test_statistics_equal_those_of_the_finite_values(values: np.ndarray) -> None:
    stats = tensor_stats(tensor_data(values))
    finite = values[np.isfinite(values)].astype(np.float64)
    assert stats.nan == np.isnan(values).sum()
    assert stats.inf == np.isinf(values).sum()
    assert stats.zeros == (values == 0).sum()
    assert (stats.shape, stats.count, stats.nbytes) == (values.shape, values.size, 4 * values.size)
    if finite.size:
        assert stats.low == finite.min()
        assert stats.high == finite.max()
        assert stats.mean == pytest.approx(finite.mean(), rel=1e-9, abs=1e-9)
        assert stats.rms == pytest.approx(np.sqrt((finite**2).mean()), rel=1e-9)
        assert stats.mean_abs == pytest.approx(np.abs(finite).mean(), rel=1e-9)
        assert stats.std == pytest.approx(finite.std(), rel=1e-6, abs=1e-3)


def test_blocks_add_up_to_the_whole() -> None:
    values = np.random.default_rng(0).standard_normal(3 * BLOCK + 17).astype(np.float32)
    values[BLOCK] = 40.0
    stats = tensor_stats(values)
    assert stats.high == 40.0
    assert stats.mean == pytest.approx(values.astype(np.float64).mean(), abs=1e-12)


@pytest.mark.parametrize("size", [1000, 3 * SAMPLES])
def test_the_histogram_spans_three_deviations_and_large_tensors_are_sampled(size: int) -> None:
    values = np.random.default_rng(1).standard_normal(size)
    stats = tensor_stats(values)
    edges = np.linspace(stats.mean - 3 * stats.std, stats.mean + 3 * stats.std, BINS + 1)
    clipped = np.clip(values, edges[0], np.nextafter(edges[-1], 0))
    wanted = np.histogram(clipped, edges)[0] / size
    counted = sum(stats.histogram)
    assert counted == size if size < SAMPLES else SAMPLES // 2 < counted <= SAMPLES
    assert np.array(stats.histogram) / counted == pytest.approx(wanted, abs=2 / counted if counted == size else 0.01)


@pytest.mark.parametrize(
    ("values", "flags"),
    [
        (np.zeros((2, 2), np.float32), ("zero",)),
        (np.full(3, 2.0, np.float32), ("constant",)),
        (np.array([1.0, np.nan], np.float32), ("nan",)),
        (np.array([1.0, -np.inf, 2.0], np.float32), ("inf",)),
        (np.zeros((0, 4), np.float32), ("empty",)),
        (np.array([1.0, 2.0], np.float32), ()),
    ],
)
def test_flags_name_what_no_average_shows(values: np.ndarray, flags: tuple[str, ...]) -> None:
    assert tensor_stats(values).flags == flags


def test_bits_tell_what_values_do_not() -> None:
    zero, negative = np.array([0.0], np.float32), np.array([-0.0], np.float32)
    nan = np.array([np.nan], np.float32)
    assert not same_bits(zero, negative)
    assert same_bits(nan, nan.copy())
    assert not same_bits(tensor_data(zero), tensor_data(zero, "bfloat16"))
    assert not same_bits(np.zeros((2, 3), np.float32), np.zeros((3, 2), np.float32))


def test_the_lower_of_two_dtypes() -> None:
    assert lower("float32", "float16") == "float16"
    assert lower("float16", "bfloat16") == "bfloat16"
    assert lower("float32", "float32") == "bfloat16"
    assert lower("bfloat16", "bfloat16") == "bfloat16"
