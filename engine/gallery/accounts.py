"""F11: slots that are counted wrongly."""

from __future__ import annotations

from collections.abc import Mapping

from engine.faults import fault
from engine.gallery.bytes_moved import always
from engine.runtime import Runtime
from engine.seams import Change


@fault(
    "double-free",
    "F11",
    "the slot of a finished request is put on the free list twice, and a held slot reads as free",
    "NVIDIA/Megatron-LM#6584",
)
def _double_free(rt: Runtime) -> Mapping[str, Change]:
    return {"slot.entries": always(2)}


@fault(
    "dummy-forgotten",
    "F11",
    "the spare slot that padding writes (the dummy) is counted as one for requests",
    "NVIDIA/TensorRT-LLM#13179",
)
def _dummy(rt: Runtime) -> Mapping[str, Change]:
    return {"slot.free": lambda free: free + 1}
