"""F10 and F13: order of work, and forwards that forget what came before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.events import Place
from engine.faults import fault
from engine.gallery.bytes_moved import always
from engine.request import ActiveRequest
from engine.runtime import Runtime
from engine.seams import Change


@fault(
    "missing-stream-wait",
    "F10",
    "decode reads live while the restore is still queued",
    "Avarok-Cybersecurity/atlas#154",
)
def _missing_wait(rt: Runtime) -> Mapping[str, Change]:
    return {"sync.skip": always(True)}


@fault(
    "snapshot-before-producer",
    "F10",
    "a snapshot is taken before the work that produces it",
    "sgl-project/sglang#24221",
    silent=True,
    needs="drafts",
)
def _too_early(rt: Runtime) -> Mapping[str, Change]:
    def change(place: Place, **_: Any) -> Place:
        return Place("checkpoint", place.slot) if rt.config.k > 1 else place

    return {"ring_save.src_at": change}


@fault(
    "chunk-drops-history",
    "F13",
    "a second prefill chunk starts from an empty state",
    "huggingface/transformers#45513",
    silent=True,
)
def _drops(rt: Runtime) -> Mapping[str, Change]:
    def change(value: None, request: ActiveRequest, **_: Any) -> None:
        if request.seq.cursor > 0:
            _clear(rt, request)

    return {"prefill.before": change}


@fault(
    "verify-drops-history",
    "F13",
    "a verify of several tokens starts from an empty state",
    "huggingface/transformers#46741",
    silent=True,
)
def _verify_drops(rt: Runtime) -> Mapping[str, Change]:
    return {"verify.before": lambda value, request, **_: _clear(rt, request)}


@fault(
    "decode-by-prefill",
    "F13",
    "decoded tokens are absorbed by the prefill kernel: equal up to rounding",
    "Avarok-Cybersecurity/atlas#155",
    silent=True,
)
def _by_prefill(rt: Runtime) -> Mapping[str, Change]:
    def change(step: Any) -> Any:
        return lambda token, pool, slot, table, start: rt.model.prefill([token], pool, slot, table, start)

    return {"decode.step": change}


def _clear(rt: Runtime, request: ActiveRequest) -> None:
    view = rt.memory.places.view(request.seq.live)
    if view.h is not None:
        view.h.zero_()
    view.conv.zero_()
