"""The ledger against a real engine: whatever is done to it, the fold of its events equals the engine's own structures,
after every event, and the digests the ledger keeps are those of the bytes that lie there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from engine_helpers import make_engine
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine import events as ev
from engine.engine import Engine
from engine.events import Action, Event, Place
from engine.runtime import EngineRefusal
from engine.traits import SequenceState
from sessions.invariants import Checker
from sessions.ledger import Ledger, fold
from sessions.view import LedgerView, RequestFact

IDS = st.integers(7, 900)
REQ = st.integers(1, 5)
ADMITTING = ("texts", "request")


def actions() -> st.SearchStrategy[Action]:
    """Anything a person may ask for, sensible or not."""
    drafts = st.one_of(st.none(), st.lists(IDS, max_size=3).map(tuple))
    accept = st.one_of(st.none(), st.integers(1, 4))
    rounds = st.builds(ev.RunRound, req=REQ | st.just(-1), drafts=drafts, accept=accept)
    return st.one_of(
        rounds,
        rounds,
        rounds,
        st.builds(
            ev.NewRequest,
            prompt=st.lists(IDS, min_size=1, max_size=40).map(tuple),
            max_tokens=st.integers(1, 30),
            drafter=st.sampled_from(["", "none", "lookup"]),
            streaming=st.booleans(),
            session=st.integers(0, 2),
        ),
        st.builds(ev.RollBack, req=REQ, to=st.sampled_from(["boundary", "length", "ring"]), value=st.integers(0, 6)),
        st.builds(ev.SaveRing, req=REQ),
        st.builds(ev.TakeCheckpoint, req=REQ, queued=st.booleans()),
        st.builds(ev.SyncSecondary, req=REQ),
        st.builds(ev.ForkRequest, req=REQ),
        st.builds(ev.FreeRequest, req=REQ),
        st.builds(ev.InjectToken, req=REQ, token=IDS),
        st.builds(ev.SetOption, name=st.just("verify"), value=st.sampled_from(["exact", "batched"])),
        st.builds(ev.SetOption, name=st.just("drafts"), value=st.sampled_from(["0", "1", "3"])),
    )


def steps(engine: Engine, wanted: list[Action]) -> Iterator[tuple[Event, bool]]:
    """Events of the actions, each with whether it is the last of its action. What the engine refuses is left out."""
    yield engine.start(), True
    for action in wanted:
        try:
            events = engine.perform(action)
            event = next(events, None)
        except EngineRefusal:
            continue
        while event is not None:
            # Looked at while the action is paused right after this event, as a timeline does.
            yield event, False
            event = next(events, None)
        yield ev.Event(), True


class Mirror:
    """Compares a ledger view with the engine it was folded from."""

    def __init__(self, engine: Engine) -> None:
        self.rt = engine.rt
        self.memory, self.kv = engine.rt.memory, engine.rt.kv

    def after_event(self, view: LedgerView) -> None:
        """Facts that hold between any two events. While a request is admitted the engine is a step ahead."""
        event = view.last
        assert event is not None
        for req, active in self.rt.requests.items():
            fact = view.requests.get(req)
            if fact is not None and fact.slot >= 0:
                self._sequence(view, fact, active.seq, event)
        if event.kind not in ADMITTING:
            self._pools(view, event)

    def between_actions(self, view: LedgerView) -> None:
        """Everything, bytes included."""
        running = {req for req, fact in view.requests.items() if fact.status != "finished"}
        assert running == set(self.rt.requests)
        for req, active in self.rt.requests.items():
            fact = view.requests[req]
            assert fact.tokens == tuple(active.seq.tokens)
            assert fact.thinking == active.seq.thinking
            live = view.live(req)
            assert live is not None
            if not live.queued:
                assert live.position == fact.cursor == active.seq.position
        self._bytes(view)

    def _sequence(self, view: LedgerView, fact: RequestFact, seq: SequenceState, event: Event) -> None:
        assert (fact.slot, view.slot_epoch[fact.slot]) == (seq.slot, seq.epoch)
        assert fact.prompt_len == seq.prompt_len and fact.rollbacks == seq.rollback_count
        rows = fact.round.rows if fact.round.phase == "verify" and not isinstance(event, ev.Verify) else 0
        # The ledger keeps the last cursor of a request that has ended.
        if event.kind not in ("kv_share", "claim", "zero", "copy") and fact.status != "finished":
            assert fact.cursor + rows == seq.cursor, event
        if event.kind not in ("texts", "kv_rewind", "claim", "zero", "copy", "kv_share"):
            assert fact.tokens == tuple(seq.tokens)
        if event.kind not in ("ring_record", "ring_evict", "ring_truncate", "ring_save"):
            entries = [(entry.token_position, entry.ring_slot) for entry in fact.ring.entries]
            assert entries == [(entry.token_position, entry.snapshot_slot) for entry in seq.ring.entries]
            assert fact.ring.next_slot == seq.ring.next_slot
        if event.kind != "kv_copy":
            assert fact.blocks == tuple(seq.table.blocks)

    def _pools(self, view: LedgerView, event: Event) -> None:
        assert sorted(view.slot_owner) == list(self.memory.pool.owned)
        assert view.pools["slots"].used == len(self.memory.pool.owned)
        if event.kind not in ("kv_share", "kv_hold", "kv_drop", "prefix_save", "kv_copy"):
            refs = {block: self.kv.refs(block) for block in range(self.kv.blocks) if self.kv.refs(block)}
            assert dict(view.block_refs) == refs, event
            assert view.pools["blocks"].used == self.kv.used
        waiting = [(copy.src, copy.dst, copy.parts, copy.bytes) for copy in view.queued]
        if event.kind != "landed":
            assert waiting == [(copy.src, copy.dst, copy.parts, copy.bytes) for copy in self.memory.pending]
        prefix = self.rt.prefix
        if prefix is not None and event.kind not in ("kv_drop", "prefix_save", "prefix_evict"):
            assert {i: (p.tokens, p.key, p.blocks) for i, p in view.prefixes.items()} == {
                entry.index: (entry.tokens, entry.key, tuple(entry.blocks)) for entry in prefix.entries
            }

    def _bytes(self, view: LedgerView) -> None:
        for place, fact in view.states.items():
            held = fact.owner >= 0 or (place.kind == "prefix" and fact.sealed)
            if not held or fact.queued or not fact.digests:
                continue
            there = self.memory.digests(place)
            for (h, conv), (real_h, real_conv) in zip(fact.digests, there, strict=True):
                assert h in ("", real_h) and conv in ("", real_conv), place


def follow(engine: Engine, wanted: list[Action]) -> LedgerView:
    """Run actions, comparing after each event and after each action; every invariant must hold throughout."""
    ledger, checker, mirror = Ledger(), Checker(), Mirror(engine)
    before, events = ledger.view, []
    for event, done in steps(engine, wanted):
        if event.seq:
            after = ledger.apply(event)
            assert checker.check(before, event, after) == []
            before = after
            events.append(event)
            mirror.after_event(after)
        if done:
            mirror.between_actions(before)
    assert fold(events) == before
    return before


@pytest.mark.parametrize("mode", ["snapshot", "replay"])
@given(wanted=st.lists(actions(), min_size=5, max_size=25), first=st.lists(IDS, min_size=1, max_size=20).map(tuple))
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
def test_the_fold_equals_the_engine_after_every_event(mode: str, wanted: list[Action], first: tuple[int, ...]) -> None:
    engine = make_engine(rollback=mode, ring=3, prefill_chunk=16)
    follow(engine, [ev.NewRequest(prompt=first, max_tokens=60, ignore_eos=True), *wanted])


def scripted() -> list[Action]:
    """Everything once, in an order in which it is possible."""
    turns: list[Any] = [ev.RunRound(req=1)] * 12
    return [
        ev.NewRequest(prompt=tuple(range(40, 77)), max_tokens=200, ignore_eos=True),
        *turns,
        ev.SaveRing(req=1),
        ev.RunRound(req=1, drafts=(7, 8, 9), accept=2),
        ev.RunRound(req=1, drafts=(7, 8, 9), accept=4),
        ev.RunRound(req=1, drafts=(7,), accept=1),
        ev.TakeCheckpoint(req=1, queued=True),
        ev.ForkRequest(req=1),
        ev.RunRound(req=2, drafts=(), token=12),
        ev.InjectToken(req=1, token=99),
        ev.RunRound(req=1),
        ev.NewRequest(prompt=tuple(range(40, 77)), max_tokens=5),
        *[ev.RunRound(req=3)] * 6,
        ev.FreeRequest(req=1),
        ev.RollBack(req=2, to="ring", value=0),
        ev.RunRound(req=2, drafts=(5, 6, 7), accept=3),
        ev.SyncSecondary(req=2),
        ev.FreeRequest(req=2),
    ]


@pytest.mark.parametrize("verify", ["exact", "batched"])
@pytest.mark.parametrize("mode", ["snapshot", "replay"])
def test_a_run_that_uses_everything(mode: str, verify: str) -> None:
    engine = make_engine(rollback=mode, verify=verify, prefill_chunk=16)
    view = follow(engine, scripted())
    assert view.counters["forks"] == 1 and view.counters["rollback.rolled_back"] == 1
    assert view.counters["accepted.3"] >= 1 and view.pools["slots"].peak == 3
    assert not view.slot_owner and view.queued == ()


def test_an_image_goes_on_under_the_same_ledger() -> None:
    engine = make_engine()
    wanted = scripted()
    follow(engine, wanted[:14])
    image = engine.save()
    other = make_engine()
    other.load(image)
    events = [event for action in wanted[14:16] for event in engine.perform(action)]
    assert [event for action in wanted[14:16] for event in other.perform(action)] == events


def test_a_ledger_catches_an_engine_that_lies_about_a_commit() -> None:
    engine = make_engine()
    engine.rt.seams.add("commit.row", lambda row, **_: row + 1)
    ledger, checker = Ledger(), Checker()
    before, names = ledger.view, []
    for event, _ in steps(
        engine, [ev.NewRequest(prompt=tuple(range(40, 50)), ignore_eos=True), *[ev.RunRound(req=1, drafts=())] * 2]
    ):
        if event.seq:
            after = ledger.apply(event)
            names += [finding.name for finding in checker.check(before, event, after)]
            before = after
    assert names == []
    for event in engine.perform(ev.RunRound(req=1, drafts=(7, 8, 9), accept=2)):
        after = ledger.apply(event)
        names += [finding.name for finding in checker.check(before, event, after)]
        before = after
    for event in engine.perform(ev.RunRound(req=1, drafts=())):
        after = ledger.apply(event)
        names += [finding.name for finding in checker.check(before, event, after)]
        before = after
    assert names[0] == "step-index" and "positions-agree" in names
    live = after.states[Place("live", 0)]
    assert live.position == after.requests[1].cursor + 1
