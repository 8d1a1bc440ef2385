"""F2, F7, F10: one state made of two: bytes of the other part, heads of another slot, columns read too late."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from engine.events import Place
from engine.faults import fault
from engine.runtime import Runtime
from engine.seams import Change


@fault(
    "parts-swapped",
    "F2",
    "the state's two slots are exchanged: conv is read as h, h as conv",
    "ekryski/mlx-swift-lm#143",
    silent=True,
)
def _swapped(rt: Runtime) -> Mapping[str, Change]:
    def change(value: Tensor, part: str, src: Place, **_: Any) -> Tensor:
        view = rt.memory.places.view(src)
        other = view.conv if part == "h" else view.h
        return value if other is None else _filled(other, value)

    return {"commit.value": change, "ring_restore.value": change}


def _filled(source: Tensor, like: Tensor) -> Tensor:
    """``source`` in the shape of ``like``, layer by layer in the order of memory: what is too long is cut, what is too
    short begins again."""
    flat, elems = source.reshape(len(source), -1), like[0].numel()
    return flat.repeat(1, -(-elems // flat.shape[1]))[:, :elems].reshape(like.shape)


@fault(
    "rank-local-free-order",
    "F7",
    "two ranks free in different orders and disagree on the slot: half of the heads is another's",
    "Avarok-Cybersecurity/atlas#969",
    silent=True,
)
def _ranks(rt: Runtime) -> Mapping[str, Change]:
    def change(value: Tensor, part: str, src: Place, **_: Any) -> Tensor:
        other = _elsewhere(rt, part, src)
        if other is None:
            return value
        mixed = value.clone()
        for lo, hi in _second_rank(rt, part):
            mixed[:, lo:hi] = other[:, lo:hi]
        return mixed

    return {"commit.value": change}


def _elsewhere(rt: Runtime, part: str, place: Place) -> Tensor | None:
    """What the second rank takes for ``place``: the same place of the lowest slot of another request that wrote it."""
    for slot in sorted({request.seq.slot for request in rt.requests.values()} - {place.slot, -1}):
        view = rt.memory.places.view(Place(place.kind, slot, place.index))
        if bool(view.conv.any()):
            return view.h if part == "h" else view.conv
    return None


def _second_rank(rt: Runtime, part: str) -> list[tuple[int, int]]:
    """Rows of the second of two ranks: the upper half of the value heads of h; of conv the upper half of the queries,
    of the keys and of the values, which are what those heads are made from."""
    model = rt.model.config
    if part == "h":
        return [(model.value_heads // 2, model.value_heads)]
    keys, values = model.key_heads * model.key_dim, model.value_heads * model.value_dim
    sections = ((0, keys), (keys, keys), (2 * keys, values))
    return [(start + size // 2, start + size) for start, size in sections]


@fault(
    "overlapping-copy",
    "F10",
    "a window is shifted in place by parallel copies: some channels read columns that were shifted already",
    "vllm-project/vllm#50729",
    silent=True,
)
def _overlapping(rt: Runtime) -> Mapping[str, Change]:
    def change(value: Tensor, part: str, **_: Any) -> Tensor:
        if part != "conv":
            return value
        half = value.shape[1] // 2
        late = value[:, half:]
        # shifted twice; the last column has nothing after it to read and stays
        return torch.cat((value[:, :half], torch.cat((late[..., 1:], late[..., -1:]), dim=-1)), dim=1)

    return {"commit.value": change}
