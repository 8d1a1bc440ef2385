"""Counter-seeded sampling: the draw for an output depends on the request's seed and the number of outputs before it,
never on what was drawn earlier. A rewind therefore rewinds the sampler too."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Sampling:
    """``temperature`` 0 is greedy; ``top_k`` 0 and ``top_p`` 1 switch the filters off."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Pick:
    """A chosen token and the lead of the best logit over the second best, in logits."""

    token: int
    margin: float


def uniform(seed: int, counter: int) -> float:
    """A number in [0, 1) from (seed, counter): two rounds of splitmix64, the usual published constants."""
    x = (seed * 0x9E3779B97F4A7C15 + (counter + 1) * 0xD1B54A32D192ED03) & _MASK
    for _ in range(2):
        x = (x + 0x9E3779B97F4A7C15) & _MASK
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
        x ^= x >> 31
    return (x >> 11) / float(1 << 53)


def pick(logits: Tensor, sampling: Sampling, counter: int) -> Pick:
    """Choose from ``logits`` [V] fp32. ``counter`` is the number of outputs before this one (plus the verify row).

    NaN logits choose the first NaN, as ``argmax`` does, with margin NaN: the caller sees it in the event.
    """
    best = torch.topk(logits, min(2, logits.numel()))
    values = best.values.tolist()
    margin = values[0] - values[1] if len(values) > 1 else float("inf")
    if sampling.temperature <= 0:
        return Pick(int(best.indices[0]), margin)
    return Pick(_draw(logits, sampling, counter), margin)


def _draw(logits: Tensor, sampling: Sampling, counter: int) -> int:
    scaled = logits.double().cpu() / sampling.temperature
    if sampling.top_k and sampling.top_k < scaled.numel():
        floor = torch.topk(scaled, sampling.top_k).values[-1]
        scaled = scaled.masked_fill(scaled < floor, float("-inf"))
    probs, order = torch.softmax(scaled, -1).sort(descending=True, stable=True)
    total = probs.cumsum(-1)
    if sampling.top_p < 1:
        kept = max(1, int((total - probs < sampling.top_p).sum()))
        total = total[:kept]
    target = uniform(sampling.seed, counter) * float(total[-1])
    return int(order[min(int(torch.searchsorted(total, target, right=True)), total.numel() - 1)])
