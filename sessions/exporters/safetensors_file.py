"""The states of one instant as a safetensors file: ``PLACE/layer.N/PART``, such as ``live:0/layer.3/h``.

numpy has no bfloat16: such tensors are written as their 16-bit words, and the metadata names them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from engine.events import TensorData, TensorRef
from sessions.errors import NotAvailable
from sessions.exporters.atomic import atomic
from sessions.timeline import Timeline


def collect(timeline: Timeline, seq: int | None = None, branch: int | None = None) -> dict[str, TensorData]:
    """Every tensor written by event ``seq`` (default now), by name.

    Raises:
        NotAvailable: not one of them can be had; the reason is in words.
        DivergedError: executing again contradicts the record.
    """
    seq = timeline.now if seq is None else seq
    view = timeline.view_at(seq, branch)
    found: dict[str, TensorData] = {}
    reason = f"no place was written up to event {seq}"
    for place, fact in sorted(view.states.items()):
        for part, position in (("h", fact.h_position), ("conv", fact.conv_position)):
            if position is None:
                continue
            for layer in view.start.recurrent_layers:
                try:
                    data = timeline.tensor(TensorRef(place, layer, part), seq, branch)
                except NotAvailable as error:
                    reason = error.reason
                    continue
                found[f"{place}/layer.{layer}/{part}"] = data
    if not found:
        raise NotAvailable(reason)
    return found


def write(timeline: Timeline, path: str | Path, seq: int | None = None, branch: int | None = None) -> int:
    """Write :func:`collect` with the facts of each place as metadata (owner, epoch, positions, whether it is dirty,
    copies queued into it); the number of tensors.

    Raises:
        NotAvailable, DivergedError: as :func:`collect`.
        SessionError: it cannot be written.
    """
    seq = timeline.now if seq is None else seq
    tensors, view = collect(timeline, seq, branch), timeline.view_at(seq, branch)
    facts = {
        str(place): {
            "owner": fact.owner, "epoch": fact.epoch, "h": fact.h_position, "conv": fact.conv_position,
            "dirty": fact.dirty,
            # bytes that were about to be overwritten are said to be such
            "queued": [{"src": str(c.src), "parts": c.parts} for c in view.queued if c.dst == place],
        }
        for place, fact in sorted(view.states.items())
    }  # fmt: skip
    metadata = {
        "event": str(seq), "model": view.start.model, "fingerprint": view.start.fingerprint,
        "layout": view.start.layout, "places": json.dumps(facts, sort_keys=True),
        "bfloat16": json.dumps(sorted(name for name, data in tensors.items() if data.dtype == "bfloat16")),
    }  # fmt: skip
    with atomic(path) as part:
        save_file({name: _array(data) for name, data in sorted(tensors.items())}, part, metadata)
    return len(tensors)


def _array(data: TensorData) -> np.ndarray[Any, Any]:
    dtype = np.dtype(np.uint16 if data.dtype == "bfloat16" else data.dtype)
    return np.frombuffer(data.raw, dtype).reshape(data.shape)
