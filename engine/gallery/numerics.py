"""F12 and F15: dtypes, overflow, NaN and layout; what the drafter is fed with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from engine.events import Place
from engine.faults import fault
from engine.runtime import Runtime
from engine.seams import Change


def _through(dtype: torch.dtype) -> Change:
    def change(value: Any, part: str, **_: Any) -> Any:
        return value.to(dtype).to(value.dtype) if part == "h" else value

    return change


@fault(
    "h-through-bf16", "F12", "the recurrent state is kept in bf16 on the way", "vllm-project/vllm#13466", silent=True
)
def _bf16(rt: Runtime) -> Mapping[str, Change]:
    return {"commit.value": _through(torch.bfloat16), "ring_restore.value": _through(torch.bfloat16)}


@fault("h-through-fp16", "F12", "the state dtype resolves to fp16", "vllm-project/vllm#39032", silent=True)
def _fp16(rt: Runtime) -> Mapping[str, Change]:
    return {"commit.value": _through(torch.float16), "ring_restore.value": _through(torch.float16)}


@fault(
    "h-transposed",
    "F12",
    "key and value dimension are swapped: same shape, same norm",
    "state layouts of two kernels",
    silent=True,
)
def _transposed(rt: Runtime) -> Mapping[str, Change]:
    def change(value: Any, part: str, **_: Any) -> Any:
        square = part == "h" and value.shape[-1] == value.shape[-2]
        return value.transpose(-1, -2).contiguous() if square else value

    return {"commit.value": change, "ring_restore.value": change}


@fault(
    "offset-overflow",
    "F12",
    "slot times stride overflows 32 bits: the write lands elsewhere",
    "vllm-project/vllm#35275",
    silent=True,
)
def _overflow(rt: Runtime) -> Mapping[str, Change]:
    return {"commit.dst_at": lambda place, **_: Place("live", rt.config.slots)}


@fault("nan-state", "F12", "a kernel leaves NaN behind", "fla-org/flash-linear-attention#913", silent=True)
def _nan(rt: Runtime) -> Mapping[str, Change]:
    def change(value: Any, part: str, **_: Any) -> Any:
        if part != "h":
            return value
        broken = value.clone()
        broken.view(-1)[0] = float("nan")
        return broken

    return {"commit.value": change}


@fault(
    "pre-norm-mtp",
    "F15",
    "the MTP head is fed the hidden state before the final norm",
    "ggml-org/llama.cpp#24025",
    needs="mtp",
)
def _pre_norm(rt: Runtime) -> Mapping[str, Change]:
    weight = rt.model.final_norm_weight()

    def change(hidden: Any, start: int) -> Any:
        # the head normalises its input again, so undoing the elementwise weight is the whole difference
        return (hidden.float() / weight).to(hidden.dtype)

    return {"mtp.hidden": change}


@fault(
    "mtp-stale-hidden",
    "F15",
    "the drafter is fed the hidden state of an earlier row",
    "ModelTC/LightLLM#1402",
    needs="mtp",
)
def _stale_hidden(rt: Runtime) -> Mapping[str, Change]:
    def change(hidden: Any, start: int) -> Any:
        kept = rt.fault_memory.setdefault("mtp-stale-hidden", {})
        last = kept.get("row")
        before = hidden[:1] if last is None else torch.tensor([last], dtype=hidden.dtype, device=hidden.device)
        kept["row"] = hidden[-1].float().tolist()
        return torch.cat((before, hidden[:-1]))

    return {"mtp.hidden": change}
