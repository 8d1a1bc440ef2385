"""Benchmark of the state memory and of tracing: ratios in one run.

    python tools/bench_memory.py [--models bundled,wide] [--json FILE]

``copies``: checkpoint, commit, ring save and ring restore against one plain copy of the same bytes. ``tracing``: a
round of plain decode with events and digests, with events only, and the bare model step inside it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from engine.checkpoint import LoadedModel, load_checkpoint
from engine.config import EngineConfig
from engine.demo import demo_path
from engine.engine import Engine
from engine.events import NewRequest, RunRound
from tools.random_model import random_model, wide_config

Figures = dict[str, float]
SETTINGS = {"device": "cpu", "threads": 1, "ring": 4, "slots": 2, "prefix_caching": False, "drafter": "none"}


def engine_of(name: str, dtype: str) -> Engine:
    """A running engine with one request that has some outputs."""
    if name == "wide":
        config = wide_config()
        weights = random_model(config, getattr(torch, dtype), "cpu")
        loaded = LoadedModel(config, weights, None, "wide", "random", dtype, torch.device("cpu"), [])
    else:
        loaded = load_checkpoint(demo_path(), dtype=dtype, device="cpu")
    engine = Engine(loaded, EngineConfig(**SETTINGS))
    list(engine.perform(NewRequest(prompt=tuple(range(40, 72)), max_tokens=2000, ignore_eos=True)))
    for _ in range(3):
        list(engine.perform(RunRound(req=1)))
    return engine


def medians(rounds: int, calls: dict[str, Callable[[], None]]) -> dict[str, float]:
    """Median seconds of each call, taken in turns."""
    for call in calls.values():
        call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            begin = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - begin)
    return {name: statistics.median(seen) for name, seen in times.items()}


def copies(engine: Engine, rounds: int) -> Figures:
    """Operations of the state memory, in plain copies of the same bytes."""
    memory, seq = engine.rt.memory, engine.rt.requests[1].seq
    size = memory.geometry.blob_bytes
    source, target = torch.ones(size // 4), torch.empty(size // 4)

    def plain() -> None:
        target.copy_(source)

    def commit() -> None:
        memory.commit_accepted_prefix(seq, 2, 4)
        memory.sync_secondary()

    calls: dict[str, Callable[[], None]] = {
        "plain": plain,
        "checkpoint": lambda: memory.checkpoint_ssm_states(seq) and None,
        "commit": commit,
        "ring_save": lambda: memory.save_decode_ssm_snapshot(seq, 0) and None,
        "ring_restore": lambda: memory.restore_decode_ssm_snapshot(seq, 0) and None,
    }
    seconds = medians(rounds, calls)
    base = seconds.pop("plain")
    return {"bytes": size, "plain_us": base * 1e6, **{name: value / base for name, value in seconds.items()}}


def tracing(engine: Engine, rounds: int) -> Figures:
    """A decode round with digests, without, and the model step alone, in model steps."""
    rt = engine.rt
    request = rt.requests[1]
    request.seq.table.reserve(request.seq.cursor + 4 * rounds + 64)

    def one(digests: bool) -> Callable[[], None]:
        def call() -> None:
            rt.digests_on = digests
            list(engine.perform(RunRound(req=1)))

        return call

    def bare() -> None:
        seq = request.seq
        rt.model.step(50, rt.memory.pool, seq.slot, seq.table, seq.cursor)

    seconds = medians(rounds, {"bare": bare, "events": one(False), "digests": one(True)})
    base = seconds["bare"]
    return {
        "step_ms": base * 1e3,
        "round_with_events": seconds["events"] / base,
        "round_with_digests": seconds["digests"] / base,
        "digests_cost": (seconds["digests"] - seconds["events"]) / seconds["events"],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="bundled,wide")
    parser.add_argument("--json", default="")
    args = parser.parse_args()
    results: dict[str, Figures] = {}
    for name in args.models.split(","):
        for dtype in ("float32", "bfloat16"):
            engine = engine_of(name, dtype)
            for section, rounds in (
                (copies, 200 if name == "bundled" else 40),
                (tracing, 150 if name == "bundled" else 15),
            ):
                place = f"{section.__name__} {name} {dtype}"
                results[place] = section(engine, rounds)
                figures = "  ".join(f"{key} {value:.4g}" for key, value in results[place].items())
                print(f"{place:28s} {figures}", flush=True)
    if args.json:
        Path(args.json).write_text(json.dumps(results, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
