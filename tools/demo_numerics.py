"""What the training of the demo model computes and stores with: the delta rule, an optimiser, a file writer."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor


def unit_lower_inverse(lower: Tensor, block: int = 8) -> Tensor:
    """The inverse of I + lower for strictly lower triangular matrices whose size is `block` times a power of two.

    Diagonal blocks by their finite Neumann product, then pairs of blocks are merged. On a CPU this is several times
    faster than a triangular solve of many small systems, since it is made of matrix products only.
    """
    lead, count = lower.shape[:-2], lower.shape[-1] // block
    eye = torch.eye(block)
    tiles = lower.reshape(*lead, count, block, count, block)
    power = -torch.stack([tiles[..., i, :, i, :] for i in range(count)], -3)
    inverse = eye + power
    for _ in range(block.bit_length() - 2):
        power = power @ power
        inverse = inverse @ (eye + power)
    while count > 1:
        count //= 2
        tiles = lower.reshape(*lead, count, 2 * block, count, 2 * block)
        corner = torch.stack([tiles[..., i, block:, i, :block] for i in range(count)], -3)
        first, second = inverse[..., 0::2, :, :], inverse[..., 1::2, :, :]
        top = torch.cat([first, torch.zeros_like(first)], -1)
        inverse = torch.cat([top, torch.cat([-(second @ corner @ first), second], -1)], -2)
        block *= 2
    return inverse[..., 0, :, :]


def delta_rule_in_chunks(q: Tensor, k: Tensor, v: Tensor, g: Tensor, strength: Tensor, state: Tensor) -> list[Tensor]:
    """The gated delta rule on fp32 tensors [batch, heads, chunks, chunk, ...] by matrix products alone.

    Gives the chunks' outputs and, last, the state after them.
    """
    decayed = g[..., 0].cumsum(-1)  # the log of the decay since the chunk began
    since_start = decayed.exp()[..., None]
    future = torch.ones(q.shape[3], q.shape[3], dtype=torch.bool).triu(1)
    between = (decayed[..., None] - decayed[..., None, :]).masked_fill(future, float("-inf")).exp()
    solved = unit_lower_inverse(((k * strength @ k.mT) * between).tril(-1))
    solved = solved @ torch.cat([v * strength, k * strength * since_start], -1)
    written, read_back = solved[..., : v.shape[-1]], solved[..., v.shape[-1] :]
    within, q_decayed = (q @ k.mT) * between, q * since_start
    k_left = (k * (decayed[..., -1:] - decayed).exp()[..., None]).mT
    whole = decayed[..., -1].exp()[..., None, None]
    outputs = []
    for i in range(q.shape[2]):
        new = written[:, :, i] - read_back[:, :, i] @ state
        outputs.append(q_decayed[:, :, i] @ state + within[:, :, i] @ new)
        state = state * whole[:, :, i] + k_left[:, :, i] @ new
    return [*outputs, state]


class ChunkedDeltaRule:
    """Stands in for the library's function of the same purpose, which is slow to train with on a CPU.

    The compiled variant gets fp32 tensors only: handed bf16 ones and asked for gradients, the compiler of torch 2.13
    has been seen to produce NaN on processors with AVX-512.
    """

    def __init__(self, compiled: bool, chunk: int = 32) -> None:
        self.chunk = chunk
        self.chunks = torch.compile(delta_rule_in_chunks, dynamic=False) if compiled else delta_rule_in_chunks

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        g: Tensor,
        beta: Tensor,
        initial_state: Tensor | None = None,
        output_final_state: bool = False,
        **_: Any,
    ) -> tuple[Tensor, Tensor | None]:
        (batch, length, key_heads, key_dim), (heads, value_dim) = key.shape, value.shape[-2:]

        def chunks(x: Tensor) -> Tensor:
            x = F.pad(x.float().transpose(1, 2), (0, 0, 0, -length % self.chunk))
            return x.reshape(batch, heads, -1, self.chunk, x.shape[-1])

        def unit(x: Tensor) -> Tensor:
            x = x.float()
            x = x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)
            return chunks(x.repeat_interleave(heads // key_heads, 2))

        state = torch.zeros(batch, heads, key_dim, value_dim) if initial_state is None else initial_state.float()
        with torch.autocast("cpu", enabled=False):
            q, k, v = unit(query) * key_dim**-0.5, unit(key), chunks(value)
            *outputs, state = self.chunks(q, k, v, chunks(g[..., None]), chunks(beta[..., None]), state)
        output = torch.stack(outputs, 2).flatten(2, 3)[:, :, :length].transpose(1, 2).to(query.dtype)
        return output, state if output_final_state else None


class Muon:
    """Momentum made orthogonal, for matrices; those of one shape are stacked and handled at once."""

    def __init__(self, matrices: Iterable[Tensor]) -> None:
        self.groups: dict[tuple[int, ...], list[Tensor]] = {}
        for matrix in matrices:
            self.groups.setdefault(tuple(matrix.shape), []).append(matrix)
        self.momentum = {shape: torch.zeros(len(group), *shape) for shape, group in self.groups.items()}

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        for shape, group in self.groups.items():
            gradient = torch.stack([p.grad.float() for p in group if p.grad is not None])
            momentum = self.momentum[shape].lerp_(gradient, 0.05)
            tall = shape[0] > shape[1]
            x = gradient.lerp(momentum, 0.95)
            x = x.mT if tall else x
            x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
            for _ in range(5):
                square = x @ x.mT
                x = 3.4445 * x + (-4.775 * square + 2.0315 * square @ square) @ x
            for p, update in zip(group, x.mT if tall else x, strict=True):
                p.mul_(1 - 0.01 * learning_rate).sub_(update, alpha=learning_rate * 0.2 * max(shape) ** 0.5)
                p.grad = None

    def state(self) -> dict[str, Tensor]:
        return {"x".join(map(str, shape)): momentum for shape, momentum in self.momentum.items()}

    def load(self, state: dict[str, Tensor]) -> None:
        for shape, momentum in self.momentum.items():
            momentum.copy_(state["x".join(map(str, shape))])


def _sort_header(path: Path) -> None:
    """Equal contents shall give equal files: the library writes the metadata in an order of its own at every run."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + size :])


def write_atomically(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    os.close(handle)
    try:
        save_file({key: value.detach().contiguous() for key, value in tensors.items()}, name, metadata=metadata)
        _sort_header(Path(name))
        os.chmod(name, 0o644)
        os.replace(name, path)
    finally:
        Path(name).unlink(missing_ok=True)
