"""Shapes and bytes of the recurrent state of a model: what every pool is sized from."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

F32 = 4


@dataclass(frozen=True, slots=True)
class StateGeometry:
    """``recurrent_layers`` are model layer numbers; their order is the order in every pool.

    ``h_shape`` is [value heads, key dim, value dim], ``conv_shape`` is [channels, kernel]; both fp32."""

    recurrent_layers: tuple[int, ...]
    h_shape: tuple[int, int, int]
    conv_shape: tuple[int, int]

    @property
    def layers(self) -> int:
        return len(self.recurrent_layers)

    @property
    def h_elems(self) -> int:
        """fp32 elements of h, one layer."""
        return prod(self.h_shape)

    @property
    def conv_elems(self) -> int:
        """fp32 elements of conv, one layer."""
        return prod(self.conv_shape)

    @property
    def h_bytes(self) -> int:
        return self.h_elems * F32

    @property
    def conv_bytes(self) -> int:
        return self.conv_elems * F32

    @property
    def blob_bytes(self) -> int:
        """One sequence: all layers, h and conv."""
        return self.layers * (self.h_bytes + self.conv_bytes)
