"""Gated grouped-query attention over paged KV: per-head norms, partial rotary, sigmoid output gate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.config import ModelConfig
from engine.layers.linear import projection
from engine.layers.norms import RowNorm, rms_norm, zero_centred
from engine.layers.rotary import Rotary
from engine.weights import AttentionWeights

if TYPE_CHECKING:
    from engine.state.paged_kv import KvTable


class AttentionRow:
    """Buffers of one token in attention, shared by all layers of a model. ``proj`` holds q | k | v | gate."""

    def __init__(self, config: ModelConfig, rotary: Rotary, dtype: torch.dtype, device: torch.device) -> None:
        heads, kv, d = config.heads, config.kv_heads, config.head_dim
        self.half = dtype != torch.float32
        self.proj = torch.empty((2 * heads + 2 * kv) * d, dtype=dtype, device=device)
        qk = self.proj[: (heads + kv) * d].view(heads + kv, d)
        self.v = self.proj[(heads + kv) * d : (heads + 2 * kv) * d].view(1, kv, d)
        self.gate = self.proj[(heads + 2 * kv) * d :]
        self._qk = qk
        self._qk32 = torch.empty_like(qk, dtype=torch.float32) if self.half else qk
        self._norm = RowNorm(self._qk32, config.eps)
        turned = torch.empty_like(qk) if self.half else self._norm.out
        self._turned = turned
        self._part = turned[:, : rotary.dim]
        self._swapped = torch.empty(heads + kv, rotary.dim, dtype=dtype, device=device)
        self._swap = rotary.swap
        self.k = turned[heads:].view(1, kv, d)
        self.q = turned[:heads].view(kv, heads // kv, d)
        self.q4 = turned[:heads].view(1, heads, 1, d)
        self.scores_base = torch.zeros(1, 1, 1, dtype=dtype, device=device)

    def prepare(self, weight: Tensor, cos: Tensor, sin: Tensor) -> None:
        """Make ``q`` and ``k`` from ``proj``: norm and rotation. ``weight`` [H + Hkv, d] fp32, cos and sin [1, dim]."""
        if self.half:
            self._qk32.copy_(self._qk)
            self._turned.copy_(self._norm().mul_(weight))
        else:
            self._norm().mul_(weight)
        torch.index_select(self._part, 1, self._swap, out=self._swapped)
        self._part.mul_(cos)
        self._part.add_(self._swapped.mul_(sin))


class GatedAttention:
    """One attention mixer; ``kv_layer`` is its layer in the paged KV."""

    def __init__(
        self, config: ModelConfig, weights: AttentionWeights, kv_layer: int, rotary: Rotary, row: AttentionRow
    ) -> None:
        self._config, self._kv_layer, self._rotary, self._row = config, kv_layer, rotary, row
        self._in_proj = projection(weights.qkv_gate)
        self._out_proj = projection(weights.out)
        self._q_norm, self._k_norm = zero_centred(weights.q_norm), zero_centred(weights.k_norm)
        table = (self._q_norm.expand(config.heads, -1), self._k_norm.expand(config.kv_heads, -1))
        self._qk_norm = torch.cat(table).contiguous()
        self._scale = config.head_dim**-0.5

    def step(self, x: Tensor, kv: KvTable, position: int, out: Tensor) -> Tensor:
        """One token at ``position``: x [D] to out [D]; its key and value are written to ``kv``."""
        row = self._row
        self._in_proj.row(x, row.proj)
        row.prepare(self._qk_norm, *self._rotary.at(position, 1))
        kv.write(self._kv_layer, position, row.k, row.v)
        keys, values = kv.read(self._kv_layer, position + 1)
        if row.half:
            mixed = self._sdpa(row.q4, keys, values, None)
        else:
            scores = torch.baddbmm(row.scores_base, row.q, keys.permute(1, 2, 0), beta=0.0, alpha=self._scale)
            mixed = torch.bmm(torch.softmax(scores, -1), values.transpose(0, 1))
        return self._out_proj.row(mixed.view(-1).mul_(torch.sigmoid(row.gate)), out)

    def rows(self, x: Tensor, kv: KvTable, start: int) -> Tensor:
        """n tokens at positions ``start``..: x [n, D] to [n, D]; causal over everything before and among themselves."""
        config, n = self._config, x.shape[0]
        heads, kv_heads, d = config.heads, config.kv_heads, config.head_dim
        proj = self._in_proj.rows(x)
        q, k, v, gate = torch.split(proj, [heads * d, kv_heads * d, kv_heads * d, heads * d], 1)
        cos, sin = self._rotary.at(start, n)
        q = self._rotary.rotate(rms_norm(q.reshape(n, heads, d), self._q_norm, config.eps), cos, sin)
        k = self._rotary.rotate(rms_norm(k.reshape(n, kv_heads, d), self._k_norm, config.eps), cos, sin)
        kv.write(self._kv_layer, start, k, v.reshape(n, kv_heads, d))
        keys, values = kv.read(self._kv_layer, start + n)
        columns = torch.arange(start + n, device=x.device)
        mask = columns <= columns[start:, None]
        mixed = self._sdpa(q.transpose(0, 1)[None], keys, values, mask)
        mixed = mixed[0].transpose(0, 1).reshape(n, heads * d)
        return self._out_proj.rows(mixed * torch.sigmoid(gate))

    def _sdpa(self, q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """q [1, H, n, d], keys and values [L, Hkv, d] to [1, H, n, d]."""
        return F.scaled_dot_product_attention(
            q, keys.transpose(0, 1)[None], values.transpose(0, 1)[None], mask, scale=self._scale, enable_gqa=True
        )
