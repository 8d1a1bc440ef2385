"""Rotary position embedding, rotate-half (NeoX) form, on the leading dimensions of each head.

For text the three position rows of M-RoPE coincide, so it equals the plain form.
"""

from __future__ import annotations

import torch
from torch import Tensor

GROWTH = 1024


class Rotary:
    """Tables of cosine and signed sine by position, grown on demand. ``dim`` dimensions are rotated.

    With x = [x1, x2] (halves of the rotated part): x * cos + [x2, x1] * [-sin, sin].
    """

    def __init__(self, dim: int, theta: float, dtype: torch.dtype, device: torch.device) -> None:
        self.dim = dim
        self.swap = torch.arange(dim, device=device).roll(dim // 2)
        self._dtype = dtype
        # fp32 on the CPU on every device: the angles must not depend on it
        self._frequency = 1.0 / theta ** (torch.arange(0, dim, 2, dtype=torch.float32) / max(dim, 1))
        self._cos = torch.empty(0, dim, dtype=dtype, device=device)
        self._sin = self._cos

    def at(self, start: int, count: int) -> tuple[Tensor, Tensor]:
        """(cos, signed sin) [count, dim] of positions ``start``.., in the activation dtype."""
        end = start + count
        if end > self._cos.shape[0]:
            self._grow(-(-end // GROWTH) * GROWTH)
        return self._cos[start:end], self._sin[start:end]

    def rotate(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Rotated copy of x [n, heads, d]; cos and sin [n, dim]."""
        part = x[..., : self.dim]
        turned = part * cos[:, None] + part.index_select(-1, self.swap) * sin[:, None]
        return torch.cat((turned, x[..., self.dim :]), -1)

    def _grow(self, positions: int) -> None:
        angle = torch.outer(torch.arange(positions, dtype=torch.float32), self._frequency)
        cos, sin = angle.cos(), angle.sin()
        self._cos = torch.cat((cos, cos), -1).to(self._cos.device, self._dtype)
        self._sin = torch.cat((-sin, sin), -1).to(self._cos.device, self._dtype)
