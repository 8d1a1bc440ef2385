"""A matrix applied to one row (decode) or to several rows (prefill, batched verify): ``y = W x`` with W [N, D].

The form a weight is kept in is chosen once, by dtype, device and size alone, so the same file gives the same bits on
every run:

    fp32 on the CPU        transposed: column-major matrix-vector products read memory fastest, and products of a few
                           rows with the transposed matrix read it once instead of once per row
    half on the CPU        up to SMALL elements: a transposed fp32 copy, products rounded once at the end, which is what
                           half matrix products do, without their call cost; above: bf16 packed for oneDNN
    anything else          as it is
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

# 1 MiB in fp32: such a matrix stays in a core's second-level cache
SMALL = 1 << 18
# a tied output matrix above this is not copied into a faster form
LARGEST_TIED = 1 << 28


class Projection(Protocol):
    """One weight matrix in its best form."""

    def row(self, x: Tensor, out: Tensor) -> Tensor:
        """One row: x [D] to out [N], both in the weight's dtype."""

    def rows(self, x: Tensor) -> Tensor:
        """Several rows: x [n, D] to [n, N]."""


def projection(weight: Tensor, tied: bool = False) -> Projection:
    """``weight`` [N, D] made ready; ``tied`` when it is the embedding table too and will stay in memory anyway."""
    keep = tied and weight.numel() * weight.itemsize > LARGEST_TIED
    if weight.device.type != "cpu" or keep:
        return Plain(weight)
    if weight.dtype == torch.float32:
        return Transposed(weight)
    if weight.numel() <= SMALL:
        return Upcast(weight)
    if weight.dtype == torch.bfloat16 and torch._C._has_mkldnn:
        return Packed(weight)
    return Plain(weight)


class Plain:
    """The matrix as it is stored."""

    __slots__ = ("_transposed", "_weight")

    def __init__(self, weight: Tensor) -> None:
        self._weight, self._transposed = weight, weight.t()

    def row(self, x: Tensor, out: Tensor) -> Tensor:
        return torch.mv(self._weight, x, out=out)

    def rows(self, x: Tensor) -> Tensor:
        return torch.mm(x, self._transposed)


class Transposed(Plain):
    """The matrix column by column: [D, N] contiguous."""

    __slots__ = ()

    def __init__(self, weight: Tensor) -> None:
        self._transposed = weight.t().contiguous()
        self._weight = self._transposed.t()


class Upcast:
    """A half matrix as its exact fp32 copy, transposed; results are rounded once."""

    __slots__ = ("_in", "_out", "_plain")

    def __init__(self, weight: Tensor) -> None:
        self._plain = Transposed(weight.float())
        self._in, self._out = torch.empty(weight.shape[1]), torch.empty(weight.shape[0])

    def row(self, x: Tensor, out: Tensor) -> Tensor:
        self._in.copy_(x)
        return out.copy_(self._plain.row(self._in, self._out))

    def rows(self, x: Tensor) -> Tensor:
        return self._plain.rows(x.float()).to(x.dtype)


class Packed:
    """A bf16 matrix in the blocked form of oneDNN."""

    __slots__ = ("_weight",)

    def __init__(self, weight: Tensor) -> None:
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), 1)

    def row(self, x: Tensor, out: Tensor) -> Tensor:
        return out.copy_(self.rows(x[None])[0])

    def rows(self, x: Tensor) -> Tensor:
        product: Tensor = torch.ops.mkldnn._linear_pointwise.default(x, self._weight, None, "none", [], "")
        return product
