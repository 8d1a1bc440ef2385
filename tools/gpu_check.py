#!/usr/bin/env python3
"""Checks on a machine with an NVIDIA GPU, in one run of a few minutes; writes one JSON file.

    python tools/gpu_check.py --out gpu.json

Runs the tests marked ``cuda``, compares CPU and CUDA states of one session, measures the copies of the state memory
against plain copies of the same bytes, and a step of a wide random model against the time to read its weights.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from engine.checkpoint import LoadedModel  # noqa: E402
from engine.config import EngineConfig, ModelConfig  # noqa: E402
from engine.engine import Engine, open_engine  # noqa: E402
from engine.events import NewRequest, Place, RunRound, TensorRef  # noqa: E402
from engine.weights import ModelWeights  # noqa: E402
from tools.random_model import random_model, weight_bytes, wide_config  # noqa: E402


def gpu_milliseconds(work: Callable[[], Any], repeats: int = 30) -> float:
    """Median time of ``work`` between two events on the current stream."""
    for _ in range(3):
        work()
    times = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        work()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def marked_tests() -> dict[str, Any]:
    """The tests that need a GPU."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "cuda", "-p", "no:cacheprovider", str(ROOT / "tests")],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    return {"exit": done.returncode, "summary": done.stdout.strip().splitlines()[-1:], "tail": done.stdout[-2000:]}


def session(device: str, outputs: int) -> Engine:
    """The bundled model in fp32 with ``outputs`` forced tokens behind a short prompt."""
    engine = open_engine(None, EngineConfig(device=device, dtype="float32", prefix_caching=False))
    list(engine.perform(NewRequest(prompt=tuple(range(40, 64)), max_tokens=400, ignore_eos=True)))
    for index in range(outputs):
        list(engine.perform(RunRound(req=1, drafts=None if index == 0 else (), token=100 + index)))
    list(engine.rt.sync_secondary(1))
    return engine


def states(outputs: int = 64) -> dict[str, Any]:
    """Relative Frobenius error of h and conv, CUDA against CPU, per recurrent layer."""
    cpu, cuda = session("cpu", outputs), session("cuda", outputs)
    rows = []
    for layer in cpu.model.geometry.recurrent_layers:
        errors = {}
        for part in ("h", "conv"):
            a, b = (
                torch.frombuffer(
                    bytearray(engine.read(TensorRef(Place("live", 0), layer, part)).raw), dtype=torch.float32
                )
                for engine in (cpu, cuda)
            )
            errors[part] = float((a - b).norm() / a.norm())
        rows.append({"layer": layer, **errors})
    return {"outputs": outputs, "layers": rows, "largest": max(max(row["h"], row["conv"]) for row in rows)}


def copies(engine: Engine) -> dict[str, Any]:
    """Each operation of the state memory against one plain copy of the same bytes."""
    memory, seq = engine.rt.memory, engine.rt.requests[1].seq
    size = memory.geometry.blob_bytes
    source = torch.empty(size // 4, dtype=torch.float32, device="cuda")
    target = torch.empty_like(source)
    plain = gpu_milliseconds(lambda: target.copy_(source))

    def commit() -> None:
        memory.commit_accepted_prefix(seq, 2, 4)
        memory.sync_secondary()

    work = {
        "checkpoint": lambda: memory.checkpoint_ssm_states(seq),
        "commit": commit,
        "ring_save": lambda: memory.save_decode_ssm_snapshot(seq, 0),
        "ring_restore": lambda: memory.restore_decode_ssm_snapshot(seq, 0),
    }
    figures = {name: gpu_milliseconds(job) for name, job in work.items()}
    return {
        "bytes": size,
        "plain_ms": plain,
        "plain_GB_per_s": 2 * size / plain / 1e6,
        "ms": figures,
        "ratio": {name: value / plain for name, value in figures.items()},
    }


def wide() -> tuple[Engine, dict[str, Any]]:
    """Step time of a random bf16 model, hidden 2048, 24 layers, against reading its weights once."""
    config: ModelConfig = wide_config(hidden=2048, layers=24, vocab=32768)
    weights: ModelWeights = random_model(config, torch.bfloat16, "cuda")
    loaded = LoadedModel(config, weights, None, "wide", "random", "bfloat16", torch.device("cuda"), [])
    engine = Engine(loaded, EngineConfig(device="cuda", ring=2, prefix_caching=False, drafter="none", digests=False))
    list(engine.perform(NewRequest(prompt=tuple(range(40, 72)), max_tokens=200, ignore_eos=True)))
    list(engine.perform(RunRound(req=1)))
    seq = engine.rt.requests[1].seq
    seq.table.reserve(seq.cursor + 8)
    step = gpu_milliseconds(lambda: engine.model.step(50, engine.rt.memory.pool, seq.slot, seq.table, seq.cursor))
    size = weight_bytes(weights)
    block = torch.empty(1 << 30, dtype=torch.uint8, device="cuda").view(torch.float32)
    read = gpu_milliseconds(lambda: block.sum())
    bandwidth = (1 << 30) / read / 1e6
    bound = size / bandwidth / 1e6
    return engine, {
        "config": {"hidden": config.hidden, "layers": config.layers, "vocab": config.vocab, "dtype": "bfloat16"},
        "weight_bytes": size,
        "read_GB_per_s": bandwidth,
        "bound_ms": bound,
        "step_ms": step,
        "share_of_bound": bound / step,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("gpu_check.json"))
    out: Path = parser.parse_args().out
    if not torch.cuda.is_available():
        print("no usable CUDA device: this script needs an NVIDIA GPU and a torch built for it", file=sys.stderr)
        return 2
    properties = torch.cuda.get_device_properties(0)
    report: dict[str, Any] = {
        "device": properties.name,
        "memory_bytes": properties.total_memory,
        "torch": torch.__version__,
        "config": asdict(EngineConfig()),
    }
    report["states"] = states()
    engine, report["wide"] = wide()
    report["copies"] = copies(engine)
    report["tests"] = marked_tests()
    temporary = out.with_suffix(".tmp")
    temporary.write_text(json.dumps(report, indent=1) + "\n")
    temporary.replace(out)
    print(json.dumps({name: report[name] for name in ("device", "wide", "copies")}, indent=1))
    return 0 if report["tests"]["exit"] == 0 and report["states"]["largest"] < 1e-4 else 1


if __name__ == "__main__":
    raise SystemExit(main())
