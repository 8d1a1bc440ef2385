"""Flat buffers that hold recurrent states: one row per state, [h of all layers | conv of all layers].

Rows start at multiples of 64 bytes, so a kernel sees the same alignment whatever the slot, and a whole state is one
contiguous run: moving it is one copy.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.state.geometry import StateGeometry

ALIGN = 64


def padded(elems: int, elem_bytes: int) -> int:
    """``elems`` rounded up to whole 64-byte units."""
    unit = ALIGN // elem_bytes
    return -(-elems // unit) * unit


@dataclass(frozen=True, slots=True)
class StateView:
    """One state where it lies. ``h`` [layers, Hv, dk, dv] and ``conv`` [layers, C, kernel] are fp32 views; ``h`` is
    None for the last verify step, which has no h plane. ``blob`` [all elements] is both in one run, or None when they
    lie in different buffers."""

    h: Tensor | None
    conv: Tensor
    blob: Tensor | None


class StateRows:
    """``rows`` whole states in one fp32 buffer [rows, stride], zero at first."""

    __slots__ = ("_geometry", "_split", "buffer")

    def __init__(self, geometry: StateGeometry, rows: int, device: torch.device) -> None:
        self._geometry = geometry
        self._split = geometry.layers * geometry.h_elems
        used = self._split + geometry.layers * geometry.conv_elems
        self.buffer = torch.zeros(rows, padded(used, 4), dtype=torch.float32, device=device)

    @property
    def rows(self) -> int:
        return self.buffer.shape[0]

    @property
    def bytes(self) -> int:
        """Bytes of the states themselves."""
        return self.rows * self._geometry.blob_bytes

    @property
    def padding(self) -> int:
        """Bytes between the rows; 0 when a state is a multiple of 64 bytes."""
        return self.buffer.numel() * 4 - self.bytes

    def h(self, ordinal: int) -> Tensor:
        """View [rows, Hv, dk, dv] of recurrent layer number ``ordinal``."""
        start = ordinal * self._geometry.h_elems
        return self.buffer[:, start : start + self._geometry.h_elems].view(self.rows, *self._geometry.h_shape)

    def conv(self, ordinal: int) -> Tensor:
        """View [rows, C, kernel] of recurrent layer number ``ordinal``."""
        start = self._split + ordinal * self._geometry.conv_elems
        return self.buffer[:, start : start + self._geometry.conv_elems].view(self.rows, *self._geometry.conv_shape)

    def view(self, row: int) -> StateView:
        """The state in ``row``."""
        geometry = self._geometry
        blob = self.buffer[row, : self._split + geometry.layers * geometry.conv_elems]
        h = blob[: self._split].view(geometry.layers, *geometry.h_shape)
        return StateView(h, blob[self._split :].view(geometry.layers, *geometry.conv_shape), blob)


class PlaneRows:
    """Several planes per row, each holding one thing of all layers: buffer [rows, planes, stride], zero at first.

    ``shape`` is one layer's shape of that thing."""

    __slots__ = ("_elems", "_layers", "_shape", "buffer")

    def __init__(
        self, layers: int, shape: tuple[int, ...], rows: int, planes: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self._layers = layers
        self._shape = shape
        self._elems = 1
        for size in shape:
            self._elems *= size
        stride = padded(layers * self._elems, dtype.itemsize)
        self.buffer = torch.zeros(rows, planes, stride, dtype=dtype, device=device)

    @property
    def bytes(self) -> int:
        """Bytes without padding."""
        rows, planes, _ = self.buffer.shape
        return rows * planes * self._layers * self._elems * self.buffer.itemsize

    @property
    def padding(self) -> int:
        return self.buffer.numel() * self.buffer.itemsize - self.bytes

    @property
    def planes(self) -> int:
        return self.buffer.shape[1]

    def layer(self, ordinal: int) -> Tensor:
        """View [rows, planes, *shape] of recurrent layer number ``ordinal``."""
        start = ordinal * self._elems
        rows, planes, _ = self.buffer.shape
        return self.buffer[:, :, start : start + self._elems].view(rows, planes, *self._shape)

    def view(self, row: int, plane: int) -> Tensor:
        """View [layers, *shape] of one plane."""
        return self.buffer[row, plane, : self._layers * self._elems].view(self._layers, *self._shape)

    def rows_of(self, row: int) -> Tensor:
        """All planes of ``row`` [planes, stride], padding included."""
        return self.buffer[row]
