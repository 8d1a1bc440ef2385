"""The compiled loop against numpy; where it is kept."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from engine.events import TensorData
from inspector.analysis.diff import diff_tensors
from inspector.analysis.kernel import CHUNK
from inspector.analysis.tolerance import LOOSE, Tolerance

SAME = (
    "from inspector.analysis.diff import diff_tensors as d; import numpy as n; print(d(n.ones(9), n.zeros(9)).max_abs)"
)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Two tensors of any values, NaN, infinities and the largest ones among them; long ones of which little differs."""
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    width = 32 if dtype is np.float32 else 64
    size = draw(st.sampled_from([1, 7, 64, CHUNK, CHUNK + 3, 3 * CHUNK]))
    some = st.floats(width=width) | st.floats(-100, 100, width=width) | st.just(0.0)
    values = arrays_of.arrays(dtype, size, elements=some, fill=some)
    return draw(values), draw(values)


@given(pairs(), st.sampled_from([Tolerance(1e-3, 1e-2), Tolerance(0.0, 0.0), Tolerance(0.5, 1e30)]))
@settings(max_examples=150, deadline=None)
def test_any_values_are_counted_as_numpy_counts_them(
    sides: tuple[np.ndarray, np.ndarray], tolerance: Tolerance
) -> None:
    a, b = sides
    diff = diff_tensors(a, b, tolerance)
    with np.errstate(all="ignore"):
        x, y = a.astype(np.float64), b.astype(np.float64)
        fine = np.isfinite(x) & np.isfinite(y)
        d = np.minimum(np.abs(x - y)[fine], np.finfo(np.float64).max)
        alike = np.isnan(x) & np.isnan(y) | (np.isinf(x) & np.isinf(y) & (x == y))
        outside = d > tolerance.atol + tolerance.rtol * np.abs(y[fine])
        needs = np.where(d > tolerance.atol, (d - tolerance.atol) / np.abs(y[fine]), 0.0)
        need = max(needs, default=0.0) if not diff.mismatched else np.inf
    assert diff.passing.rtol == pytest.approx(need if need <= LOOSE else np.inf, rel=1e-12)
    assert diff.percentile_count == (d < np.finfo(np.float64).max).sum() or a.dtype == np.float64
    assert diff.equal == (a.tobytes() == b.tobytes())
    assert (diff.nan_a, diff.nan_b) == (np.isnan(x).sum(), np.isnan(y).sum())
    assert (diff.inf_a, diff.inf_b) == (np.isinf(x).sum(), np.isinf(y).sum())
    assert (diff.zeros_a, diff.zeros_b) == ((x == 0).sum(), (y == 0).sum())
    assert diff.mismatched == (~fine & ~alike).sum()
    assert diff.max_abs == (d.max() if d.size else 0.0)
    if diff.worst:
        assert min(abs(diff.worst.difference), np.finfo(np.float64).max) == diff.max_abs
    # |a-b| of an element may be the tolerance to the last bit, which a fused multiplication rounds otherwise
    edge = np.isclose(d, tolerance.atol + tolerance.rtol * np.abs(y[fine]), rtol=1e-15, atol=0.0).sum()
    wrong = round((1.0 - diff.within) * a.size) - diff.mismatched
    assert outside.sum() - edge <= wrong <= outside.sum() + edge


@pytest.mark.parametrize("offset", [0, 1, 3])
def test_bytes_at_any_address_are_read(offset: int) -> None:
    rng = np.random.default_rng(offset)
    b = rng.standard_normal(5000).astype(np.float32)
    a = b + np.float32(0.25)
    raw = bytearray(offset) + a.tobytes()
    left = np.frombuffer(memoryview(raw)[offset:], np.float32)
    assert left.flags.aligned == (offset == 0)
    assert diff_tensors(left, TensorData("float32", b.shape, b.tobytes())) == diff_tensors(a, b)


def test_the_result_does_not_depend_on_where_tensors_are_cut() -> None:
    rng = np.random.default_rng(2)
    b = rng.standard_normal((6, CHUNK // 2 + 1)).astype(np.float32)
    a = b + rng.standard_normal(b.shape).astype(np.float32)
    parts = [diff_tensors(x, y) for x, y in zip(a, b, strict=True)]
    whole = diff_tensors(a, b, heads=6)
    assert [head.error for head in whole.heads] == [part.error for part in parts]
    assert [head.max_abs for head in whole.heads] == [part.max_abs for part in parts]


def compared(**variables: str) -> str:
    """Compare in a process of its own; what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", SAME], capture_output=True, text=True, check=True, env={**os.environ, **variables}
    )
    return done.stdout


def kept(folder: Path) -> dict[str, int]:
    """The files of compiled code and when each was written."""
    return {path.name: path.stat().st_mtime_ns for path in folder.rglob("*.nb?")}


def test_the_loop_is_kept_for_the_next_time(tmp_path: Path) -> None:
    assert compared(NUMBA_CACHE_DIR=str(tmp_path)) == "1.0\n"
    first = kept(tmp_path)
    assert len(first) == 2
    assert compared(NUMBA_CACHE_DIR=str(tmp_path)) == "1.0\n"
    assert kept(tmp_path) == first


def test_without_a_folder_to_keep_it_in_it_is_compiled_again(tmp_path: Path) -> None:
    # the only place left to it is a zip archive, which this is not
    places = {"NUMBA_CACHE_DIR": str(tmp_path), "NUMBA_CACHE_LOCATOR_CLASSES": "ZipCacheLocator"}
    assert compared(**places) == "1.0\n"
    assert kept(tmp_path) == {}


def bits(*values: int) -> np.ndarray:
    """float32 values by their bits."""
    return np.array(values, np.uint32).view(np.float32)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (bits(0x80000000, 1), bits(0, 1)),
        (bits(0x7FA00000, 1), bits(0x7FE00000, 1)),  # NaN that signals and the quiet one of the same payload
        (bits(0x7FC00001), bits(0x7FC00002)),
        (np.array([2**53 + 1]), np.array([2**53])),
    ],
)
def test_equal_means_every_bit_also_where_values_are_the_same(a: np.ndarray, b: np.ndarray) -> None:
    assert not diff_tensors(a, b).equal
    assert diff_tensors(a, a.copy()).equal


def test_commands_that_compare_nothing_do_not_wait_for_the_compiler() -> None:
    code = "import sys, inspector.cli, inspector.analysis.verdict; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
