"""Mixture of experts: softmax router in fp32, top-k, and a shared expert behind a sigmoid gate."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.config import MoeConfig
from engine.layers.linear import projection
from engine.layers.mlp import Mlp
from engine.weights import MlpWeights, MoeWeights


class Moe:
    """Sparse feed-forward block. Chosen experts are added in ascending order of their number."""

    def __init__(self, config: MoeConfig, weights: MoeWeights) -> None:
        self._config = config
        self._router = projection(weights.router)
        self._experts = [
            Mlp(MlpWeights(gate_up, down)) for gate_up, down in zip(weights.gate_up, weights.down, strict=True)
        ]
        self._shared = Mlp(weights.shared)
        self._shared_gate = projection(weights.shared_gate)

        def empty(size: int) -> Tensor:
            return torch.empty(size, dtype=weights.router.dtype, device=weights.router.device)

        self._logits, self._gate_value = empty(config.experts), empty(1)
        self._part, self._shared_out = empty(weights.router.shape[1]), empty(weights.router.shape[1])

    def step(self, x: Tensor, out: Tensor) -> Tensor:
        """One row: x [D] to out [D]."""
        weights, chosen = self._route(self._router.row(x, self._logits))
        out.zero_()
        # one transfer tells both order and numbers
        numbers = chosen.tolist()
        for place in sorted(range(len(numbers)), key=numbers.__getitem__):
            self._experts[numbers[place]].step(x, self._part)
            out.add_(self._part.mul_(weights[place]))
        shared = self._shared.step(x, self._shared_out)
        return out.add_(shared.mul_(torch.sigmoid(self._shared_gate.row(x, self._gate_value))))

    def rows(self, x: Tensor) -> Tensor:
        """n rows: x [n, D] to [n, D]; each expert sees its rows together."""
        weights, chosen = self._route(self._router.rows(x))
        out = torch.zeros_like(x)
        for number in torch.unique(chosen).tolist():
            row, place = torch.where(chosen == number)
            out.index_add_(0, row, self._experts[number].rows(x[row]) * weights[row, place, None])
        return out + torch.sigmoid(self._shared_gate.rows(x)) * self._shared.rows(x)

    def _route(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """(weights in the activation dtype, expert numbers) of the top k, [..., k] each."""
        weights, chosen = torch.topk(F.softmax(logits, -1, dtype=torch.float32), self._config.top_k, -1)
        if self._config.renormalise:
            weights = weights / weights.sum(-1, keepdim=True)
        return weights.to(logits.dtype), chosen
