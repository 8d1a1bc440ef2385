"""Benchmark of the engine against ``transformers``: ratios in one run, same weights, same thread count.

    python tools/bench_engine.py [--sections decode,verify,prefill] [--models bundled,wide] [--dtypes float32,bfloat16]
                                 [--threads 1,2] [--bundled PATH] [--json FILE]

Needs the test extra. Each section is a function from a ``Subject`` (one model, dtype and thread count) to figures by
name; they are measured alternately with what they are compared with, and medians are reported. The wide model has the
shape of a 0.8B checkpoint with a vocabulary of 32k and random weights; it needs 10 GB of memory.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import transformers

from engine.checkpoint import inspect_checkpoint
from engine.config import ModelConfig
from engine.demo import demo_path
from engine.layers.linear import Packed, Plain, Projection, Transposed
from engine.model import HybridModel
from engine.naming import canonical
from engine.state.paged_kv import KvTable, PagedKv
from engine.state.state_pool import SsmStatePool
from engine.weights import WeightBuilder

CLASSES = {
    "qwen3_next": "Qwen3NextForCausalLM",
    "qwen3_5": "Qwen3_5ForCausalLM",
    "qwen3_5_moe": "Qwen3_5MoeForCausalLM",
}
WIDE = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "intermediate_size": 3584,
    "vocab_size": 32768,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 16,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "tie_word_embeddings": True,
}
PROMPT, K, KV_TOKENS = 64, 4, 2048

Figures = dict[str, float]


@dataclass
class Subject:
    """One model in both implementations. ``steps`` is how many decode steps one measurement takes."""

    name: str
    dtype: torch.dtype
    threads: int
    reference: Any
    config: ModelConfig
    steps: int
    rounds: int

    @cached_property
    def model(self) -> HybridModel:
        names = {canonical(name): tensor for name, tensor in self.reference.state_dict().items()}
        if self.config.tied:
            names.pop("lm_head.weight", None)
        builder = WeightBuilder(self.config, names, names.__getitem__, self.dtype, torch.device("cpu"))  # type: ignore[arg-type]
        return HybridModel(self.config, builder.build())

    @cached_property
    def pool(self) -> SsmStatePool:
        return SsmStatePool(self.model.geometry, 1, K, act_dtype=self.dtype)

    @cached_property
    def table(self) -> KvTable:
        kv = PagedKv(self.model.kv_layers, self.config.kv_heads, self.config.head_dim, KV_TOKENS // 16, 16, self.dtype)
        table = KvTable(kv)
        table.reserve(KV_TOKENS)
        return table

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights one token reads: everything once, a tied table once, no embedding table that is only looked
        up in; of experts those that are chosen."""
        total = 0
        for name, tensor in self.reference.state_dict().items():
            # a tied matrix is in the dictionary twice
            if name.endswith("lm_head.weight" if self.config.tied else "embed_tokens.weight"):
                continue
            share = self.config.moe.top_k / self.config.moe.experts if self.config.moe and ".experts." in name else 1.0
            total += int(tensor.numel() * tensor.itemsize * share)
        return total


def median_of(rounds: int, *calls: Callable[[], int]) -> list[float]:
    """Median seconds per unit of each call (which returns how many units it did), measured in turns."""
    for call in calls:
        call()
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, seen in zip(calls, times, strict=True):
            begin = time.perf_counter()
            units = call()
            seen.append((time.perf_counter() - begin) / units)
    return [statistics.median(seen) for seen in times]


def read_bandwidth(threads: int) -> float:
    """Bytes per second of reading half a gigabyte that is in no cache."""
    data = torch.ones(1 << 27)
    (seconds,) = median_of(7, lambda: int(data.sum() > 0))
    return data.numel() * 4 / seconds


# ------------------------------------------------------------------------------------------------------- sections


def decode(subject: Subject) -> Figures:
    """Cached decode step, against transformers with its own cache."""
    ids = list(range(PROMPT))
    cache = transformers.DynamicCache(config=subject.reference.config)
    positions = iter(range(PROMPT, 1 << 30))
    with torch.inference_mode():
        subject.reference(input_ids=torch.tensor([ids]), position_ids=torch.arange(PROMPT)[None], cache=cache)
    subject.model.prefill(ids, subject.pool, 0, subject.table, 0)

    def theirs() -> int:
        with torch.inference_mode():
            for _ in range(subject.steps):
                place = torch.tensor([[next(positions)]])
                subject.reference(input_ids=torch.tensor([[7]]), position_ids=place, cache=cache)
        return subject.steps

    def ours() -> int:
        for i in range(subject.steps):
            subject.model.step(7, subject.pool, 0, subject.table, PROMPT + i)
        return subject.steps

    mine, other = median_of(subject.rounds, ours, theirs)
    bound = subject.weight_bytes / read_bandwidth(subject.threads)
    return {
        "step_ms": mine * 1e3,
        "transformers_step_ms": other * 1e3,
        "times_faster": other / mine,
        "weight_mb": subject.weight_bytes / 1e6,
        "share_of_bound": bound / mine,
    }


