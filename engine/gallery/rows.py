"""F8 and F9: padded rows and pad tokens that touch live state; slots that come back with something in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.events import Place
from engine.faults import fault
from engine.gallery.paths import keep_last, last_of_another
from engine.request import ActiveRequest
from engine.runtime import Runtime
from engine.seams import Change
from engine.state.prefix_cache import prefix_keys

PAD, PADS = 0, 3
"""The pad token, and how many at most: a window of four keeps one true token beside three pads."""


@fault(
    "stale-padding",
    "F8",
    "padding writes the slot that the verify of another request used before it",
    "vllm-project/vllm#37728",
    needs="drafts",
)
def _stale_padding(rt: Runtime) -> Mapping[str, Change]:
    def before(value: None, request: ActiveRequest, **_: Any) -> None:
        keep_last(rt, "stale-padding", request.req, request.seq.slot)

    def change(dummy: int, slot: int) -> int:
        mine = next(request.req for request in rt.requests.values() if request.seq.slot == slot)
        stale = last_of_another(rt, "stale-padding", mine)
        return dummy if stale is None or stale == slot else stale

    return {"verify.before": before, "padding.slot": change}


@fault(
    "pad-unmasked",
    "F8",
    "the padding of the last prefill chunk is not masked: pad tokens update the state",
    "ml-explore/mlx-lm#1736",
    silent=True,
)
def _pad_unmasked(rt: Runtime) -> Mapping[str, Change]:
    def change(forward: Any, request: ActiveRequest, tokens: Sequence[int]) -> Any:
        seq, end = request.seq, request.seq.cursor + len(tokens)
        # their KV goes where nobody reads before it is written again
        room = min(rt.config.prefill_chunk - len(tokens), seq.table.capacity - end, PADS)
        if end < seq.prompt_len or room <= 0:
            return forward

        def padded(*args: Any) -> Any:
            rows = forward(*args)
            rt.model.prefill([PAD] * room, rt.memory.pool, seq.slot, seq.table, end)
            return rows

        return padded

    return {"prefill.forward": change}


@fault(
    "resume-without-reset",
    "F9",
    "a resumed request gets its KV back and goes on from whatever its slot holds",
    "vllm-project/vllm-metal#488",
)
def _resume(rt: Runtime) -> Mapping[str, Change]:
    def skip_zero(value: bool, dst: Place, **_: Any) -> bool:
        request = next((r for r in rt.requests.values() if r.seq.slot == dst.slot), None)
        return value or (request is not None and _resumes(rt, request))

    return {"zero.skip": skip_zero, "prefix_restore.skip": lambda value, **_: True}


def _resumes(rt: Runtime, request: ActiveRequest) -> bool:
    """Whether a cached prefix is about to be given to a request that has just been admitted."""
    seq = request.seq
    if rt.prefix is None or seq.cursor:
        return False
    usable = [e for e in rt.prefix.entries if e.tokens < seq.prompt_len and not e.is_tail]
    keys = prefix_keys(seq.tokens, {entry.tokens for entry in usable})
    return any(keys.get(entry.tokens) == entry.key for entry in usable)


@fault(
    "poisoned-slot",
    "F9",
    "a recycled slot is multiplied by zero instead of filled with it: NaN stay",
    "vllm-project/vllm#44972",
    silent=True,
)
def _poisoned(rt: Runtime) -> Mapping[str, Change]:
    def change(value: Any, part: str, dst: Place, **_: Any) -> Any:
        if part != "h" or rt.memory.pool.epoch(dst.slot) < 2:
            return value
        left = value.clone()
        left.view(-1)[0] = 0.0 * float("nan")  # what a multiplication makes of one NaN in the memory that came back
        return left

    return {"zero.value": change}
