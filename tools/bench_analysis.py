"""Speed and memory of the state comparison on two states of the size of the largest known model (160 MiB each).

    python tools/bench_analysis.py [--mib 160] [--repeat 5]

One core. Bandwidth is that of ``numpy.dot`` over both states: every byte read once, next to nothing computed. The
target is a third of it for ``diff_tensors`` with all its numbers. Times are the best of the repeats; a busy machine
shows less.
"""

from __future__ import annotations

import os

# Before numpy is imported: the comparison is measured on one core.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
import platform
import time
import tracemalloc
from collections.abc import Callable, Iterator

import numpy as np

from engine.events import TensorData
from inspector.analysis.casting import cast_difference
from inspector.analysis.diff import diff_tensors
from inspector.analysis.moments import moments
from inspector.analysis.stats import tensor_stats
from inspector.analysis.verdict import LayerState, judge

TARGET = 1 / 3
HEAD = (128, 128)
HEADS, CHANNELS = 48, 10240


def best(work: Callable[[], object], repeat: int) -> float:
    """Shortest wall time in seconds."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def peak(work: Callable[[], object]) -> int:
    """Most bytes allocated at once by Python and numpy while working."""
    tracemalloc.start()
    work()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


def states(mib: int, seed: int) -> tuple[dict[int, LayerState], np.ndarray]:
    """A state of about ``mib`` MiB in layers of 48 heads, and its h in one piece."""
    rng = np.random.default_rng(seed)
    layer = (HEADS * HEAD[0] * HEAD[1] + CHANNELS * 4) * 4
    layers = max(1, round(mib * 2**20 / layer))
    h = rng.standard_normal((layers, HEADS, *HEAD), dtype=np.float32)
    conv = rng.standard_normal((layers, CHANNELS, 4), dtype=np.float32)
    return {n: LayerState(h[n], conv[n]) for n in range(layers)}, h.reshape(-1, *HEAD)


def bench_diff(mib: int, repeat: int) -> Iterator[dict[str, object]]:
    """One record per case: ``share`` is the part of the measured bandwidth."""
    rng = np.random.default_rng(7)
    expected, b = states(mib, 1)
    cases = {
        "equal": b.copy(),
        "rounding": b * np.float32(1 + 1e-6),
        "percents": b * np.float32(1 + 1e-2),
        "gross": b + np.float32(0.1) * rng.standard_normal(b.shape, dtype=np.float32),
    }
    size = 2 * b.nbytes
    left, right = cases["gross"].reshape(-1), b.reshape(-1)
    ceiling = size / best(lambda: np.dot(left, right), repeat)
    yield {"what": "bandwidth (dot)", "gb_per_s": round(ceiling / 1e9, 2)}
    for name, a in cases.items():
        for what, work in (
            ("diff", lambda a=a: diff_tensors(a, b)),
            ("moments", lambda a=a: moments(a, b)),
            ("cast", lambda a=a: cast_difference(a, b)),
        ):
            if what == "cast" and name != "rounding":
                continue
            speed = size / best(work, repeat)
            record: dict[str, object] = {"what": f"{what}, {name}", "gb_per_s": round(speed / 1e9, 2)}
            record["share"] = round(speed / ceiling, 3)
            if what == "diff":
                record["target"] = speed / ceiling >= TARGET
                record["extra_mib"] = round(peak(work) / 2**20, 2)
            yield record
    yield {"what": "stats", "gb_per_s": round(b.nbytes / best(lambda: tensor_stats(b), repeat) / 1e9, 2)}
    noisy = {
        n: LayerState(np.asarray(line.h) * np.float32(1 + 1e-6), np.asarray(line.conv) * np.float32(1 + 1e-6))
        for n, line in expected.items()
    }
    yield {"what": "judge, rounding", "ms": round(best(lambda: judge(noisy, expected), repeat) * 1e3, 1)}
    raw = {n: LayerState(_plain(line.h), _plain(line.conv)) for n, line in expected.items()}
    again = {n: LayerState(_plain(line.h), _plain(line.conv)) for n, line in expected.items()}
    yield {"what": "judge, bitwise", "ms": round(best(lambda: judge(again, raw), repeat) * 1e3, 1)}


def _plain(tensor: object) -> TensorData:
    array = np.asarray(tensor)
    return TensorData(array.dtype.name, array.shape, array.tobytes())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=160, help="size of one state")
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    load = os.getloadavg()[0]
    print(json.dumps({"machine": platform.processor() or platform.machine(), "numpy": np.__version__, "load": load}))
    for record in bench_diff(options.mib, options.repeat):
        print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