def verify(subject: Subject) -> Figures:
    """Verify of K = 4 in batched mode (with step planes), against single steps."""
    tokens = list(range(5, 5 + K))

    def single() -> int:
        for i in range(subject.steps):
            subject.model.step(7, subject.pool, 0, subject.table, PROMPT + i)
        return subject.steps

    def batched() -> int:
        count = max(1, subject.steps // 2)
        for _ in range(count):
            subject.model.verify(tokens, subject.pool, 0, subject.table, PROMPT, steps=True)
        return count

    step, rows = median_of(subject.rounds, single, batched)
    return {"step_ms": step * 1e3, "verify_ms": rows * 1e3, "verify_in_steps": rows / step}


def prefill(subject: Subject) -> Figures:
    """Prefill of 256 tokens in one chunk, against transformers."""
    ids = list(range(256))
    reference, config = subject.reference, subject.reference.config

    def theirs() -> int:
        cache = transformers.DynamicCache(config=config)
        with torch.inference_mode():
            reference(
                input_ids=torch.tensor([ids]), position_ids=torch.arange(256)[None], cache=cache, logits_to_keep=1
            )
        return len(ids)

    def ours() -> int:
        subject.model.prefill(ids, subject.pool, 0, subject.table, 0)
        return len(ids)

    mine, other = median_of(max(3, subject.rounds // 3), ours, theirs)
    return {"tokens_per_s": 1 / mine, "transformers_tokens_per_s": 1 / other, "times_faster": other / mine}


def products(subject: Subject) -> Figures:
    """GB/s of one row, then of four, through cold matrices of the wide model in every form a weight can be kept in."""
    rows, columns, count = 7168, 1024, 16
    weights = [torch.randn(rows, columns).to(subject.dtype) for _ in range(count)]
    size = count * weights[0].numel() * weights[0].itemsize
    figures = {}
    for name, form in {"plain": Plain, "transposed": Transposed, "packed": Packed}.items():
        made = [form(weight) for weight in weights]
        one, four = torch.randn(columns).to(subject.dtype), torch.randn(K, columns).to(subject.dtype)
        out = torch.empty(rows, dtype=subject.dtype)

        def row(made: Sequence[Projection] = made, x: torch.Tensor = one, out: torch.Tensor = out) -> int:
            for matrix in made:
                matrix.row(x, out)
            return 1

        def several(made: Sequence[Projection] = made, x: torch.Tensor = four) -> int:
            for matrix in made:
                matrix.rows(x)
            return 1

        with torch.inference_mode():
            seconds = median_of(subject.rounds, row, several)
        figures |= {f"{name}_1": size / seconds[0] / 1e9, f"{name}_4": size / seconds[1] / 1e9}
    return {"read": read_bandwidth(subject.threads) / 1e9, **figures}


SECTIONS: dict[str, Callable[[Subject], Figures]] = {
    "decode": decode,
    "verify": verify,
    "prefill": prefill,
    "products": products,
}


# --------------------------------------------------------------------------------------------------------- models


def bundled(path: Path, dtype: torch.dtype) -> tuple[Any, ModelConfig]:
    """The bundled model (folder or self-contained file) in transformers."""
    info = inspect_checkpoint(path)
    folder = path
    if path.is_file():
        folder = Path(tempfile.mkdtemp())
        for name, text in info.side.items():
            (folder / name).write_text(text)
        os.symlink(path.resolve(), folder / "model.safetensors")
    return getattr(transformers, CLASSES[info.config.family]).from_pretrained(folder, dtype=dtype), info.config


def wide(dtype: torch.dtype) -> tuple[Any, ModelConfig]:
    """Random weights of the 0.8B shape."""
    config = transformers.Qwen3_5TextConfig(**WIDE)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        model = transformers.Qwen3_5ForCausalLM(config).eval()
    finally:
        torch.set_default_dtype(before)
    return model, ModelConfig.from_dict(json.loads(config.to_json_string()))


def subjects(args: argparse.Namespace) -> Iterator[Subject]:
    for name in args.models.split(","):
        for dtype_name in args.dtypes.split(","):
            dtype = getattr(torch, dtype_name)
            reference, config = wide(dtype) if name == "wide" else bundled(Path(args.bundled), dtype)
            steps, rounds = (4, 7) if name == "wide" else (50, 15)
            subject = Subject(name, dtype, 1, reference, config, steps, rounds)
            for threads in map(int, args.threads.split(",")):
                torch.set_num_threads(threads)
                subject.threads = threads
                yield subject
            del subject, reference
            gc.collect()


def report(results: Mapping[str, Figures]) -> None:
    for place, figures in results.items():
        print(f"{place:44s} " + "  ".join(f"{name} {value:.3g}" for name, value in figures.items()), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sections", default="decode,verify,prefill")
    parser.add_argument("--models", default="bundled,wide")
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--bundled", default=str(demo_path()))
    parser.add_argument("--json", default="")
    args = parser.parse_args()
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    results: dict[str, Figures] = {}
    for subject in subjects(args):
        for section in args.sections.split(","):
            place = f"{section} {subject.name} {str(subject.dtype)[6:]} threads={subject.threads}"
            found = {place: SECTIONS[section](subject)}
            report(found)
            results.update(found)
    if args.json:
        Path(args.json).write_text(json.dumps(results, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
