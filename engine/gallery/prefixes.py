"""F5, F6 and F14: the prefix cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.events import Place
from engine.faults import fault
from engine.gallery.bytes_moved import always
from engine.runtime import Runtime
from engine.seams import Change


@fault(
    "floored-key",
    "F5",
    "a state is registered under its last whole block and applies tokens twice",
    "Avarok-Cybersecurity/atlas#155",
)
def _floored(rt: Runtime) -> Mapping[str, Change]:
    return {"prefix.coverage": lambda tokens, block_size, **_: tokens // block_size * block_size or tokens}


@fault(
    "backward-copy",
    "F5",
    "a copy on an exact boundary brings an older state",
    "vllm-project/vllm#53505",
    needs="drafts",
)
def _backward(rt: Runtime) -> Mapping[str, Change]:
    def change(place: Place, **_: Any) -> Place:
        return Place("checkpoint", place.slot) if rt.config.k > 1 else place

    return {"prefix_save.src": change}


@fault(
    "wrong-block-unit",
    "F5",
    "the cached state is looked up with the wrong block size",
    "vllm-project/vllm#55507",
    silent=True,
)
def _wrong_unit(rt: Runtime) -> Mapping[str, Change]:
    def change(place: Place, **_: Any) -> Place:
        return Place("prefix", -1, (place.index + 1) % max(1, rt.memory.snapshots.prefix_slots))

    return {"prefix_restore.src_at": change}


@fault("published-unwritten", "F6", "a snapshot is published that no kernel wrote", "sgl-project/sglang#30862")
def _unwritten(rt: Runtime) -> Mapping[str, Change]:
    return {"prefix_save.skip": always(True)}


@fault("sealed-mutated", "F6", "a sealed snapshot is written again", "sgl-project/sglang#29973")
def _mutated(rt: Runtime) -> Mapping[str, Change]:
    def change(place: Place, **_: Any) -> Place:
        return Place("prefix", -1, 0)

    return {"prefix_save.dst": change}


@fault(
    "other-sessions-state",
    "F6",
    "a hit restores the state of another request",
    "vllm-project/tpu-inference#3412",
    silent=True,
)
def _other(rt: Runtime) -> Mapping[str, Change]:
    def change(place: Place, dst: Place, **_: Any) -> Place:
        others = [r.seq.slot for r in rt.requests.values() if r.seq.slot != dst.slot]
        return Place("live", others[0]) if others else Place("live", rt.config.slots)

    return {"prefix_restore.src_at": change}


@fault("silent-refusal", "F14", "a usable snapshot is passed over and nobody says why", "ml-explore/mlx-lm#1162")
def _refusal(rt: Runtime) -> Mapping[str, Change]:
    return {"prefix.refuse": always(True)}
