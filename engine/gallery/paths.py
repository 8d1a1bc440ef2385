"""F4, F5 and F6: two ways through the engine that disagree on which state they go on from, or which one they publish.

What these faults know of other requests they learn at seams, as the engines they imitate do from batch metadata.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.events import Place
from engine.faults import fault
from engine.request import ActiveRequest
from engine.runtime import Runtime
from engine.seams import Change
from engine.state.rows import StateView


@fault(
    "one-token-tail",
    "F4",
    "a prompt tail of one token is run as a decode and never enters the state",
    "vllm-project/vllm#47466",
    silent=True,
)
def _one_token_tail(rt: Runtime) -> Mapping[str, Change]:
    def change(forward: Any, request: ActiveRequest, tokens: Sequence[int]) -> Any:
        if len(tokens) != 1 or request.seq.cursor == 0:
            return forward

        def kv_only(*args: Any) -> Any:
            live = rt.memory.places.view(request.seq.live)
            h, conv = None if live.h is None else live.h.clone(), live.conv.clone()
            rows = forward(*args)
            fill(live, h, conv)
            return rows

        return kv_only

    return {"prefill.forward": change}


@fault(
    "mixed-batch",
    "F4",
    "a decode without drafts goes on from the step that another request's accepted count selects",
    "vllm-project/vllm#35447",
    silent=True,
    needs="drafts",
)
def _mixed_batch(rt: Runtime) -> Mapping[str, Change]:
    def count(accepted: int, req: int, k: int) -> int:
        keep_last(rt, "mixed-batch", req, accepted)
        return accepted

    def change(value: None, request: ActiveRequest, **_: Any) -> None:
        rows = last_of_another(rt, "mixed-batch", request.req)
        # all of K: that state is live itself, there is no plane of it
        if rows is None or rows >= rt.config.k or rt.config.rollback == "replay":
            return
        step = rt.memory.places.view(Place("step", request.seq.slot, rows - 1))
        fill(rt.memory.places.view(request.seq.live), step.h, step.conv)

    return {"commit.accepted": count, "decode.before": change}


@fault(
    "precopy-skipped",
    "F5",
    "the copy before a chunk that crosses a block boundary is left out: it starts from a block nobody wrote",
    "syv-ai/qwen38-27b-rtx3090#43",
    silent=True,
)
def _precopy_skipped(rt: Runtime) -> Mapping[str, Change]:
    def change(value: None, request: ActiveRequest, tokens: Sequence[int]) -> None:
        size, start = rt.kv.block_size, request.seq.cursor
        if start and (start - 1) // size != (start + len(tokens) - 1) // size:
            unwritten = rt.memory.places.view(Place("live", rt.memory.pool.dummy))
            fill(rt.memory.places.view(request.seq.live), unwritten.h, unwritten.conv)

    return {"prefill.before": change}


@fault(
    "preverify-key",
    "F6",
    "the boundary of a cached state is computed from the length before the verify",
    "sgl-project/sglang#32052",
    needs="drafts",
)
def _preverify_key(rt: Runtime) -> Mapping[str, Change]:
    def before(value: None, request: ActiveRequest, **_: Any) -> None:
        rt.fault_memory["preverify-key"] = {"round": rt.round, "req": request.req, "length": request.seq.cursor}

    def change(tokens: int, req: int, **_: Any) -> int:
        verify = rt.fault_memory.get("preverify-key", {})
        return int(verify["length"]) if (verify.get("round"), verify.get("req")) == (rt.round, req) else tokens

    return {"verify.before": before, "prefix.coverage": change}


@fault(
    "chunk-grid-per-batch",
    "F6",
    "chunk snapshots are looked up by the chunks of the whole batch: another request's state is saved",
    "sgl-project/sglang#37836",
    silent=True,
)
def _chunk_grid(rt: Runtime) -> Mapping[str, Change]:
    def change(place: Place, **_: Any) -> Place:
        mine = next((r for r in rt.requests.values() if r.seq.slot == place.slot), None)
        others = [r.seq.slot for r in rt.requests.values() if r is not mine and r.seq.cursor]
        # still prefilling: this is the end of a chunk, not of the prompt
        return Place(place.kind, others[0]) if others and mine is not None and mine.prefilling else place

    return {"prefix_save.src_at": change}


def keep_last(rt: Runtime, name: str, req: int, value: int) -> None:
    """Remember ``value`` of the newest verify of ``req``."""
    memory = rt.fault_memory.setdefault(name, {"last": []})
    memory["last"] = [pair for pair in memory["last"] if pair[0] != req] + [[req, value]]


def last_of_another(rt: Runtime, name: str, req: int) -> int | None:
    """What was remembered of the newest verify of any request but ``req``."""
    kept = [value for other, value in rt.fault_memory.get(name, {"last": []})["last"] if other != req]
    return int(kept[-1]) if kept else None


def fill(dst: StateView, h: Any, conv: Any) -> None:
    """Bytes over ``dst``, told to nobody."""
    if h is not None and dst.h is not None:
        dst.h.copy_(h)
    dst.conv.copy_(conv)
