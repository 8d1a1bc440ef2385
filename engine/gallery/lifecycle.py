"""F7, F8, F9 and F11: who owns a slot, what was in it before, and whether it comes back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.events import Place
from engine.faults import fault
from engine.gallery.bytes_moved import always
from engine.runtime import Runtime
from engine.seams import Change
from engine.state.ring import LEGACY_RING


@fault(
    "shared-ring-slot",
    "F7",
    "truncation leaves the cursor, eviction goes by age: two entries share a slot",
    "Avarok-Cybersecurity/atlas#141",
)
def _shared(rt: Runtime) -> Mapping[str, Change]:
    return LEGACY_RING


@fault("kept-failed-save", "F7", "the save fails and its ring entry stays", "Luce-Org/lucebox#371")
def _kept(rt: Runtime) -> Mapping[str, Change]:
    def fail(value: str, **_: Any) -> str:
        saves = rt.fault_memory.setdefault("kept-failed-save", {"count": 0})
        saves["count"] += 1
        return "the snapshot was aborted" if saves["count"] % 2 == 0 else value

    return {"ring_save.fail": fail, "ring.keep_failed": always(True)}


@fault(
    "strided-index",
    "F7",
    "a strided index is read as dense: row r uses request 0's slot",
    "vllm-project/vllm#55357",
    silent=True,
)
def _strided(rt: Runtime) -> Mapping[str, Change]:
    def change(place: Place, **_: Any) -> Place:
        return Place(place.kind, 0 if place.slot else 1 % rt.config.slots, place.index)

    return {"commit.src_at": change}


@fault(
    "commit-to-neighbour", "F7", "the accepted state is committed to another request's slot", "sgl-project/sglang#33450"
)
def _neighbour(rt: Runtime) -> Mapping[str, Change]:
    return {"commit.dst": lambda place, **_: Place("live", (place.slot + 1) % rt.config.slots)}


@fault(
    "padded-row",
    "F8",
    "a padded row of a narrow verify writes a live slot",
    "NVIDIA/TensorRT-LLM#13151",
    needs="drafts",
)
def _padded(rt: Runtime) -> Mapping[str, Change]:
    return {"padding.slot": lambda dummy, slot, **_: (slot + 1) % rt.config.slots}


@fault("slot-not-zeroed", "F9", "a reused slot starts from its former tenant's bytes", "vllm-project/vllm#56524")
def _not_zeroed(rt: Runtime) -> Mapping[str, Change]:
    return {"zero.skip": always(True)}


@fault("half-restore", "F9", "a restore gives up halfway and leaves a mixture", "ggml-org/llama.cpp#27068")
def _half(rt: Runtime) -> Mapping[str, Change]:
    half = lambda layers, **_: layers[: len(layers) // 2]  # noqa: E731
    return {"ring_restore.layers": half, "commit.layers": half}


@fault("slot-leak", "F11", "a finished request keeps its slot", "sgl-project/sglang#16067")
def _slot_leak(rt: Runtime) -> Mapping[str, Change]:
    return {"slot.leak": always(True)}


@fault("block-leak", "F11", "a finished request keeps its KV blocks", "sgl-project/sglang#12432")
def _block_leak(rt: Runtime) -> Mapping[str, Change]:
    return {"kv.leak": always(True)}
