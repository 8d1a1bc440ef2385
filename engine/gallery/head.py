"""F15 again: how the MTP head is fed beside its hidden state - order, positions, and its own KV."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.faults import fault
from engine.gallery.bytes_moved import always
from engine.runtime import Runtime
from engine.seams import Change


@fault(
    "mtp-halves-swapped",
    "F15",
    "the head concatenates hidden and embedding the wrong way round",
    "raullenchai/Rapid-MLX#3371",
    silent=True,
    needs="mtp",
)
def _halves(rt: Runtime) -> Mapping[str, Change]:
    return {"mtp.swapped": always(True)}


@fault(
    "mtp-positions-shifted",
    "F15",
    "the head's rows are fed at positions one too high",
    "raullenchai/Rapid-MLX#3371",
    needs="mtp",
)
def _positions(rt: Runtime) -> Mapping[str, Change]:
    # where the last block is full there is no row one higher: that feeding stays right
    return {"mtp.position": lambda position, room: min(position + 1, room)}


@fault(
    "mtp-kv-not-rewound",
    "F15",
    "rejected drafts and undone outputs stay in the head's KV, true rows come after them",
    "kekzl/imp#1800",
    needs="mtp",
)
def _not_rewound(rt: Runtime) -> Mapping[str, Change]:
    def change(row: int, held: int, room: int) -> Any:
        # what piles up stops where the next drafts would leave the request's blocks
        return max(row, min(held, room - rt.config.drafts))

    return {"mtp.rewind": change}
