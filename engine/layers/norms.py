"""RMS norms: over many rows, and over one buffer with everything preallocated.

Published weights of the zero-centred norm are applied as ``1 + w``; the sum is made once, in fp32. Arithmetic is fp32
whatever the activations are, and the product is rounded last (engines.md E.4 order).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def zero_centred(weight: Tensor) -> Tensor:
    """Effective fp32 weight ``1 + w`` of a zero-centred norm."""
    return weight.float() + 1.0


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """``x / rms(x) * weight`` over the last dimension; ``weight`` is the effective fp32 one. Result in x's dtype."""
    return F.rms_norm(x.float(), weight.shape, weight, eps).to(x.dtype)


class RowNorm:
    """Divides each row of one fixed fp32 buffer [n, d] by its root mean square; the result goes to ``out`` [n, d].

    With ``mean`` False it is the L2 norm of the delta rule instead: ``x * rsqrt(sum x^2 + eps)``.
    """

    __slots__ = ("_alpha", "_cols", "_eps", "_rows", "_source", "_square", "_square_col", "out")

    def __init__(self, source: Tensor, eps: float, mean: bool = True) -> None:
        n, d = source.shape
        self._source = source
        self._rows, self._cols = source.view(n, 1, d), source.view(n, d, 1)
        self._alpha = 1.0 / d if mean else 1.0
        self._eps = torch.full((n, 1, 1), eps, dtype=torch.float32, device=source.device)
        self._square = torch.empty_like(self._eps)
        self._square_col = self._square.view(n, 1)
        self.out = torch.empty_like(source)

    def __call__(self) -> Tensor:
        torch.baddbmm(self._eps, self._rows, self._cols, alpha=self._alpha, out=self._square)
        self._square.rsqrt_()
        return torch.mul(self._source, self._square_col, out=self.out)


class VectorNorm:
    """Zero-centred norm of one token: fixed buffer ``x`` [D] in, ``out`` [D] in the same dtype."""

    __slots__ = ("_half", "_norm", "_x", "_x32", "out")

    def __init__(self, x: Tensor, eps: float) -> None:
        self._half = x.dtype != torch.float32
        self._x = x
        self._x32 = torch.empty_like(x, dtype=torch.float32) if self._half else x
        self._norm = RowNorm(self._x32.view(1, -1), eps)
        self.out = torch.empty_like(x) if self._half else self._norm.out.view(-1)

    def __call__(self, weight: Tensor) -> Tensor:
        """``weight`` [1, D] (or [D]): the effective fp32 weight."""
        if self._half:
            self._x32.copy_(self._x)
            self.out.copy_(self._norm().mul_(weight).view(-1))
        else:
            self._norm().mul_(weight)
        return self.out

    def of(self, x: Tensor, weight: Tensor) -> Tensor:
        """The same for an ``x`` [D] that lies elsewhere."""
        self._x.copy_(x)
        return self(weight)
