"""The whole engine as plain data: requests, rings, counters and settings as JSON beside the bytes of state memory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from engine.events import TensorData
from engine.faults import switch_fault
from engine.request import ActiveRequest
from engine.runtime import Counters, Runtime
from engine.sampler import Sampling
from engine.state.paged_kv import KvTable
from engine.traits import SequenceState
from engine.watchdogs import WatchdogConfig

FORMAT = 1
_PLAIN = (
    "max_tokens",
    "ignore_eos",
    "drafter",
    "chunk",
    "content_tokens",
    "prose_tokens",
    "inside_tool",
    "hidden",
)
_DRAFT = ("token", "fed", "fed_digest", "written", "position")


class ImageError(ValueError):
    """An engine image that does not fit this engine."""


def save(rt: Runtime) -> dict[str, TensorData]:
    """Everything needed to continue from here, exactly. Call between two actions."""
    image = dict(rt.memory.save_image())
    requests = []
    for request in rt.requests.values():
        requests.append(_request(request))
        if request.draft.hidden is not None:
            image[f"draft.{request.req}"] = pack(request.draft.hidden)
    state = {
        "format": FORMAT,
        "counters": asdict(rt.counters),
        "requests": requests,
        "told": sorted(rt.told),
        "faults": sorted(rt.faults),
        "fault_memory": rt.fault_memory,
        "drafts": rt.drafts,
        "verify_mode": rt.verify_mode,
        "digests": rt.digests_on,
        "watchdogs": asdict(rt.watchdogs),
        "prefix": rt.prefix.to_plain() if rt.prefix is not None else None,
    }
    raw = json.dumps(state, sort_keys=True, separators=(",", ":")).encode()
    image["engine.json"] = TensorData("uint8", (len(raw),), raw)
    return image


def load(rt: Runtime, image: Mapping[str, TensorData]) -> None:
    """Inverse of :func:`save`. Raises ImageError when the image is of another engine or damaged."""
    try:
        state: dict[str, Any] = json.loads(image["engine.json"].raw)
    except (KeyError, ValueError) as error:
        raise ImageError(f"the engine image has no readable engine.json: {error}") from None
    if state.get("format") != FORMAT:
        raise ImageError(f"the engine image has format {state.get('format')!r}, this program reads {FORMAT}")
    rt.memory.load_image(image)
    rt.counters = Counters(**state["counters"])
    rt.round, rt.answers = 0, {}
    rt.told = set(state["told"])
    rt.drafts, rt.verify_mode, rt.digests_on = state["drafts"], state["verify_mode"], state["digests"]
    rt.watchdogs = WatchdogConfig(**state["watchdogs"])
    if rt.prefix is not None and state["prefix"] is not None:
        rt.prefix.load_plain(state["prefix"])
    for name in sorted(rt.faults - set(state["faults"])):
        switch_fault(rt, name, False)
    for name in sorted(set(state["faults"]) - rt.faults):
        switch_fault(rt, name, True)
    rt.fault_memory = state.get("fault_memory", {})
    rt.requests.clear()
    for plain in state["requests"]:
        request = _rebuild(rt, plain)
        hidden = image.get(f"draft.{request.req}")
        if hidden is not None:
            request.draft.hidden = unpack(hidden, rt.model.device)
        rt.requests[request.req] = request


def _request(request: ActiveRequest) -> dict[str, Any]:
    return {
        **{name: getattr(request, name) for name in _PLAIN},
        "sampling": asdict(request.sampling),
        "draft": [getattr(request.draft, name) for name in _DRAFT],
        "seq": request.seq.save(),
    }


def _rebuild(rt: Runtime, plain: dict[str, Any]) -> ActiveRequest:
    held = plain["seq"]["table"]
    seq = SequenceState.load(plain["seq"], KvTable(rt.kv, held["blocks"], held["cursor"]), rt.seams)
    seq.attach(rt.memory.pool.adopt(seq.slot, seq.epoch))
    request = ActiveRequest(seq, Sampling(**plain["sampling"]), **{name: plain[name] for name in _PLAIN})
    draft = dict(zip(_DRAFT, plain["draft"], strict=False))
    draft.setdefault("written", draft["fed"])  # older images do not have these two
    draft.setdefault("position", draft["fed"] - 1)
    for name, value in draft.items():
        setattr(request.draft, name, value)
    return request


def pack(tensor: torch.Tensor) -> TensorData:
    """Bytes of ``tensor`` with its dtype name."""
    flat = tensor.detach().cpu().contiguous()
    return TensorData(
        str(flat.dtype).removeprefix("torch."), tuple(flat.shape), flat.view(torch.uint8).numpy().tobytes()
    )


def unpack(data: TensorData, device: torch.device) -> torch.Tensor:
    """Inverse of :func:`pack`. Raises ImageError when bytes and shape do not agree."""
    dtype = getattr(torch, data.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise ImageError(f"unknown dtype {data.dtype!r} in an engine image")
    if len(data.raw) != int(np.prod(data.shape, dtype=np.int64)) * dtype.itemsize:
        raise ImageError(f"{len(data.raw)} bytes for shape {data.shape} of {data.dtype}")
    return torch.frombuffer(bytearray(data.raw), dtype=dtype).reshape(data.shape).to(device)
