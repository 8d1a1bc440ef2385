"""A small stack of gated delta net layers in numpy: real recurrent states for tests, independent of the engine.

The math is that of Qwen3.5's linear layers (engines.md E.4): projections, causal conv over four inputs, L2-normalised
keys, decay ``exp(-A softplus(a + dt))``, delta rule, gated norm; then an MLP. ``arithmetic`` rounds every activation to
that dtype; ``split`` computes matrix products in that many rounded pieces, which is how engines.md C.4 imitates a GPU
that picks another split-K for another batch shape.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from inspector.analysis.arrays import tensor_data, through
from inspector.analysis.profile import LayerState

Array = NDArray[np.float32]
KERNEL = 4


@dataclass
class State:
    """h [layers, heads, key, value] and conv [layers, channels, kernel], float32."""

    h: Array
    conv: Array

    def copy(self) -> State:
        return State(self.h.copy(), self.conv.copy())

    def layers(self, numbers: tuple[int, ...] | None = None) -> dict[int, LayerState]:
        """As the analysis takes it; layer numbers skip every fourth, as in a real hybrid model."""
        chosen = numbers or tuple(i for i in range(2 * len(self.h)) if i % 4 != 3)[: len(self.h)]
        return {n: LayerState(tensor_data(self.h[i]), tensor_data(self.conv[i])) for i, n in enumerate(chosen)}


class Toy:
    """A model with random weights drawn from ``seed``."""

    def __init__(self, seed: int, layers: int = 9, arithmetic: str = "float32", vocab: int = 64) -> None:
        rng = np.random.default_rng(seed)
        self.arithmetic, self.depth, self.vocab = arithmetic, layers, vocab
        self.dim, self.key_heads, self.heads, self.size = 48, 2, 4, 16
        self.keys, self.values = self.key_heads * self.size, self.heads * self.size
        self.channels = 2 * self.keys + self.values

        def weight(*shape: int) -> Array:
            return self.cast(rng.standard_normal(shape, dtype=np.float32) / np.float32(np.sqrt(shape[-2])))

        self.embed = self.cast(rng.standard_normal((vocab, self.dim), dtype=np.float32))
        self.qkv = weight(layers, self.dim, self.channels)
        self.gates = weight(layers, self.dim, 2 * self.heads)
        self.z = weight(layers, self.dim, self.values)
        self.out = weight(layers, self.values, self.dim)
        self.up, self.down = weight(layers, self.dim, 96), weight(layers, 96, self.dim)
        self.taps = self.cast(rng.standard_normal((layers, self.channels, KERNEL), dtype=np.float32) * np.float32(0.5))
        self.decay = np.exp(rng.uniform(np.log(1e-3), 0.0, (layers, self.heads))).astype(np.float32)
        self.bias = rng.uniform(-1.0, 1.0, (layers, self.heads)).astype(np.float32)

    def cast(self, x: Array) -> Array:
        return through(x, self.arithmetic)

    def product(self, x: Array, w: Array, split: int) -> Array:
        if split == 1:
            return self.cast(x @ w)
        pieces = zip(np.array_split(x, split), np.array_split(w, split), strict=True)
        total = np.zeros(w.shape[1], np.float32)
        for a, b in pieces:
            total = self.cast(total + self.cast(a @ b))
        return total

    def fresh(self) -> State:
        shape = (self.depth, self.heads, self.size, self.size)
        return State(np.zeros(shape, np.float32), np.zeros((self.depth, self.channels, KERNEL), np.float32))

    def step(self, state: State, token: int, split: int = 1) -> None:
        """Absorb one token, in place."""
        x = self.embed[token]
        for i in range(self.depth):
            x = self.cast(x + self._mixer(i, self.cast(_norm(x)), state, split))
            hidden = self.product(self.cast(_norm(x)), self.up[i], split)
            x = self.cast(x + self.product(self.cast(_silu(hidden)), self.down[i], split))

    def _mixer(self, i: int, x: Array, state: State, split: int) -> Array:
        conv, s = state.conv[i], state.h[i]
        conv[:, :-1] = conv[:, 1:].copy()
        conv[:, -1] = self.product(x, self.qkv[i], split)
        y = self.cast(_silu((conv * self.taps[i]).sum(axis=1)))
        q, k = (
            _unit(part.reshape(self.key_heads, self.size)) for part in (y[: self.keys], y[self.keys : 2 * self.keys])
        )
        v = y[2 * self.keys :].reshape(self.heads, self.size)
        q, k = (np.repeat(part, self.heads // self.key_heads, axis=0) for part in (q, k))
        b, a = np.split(self.product(x, self.gates[i], split), 2)
        beta = 1.0 / (1.0 + np.exp(-b))
        s *= np.exp(-self.decay[i] * np.log1p(np.exp(a + self.bias[i])))[:, None, None]
        delta = beta[:, None] * (v - np.einsum("hkv,hk->hv", s, k))
        s += k[:, :, None] * delta[:, None, :]
        o = self.cast(np.einsum("hkv,hk->hv", s, q) * np.float32(self.size**-0.5))
        o = self.cast(_norm(o) * _silu(self.product(x, self.z[i], split)).reshape(self.heads, self.size))
        return self.product(o.reshape(-1), self.out[i], split)

    def run(self, tokens: list[int], state: State | None = None, split: int = 1) -> State:
        """The state after ``tokens``, starting from a copy of ``state``."""
        result = self.fresh() if state is None else state.copy()
        for token in tokens:
            self.step(result, token, split)
        return result

    def table(self, layer: int = 0) -> Array:
        """Conv input of the first layer for every token id: [vocab, channels]."""
        return np.stack([self.product(self.cast(_norm(e)), self.qkv[layer], 1) for e in self.embed])


def _norm(x: Array) -> Array:
    return np.asarray(x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + np.float32(1e-6)), np.float32)


def _silu(x: Array) -> Array:
    return np.asarray(x / (1.0 + np.exp(-x)), np.float32)


def _unit(x: Array) -> Array:
    return np.asarray(x / np.sqrt((x * x).sum(axis=-1, keepdims=True) + np.float32(1e-6)), np.float32)
