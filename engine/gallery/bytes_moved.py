"""F1 and F2: copies that are left out, empty, half, or go to the wrong place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.events import Place
from engine.faults import fault
from engine.runtime import Runtime
from engine.seams import Change


def always(value: Any) -> Change:
    """A change that gives ``value`` whatever came."""

    def change(_: Any, **context: Any) -> Any:
        return value

    return change


@fault("commit-skipped", "F1", "the accepted state is never committed after a verify", "sgl-project/sglang#26351")
def _commit_skipped(rt: Runtime) -> Mapping[str, Change]:
    return {"commit.omitted": lambda value, accepted, k, **_: accepted < k}


@fault(
    "zero-byte-copy",
    "F1",
    "copy sizes read from config fields that are 0 for this kind",
    "Avarok-Cybersecurity/atlas#743",
)
def _zero_bytes(rt: Runtime) -> Mapping[str, Change]:
    return {"commit.elems": always(0), "rollback.elems": always(0)}


@fault("noop-default", "F1", "a layer kind falls through to a default that does nothing", "anthony-chaudhary/fak#11112")
def _noop(rt: Runtime) -> Mapping[str, Change]:
    return {"commit.parts": always(""), "rollback.parts": always("")}


@fault(
    "live-dirty",
    "F1",
    "a reject mends the checkpoint only, live keeps the rejected drafts",
    "Avarok-Cybersecurity/atlas#154",
)
def _live_dirty(rt: Runtime) -> Mapping[str, Change]:
    return {"commit.dst": lambda place, **_: Place("checkpoint", place.slot)}


@fault(
    "attention-only-rewind",
    "F1",
    "a rollback lowers the KV cursor and leaves the state",
    "huggingface/transformers#49036",
)
def _attention_only(rt: Runtime) -> Mapping[str, Change]:
    return {"ring_restore.skip": always(True), "commit.skip": always(True)}


@fault("crop-conv-only", "F1", "crop trims conv and KV, h keeps the rejected tokens", "z-lab/dflash#172")
def _crop(rt: Runtime) -> Mapping[str, Change]:
    return {"commit.parts": always("conv")}


@fault(
    "commit-lost",
    "F1",
    "the copy is issued and reported but its bytes never arrive",
    "anthony-chaudhary/fak#12342",
    silent=True,
)
def _commit_lost(rt: Runtime) -> Mapping[str, Change]:
    return {"commit.dst_at": lambda place, **_: Place("checkpoint", place.slot)}


@fault("conv-omitted", "F2", "the rollback restores h, nobody captured conv", "ekryski/mlx-swift-lm#218")
def _conv_omitted(rt: Runtime) -> Mapping[str, Change]:
    return {"commit.parts": always("h"), "ring_save.parts": always("h"), "ring_restore.parts": always("h")}


@fault("conv-column-off", "F2", "the window is sliced one column off", "vllm-project/vllm#40738", silent=True)
def _column_off(rt: Runtime) -> Mapping[str, Change]:
    def change(value: Any, part: str, **_: Any) -> Any:
        return value.roll(1, dims=-1) if part == "conv" else value

    return {"commit.value": change}


@fault(
    "conv-of-another-step",
    "F2",
    "conv and h are taken from different verify rows",
    "ekryski/mlx-swift-lm#143",
    silent=True,
)
def _another_step(rt: Runtime) -> Mapping[str, Change]:
    def change(value: Any, part: str, src: Place, **_: Any) -> Any:
        if part != "conv" or src.kind != "step":
            return value
        return rt.memory.places.view(replace(src, index=max(0, src.index - 1) if src.index else 1)).conv

    return {"commit.value": change}


@fault("layer-left-behind", "F1", "one recurrent layer is missing from every copy", "gittensor-ai-lab/sparkinfer#1082")
def _layer(rt: Runtime) -> Mapping[str, Change]:
    return {"commit.layers": lambda layers, **_: layers[:-1], "ring_restore.layers": lambda layers, **_: layers[:-1]}
