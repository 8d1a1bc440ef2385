"""Noise floors of the open model and device, measured once: how far two benign ways to the same state are apart.

A probe text is absorbed one by one, in chunks of up to K tokens (the shapes of a batched verify) and in one chunk. All
of it is done by the engine that is being judged, on its device and in its dtype. What was measured for one model, K,
dtype and device is kept for the life of the process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from engine.events import Computation, FirstLayer, Golden, Start, StateData
from inspector.analysis.arrays import as_floats
from inspector.analysis.flips import logit_noise
from inspector.analysis.moments import moments
from inspector.analysis.noise import LEAST, NoiseFloor, measured_floor

if TYPE_CHECKING:
    from inspector.analysis.arrays import Tensor

Compute = Callable[[Computation], tuple[StateData, ...]]
PROBE = 64
ROUNDING_STEP = {"bfloat16": 2.0**-8, "float16": 2.0**-11}


@dataclass(frozen=True, slots=True)
class Floors:
    """``states`` for all recurrent layers, ``first`` for layer 0 alone, ``logits`` the largest benign difference."""

    states: NoiseFloor
    first: NoiseFloor
    logits: float


def probe_tokens(vocab: int, count: int = PROBE) -> tuple[int, ...]:
    """A fixed text of ids spread over the vocabulary."""
    numbers = (np.arange(1, count + 1, dtype=np.int64) * 7919 + 13) % max(1, vocab)
    return tuple(int(n) for n in numbers)


_KNOWN: dict[tuple[object, ...], Floors] = {}
_KNOWN_FIRST: dict[tuple[object, ...], NoiseFloor] = {}


def _key(start: Start) -> tuple[object, ...]:
    return start.fingerprint, start.k, start.dtype, start.device, start.recurrent_layers


def measure_first(compute: Compute, start: Start, layers: int = 1) -> NoiseFloor:
    """The floor of the first ``layers`` layers. Raises ValueError when they are not recurrent."""
    key = (*_key(start), layers)
    known = _KNOWN_FIRST.get(key)
    if known is None or not start.fingerprint:
        known = _KNOWN_FIRST[key] = _measure_first(compute, start, layers)
    return known


def _measure_first(compute: Compute, start: Start, layers: int) -> NoiseFloor:
    tokens = probe_tokens(start.vocab)
    (steps,) = compute(FirstLayer(tokens=tokens, layers=layers))
    others = [
        compute(FirstLayer(tokens=tokens, chunks=chunks, layers=layers))[0] for chunks in _chunkings(tokens, start.k)
    ]
    return measured_floor([errors(other, steps) for other in others], least=least(start))


def least(start: Start) -> float:
    """No floor lies below one rounding step of the activations: a flip of a single element may be too rare for the
    probe to meet."""
    return max(LEAST, ROUNDING_STEP.get(start.dtype, 0.0))


def measure(compute: Compute, start: Start) -> Floors:
    """All floors; takes about two prefills and one pass by steps over the probe."""
    known = _KNOWN.get(_key(start))
    if known is None or not start.fingerprint:
        known = _KNOWN[_key(start)] = _measure(compute, start)
    return known


def _measure(compute: Compute, start: Start) -> Floors:
    tokens = probe_tokens(start.vocab)
    (steps,) = compute(Golden(tokens=tokens))
    narrow, wide = _chunkings(tokens, start.k)[-2:]
    others = [compute(Golden(tokens=tokens, chunks=chunks))[0] for chunks in (narrow, wide)]
    noise = [
        logit_noise(_row(other.logits), _row(steps.logits))
        for other in others
        if other.logits is not None and steps.logits is not None
    ]
    states = measured_floor([errors(other, steps) for other in others], least=least(start))
    first = measure_first(compute, start) if 0 in start.recurrent_layers else states
    return Floors(states, first, max(noise, default=0.0))


def errors(found: StateData, expected: StateData) -> dict[int, tuple[float, float]]:
    """Relative (h, conv) error by layer."""
    return {
        layer: (moments(found.h[i], expected.h[i]).error, moments(found.conv[i], expected.conv[i], heads=1).error)
        for i, layer in enumerate(expected.layers)
    }


def _chunkings(tokens: tuple[int, ...], k: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    count = len(tokens)
    # every width a batched verify can have: other widths may take other kernels
    widths = [*range(1, max(2, k) + 1), count]
    return tuple(tuple((at, min(at + width, count)) for at in range(0, count, width)) for width in widths)


def _row(logits: Tensor | None) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    assert logits is not None
    return as_floats(logits).astype(np.float32).reshape(1, -1)
