"""The gated delta rule over many tokens in chunks: matrix products and one triangular solve per chunk.

Per value head, with decay a_i = exp(g_i) and G_i = g_1 + .. + g_i inside a chunk that starts from S_0, the recurrence

    S_i = a_i S_{i-1} + k_i d_i^T,    d_i = beta_i (v_i - a_i S_{i-1}^T k_i),    o_i = S_i^T q_i

unrolls to S_i = e^{G_i} S_0 + sum_{j<=i} e^{G_i - G_j} k_j d_j^T. Putting that into d_i gives the unit lower triangular
system (I + A) D = beta (V - e^G K S_0) with A_ij = beta_i e^{G_i - G_j} k_i.k_j for j < i; outputs and the chunk's last
state follow by products. All exponents are <= 0, so nothing overflows.
"""

from __future__ import annotations

import torch
from torch import Tensor

CHUNK = 64


def chunked_delta_rule(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor) -> Tensor:
    """Absorb n tokens into ``state`` [H, dk, dv] (fp32, changed in place) and return their outputs [H, n, dv].

    ``q``, ``k`` [H, n, dk] are normalised, ``q`` is scaled; ``v`` [H, n, dv]; ``g`` (log decay, <= 0), ``beta`` [H, n];
    all fp32.
    """
    n = q.shape[1]
    out = torch.empty_like(v)
    lower = torch.ones(min(n, CHUNK), min(n, CHUNK), dtype=torch.bool, device=q.device).tril()
    for begin in range(0, n, CHUNK):
        part = slice(begin, min(begin + CHUNK, n))
        out[:, part] = _chunk(q[:, part], k[:, part], v[:, part], g[:, part], beta[:, part], state, lower)
    return out


def _chunk(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor, lower: Tensor) -> Tensor:
    n = q.shape[1]
    # fp64: differences of long sums lose the small decays after a large one
    total = g.double().cumsum(1)
    # e^{G_i - G_j} for j <= i, 0 above the diagonal
    decay = (total[:, :, None] - total[:, None, :]).float().masked_fill(~lower[:n, :n], float("-inf")).exp()
    since_start = total.float().exp()[..., None]
    system = torch.bmm(k, k.transpose(1, 2)) * decay * beta[..., None]
    right = (v - torch.bmm(k, state) * since_start) * beta[..., None]
    # unitriangular: the solver takes the diagonal as 1 and ignores what is stored there
    delta = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
    out = torch.bmm(q, state) * since_start + torch.bmm(torch.bmm(q, k.transpose(1, 2)) * decay, delta)
    to_end = (total[:, -1:] - total).float().exp()[..., None]
    state.mul_(since_start[:, -1:]).baddbmm_((k * to_end).transpose(1, 2), delta)
    return out
