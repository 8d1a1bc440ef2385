"""Places by name: where a state lies, its digests, and its bytes as plain data."""

from __future__ import annotations

import numpy as np
import torch
import xxhash
from torch import Tensor

from engine.events import Digests, Place, TensorData
from engine.state.errors import StateError
from engine.state.geometry import StateGeometry
from engine.state.rows import StateView
from engine.state.snapshot_pool import SsmSnapshotPool
from engine.state.state_pool import SsmStatePool


class Places:
    """All places of both pools. Buffers never move, so views are made once for each place and kept."""

    def __init__(self, geometry: StateGeometry, pool: SsmStatePool, snapshots: SsmSnapshotPool) -> None:
        self._geometry, self._pool, self._snapshots = geometry, pool, snapshots
        self._views: dict[Place, StateView] = {}
        self._hosts: dict[Place, tuple[tuple[memoryview | None, memoryview], ...]] = {}

    def view(self, place: Place) -> StateView:
        """The state at ``place``. Raises StateError when these pools have no such place."""
        found = self._views.get(place)
        if found is None:
            pool = self._snapshots if place.kind in ("ring", "prefix") else self._pool
            found = self._views[place] = pool.state(place.kind, place.slot, place.index)
        return found

    def digests(self, place: Place) -> Digests:
        """(h, conv) xxh3-64 in hex for each recurrent layer; h is "" where the place has no h plane.

        On CPU the bytes are hashed where they lie; on CUDA the state comes to the host in one copy."""
        layers = self._hosts.get(place)
        if layers is None:
            view = self.view(place)
            on_host = view.conv.device.type == "cpu"
            layers = _host_layers(view if on_host else _to_host(view))
            if on_host:
                self._hosts[place] = layers
        digest = xxhash.xxh3_64_hexdigest
        return tuple((digest(h) if h is not None else "", digest(conv)) for h, conv in layers)

    def tensor(self, place: Place, ordinal: int, part: str) -> Tensor:
        """View of one layer's h [Hv, dk, dv] or conv [C, kernel]; ``ordinal`` counts recurrent layers.

        Raises KeyError for a place, layer or part that does not exist."""
        try:
            view = self.view(place)
        except StateError as error:
            raise KeyError(str(error)) from None
        whole = {"h": view.h, "conv": view.conv}.get(part)
        if whole is None:
            raise KeyError(f"{place} has no {part!r}: parts are h and conv, and the last verify row keeps conv only")
        if not 0 <= ordinal < self._geometry.layers:
            raise KeyError(f"recurrent layer number {ordinal} of {self._geometry.layers}")
        return whole[ordinal]

    def read(self, place: Place, ordinal: int, part: str) -> TensorData:
        """The bytes of :meth:`tensor` as they are now. Raises KeyError like it."""
        return to_plain(self.tensor(place, ordinal, part))


def to_plain(tensor: Tensor) -> TensorData:
    """``tensor`` as plain data, any dtype."""
    raw = tensor.detach().contiguous().view(-1).view(torch.uint8).cpu().numpy().tobytes()
    return TensorData(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), raw)


def _to_host(view: StateView) -> StateView:
    if view.blob is None or view.h is None:
        return StateView(None if view.h is None else view.h.cpu(), view.conv.cpu(), None)
    blob = view.blob.cpu()
    split = view.h.numel()
    return StateView(blob[:split].view(view.h.shape), blob[split:].view(view.conv.shape), blob)


def _host_layers(view: StateView) -> tuple[tuple[memoryview | None, memoryview], ...]:
    conv = view.conv.numpy()
    h = [None] * len(conv) if view.h is None else [_bytes_of(layer) for layer in view.h.numpy()]
    return tuple(zip(h, (_bytes_of(layer) for layer in conv), strict=True))


def _bytes_of(layer: np.ndarray) -> memoryview:
    return layer.data.cast("B")
