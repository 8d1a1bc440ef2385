"""A matrix applied to one row (decode) or to several rows (prefill, batched verify)."""

from __future__ import annotations

import torch
from torch import Tensor


class Projection:
    """``y = W x`` with ``weight`` [N, D]."""

    __slots__ = ("_transposed", "_weight")

    def __init__(self, weight: Tensor) -> None:
        self._weight = weight
        self._transposed = weight.t()

    def row(self, x: Tensor, out: Tensor) -> Tensor:
        """One row: x [D] to out [N]."""
        return torch.mv(self._weight, x, out=out)

    def rows(self, x: Tensor) -> Tensor:
        """Several rows: x [n, D] to [n, N]."""
        return torch.mm(x, self._transposed)
