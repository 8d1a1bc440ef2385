"""One state copy as plain data: planned first, with every seam passed, executed now or when its stream gets to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from engine.events import Place
from engine.seams import Seams
from engine.state.errors import StateError
from engine.state.geometry import F32, StateGeometry
from engine.state.rows import StateView
from engine.traits import Moved

Change = Callable[[Tensor, str], Tensor]


@dataclass(frozen=True, slots=True)
class Transfer:
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
        values: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        return {name: str(value) if isinstance(value, Place) else value for name, value in values.items()}

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> Transfer:
        """Inverse of :meth:`to_plain`. Raises ValueError or TypeError on anything else."""
        places = {name: Place.from_text(data[name]) for name in ("src", "dst", "src_at", "dst_at")}
        return cls(**{**data, **places, "layers": tuple(data["layers"])})


def plan(
    geometry: StateGeometry,
    seams: Seams,
    copy: int,
    op: str,
    src: Place,
    dst: Place,
    parts: str,
    stream: str,
    replay: int = 0,
) -> Transfer:
    """Decide what a copy copies; every seam of ``op`` but ``value`` is passed here. Raises StateError on ``fail``."""
    layers = tuple(range(geometry.layers))
    h, conv = geometry.h_elems if "h" in parts else 0, geometry.conv_elems if "conv" in parts else 0
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
    values = {name: getattr(transfer, name) for name in Transfer.__slots__}
    return Transfer(**{**values, "parts": "conv" if "conv" in transfer.parts else "", "h_elems": 0})


def execute(transfer: Transfer, src: StateView, dst: StateView, geometry: StateGeometry, change: Change | None) -> None:
    """Copy now, on the stream that is current. One copy when everything moves between two whole states.

    ``change`` may replace what is copied: (tensor [layers, ...], part)."""
    h = src.h if transfer.h_elems else None
    conv = src.conv if transfer.conv_elems else None
    if change is not None:
        h = None if h is None else change(h, "h")
        conv = None if conv is None else change(conv, "conv")
    all_layers = len(transfer.layers) == geometry.layers
    whole_h = all_layers and transfer.h_elems == geometry.h_elems
    whole_conv = all_layers and transfer.conv_elems == geometry.conv_elems
    same = whole_h and whole_conv and h is src.h and conv is src.conv
    if same and src.blob is not None and dst.blob is not None:
        dst.blob.copy_(src.blob, non_blocking=True)
        return
    if h is not None and dst.h is not None:
        _copy_part(h, dst.h, transfer.layers if not whole_h else None, transfer.h_elems)
    if conv is not None:
        _copy_part(conv, dst.conv, transfer.layers if not whole_conv else None, transfer.conv_elems)


def _copy_part(src: Tensor, dst: Tensor, layers: tuple[int, ...] | None, elems: int) -> None:
    if layers is None:
        dst.copy_(src.reshape(dst.shape), non_blocking=True)
        return
    for ordinal in layers:
        dst[ordinal].view(-1)[:elems].copy_(src[ordinal].reshape(-1)[:elems], non_blocking=True)


def clear(transfer: Transfer, dst: StateView, geometry: StateGeometry) -> None:
    """Fill with zeros what ``execute`` would have written."""
    for part, elems, whole in (
        (dst.h, transfer.h_elems, geometry.h_elems),
        (dst.conv, transfer.conv_elems, geometry.conv_elems),
    ):
        if part is None or not elems:
            continue
        if elems == whole and len(transfer.layers) == geometry.layers:
            part.zero_()
        else:
            for ordinal in transfer.layers:
                part[ordinal].view(-1)[:elems].zero_()
