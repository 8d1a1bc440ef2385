"""The recurrent mixer: projections, causal convolution, gates, gated delta rule, gated norm.

Every path that changes a state token by token (decode, both verify modes, replay of recorded rows) goes through the one
:meth:`DeltaRow.update` on the same buffers, so equal inputs give equal bits. Prefill uses the chunked form.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.config import ModelConfig
from engine.layers.chunked_delta import chunked_delta_rule
from engine.layers.linear import projection
from engine.layers.norms import RowNorm
from engine.weights import LinearWeights

L2_EPS = 1e-6


@dataclass(frozen=True, slots=True)
class RowState:
    """One layer's state where it lies: ``h`` [Hv, dk, dv] and ``conv`` [C, kernel] fp32, with the views that shift the
    window by one token."""

    h: Tensor
    conv: Tensor
    without_first: Tensor
    without_last: Tensor
    newest: Tensor

    @classmethod
    def of(cls, h: Tensor, conv: Tensor) -> RowState:
        flat = conv.view(-1)
        return cls(h, conv, flat[1:], flat[:-1], conv[:, -1])


class DeltaRow:
    """Buffers and arithmetic of one token in a gated delta net, shared by all layers of a model.

    ``proj`` holds the fused projections q | k | v | z | b | a of the token, ``gates`` its log decay g and write
    strength beta [2 Hv] fp32, ``out`` the result of the recurrence [Hv, dv] fp32.
    """

    def __init__(self, config: ModelConfig, dtype: torch.dtype, device: torch.device) -> None:
        heads, key_heads, dk, dv = config.value_heads, config.key_heads, config.key_dim, config.value_dim
        channels, qkvz = config.channels, config.qkvz_elems
        self.half = dtype != torch.float32

        def f32(*shape: int) -> Tensor:
            return torch.empty(*shape, dtype=torch.float32, device=device)

        self.proj = torch.empty(qkvz + 2 * heads, dtype=dtype, device=device)
        self.qkvz, self._qkv = self.proj[:qkvz], self.proj[:channels]
        self.z = self.proj[channels:qkvz].view(heads, dv)
        self._b, self._a = self.proj[qkvz : qkvz + heads], self.proj[qkvz + heads :]
        self.gates = f32(2 * heads)
        self._g, self._beta = self.gates[:heads], self.gates[heads:]
        self._beta3 = self._beta.view(heads, 1, 1)
        self._decay = f32(heads)
        self._decay3 = self._decay.view(heads, 1, 1)
        self._shift = f32(channels * config.conv_kernel - 1)
        self._taps, self._ones = f32(channels, config.conv_kernel), torch.ones(config.conv_kernel, device=device)
        self._mixed = f32(channels)
        self._mixed_act = torch.empty(channels, dtype=dtype, device=device)
        self._unit = RowNorm(self._mixed[: 2 * key_heads * dk].view(2 * key_heads, dk), L2_EPS, mean=False)
        self._repeat = self._repeats(key_heads, heads, device)
        spread = self._unit.out if self._repeat is None else f32(2 * heads, dk)
        self._spread = spread
        self._q = spread[:heads].view(heads, 1, dk)
        self._k, self._k_col = spread[heads:].view(heads, 1, dk), spread[heads:].view(heads, dk, 1)
        self._v = self._mixed[2 * key_heads * dk :].view(heads, 1, dv)
        self._delta = f32(heads, 1, dv)
        self._scale = dk**-0.5
        self._out3 = f32(heads, 1, dv)
        self.out = self._out3.view(heads, dv)
        self._rounded = f32(heads, dv) if self.half else self.out
        self._unit_out = RowNorm(self._rounded, config.eps)
        self._act = torch.empty(heads, dv, dtype=dtype, device=device)
        self._gate = f32(heads, dv)

    @staticmethod
    def _repeats(key_heads: int, heads: int, device: torch.device) -> Tensor | None:
        """Rows of [q heads | k heads] repeated so that value head j reads key head j // r; None when r is 1."""
        if key_heads == heads:
            return None
        index = torch.arange(key_heads, device=device).repeat_interleave(heads // key_heads)
        return torch.cat((index, index + key_heads))

    def make_gates(self, neg_a: Tensor, dt_bias: Tensor) -> None:
        """g = -exp(A_log) softplus(a + dt_bias), beta = sigmoid(b), from ``proj`` into ``gates``."""
        torch.add(self._a, dt_bias, out=self._g)
        torch.mul(F.softplus(self._g), neg_a, out=self._g)
        if self.half:
            self._beta.copy_(torch.sigmoid(self._b))
        else:
            torch.sigmoid(self._b, out=self._beta)

    def update(self, conv_weight: Tensor, state: RowState) -> Tensor:
        """Absorb the token in ``proj`` and ``gates`` into ``state``; ``conv_weight`` [C, kernel]. Returns ``out``."""
        self._shift.copy_(state.without_first)
        state.without_last.copy_(self._shift)
        state.newest.copy_(self._qkv)
        torch.mul(state.conv, conv_weight, out=self._taps)
        torch.mv(self._taps, self._ones, out=self._mixed)
        if self.half:
            self._mixed_act.copy_(self._mixed)
            self._mixed.copy_(F.silu(self._mixed_act, inplace=True))
        else:
            F.silu(self._mixed, inplace=True)
        self._unit()
        if self._repeat is not None:
            torch.index_select(self._unit.out, 0, self._repeat, out=self._spread)
        h = state.h
        torch.exp(self._g, out=self._decay)
        h.mul_(self._decay3)
        torch.baddbmm(self._v, self._k, h, alpha=-1.0, out=self._delta)
        self._delta.mul_(self._beta3)
        h.baddbmm_(self._k_col, self._delta)
        torch.baddbmm(self._v, self._q, h, beta=0.0, alpha=self._scale, out=self._out3)
        return self.out

    def gated(self, norm: Tensor, activation: Callable[[Tensor], Tensor]) -> Tensor:
        """``out`` after the gated norm [Hv dv], rounded where the batched form rounds; ``norm`` [dv]."""
        act = self._act
        if not self.half:
            return self._unit_out().mul_(norm).mul_(activation(self.z)).view(-1)
        act.copy_(self.out)
        self._rounded.copy_(act)
        act.copy_(self._unit_out())
        self._gate.copy_(self.z)
        return act.copy_((act * norm) * activation(self._gate)).view(-1)


class GatedDeltaNet:
    """One recurrent mixer. Rows in are normalised activations [n, D]; rows out are not yet added to the residual."""

    def __init__(self, config: ModelConfig, weights: LinearWeights, row: DeltaRow) -> None:
        self._config = config
        self._in_proj = projection(weights.in_proj)
        self._out_proj = projection(weights.out)
        self._conv = weights.conv.float().contiguous()
        self._taps = weights.conv.float().t().contiguous()
        self._neg_a = -weights.a_log.float().exp()
        self._dt_bias = weights.dt_bias.float()
        self._norm = weights.norm
        self._row = row
        self._gate = torch.sigmoid if config.gate_activation == "sigmoid" else F.silu

    def step(self, x: Tensor, state: RowState, out: Tensor, record: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """One token: x [D] to out [D], ``state`` changed in place; ``record`` takes (qkvz, gates) of the token."""
        self.absorb(x, state, record)
        return self._out_proj.row(self._row.gated(self._norm, self._gate), out)

    def absorb(self, x: Tensor, state: RowState, record: tuple[Tensor, Tensor] | None = None) -> None:
        """What :meth:`step` does to ``state``, without an output."""
        row = self._row
        self._in_proj.row(x, row.proj)
        row.make_gates(self._neg_a, self._dt_bias)
        if record is not None:
            record[0].copy_(row.qkvz)
            record[1].copy_(row.gates)
        row.update(self._conv, state)

    def replay(self, state: RowState, record: tuple[Tensor, Tensor]) -> None:
        """The state change of a recorded token again."""
        self._row.qkvz.copy_(record[0])
        self._row.gates.copy_(record[1])
        self._row.update(self._conv, state)

    def verify(
        self,
        x: Tensor,
        state: RowState,
        after: tuple[Tensor | None, Tensor] | None,
        record: tuple[Tensor, Tensor] | None,
    ) -> Tensor:
        """K tokens with shared matrix products: x [K, D] to [K, D].

        ``after`` takes h [K-1, ...] and conv [K, ...] after each row, ``record`` qkvz and gates of rows 0..K-2.
        """
        row = self._row
        proj = self._in_proj.rows(x)
        count = x.shape[0]
        outs = torch.empty(count, *row.out.shape, dtype=torch.float32, device=x.device)
        for i in range(count):
            row.proj.copy_(proj[i])
            row.make_gates(self._neg_a, self._dt_bias)
            if record is not None and i < count - 1:
                record[0][i].copy_(row.qkvz)
                record[1][i].copy_(row.gates)
            outs[i].copy_(row.update(self._conv, state))
            if after is not None:
                if after[0] is not None and i < count - 1:
                    after[0][i].copy_(state.h)
                after[1][i].copy_(state.conv)
        return self._finished(outs, proj)

    def verify_upto(self, x: Tensor, state: RowState, count: int) -> tuple[Tensor, RowState]:
        """Like :meth:`verify`, with the state after row ``count`` - 1 kept; ``state`` absorbs all rows."""
        h, conv = (part.new_empty(x.shape[0], *part.shape) for part in (state.h, state.conv))
        mixed = self.verify(x, state, (h, conv), None)
        return mixed, state if count == x.shape[0] else RowState.of(h[count - 1].clone(), conv[count - 1].clone())

    def absorb_rows(self, x: Tensor, state: RowState, count: int) -> None:
        """What the first ``count`` rows of a :meth:`verify` of x [K, D] do to ``state``, without an output."""
        row = self._row
        proj = self._in_proj.rows(x)
        for i in range(count):
            row.proj.copy_(proj[i])
            row.make_gates(self._neg_a, self._dt_bias)
            row.update(self._conv, state)

    def prefill(self, x: Tensor, state: RowState) -> Tensor:
        """n tokens in chunks: x [n, D] to [n, D]."""
        proj = self._in_proj.rows(x)
        return self._finished(self._absorb(proj, state), proj)

    def raw_inputs(self, x: Tensor) -> Tensor:
        """What the convolution window stores for rows x [n, D]: raw q | k | v [n, C] fp32."""
        return self._in_proj.rows(x)[:, : self._config.channels].float()

    def _absorb(self, proj: Tensor, state: RowState) -> Tensor:
        """Chunked recurrence over projected rows; outputs [n, Hv, dv] fp32."""
        config, n = self._config, proj.shape[0]
        heads, key_heads, dk = config.value_heads, config.key_heads, config.key_dim
        keys, kernel = key_heads * dk, config.conv_kernel
        raw = torch.cat((state.conv[:, 1:].t(), proj[:, : config.channels].float()))
        mixed = raw[:n] * self._taps[0]
        for tap in range(1, kernel):
            mixed.addcmul_(raw[tap : tap + n], self._taps[tap])
        state.conv.copy_(raw[-kernel:].t())
        mixed = F.silu(mixed.to(proj.dtype)).float()
        q, k = (mixed[:, i * keys : (i + 1) * keys].view(n, key_heads, dk) for i in (0, 1))
        q, k = (x * torch.rsqrt(x.square().sum(-1, keepdim=True) + L2_EPS) for x in (q, k))
        q, k = (x.repeat_interleave(heads // key_heads, 1).transpose(0, 1).contiguous() for x in (q * dk**-0.5, k))
        v = mixed[:, 2 * keys :].view(n, heads, config.value_dim).transpose(0, 1).contiguous()
        b, a = torch.split(proj[:, config.qkvz_elems :], heads, 1)
        g = F.softplus(a.float() + self._dt_bias) * self._neg_a
        beta = torch.sigmoid(b).float()
        return chunked_delta_rule(q, k, v, g.t().contiguous(), beta.t().contiguous(), state.h).transpose(0, 1)

    def _finished(self, outs: Tensor, proj: Tensor) -> Tensor:
        """Gated norm and output projection of recurrence results [n, Hv, dv] fp32."""
        config, n = self._config, proj.shape[0]
        z = proj[:, config.channels : config.qkvz_elems].reshape(n, config.value_heads, config.value_dim)
        rounded = outs.to(proj.dtype)
        unit = F.rms_norm(rounded.float(), outs.shape[-1:], None, config.eps).to(proj.dtype)
        mixed = (unit * self._norm * self._gate(z.float())).to(proj.dtype)
        return self._out_proj.rows(mixed.reshape(n, -1))
