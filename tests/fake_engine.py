"""A fake at the port: a small deterministic ``EnginePort`` in numpy, with the event order of the real scheduler.

Several requests, prefill in chunks with a prefix cache, decode, verify with a drafter that is right about three times
in four, both rollback modes, a deferred secondary stream, boundary ring, watchdog rollback, fork, compaction, save and
load. ``drift_at`` makes a run that cannot be reproduced; ``noise`` makes one that is equal only within a tolerance.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from fake_core import FAULTS, EngineRefusal, Sequence
from fake_rounds import FakeRounds

from engine import events as ev
from engine.events import LIVE, Action, Event, Place

__all__ = ["FAULTS", "EngineRefusal", "FakeEngine"]


class FakeEngine(FakeRounds):
    """What a person may do besides running rounds."""

    def _handler(self, action: Action) -> Iterator[Event]:
        handlers: dict[type[Action], Callable[[Any], Iterator[Event]]] = {
            ev.NewRequest: self._new, ev.RunRound: self._round, ev.RollBack: self._roll_back,
            ev.SaveRing: self._save_ring, ev.RestoreRing: self._restore_ring, ev.TakeCheckpoint: self._checkpoint,
            ev.ForkRequest: self._fork,
            ev.RestoreCheckpoint: self._restore_checkpoint, ev.SyncSecondary: lambda a: self._sync(-1),
            ev.FreeRequest: self._free, ev.InjectToken: self._inject, ev.SetFault: self._fault,
            ev.SetOption: self._option,
        }  # fmt: skip
        if type(action) not in handlers:
            raise EngineRefusal(f"{action.kind}: not an action of this engine")
        if isinstance(action, (ev.SaveRing, ev.RestoreRing, ev.TakeCheckpoint, ev.RestoreCheckpoint, ev.ForkRequest,
                               ev.FreeRequest, ev.InjectToken, ev.RollBack)):  # fmt: skip
            self._sequence(action.req)
        if isinstance(action, ev.RunRound):
            if action.req >= 0:
                self._sequence(action.req)
            elif not self.runnable():
                raise EngineRefusal("round: no request has work left")
        if isinstance(action, ev.NewRequest) and not action.prompt:
            raise EngineRefusal("new: expected a prompt of at least one token, found none")
        if isinstance(action, ev.SetFault) and action.name not in FAULTS:
            raise EngineRefusal(f"fault: expected one of {', '.join(FAULTS)}, found {action.name!r}")
        if isinstance(action, ev.RestoreRing) and not 0 <= action.ring_slot < self.depth:
            raise EngineRefusal(f"restore: expected a ring slot below {self.depth}, found {action.ring_slot}")
        if isinstance(action, ev.ForkRequest) and not self.free:
            raise EngineRefusal(f"fork: expected a free slot, all {self.slots} are owned")
        return handlers[type(action)](action)

    def _new(self, action: ev.NewRequest) -> Iterator[Event]:
        yield from self._texts(list(action.prompt))
        req, self.next_req = self.next_req, self.next_req + 1
        drafter = action.drafter or self.drafter
        self.sequences[req] = Sequence(
            req, list(action.prompt), action.max_tokens, action.ignore_eos, drafter, action.streaming
        )
        self.waiting.append(req)
        yield self._event(
            ev.Request, req=req, prompt=action.prompt, prompt_len=len(action.prompt), max_tokens=action.max_tokens,
            seed=action.seed, temperature=action.temperature, top_k=action.top_k, top_p=action.top_p,
            streaming=action.streaming, drafter=drafter, session=action.session,
        )  # fmt: skip
        yield from self._admit()

    def _roll_back(self, action: ev.RollBack) -> Iterator[Event]:
        seq = self._sequence(action.req)
        if seq.streaming:
            yield self._event(ev.Rollback, req=seq.req, outcome="stream_unsafe", reason="the request is streaming")
            return
        if action.to == "boundary":
            yield from self._to_boundary(seq, action.value, -1)
            return
        column = {"ring": 1, "length": 0}.get(action.to, 0)
        labels = [entry[0] for entry in seq.ring if entry[column] == action.value]
        if not labels or labels[0] > len(seq.outputs):
            reason = f"no ring entry with {action.to} {action.value}"
            yield self._event(ev.Rollback, req=seq.req, outcome="no_ssm_snapshot", reason=reason)
            return
        yield from self._rewind(seq, labels[0])

    def _save_ring(self, action: ev.SaveRing) -> Iterator[Event]:
        yield from self._sync(action.req)
        if self.depth:
            yield from self._record(self._sequence(action.req), LIVE(self._sequence(action.req).slot))

    def _restore_ring(self, action: ev.RestoreRing) -> Iterator[Event]:
        seq = self._sequence(action.req)
        yield from self._sync(action.req)
        label = next((label for label, slot in seq.ring if slot == action.ring_slot), 0)
        src = Place("ring", seq.slot, action.ring_slot)
        position = len(seq.prompt) + label - 1
        yield self._copy(ev.RingRestore, seq, src, LIVE(seq.slot), position, token_position=label)

    def _checkpoint(self, action: ev.TakeCheckpoint) -> Iterator[Event]:
        seq = self._sequence(action.req)
        yield from self._sync(action.req)
        dst = Place("checkpoint", seq.slot)
        yield self._copy(ev.Checkpoint, seq, LIVE(seq.slot), dst, seq.cursor, queued=action.queued)

    def _restore_checkpoint(self, action: ev.RestoreCheckpoint) -> Iterator[Event]:
        seq = self._sequence(action.req)
        yield from self._sync(action.req)
        src = Place("step", seq.slot, action.accepted - 1) if action.accepted else Place("checkpoint", seq.slot)
        yield self._copy(ev.StateRollback, seq, src, LIVE(seq.slot), -1, accepted=action.accepted)

    def _fork(self, action: ev.ForkRequest) -> Iterator[Event]:
        parent = self._sequence(action.req)
        yield from self._sync(action.req)
        req, self.next_req = self.next_req, self.next_req + 1
        child = dataclasses.replace(
            parent, req=req, slot=-1, outputs=list(parent.outputs), ring=[], next_slot=0, blocks=[], rollbacks=0
        )
        self.sequences[req] = child
        yield self._event(
            ev.Request, req=req, prompt=tuple(child.prompt), prompt_len=len(child.prompt), max_tokens=child.max_tokens,
            drafter=child.drafter, parent=parent.req,
        )  # fmt: skip
        yield self._claim(child)
        yield self._event(
            ev.Fork, req=req, parent=parent.req, outputs=tuple(child.outputs),
            pending=child.outputs[-1] if child.outputs else -1, cursor=child.cursor,
        )  # fmt: skip
        shared = tuple(parent.blocks)
        self.blocks.hold(shared)
        child.blocks += shared
        yield self._event(ev.KvShare, req=req, blocks=shared, tokens=child.cursor)
        yield self._copy(ev.StateCopy, child, LIVE(parent.slot), LIVE(child.slot), child.cursor)
        for label, slot in parent.ring:
            new = child.next_slot
            child.ring.append([label, new])
            child.next_slot = (new + 1) % self.depth
            yield self._event(
                ev.RingRecord, req=req, slot=child.slot, ring_slot=new, token_position=label, next_slot=child.next_slot
            )
            src, dst = Place("ring", parent.slot, slot), Place("ring", child.slot, new)
            yield self._copy(ev.RingSave, child, src, dst, len(child.prompt) + label - 1, token_position=label)

    def _free(self, action: ev.FreeRequest) -> Iterator[Event]:
        yield from self._finish(self._sequence(action.req), "freed")

    def _inject(self, action: ev.InjectToken) -> Iterator[Event]:
        seq = self._sequence(action.req)
        yield from self._texts([action.token])
        if seq.outputs:
            seq.outputs[-1] = action.token
            yield self._event(ev.Emit, req=seq.req, token=action.token, index=len(seq.outputs) - 1, mark="inject")

    def _fault(self, action: ev.SetFault) -> Iterator[Event]:
        (self.faults.add if action.on else self.faults.discard)(action.name)
        yield self._event(ev.Fault, name=action.name, on=action.on)

    def _option(self, action: ev.SetOption) -> Iterator[Event]:
        if action.name == "drafter":
            for seq in self.sequences.values():
                seq.drafter = action.value
            self.drafter = action.value
        if action.name == "digests":
            self.with_digests = action.value in ("on", "true", "1")
        yield self._event(ev.Option, name=action.name, value=action.value)
