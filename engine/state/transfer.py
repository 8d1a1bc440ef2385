"""One state copy as plain data: planned first, with every seam passed, executed now or when its stream gets to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engine.events import Place
from engine.seams import Seams
from engine.state.errors import StateError
from engine.state.geometry import F32, StateGeometry
from engine.state.rows import StateView
from engine.traits import Moved

Change = Callable[[Tensor, str], Tensor]


class Whole(NamedTuple):
    """What a copy of everything consists of: all ordinals, and fp32 elements of one layer's h and conv."""

    layers: tuple[int, ...]
    h_elems: int
    conv_elems: int

    @classmethod
    def of(cls, geometry: StateGeometry) -> Whole:
        return cls(tuple(range(geometry.layers)), geometry.h_elems, geometry.conv_elems)


class Transfer(NamedTuple):
    """What will be copied. ``src`` and ``dst`` are told to everybody, ``src_at`` and ``dst_at`` are where the bytes are
    taken from and go to: the same, unless an address is computed wrongly. ``layers`` are ordinals; ``h_elems`` and
    ``conv_elems`` are fp32 elements copied per layer, 0 for a part left out. ``parts`` is what is claimed."""

    copy: int
    op: str
    src: Place
    dst: Place
    src_at: Place
    dst_at: Place
    parts: str
    layers: tuple[int, ...]
    h_elems: int
    conv_elems: int
    stream: str = "default"
    replay: int = 0

    @property
    def bytes(self) -> int:
        """Bytes really moved."""
        return len(self.layers) * (self.h_elems + self.conv_elems) * F32

    def moves(self, whole: Whole) -> bool:
        """Whether everything is copied."""
        return self.h_elems == whole.h_elems and self.conv_elems == whole.conv_elems and self.layers == whole.layers

    def moved(self, landed: bool) -> Moved:
        """The report of this copy."""
        total = self.bytes
        return Moved(
            self.src,
            self.dst,
            self.parts,
            total,
            len(self.layers) if total else 0,
            self.stream,
            landed,
            self.copy,
            self.op,
            self.replay,
        )

    def to_plain(self) -> dict[str, Any]:
        """As plain data."""
        return {name: str(value) if isinstance(value, Place) else value for name, value in self._asdict().items()}

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> Transfer:
        """Inverse of :meth:`to_plain`. Raises ValueError or TypeError on anything else."""
        places = {name: Place.from_text(data[name]) for name in ("src", "dst", "src_at", "dst_at")}
        return cls(**{**data, **places, "layers": tuple(data["layers"])})


def plan(
    whole: Whole,
    seams: Seams,
    copy: int,
    op: str,
    src: Place,
    dst: Place,
    parts: str,
    stream: str,
    replay: int = 0,
) -> Transfer:
    """Decide what a copy copies; every seam of ``op`` but ``value`` is passed here.

    Raises StateError on ``fail``."""
    layers, h, conv = whole
    if parts != "h+conv":
        h, conv = h if "h" in parts else 0, conv if "conv" in parts else 0
    src_at, dst_at = src, dst
    if seams.active:
        context = {"op": op, "src": src, "dst": dst}
        failure = seams(f"{op}.fail", "", **context)
        if failure:
            raise StateError(failure)
        src_at = src = seams(f"{op}.src", src, **context)
        dst_at = dst = seams(f"{op}.dst", dst, **context)
        src_at = seams(f"{op}.src_at", src_at, **context)
        dst_at = seams(f"{op}.dst_at", dst_at, **context)
        parts = seams(f"{op}.parts", parts, **context)
        layers = seams(f"{op}.layers", layers, **context)
        h = seams(f"{op}.elems", h if "h" in parts else 0, part="h", **context)
        conv = seams(f"{op}.elems", conv if "conv" in parts else 0, part="conv", **context)
        if seams(f"{op}.skip", False, **context):
            h = conv = 0
    return Transfer(copy, op, src, dst, src_at, dst_at, parts, layers, h, conv, stream, replay)


def without_h(transfer: Transfer) -> Transfer:
    """The same copy between places of which one has no h plane: conv only."""
    return transfer._replace(parts="conv" if "conv" in transfer.parts else "", h_elems=0)


def execute(transfer: Transfer, src: StateView, dst: StateView, whole: Whole, change: Change | None) -> None:
    """Copy now, on the stream that is current. One copy when everything moves between two whole states.

    ``change`` may replace what is copied: (tensor [layers, ...], part)."""
    h, conv = src.h, src.conv
    if change is not None:
        h = change(h, "h") if h is not None and transfer.h_elems else h
        conv = change(conv, "conv") if transfer.conv_elems else conv
    if src.blob is not None and dst.blob is not None and transfer.moves(whole) and h is src.h and conv is src.conv:
        dst.blob.copy_(src.blob, non_blocking=True)
        return
    all_layers = transfer.layers == whole.layers
    if transfer.h_elems and h is not None and dst.h is not None:
        full = all_layers and transfer.h_elems == whole.h_elems
        _copy_part(h, dst.h, None if full else transfer.layers, transfer.h_elems)
    if transfer.conv_elems:
        full = all_layers and transfer.conv_elems == whole.conv_elems
        _copy_part(conv, dst.conv, None if full else transfer.layers, transfer.conv_elems)


def _copy_part(src: Tensor, dst: Tensor, layers: tuple[int, ...] | None, elems: int) -> None:
    if layers is None:
        dst.copy_(src if src.shape == dst.shape else src.reshape(dst.shape), non_blocking=True)
        return
    for ordinal in layers:
        dst[ordinal].view(-1)[:elems].copy_(src[ordinal].reshape(-1)[:elems], non_blocking=True)


def clear(transfer: Transfer, dst: StateView, whole: Whole, change: Change | None = None) -> None:
    """Fill with zeros what ``execute`` would have written.

    ``change`` may replace the zeros: (tensor [layers, ...], part)."""
    for name, part, elems, full in (
        ("h", dst.h, transfer.h_elems, whole.h_elems),
        ("conv", dst.conv, transfer.conv_elems, whole.conv_elems),
    ):
        if part is None or not elems:
            continue
        some = None if elems == full and transfer.layers == whole.layers else transfer.layers
        if change is not None:
            _copy_part(change(torch.zeros_like(part), name), part, some, elems)
        elif some is None:
            part.zero_()
        else:
            for ordinal in some:
                part[ordinal].view(-1)[:elems].zero_()
