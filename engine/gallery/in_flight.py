"""F3 and F10: copies still on their way when their places change hands, and planes that outlive their round."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.events import Place
from engine.faults import fault
from engine.runtime import Runtime
from engine.seams import Change


@fault(
    "rollback-while-pending",
    "F3",
    "a rollback goes ahead while the commit before it is still pending",
    "Anbeeld/beellama.cpp#165",
)
def _while_pending(rt: Runtime) -> Mapping[str, Change]:
    def change(skip: bool, req: int = -1, at: str = "") -> bool:
        return skip or (at == "rollback" and _coming(rt, rt.requests[req].seq.slot))

    return {"sync.skip": change}


@fault(
    "moved-before-landed",
    "F10",
    "a request is moved to another slot while the commit of its state is still queued",
    "vllm-project/vllm#53919",
)
def _moved(rt: Runtime) -> Mapping[str, Change]:
    def change(skip: bool, req: int = -1, at: str = "") -> bool:
        if at == "compact":
            return skip or _coming(rt, rt.requests[req].seq.slot)
        if at == "finish":  # the end of another request is the last wait before the move
            own, last = rt.requests[req].seq.slot, max(rt.memory.pool.owned, default=-1)
            return skip or (last != own and _coming(rt, last) and not _coming(rt, own))
        return skip

    return {"sync.skip": change}


@fault("free-in-flight", "F10", "a slot is recycled while a copy into it is in flight", "sgl-project/sglang#18803")
def _freed(rt: Runtime) -> Mapping[str, Change]:
    def change(skip: bool, req: int = -1, at: str = "") -> bool:
        return skip or (at == "finish" and _coming(rt, rt.requests[req].seq.slot))

    return {"sync.skip": change}


@fault(
    "stale-plane",
    "F3",
    "the commit after a short verify takes a state that a row of an older, wider verify left behind",
    "ggml-org/llama.cpp#22746",
    silent=True,
    needs="drafts",
)
def _stale_plane(rt: Runtime) -> Mapping[str, Change]:
    def note(accepted: int, req: int, k: int) -> int:
        told = rt.fault_memory.setdefault("stale-plane", {})
        told["now"] = [req, k]
        if k == rt.config.k:
            told[str(req)] = [accepted, rt.requests[req].seq.cursor]
        return accepted

    def change(place: Place, **_: Any) -> Place:
        told = rt.fault_memory.get("stale-plane", {})
        req, k = told.get("now", (-1, rt.config.k))
        kept, end = told.get(str(req), (0, 0))
        index = place.index + rt.config.k - k
        # not a plane of this round, nor one with rejected drafts in it: a state the request has really had
        if place.kind != "step" or not k <= index < kept or end - kept + index + 1 >= rt.requests[req].seq.cursor:
            return place
        return Place("step", place.slot, index)

    return {"commit.accepted": note, "commit.src_at": change}


def _coming(rt: Runtime, slot: int) -> bool:
    """Whether a queued copy will land in ``slot``."""
    return any(copy.dst.slot == slot for copy in rt.memory.pending)
