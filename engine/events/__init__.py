"""The port between the engine and everybody else: events out, actions in, places asked for by name.

All of it is plain frozen data that survives JSON, so the same port can cross a process boundary. Nothing here imports
torch. An event is a *fact*: what was written where, how many bytes moved, which slot was claimed. Whoever folds the
events (``sessions.ledger``) knows owner, epoch, position, rings, cursors, pools and blocks without asking the engine.

Conventions
    position   tokens absorbed by a state. Between rounds the live state is at ``prompt + outputs - 1``.
    cursor     ``seq_len``: tokens valid in the paged KV.
    row        verify row i consumes ``tokens[i]``; row 0 is the pending token. ``accepted`` counts rows, 1..K.
    parts      "h+conv", "h", "conv" or "" (nothing was copied).
    digests    one (h, conv) pair of xxh3-64 hex strings per recurrent layer, or () when digests are off.
    stream     "default" or "secondary". A copy queued on the secondary stream has ``landed=False``; a ``Landed`` event
               tells when its bytes are there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.codec import CodecError, from_dict, to_dict
from engine.events.actions import (
    Action,
    ForkRequest,
    FreeRequest,
    InjectToken,
    NewRequest,
    RestoreCheckpoint,
    RestoreRing,
    RollBack,
    RunRound,
    SaveRing,
    SetFault,
    SetOption,
    SyncSecondary,
    TakeCheckpoint,
)
from engine.events.base import (
    LIVE,
    PLACE_KINDS,
    Digests,
    Event,
    Place,
)
from engine.events.books import (
    KvAlloc,
    KvCopy,
    KvDrop,
    KvFree,
    KvHold,
    KvRewind,
    KvShare,
    PrefixEvict,
    PrefixMiss,
    RingEvict,
    RingRecord,
    RingTruncate,
)
from engine.events.port import (
    Absorbing,
    Columns,
    Computation,
    EnginePort,
    FirstLayer,
    Golden,
    HeadRow,
    Rerun,
    Residuals,
    StateData,
    TensorData,
    TensorRef,
)
from engine.events.remarks import (
    Fault,
    Option,
    Trouble,
    Unknown,
)
from engine.events.requests import (
    Accept,
    Boundary,
    Decision,
    Draft,
    Emit,
    Finish,
    Fork,
    Request,
    Rollback,
    RoundBegin,
    RoundEnd,
    Start,
    Texts,
    Thinking,
    Watchdog,
)
from engine.events.states import (
    Checkpoint,
    Claim,
    Commit,
    Compact,
    Decode,
    Landed,
    Prefill,
    PrefixHit,
    PrefixSave,
    Release,
    ReplayRow,
    RingRestore,
    RingSave,
    StateCopy,
    StateRollback,
    Sync,
    Verify,
    VerifyRow,
    Zero,
)

__all__ = [
    "ACTIONS",
    "EVENTS",
    "LIVE",
    "PLACE_KINDS",
    "Absorbing",
    "Accept",
    "Action",
    "Boundary",
    "Checkpoint",
    "Claim",
    "CodecError",
    "Columns",
    "Commit",
    "Compact",
    "Computation",
    "Decision",
    "Decode",
    "Digests",
    "Draft",
    "Emit",
    "EnginePort",
    "Event",
    "Fault",
    "Finish",
    "FirstLayer",
    "Fork",
    "ForkRequest",
    "FreeRequest",
    "Golden",
    "HeadRow",
    "InjectToken",
    "KvAlloc",
    "KvCopy",
    "KvDrop",
    "KvFree",
    "KvHold",
    "KvRewind",
    "KvShare",
    "Landed",
    "NewRequest",
    "Option",
    "Place",
    "Prefill",
    "PrefixEvict",
    "PrefixHit",
    "PrefixMiss",
    "PrefixSave",
    "Release",
    "ReplayRow",
    "Request",
    "Rerun",
    "Residuals",
    "RestoreCheckpoint",
    "RestoreRing",
    "RingEvict",
    "RingRecord",
    "RingRestore",
    "RingSave",
    "RingTruncate",
    "RollBack",
    "Rollback",
    "RoundBegin",
    "RoundEnd",
    "RunRound",
    "SaveRing",
    "SetFault",
    "SetOption",
    "Start",
    "StateCopy",
    "StateData",
    "StateRollback",
    "Sync",
    "SyncSecondary",
    "TakeCheckpoint",
    "TensorData",
    "TensorRef",
    "Texts",
    "Thinking",
    "Trouble",
    "Unknown",
    "Verify",
    "VerifyRow",
    "Watchdog",
    "Zero",
    "action_from_dict",
    "event_from_dict",
    "to_dict",
]


def _tree(base: type[Any]) -> list[type[Any]]:
    return [cls for child in base.__subclasses__() for cls in (child, *_tree(child))]


EVENTS: Mapping[str, type[Event]] = {cls.kind: cls for cls in _tree(Event)}


ACTIONS: Mapping[str, type[Action]] = {cls.kind: cls for cls in _tree(Action)}


def event_from_dict(data: Mapping[str, Any]) -> Event:
    """Raises CodecError when ``data`` is not an event."""
    return from_dict(data, EVENTS)


def action_from_dict(data: Mapping[str, Any]) -> Action:
    """Raises CodecError when ``data`` is not an action."""
    return from_dict(data, ACTIONS)
