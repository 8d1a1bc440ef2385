"""What a person may do to a running engine besides running rounds: one function for each kind of action.

Each takes the runtime and the action, checks everything first (EngineRefusal), and returns an iterator of events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from engine import emission, lifecycle, rollback
from engine.config import CHOICES
from engine.events import (
    Action,
    Checkpoint,
    Event,
    Fault,
    ForkRequest,
    FreeRequest,
    InjectToken,
    NewRequest,
    Option,
    Place,
    RestoreCheckpoint,
    RestoreRing,
    RingRestore,
    RollBack,
    SaveRing,
    SetFault,
    SetOption,
    StateRollback,
    SyncSecondary,
    TakeCheckpoint,
)
from engine.faults import switch_fault
from engine.runtime import EngineRefusal, Runtime

Handler = Callable[[Runtime, Any], Iterator[Event]]


def new(rt: Runtime, action: NewRequest) -> Iterator[Event]:
    lifecycle.check_new(rt, action)
    return lifecycle.admit(rt, action)


def roll_back(rt: Runtime, action: RollBack) -> Iterator[Event]:
    request = rt.find(action.req)
    if request.output_len == 0:
        raise EngineRefusal(f"r{request.req} has no outputs yet, there is nothing to roll back")
    if action.to == "boundary":
        return rollback.rollback_to_boundary(rt, request, max(1, action.value))
    if action.to == "length":
        if not 1 <= action.value <= request.output_len:
            raise EngineRefusal(
                f"length {action.value} is outside 1..{request.output_len} outputs; the prompt itself cannot be undone"
            )
        return rollback.restore_to(rt, request, action.value)
    if action.to == "ring":
        entry = next((e for e in request.seq.ring.entries if e.snapshot_slot == action.value), None)
        if entry is None:
            have = ", ".join(str(e.snapshot_slot) for e in request.seq.ring.entries) or "none"
            raise EngineRefusal(f"ring slot {action.value} of r{request.req} holds no live entry; live slots: {have}")
        return rollback.restore_to(rt, request, entry.token_position)
    raise EngineRefusal(f"cannot roll back to {action.to!r}; boundary, ring and length are possible")


def save_ring(rt: Runtime, action: SaveRing) -> Iterator[Event]:
    request = rt.find(action.req)
    if not request.seq.ring.is_enabled:
        raise EngineRefusal("the ring is disabled (depth 0); start with --ring 8")
    if request.output_len == 0:
        raise EngineRefusal(f"r{request.req} has no outputs yet: ring entries are labelled by their number")
    return emission.snapshot_boundary(rt, request, Place("live", request.seq.slot))


def restore_ring(rt: Runtime, action: RestoreRing) -> Iterator[Event]:
    request = rt.find(action.req)
    depth = rt.memory.decode_rollback_ring_slots()
    if not 0 <= action.ring_slot < depth:
        raise EngineRefusal(f"ring slot {action.ring_slot} does not exist; the ring has {depth} slots")

    def steps() -> Iterator[Event]:
        yield from rt.sync_secondary(request.req)
        moved = rt.memory.restore_decode_ssm_snapshot(request.seq, action.ring_slot)
        label = next((e.token_position for e in request.seq.ring.entries if e.snapshot_slot == action.ring_slot), 0)
        position = request.seq.prompt_len + label - 1 if label else -1
        request.draft.forget(request.seq.cursor)
        yield rt.copied(RingRestore, request.req, moved, position, token_position=label)

    return steps()


def _needs_checkpoint(rt: Runtime) -> None:
    if not rt.memory.pool.has_checkpoint:
        raise EngineRefusal("this engine keeps no checkpoints: it was started with --drafts 0")


def checkpoint(rt: Runtime, action: TakeCheckpoint) -> Iterator[Event]:
    request = rt.find(action.req)
    _needs_checkpoint(rt)

    def steps() -> Iterator[Event]:
        yield from rt.sync_secondary(request.req)
        take = rt.memory.start_checkpoint_async if action.queued else rt.memory.checkpoint_ssm_states
        yield rt.copied(Checkpoint, request.req, take(request.seq), request.seq.cursor)

    return steps()


def restore_checkpoint(rt: Runtime, action: RestoreCheckpoint) -> Iterator[Event]:
    request = rt.find(action.req)
    _needs_checkpoint(rt)
    most = rt.config.drafts
    if not 0 <= action.accepted <= most:
        raise EngineRefusal(
            f"{action.accepted} accepted rows asked for, the pool keeps the states after 0..{most} rows"
        )

    def steps() -> Iterator[Event]:
        yield from rt.sync_secondary(request.req)
        moved = rt.memory.rollback_ssm_states(request.seq, action.accepted)
        request.draft.forget(request.seq.cursor)
        yield rt.copied(StateRollback, request.req, moved, -1, accepted=action.accepted)

    return steps()


def sync(rt: Runtime, action: SyncSecondary) -> Iterator[Event]:
    return rt.sync_secondary(action.req)


def fork(rt: Runtime, action: ForkRequest) -> Iterator[Event]:
    request = rt.find(action.req)
    if not lifecycle.free_slots(rt):
        raise EngineRefusal(f"all {rt.config.slots} slots are in use; free a request or start with more --slots")
    return lifecycle.fork(rt, request, action.seed)


def free(rt: Runtime, action: FreeRequest) -> Iterator[Event]:
    return lifecycle.finish(rt, rt.find(action.req), "freed", "")


def inject(rt: Runtime, action: InjectToken) -> Iterator[Event]:
    request = rt.find(action.req)
    if request.output_len == 0:
        raise EngineRefusal(f"r{request.req} has no pending output to replace; run its prefill first")
    if not 0 <= action.token < rt.vocabulary.size:
        raise EngineRefusal(f"token id {action.token} is outside the vocabulary of {rt.vocabulary.size} ids")

    def steps() -> Iterator[Event]:
        request.seq.tokens.pop()
        request.draft.forget(request.seq.cursor)
        yield from emission.emit(rt, request, action.token, "inject")

    return steps()


def fault(rt: Runtime, action: SetFault) -> Iterator[Event]:
    switch_fault(rt, action.name, action.on)
    return iter((rt.event(Fault, name=action.name, on=action.on),))


def option(rt: Runtime, action: SetOption) -> Iterator[Event]:
    setter = OPTIONS.get(action.name)
    if setter is None:
        raise EngineRefusal(f"no setting {action.name!r}; there are {', '.join(sorted(OPTIONS))}")
    setter(rt, action.value)
    return iter((rt.event(Option, name=action.name, value=action.value),))


def _set_drafts(rt: Runtime, value: str) -> None:
    if not value.isdecimal() or int(value) > rt.config.drafts:
        raise EngineRefusal(f"drafts must be 0..{rt.config.drafts} (what the pools were sized for), found {value!r}")
    rt.drafts = int(value)


def _set_drafter(rt: Runtime, value: str) -> None:
    if value not in rt.drafters:
        raise EngineRefusal(f"drafter must be one of {', '.join(rt.drafters)}, found {value!r}")
    for request in rt.requests.values():
        request.drafter = value
        request.draft.forget(request.seq.cursor)


def _set_verify(rt: Runtime, value: str) -> None:
    if value not in CHOICES["verify"]:
        raise EngineRefusal(f"verify must be exact or batched, found {value!r}")
    rt.verify_mode = value


def _flag(value: str) -> bool:
    if value not in ("on", "off"):
        raise EngineRefusal(f"expected on or off, found {value!r}")
    return value == "on"


def _set_digests(rt: Runtime, value: str) -> None:
    rt.digests_on = _flag(value)


def _set_watchdogs(rt: Runtime, value: str) -> None:
    rt.watchdogs = replace(rt.watchdogs, enabled=_flag(value))


def _set_loop(rt: Runtime, value: str) -> None:
    rt.watchdogs = replace(rt.watchdogs, loop=_flag(value))


OPTIONS: dict[str, Callable[[Runtime, str], None]] = {
    "drafts": _set_drafts,
    "drafter": _set_drafter,
    "verify": _set_verify,
    "digests": _set_digests,
    "watchdogs": _set_watchdogs,
    "loop-watchdog": _set_loop,
}

HANDLERS: dict[type[Action], Handler] = {
    NewRequest: new,
    RollBack: roll_back,
    SaveRing: save_ring,
    RestoreRing: restore_ring,
    TakeCheckpoint: checkpoint,
    RestoreCheckpoint: restore_checkpoint,
    SyncSecondary: sync,
    ForkRequest: fork,
    FreeRequest: free,
    InjectToken: inject,
    SetFault: fault,
    SetOption: option,
}
