"""F3, F4 and F10's counts: the right copy of the wrong row, or a reader that looks elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.events import Place
from engine.faults import fault
from engine.request import ActiveRequest
from engine.runtime import Runtime
from engine.seams import Change


@fault(
    "wrong-step-index",
    "F3",
    "after n accepted rows the state of step n is committed; steps count from 0, so it is n - 1",
    "xLLM-AI/xllm#2247",
)
def _n(rt: Runtime) -> Mapping[str, Change]:
    return {"commit.row": lambda row, k, **_: min(row + 1, k - 2)}


@fault("one-row-short", "F3", "the rollback keeps one accepted row too few", "ekryski/mlx-swift-lm#143")
def _short(rt: Runtime) -> Mapping[str, Change]:
    return {"commit.row": lambda row, **_: max(0, row - 1)}


@fault("accepted-clamped", "F3", "the count is clamped by an unrelated length", "xLLM-AI/xllm#2247")
def _clamped(rt: Runtime) -> Mapping[str, Change]:
    return {"commit.row": lambda row, **_: min(row, 0)}


@fault(
    "index-minus-one",
    "F3",
    "a count of 0 selects row -1: the neighbour's state",
    "vllm-project/vllm#51508",
    silent=True,
)
def _minus_one(rt: Runtime) -> Mapping[str, Change]:
    def change(place: Place, **_: Any) -> Place:
        return Place("step", place.slot - 1 if place.slot else rt.config.slots - 1, 0)

    return {"commit.src_at": change}


@fault(
    "accepted-of-previous-step",
    "F10",
    "the next step reads a count that belongs to the one before",
    "vllm-project/vllm#45100",
)
def _previous(rt: Runtime) -> Mapping[str, Change]:
    def change(accepted: int, req: int, k: int) -> int:
        last = rt.fault_memory.setdefault("accepted-of-previous-step", {})
        before, last[str(req)] = last.get(str(req), accepted), accepted
        return min(int(before), k)

    return {"commit.accepted": change}


@fault(
    "zero-draft-step",
    "F4",
    "a step without drafts reads the state of the first row",
    "vllm-project/vllm#39273",
    silent=True,
)
def _zero_draft(rt: Runtime) -> Mapping[str, Change]:
    def change(value: None, request: ActiveRequest, token: int) -> None:
        _overwrite(rt, request, Place("step", request.seq.slot, 0))

    return {"decode.before": change}


@fault(
    "reads-checkpoint", "F4", "plain decode goes on from the pre-verify copy", "vllm-project/vllm#52942", silent=True
)
def _reads_checkpoint(rt: Runtime) -> Mapping[str, Change]:
    def change(value: None, request: ActiveRequest, **_: Any) -> None:
        _overwrite(rt, request, Place("checkpoint", request.seq.slot))

    return {"decode.before": change}


@fault(
    "pending-twice",
    "F5",
    "the pending token is absorbed by the state twice",
    "Avarok-Cybersecurity/atlas#155",
    silent=True,
)
def _twice(rt: Runtime) -> Mapping[str, Change]:
    def change(value: None, request: ActiveRequest, **context: Any) -> None:
        seq = request.seq
        rt.model.step(seq.tokens[seq.cursor], rt.memory.pool, seq.slot, seq.table, seq.cursor)

    return {"decode.before": change, "verify.before": change}


def _overwrite(rt: Runtime, request: ActiveRequest, source: Place) -> None:
    """Bytes of ``source`` over live, told to nobody; without such a place (K = 1, replay mode) nothing happens."""
    if rt.config.k == 1 or (source.kind == "step" and rt.config.rollback == "replay"):
        return
    src, dst = rt.memory.places.view(source), rt.memory.places.view(request.seq.live)
    if src.h is not None and dst.h is not None:
        dst.h.copy_(src.h)
    dst.conv.copy_(src.conv)
