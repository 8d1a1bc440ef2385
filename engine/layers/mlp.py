"""The gated feed-forward block: down(silu(gate(x)) * up(x))."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.layers.linear import projection
from engine.weights import MlpWeights


class Mlp:
    """Dense feed-forward block of width F."""

    def __init__(self, weights: MlpWeights) -> None:
        self._gate_up = projection(weights.gate_up)
        self._down = projection(weights.down)
        width = weights.down.shape[1]
        self._proj = torch.empty(2 * width, dtype=weights.down.dtype, device=weights.down.device)
        self._gate, self._up = self._proj[:width], self._proj[width:]

    def step(self, x: Tensor, out: Tensor) -> Tensor:
        """One row: x [D] to out [D]."""
        self._gate_up.row(x, self._proj)
        return self._down.row(F.silu(self._gate, inplace=True).mul_(self._up), out)

    def rows(self, x: Tensor) -> Tensor:
        """n rows: x [n, D] to [n, D]."""
        gate, up = self._gate_up.rows(x).chunk(2, -1)
        return self._down.rows(F.silu(gate) * up)
