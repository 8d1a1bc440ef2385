"""Differences against a naive float64 reference; blocks, heads, tolerances, casts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from inspector.analysis.arrays import BLOCK, TensorError, tensor_data
from inspector.analysis.casting import cast_difference
from inspector.analysis.diff import PERCENTS, SAMPLES, diff_tensors
from inspector.analysis.diff_pass import blocks
from inspector.analysis.moments import moments
from inspector.analysis.tolerance import DEFAULTS, LOOSE, Passing, Tolerance, default_tolerance


def naive(a: np.ndarray, b: np.ndarray) -> dict[str, float]:
    x, y = a.astype(np.float64), b.astype(np.float64)
    d = np.abs(x - y)
    return {
        "max_abs": d.max(),
        "mean_abs": d.mean(),
        "rel": 1 - 2 * (x * y).sum() / (x * x + y * y).sum(),
        "error": np.linalg.norm(x - y) / np.linalg.norm(y),
        "cosine": (x * y).sum() / np.linalg.norm(x) / np.linalg.norm(y),
    }


@pytest.mark.parametrize("shape", [(3,), (4, 5, 6), (2, 300, 200), (7, 131, 73), (1, BLOCK + 5, 1)])
@pytest.mark.parametrize("noise", [1e-6, 1e-2, 3.0])
def test_numbers_equal_the_naive_ones(shape: tuple[int, ...], noise: float) -> None:
    rng = np.random.default_rng(sum(shape))
    b = rng.standard_normal(shape).astype(np.float32)
    a = (b + noise * rng.standard_normal(shape)).astype(np.float32)
    diff, wanted = diff_tensors(a, b), naive(a, b)
    assert diff.max_abs == wanted["max_abs"]
    # sums are float64; the naive rel cancels
    assert diff.mean_abs == pytest.approx(wanted["mean_abs"], rel=1e-12)
    assert diff.error == pytest.approx(wanted["error"], rel=1e-12)
    assert diff.rel == pytest.approx(wanted["rel"], rel=1e-5, abs=1e-15)
    assert diff.cosine == pytest.approx(wanted["cosine"], abs=1e-14)
    assert diff.worst is not None
    assert (diff.worst.a, diff.worst.b) == (a[diff.worst.at], b[diff.worst.at])
    assert not diff.equal


def test_equal_tensors_differ_nowhere() -> None:
    a = np.random.default_rng(1).standard_normal((4, 64, 64)).astype(np.float32)
    diff = diff_tensors(tensor_data(a), tensor_data(a))
    assert diff.equal
    assert diff.worst is None
    assert (diff.max_abs, diff.error, diff.rel, diff.within) == (0.0, 0.0, 0.0, 1.0)
    assert diff.cosine == 1.0
    assert diff.percentiles == (0.0,) * len(PERCENTS)
    assert diff.passing.rtol == 0.0


def test_one_changed_element_is_found_with_its_coordinate() -> None:
    b = np.ones((8, 128, 128), np.float32)
    a = b.copy()
    a[5, 77, 3] = 1.5
    diff = diff_tensors(a, b)
    assert diff.worst is not None
    assert (diff.worst.at, diff.worst.a, diff.worst.b, diff.worst.difference) == ((5, 77, 3), 1.5, 1.0, 0.5)
    assert [head.head for head in diff.heads if head.error > 0] == [5]
    assert diff.heads[5].max_abs == 0.5
    assert diff.heads[5].error == pytest.approx(0.5 / 128)


@pytest.mark.parametrize("heads", [1, 2, 4, 32])
def test_heads_are_broken_down_whatever_their_size(heads: int) -> None:
    rng = np.random.default_rng(heads)
    b = rng.standard_normal((32, 70, 65)).astype(np.float32)
    a = b + rng.standard_normal(b.shape).astype(np.float32) * np.linspace(0, 1, 32)[:, None, None].astype(np.float32)
    found = [head.error for head in diff_tensors(a, b, heads=heads).heads]
    pairs = zip(a.reshape(heads, -1), b.reshape(heads, -1), strict=True)
    assert found == pytest.approx([naive(x, y)["error"] for x, y in pairs], rel=1e-12)
    assert moments(a, b, heads).head_errors == tuple(found)


def test_heads_that_do_not_divide_are_refused() -> None:
    with pytest.raises(TensorError, match="3 heads do not divide"):
        diff_tensors(np.zeros((4, 2), np.float32), np.zeros((4, 2), np.float32), heads=3)


def test_shapes_that_differ_are_refused_with_both() -> None:
    with pytest.raises(TensorError, match=r"\[2, 3\] against \[3, 2\]"):
        diff_tensors(np.zeros((2, 3), np.float32), np.zeros((3, 2), np.float32))


@given(st.integers(1, 400_000), st.integers(1, 64), st.sampled_from([BLOCK, 5000, 1 << 40]))
@settings(max_examples=200, deadline=None)
def test_blocks_cover_every_element_once_and_never_split_a_group_of_heads(width: int, heads: int, most: int) -> None:
    at = 0
    for block in blocks(width * heads, heads, most):
        assert block.lo == at
        assert 0 < block.hi - block.lo <= most
        assert block.lo // width == block.head
        assert (block.hi - 1) // width == block.head + block.count - 1
        at = block.hi
    assert at == width * heads


def reference_passing(a: np.ndarray, b: np.ndarray, tolerance: Tolerance) -> Passing:
    d, y = np.abs(a.astype(np.float64) - b), np.abs(b.astype(np.float64))
    with np.errstate(divide="ignore", invalid="ignore"):
        need = np.where(d > tolerance.atol, (d - tolerance.atol) / y, 0.0)
    return Passing(need.max() if need.max() <= LOOSE else np.inf, tolerance)


@pytest.mark.parametrize("noise", [1e-7, 1e-4, 0.5])
@pytest.mark.parametrize("tolerance", [Tolerance(1.3e-6, 1e-5), Tolerance(0.1, 0.0), Tolerance(0.0, 0.2)])
def test_the_minimum_passing_tolerance_passes_and_less_does_not(noise: float, tolerance: Tolerance) -> None:
    rng = np.random.default_rng(3)
    b = rng.standard_normal((5, 30_000)).astype(np.float32)
    a = (b + noise * rng.standard_normal(b.shape)).astype(np.float32)
    diff = diff_tensors(a, b, tolerance)
    wanted = reference_passing(a, b, tolerance)
    assert diff.passing.rtol == pytest.approx(wanted.rtol, rel=1e-12)
    close = np.isclose(a.astype(np.float64), b, rtol=tolerance.rtol, atol=tolerance.atol)
    assert diff.within == close.mean()
    assert diff.passes == bool(close.all())
    if 0 < diff.passing.rtol < np.inf:
        wider = Tolerance(diff.passing.rtol * (1 + 1e-12), tolerance.atol)
        narrower = Tolerance(diff.passing.rtol * (1 - 1e-12), tolerance.atol)
        assert diff_tensors(a, b, wider).passes
        assert not diff_tensors(a, b, narrower).passes


def test_a_difference_against_zero_passes_with_no_relative_tolerance() -> None:
    diff = diff_tensors(np.array([1.0, 1.0], np.float32), np.array([0.0, 1.0], np.float32))
    assert diff.passing.rtol == float("inf")
    assert diff.within == 0.5


def test_default_tolerances_are_those_of_torch() -> None:
    assert default_tolerance("float32") == Tolerance(1.3e-6, 1e-5)
    assert default_tolerance("bfloat16") == Tolerance(1.6e-2, 1e-5)
    assert default_tolerance("float16", "float32") == Tolerance(1e-3, 1e-5)
    assert default_tolerance("int64") == Tolerance(0.0, 0.0)
    b = np.linspace(1, 2, 1000, dtype=np.float32)
    assert diff_tensors(b * np.float32(1.0005), b).passing.dtype() == "float16"
    assert diff_tensors(b * np.float32(1.5), b).passing.dtype() == ""
    assert set(DEFAULTS) == {"float16", "bfloat16", "float32", "float64"}


def test_nan_and_infinity_are_counted_and_never_averaged() -> None:
    b = np.ones((2, 50, 50), np.float32)
    a = b.copy()
    a[0, 0, :3] = np.nan
    b[0, 0, 0] = np.nan
    a[1, 2, 2], b[1, 2, 2] = np.inf, np.inf
    a[1, 3, 3], b[1, 3, 3] = np.inf, -np.inf
    a[0, 9, 9] = 1.25
    diff = diff_tensors(a, b)
    assert (diff.nan_a, diff.nan_b, diff.inf_a, diff.inf_b) == (3, 1, 2, 2)
    assert diff.mismatched == 3
    assert not diff.passes
    assert diff.passing.rtol == float("inf")
    assert diff.max_abs == 0.25
    assert diff.mean_abs == pytest.approx(0.25 / (b.size - 5))
    assert diff.error == pytest.approx(0.25 / np.sqrt(b.size - 5), rel=1e-5)


@pytest.mark.parametrize("head", [0, 1, 2])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_one_value_that_is_not_finite_is_found_in_any_head(head: int, bad: float) -> None:
    b = np.random.default_rng(11).standard_normal((3, 64, 64)).astype(np.float32)
    a = b + np.float32(0.5)
    a[head, 5, 6] = bad
    diff = diff_tensors(a, b)
    assert diff.nan_a + diff.inf_a == diff.mismatched == 1
    assert diff.max_abs == np.delete(np.abs(a - b), head * 4096 + 5 * 64 + 6).max()
    assert np.isfinite([diff.error, diff.mean_abs, diff.rel, *(h.error for h in diff.heads)]).all()
    assert diff.mean_abs == pytest.approx(0.5, rel=1e-6)
    assert diff.percentile_count == b.size - 1


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e20, 1e30])
def test_squares_that_leave_float32_are_still_summed(scale: float) -> None:
    rng = np.random.default_rng(5)
    b = (scale * rng.standard_normal((2, 40, 40))).astype(np.float32)
    a = (b * np.float32(1.01)).astype(np.float32)
    diff = diff_tensors(a, b)
    assert diff.error == pytest.approx(naive(a, b)["error"], rel=1e-12)
    assert diff.rel == pytest.approx(naive(a, b)["rel"], rel=1e-4)
    assert moments(a, b).error == diff.error


@pytest.mark.parametrize("factor", [1e9, 1e5, 300.0, 1.0, 1e-5, -1e-9])
def test_the_cosine_holds_whatever_the_norms_are(factor: float) -> None:
    rng = np.random.default_rng(15)
    b = rng.standard_normal((3, 40, 50)).astype(np.float32)
    along = (b * factor + factor * 1e-4 * rng.standard_normal(b.shape)).astype(np.float32)
    across = (factor * rng.standard_normal(b.shape)).astype(np.float32)
    for a in (along, across):
        assert diff_tensors(a, b).cosine == pytest.approx(naive(a, b)["cosine"], abs=1e-14)


def test_equal_tensors_with_nan_and_infinity_count_them() -> None:
    a = np.zeros((2, 64), np.float32)
    a[0, 1], a[1, 3], a[1, 4] = np.nan, np.inf, -np.inf
    diff = diff_tensors(a, a.copy())
    assert diff.equal and not diff.zero_a and not diff.zero_b
    assert (diff.nan_a, diff.nan_b, diff.inf_a, diff.inf_b, diff.mismatched) == (1, 1, 2, 2, 0)
    assert (diff.max_abs, diff.mean_abs, diff.within) == (0.0, 0.0, 1.0)
    b = np.full((2, 64), 2.0, np.float32)
    b[0, 0] = np.nan
    assert diff_tensors(b, b.copy()).norm_a == pytest.approx(2.0 * np.sqrt(127), rel=1e-6)


@pytest.mark.filterwarnings("error")
def test_a_difference_that_leaves_the_dtype_is_the_largest_there_is() -> None:
    h = np.full((1, 8, 8), 1.0, np.float32)
    h[0, 2, 2] = 3e38
    diff = diff_tensors(h, -h)
    assert diff.max_abs == pytest.approx(6e38)
    assert np.isfinite([diff.mean_abs, diff.error, *diff.percentiles]).all()
    assert diff.mismatched == diff.inf_a == 0


def test_a_tiny_difference_of_large_values_is_not_lost() -> None:
    b = np.full((1, 8, 8), 1e-12, np.float32)
    a = b.copy()
    a[0, 3, 3] = np.nextafter(np.float32(1e-12), np.float32(1))
    diff = diff_tensors(a, b)
    assert diff.error == pytest.approx(naive(a, b)["error"], rel=1e-5)
    assert diff.error > 0
    assert moments(a, b).error > 0


def test_zero_against_something_has_error_one_the_other_way_round_infinite() -> None:
    b = np.random.default_rng(7).standard_normal((2, 8, 8)).astype(np.float32)
    zero = np.zeros_like(b)
    assert diff_tensors(zero, b).error == 1.0
    assert diff_tensors(zero, b).zero_a
    assert diff_tensors(b, zero).error == float("inf")
    assert diff_tensors(b, zero).zero_b
    assert diff_tensors(zero, zero).error == 0.0
    assert np.isnan(diff_tensors(zero, b).cosine)


@pytest.mark.parametrize("low", ["bfloat16", "float16"])
def test_mixed_dtypes_are_decoded_exactly(low: str) -> None:
    b = np.random.default_rng(8).standard_normal((3, 50, 50)).astype(np.float32)
    diff = diff_tensors(tensor_data(b, low), tensor_data(b))
    assert 0 < diff.max_abs < 4 * {"bfloat16": 2.0**-8, "float16": 2.0**-11}[low]
    assert not diff.equal
    assert diff.passes


def test_float64_and_integers_are_compared_in_float64() -> None:
    b = np.array([1.0, 2.0**40], np.float64)
    diff = diff_tensors(b + np.array([1e-12, 0.0]), b)
    assert diff.max_abs == pytest.approx(1e-12, rel=1e-3)
    whole = np.array([2**40, 3], np.int64)
    assert diff_tensors(whole + np.array([1, 0]), whole).max_abs == 1.0


def test_percentiles_of_a_small_tensor_are_exact() -> None:
    a = np.arange(101, dtype=np.float32)
    diff = diff_tensors(a, np.zeros_like(a))
    assert diff.percentiles == pytest.approx(PERCENTS)
    assert diff.percentile_count == 101


def test_percentiles_of_a_large_tensor_come_from_samples_of_every_column() -> None:
    size = 8 * SAMPLES
    a = np.tile(np.arange(128, dtype=np.float32), size // 128)
    diff = diff_tensors(a, np.zeros_like(a))
    assert SAMPLES // 2 < diff.percentile_count <= SAMPLES + 1
    assert diff.percentiles == pytest.approx(np.percentile(a, PERCENTS), abs=1.0)


def test_zeros_of_both_signs_are_counted() -> None:
    a = np.array([0.0, -0.0, 1.0], np.float32)
    diff = diff_tensors(a, np.ones(3, np.float32))
    assert (diff.zeros_a, diff.zeros_b) == (2, 0)
    a[2] = np.nan
    assert diff_tensors(a, np.zeros(3, np.float32)).zeros_b == 3


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_large_tensors_are_counted_exactly(share: float) -> None:
    rng = np.random.default_rng(13)
    b = 1 + rng.random(4 << 20, dtype=np.float32)
    wrong = rng.random(b.size) < share
    a = np.where(wrong, b + np.float32(3.0), b)
    a[0], b[0] = 1.0, 0.0
    diff = diff_tensors(a, b)
    close = np.isclose(a.astype(np.float64), b, rtol=1.3e-6, atol=1e-5)
    assert not diff.passes
    assert diff.passing.rtol == np.inf
    assert diff.within == close.mean()
    assert diff_tensors(a, b, Tolerance(0.0, 4.0)).passes
    exact = diff_tensors(a, b, Tolerance(2.0, 0.0))
    assert exact.within == np.isclose(a.astype(np.float64), b, rtol=2.0, atol=0.0).mean()
    assert not exact.passes
    one = b.copy()
    one[-5] += np.float32(0.5)
    found = diff_tensors(one, b)
    assert not found.passes
    assert found.within == 1 - 1 / b.size
    assert found.passing.rtol == pytest.approx((float(one[-5]) - float(b[-5]) - 1e-5) / float(b[-5]), rel=1e-12)


def test_empty_tensors_are_equal() -> None:
    diff = diff_tensors(np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32))
    assert diff.equal
    assert (diff.count, diff.within, diff.mean_abs) == (0, 1.0, 0.0)


@given(
    arrays_of.arrays(np.float32, st.integers(1, 60), elements=st.floats(-1e4, 1e4, width=32)),
    arrays_of.arrays(np.float32, st.integers(1, 60), elements=st.floats(-1e4, 1e4, width=32)),
)
@settings(max_examples=150, deadline=None)
def test_any_two_tensors(a: np.ndarray, b: np.ndarray) -> None:
    size = min(a.size, b.size)
    a, b = a[:size], b[:size]
    diff = diff_tensors(a, b)
    assert diff.equal == (a.tobytes() == b.tobytes())
    assert 0.0 <= diff.rel <= 2.0 + 1e-6
    assert diff.within == pytest.approx(np.isclose(a.astype(float), b, rtol=1.3e-6, atol=1e-5).mean(), abs=1.01 / size)
    swapped = diff_tensors(b, a)
    assert swapped.rel == pytest.approx(diff.rel, rel=1e-6, abs=1e-12)
    assert swapped.max_abs == diff.max_abs


def test_rounding_disappears_in_the_lower_dtype_and_an_error_does_not() -> None:
    rng = np.random.default_rng(9)
    b = rng.standard_normal((4, 64, 64)).astype(np.float32)
    rounding = cast_difference(b * np.float32(1 + 1e-6), b)
    assert rounding.dtype == "bfloat16"
    assert rounding.max_steps <= 1
    assert rounding.share_equal > 0.999
    wrong = cast_difference(b + np.float32(0.1), b)
    assert wrong.max_steps > 100
    assert wrong.share_equal < 0.1
    half = cast_difference(tensor_data(b, "float16"), tensor_data(b))
    assert (half.dtype, half.differing, half.max_steps) == ("float16", 0, 0)


def test_steps_count_representable_values_across_zero() -> None:
    tiny = np.float32(2.0**-133)
    found = cast_difference(np.array([tiny], np.float32), np.array([-tiny], np.float32), "bfloat16")
    assert found.max_steps == 2
    assert cast_difference(np.array([0.0], np.float32), np.array([-0.0], np.float32)).differing == 0
