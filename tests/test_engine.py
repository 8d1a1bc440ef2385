"""The engine behind its port: lifecycle, prefix cache, images, refusals, streams."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from typing import Any

import pytest
from engine_helpers import PROMPT, live, loaded, make_engine, of, rounds, run, start, tokens, until_outputs

from engine import events as ev
from engine.config import EngineConfig
from engine.drafters import MtpDrafter
from engine.engine import Engine
from engine.errors import UserError
from engine.events import Action, Event, Place, action_from_dict, event_from_dict, to_dict
from engine.runtime import EngineRefusal
from engine.sizing import check_memory, plan_memory
from sessions.finding import Finding
from sessions.invariants import Checker
from sessions.ledger import Ledger

CHAT = "<|im_start|>user\nWhat is 38 + 57?<|im_end|>\n<|im_start|>assistant\n"


def script(engine: Engine, seed: int, count: int) -> list[tuple[Action, list[Event]]]:
    """Random actions with what came of them; refusals are part of life."""
    chooser, done = random.Random(seed), []
    for _ in range(count):
        reqs = list(engine.rt.requests) or [1]
        req = chooser.choice(reqs)
        action: Action = chooser.choice(
            [
                ev.NewRequest(prompt=tuple(chooser.randrange(7, 900) for _ in range(chooser.randint(1, 40)))),
                *[ev.RunRound(req=req) for _ in range(6)],
                ev.RunRound(req=req, drafts=tuple(chooser.randrange(7, 900) for _ in range(chooser.randint(0, 3)))),
                ev.RunRound(req=req, accept=chooser.randint(1, 4)),
                ev.RollBack(req=req, to="boundary", value=1),
                ev.SaveRing(req=req),
                ev.TakeCheckpoint(req=req, queued=chooser.random() < 0.5),
                ev.ForkRequest(req=req),
                ev.FreeRequest(req=req),
                ev.InjectToken(req=req, token=chooser.randrange(7, 900)),
                ev.SetOption(name="verify", value=chooser.choice(["exact", "batched"])),
            ]
        )
        try:
            events = run(engine, action)
        except EngineRefusal:
            continue
        done.append((engine.taken(), events))
    return done


# ------------------------------------------------------------------------------------------------ images and replay


@pytest.mark.parametrize("mode", ["snapshot", "replay"])
def test_an_engine_loaded_from_its_image_goes_on_with_the_same_events(mode: str) -> None:
    engine = make_engine(rollback=mode)
    script(engine, 1, 40)
    image = engine.save()
    after = script(engine, 2, 40)
    other = make_engine(rollback=mode)
    other.load(image)
    assert script(other, 2, 40) == after
    engine.load(image)
    assert script(engine, 2, 40) == after
    assert after


def test_taken_actions_replay_without_drafter_and_without_a_person() -> None:
    engine = make_engine()
    done = script(engine, 5, 80)
    again = make_engine()

    class Silent(MtpDrafter):
        def propose(self, *_: object) -> tuple[int, ...]:
            raise AssertionError("a recorded round must not ask the drafter")

    again.rt.drafters["mtp"] = Silent(again.model, again.rt.seams)
    for action, events in done:
        assert run(again, action_from_dict(json.loads(json.dumps(to_dict(action))))) == events


def test_events_survive_json() -> None:
    engine = make_engine()
    for _, events in script(engine, 9, 60):
        for event in events:
            assert event_from_dict(json.loads(json.dumps(to_dict(event)))) == event


def test_a_decision_can_be_answered_while_the_round_is_paused() -> None:
    engine = make_engine()
    start(engine, ignore_eos=True)
    steps = engine.perform(ev.RunRound(req=1))
    seen: list[Event] = []
    for event in steps:
        seen.append(event)
        if isinstance(event, ev.Decision):
            engine.answer(event.what, (55, 66) if event.what == "drafts" else 2)
    (draft,), (accept,) = of(ev.Draft, seen), of(ev.Accept, seen)
    assert (draft.tokens, draft.source) == ((55, 66), "hand")
    assert accept.accepted == 2
    taken = engine.taken()
    assert isinstance(taken, ev.RunRound)
    assert (taken.drafts, taken.accept) == ((55, 66), 2)


def test_only_one_action_at_a_time_and_no_image_in_the_middle() -> None:
    engine = make_engine()
    start(engine)
    steps = engine.perform(ev.RunRound(req=1))
    next(steps)
    with pytest.raises(EngineRefusal, match="paused"):
        engine.perform(ev.RunRound(req=1))
    with pytest.raises(EngineRefusal, match="paused"):
        engine.save()
    engine.cancel()
    assert engine.save()


# ------------------------------------------------------------------------------------------------ requests


def test_several_requests_take_turns_and_do_not_touch_each_other() -> None:
    engine = make_engine(prefix_caching=False)
    start(engine, PROMPT, ignore_eos=True)
    start(engine, CHAT, ignore_eos=True)
    turns = [events[0].req for events in (run(engine, ev.RunRound()) for _ in range(6))]
    assert turns == [1, 2, 1, 2, 1, 2]
    alone = make_engine(prefix_caching=False)
    start(alone, CHAT, ignore_eos=True)
    rounds(alone, 3)
    assert tokens(alone, 1) == tokens(engine, 2)
    assert live(alone, 1) == live(engine, 2)


def test_a_fork_continues_its_parent_and_neither_disturbs_the_other() -> None:
    engine = make_engine(ring=4)
    start(engine, ignore_eos=True)
    until_outputs(engine, 1, 20)
    parent_state, outputs = live(engine, 1), tokens(engine, 1)
    events = run(engine, ev.ForkRequest(req=1))
    assert live(engine, 2) == parent_state
    assert tokens(engine, 2) == outputs
    assert of(ev.KvShare, events)
    for token in range(300, 330):
        run(engine, ev.RunRound(req=2, drafts=(), token=token))
    assert live(engine, 1) == parent_state
    for token in range(300, 330):
        run(engine, ev.RunRound(req=1, drafts=(), token=token))
    assert live(engine, 1) == live(engine, 2)


def test_retirement_compacts_the_survivors_onto_the_lowest_slots() -> None:
    engine = make_engine(prefix_caching=False)
    for prompt in (PROMPT, CHAT, "Psalms 1\n"):
        start(engine, prompt, ignore_eos=True)
        rounds(engine, 2)
    state = live(engine, 3)
    events = run(engine, ev.FreeRequest(req=1))
    assert [(e.req, e.src, e.dst) for e in of(ev.Compact, events)] == [(3, 2, 0)]
    assert live(engine, 3) == state
    assert [engine.rt.requests[r].seq.slot for r in (2, 3)] == [1, 0]


def test_end_of_text_ends_the_request_and_gives_everything_back() -> None:
    engine = make_engine(prefix_caching=False)
    start(engine, CHAT, max_tokens=300)
    events = until_outputs(engine, 1, 300)
    (end,) = of(ev.Finish, events)
    assert end.reason in ("stop", "tool_calls")
    assert not engine.rt.requests
    assert engine.rt.kv.used == 0
    assert engine.rt.memory.pool.owned == ()


def test_the_token_budget_is_never_exceeded() -> None:
    for budget in range(1, 9):
        engine = make_engine()
        events = start(engine, max_tokens=budget, ignore_eos=True) + until_outputs(engine, 1, 99)
        assert len(of(ev.Emit, events)) == budget
        assert [e.reason for e in of(ev.Finish, events)] == ["length"]


def test_thinking_is_followed_and_has_no_boundaries() -> None:
    engine = make_engine()
    events = start(engine, CHAT, max_tokens=200) + until_outputs(engine, 1, 200)
    inside, boundaries_inside = False, 0
    changes = []
    for event in events:
        if isinstance(event, ev.Thinking):
            inside = event.inside
            changes.append(inside)
        elif isinstance(event, ev.Boundary):
            boundaries_inside += inside
    assert changes[:2] == [True, False]
    assert boundaries_inside == 0


def test_running_out_of_blocks_ends_the_request_and_says_so() -> None:
    engine = make_engine(kv_tokens=48, slots=2, prefix_caching=False)
    start(engine, tuple(range(40, 60)), max_tokens=500, ignore_eos=True)
    events = until_outputs(engine, 1, 500)
    assert [e.guard for e in of(ev.Finish, events)] == ["kv_exhausted"]
    assert "kv-tokens" in of(ev.Trouble, events)[0].text
    assert engine.rt.kv.used == 0


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (ev.NewRequest(prompt=()), "empty"),
        (ev.NewRequest(prompt=(99999,)), "outside the vocabulary"),
        (ev.NewRequest(prompt=(1,) * 2000), "KV pool holds 1024"),
        (ev.NewRequest(prompt=(1,), max_tokens=0), "at least 1"),
        (ev.NewRequest(prompt=(1,), drafter="magic"), "drafter"),
        (ev.RunRound(req=7), "no running request r7"),
        (ev.RunRound(req=1, drafts=(1, 2, 3, 4)), "--drafts 4"),
        (ev.RunRound(req=1, drafts=(5000,)), "outside the vocabulary"),
        (ev.RollBack(req=1, to="ring", value=5), "no live entry"),
        (ev.RollBack(req=1, to="moon"), "boundary, ring and length"),
        (ev.RestoreRing(req=1, ring_slot=99), "ring has 8 slots"),
        (ev.RestoreCheckpoint(req=1, accepted=9), "0..3"),
        (ev.InjectToken(req=1, token=-4), "outside the vocabulary"),
        (ev.SetOption(name="colour", value="red"), "no setting"),
        (ev.SetOption(name="drafts", value="9"), "0..3"),
        (ev.SetFault(name="nonsense"), "no fault"),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_reason_and_changes_nothing(action: Action, words: str) -> None:
    engine = make_engine()
    start(engine)
    before = engine.save()
    with pytest.raises(EngineRefusal, match=words):
        engine.perform(action)
    assert engine.save() == before


def test_more_requests_than_slots_are_refused() -> None:
    engine = make_engine(slots=1)
    start(engine)
    with pytest.raises(EngineRefusal, match=r"all 1 slots are in use by r1; free one or start with --slots 2"):
        engine.perform(ev.NewRequest(prompt=(1, 2)))


# ------------------------------------------------------------------------------------------------ prefix cache


def test_the_same_prompt_again_starts_from_the_cached_snapshot() -> None:
    engine = make_engine()
    prompt = tuple(range(100, 170))
    saves = of(ev.PrefixSave, start(engine, prompt))
    assert [save.tokens for save in saves] == [64, 70]
    again = start(engine, prompt)
    (hit,) = of(ev.PrefixHit, again)
    assert (hit.tokens, hit.digests) == (64, saves[0].digests)
    assert [chunk.start for chunk in of(ev.Prefill, again)] == [64]
    assert live(engine, 1) == live(engine, 2)


def test_a_longer_prompt_starts_inside_a_block_with_its_own_copy_of_it() -> None:
    engine = make_engine()
    prompt = tuple(range(100, 170))
    start(engine, prompt, ignore_eos=True)
    until_outputs(engine, 1, 12)
    kept = live(engine, 1)
    events = start(engine, (*prompt, 7, 8, 9), ignore_eos=True)
    (hit,), (copy,) = of(ev.PrefixHit, events), of(ev.KvCopy, events)
    assert (hit.tokens, copy.tokens) == (70, 6)
    until_outputs(engine, 2, 12)
    assert live(engine, 1) == kept
    cold = make_engine(prefix_caching=False, prefill_chunk=70)
    start(cold, (*prompt, 7, 8, 9), ignore_eos=True)
    hot = make_engine(prefill_chunk=70)
    start(hot, prompt, ignore_eos=True)
    start(hot, (*prompt, 7, 8, 9), ignore_eos=True)
    assert tokens(cold, 1)[0] == tokens(hot, 2)[0]


def test_a_miss_says_why() -> None:
    engine = make_engine()
    (miss,) = of(ev.PrefixMiss, start(engine, (5, 6, 7)))
    assert miss.reason == "the cache is empty"
    (miss,) = of(ev.PrefixMiss, start(engine, (8, 9)))
    assert miss.reason == "no cached prefix begins like this prompt"


def test_rewinding_into_cached_blocks_copies_them_before_writing() -> None:
    engine = make_engine(ring=8)
    start(engine, tuple(range(100, 130)), ignore_eos=True)
    for token in (200, 201):
        run(engine, ev.RunRound(req=1, drafts=(), token=token))
    run(engine, ev.SaveRing(req=1))
    for token in range(210, 250):
        run(engine, ev.RunRound(req=1, drafts=(), token=token))
    assert any(entry.tokens == 64 for entry in engine.rt.prefix.entries)
    (entry,) = [entry for entry in engine.rt.prefix.entries if entry.tokens == 64]
    before = engine.rt.kv.buffer[:, :, list(entry.blocks)].clone()
    run(engine, ev.RollBack(req=1, to="length", value=3))
    events = []
    for token in range(300, 340):
        events += run(engine, ev.RunRound(req=1, drafts=(), token=token))
    assert of(ev.KvCopy, events)
    assert bool((engine.rt.kv.buffer[:, :, list(entry.blocks)] == before).all())


def test_cached_prefixes_are_given_up_when_blocks_run_short() -> None:
    engine = make_engine(kv_tokens=128, slots=1)
    start(engine, tuple(range(100, 160)), max_tokens=4, ignore_eos=True)
    until_outputs(engine, 1, 4)
    events = start(engine, tuple(range(300, 400)), max_tokens=4, ignore_eos=True) + until_outputs(engine, 2, 4)
    assert {e.reason for e in of(ev.PrefixEvict, events)} == {"blocks needed"}
    assert [e.reason for e in of(ev.Finish, events)] == ["length"]


# ------------------------------------------------------------------------------------------------ streams


def test_a_reader_that_forgets_to_wait_sees_the_old_bytes_every_time() -> None:
    results = []
    for _ in range(2):
        engine = make_engine(prefix_caching=False)
        start(engine, ignore_eos=True)
        run(engine, ev.RunRound(req=1, drafts=(11, 12, 13), accept=2))
        dirty = engine.rt.memory.digests(Place("live", 0))
        skip = lambda value, **_: True  # noqa: E731
        engine.rt.seams.add("sync.skip", skip)
        (step,) = of(ev.Decode, run(engine, ev.RunRound(req=1, drafts=())))
        engine.rt.seams.remove("sync.skip", skip)
        results.append((dirty, step.digests))
    healthy = make_engine(prefix_caching=False)
    start(healthy, ignore_eos=True)
    run(healthy, ev.RunRound(req=1, drafts=(11, 12, 13), accept=2))
    (right,) = of(ev.Decode, run(healthy, ev.RunRound(req=1, drafts=())))
    assert results[0] == results[1]
    assert results[0][1] != right.digests


def test_without_drafts_there_is_no_checkpoint_to_take() -> None:
    engine = make_engine(drafts=0, drafter="none")
    start(engine)
    for action in (ev.TakeCheckpoint(req=1), ev.RestoreCheckpoint(req=1)):
        with pytest.raises(EngineRefusal, match="--drafts 0"):
            engine.perform(action)


def test_a_prompt_that_ends_inside_thinking_says_so() -> None:
    engine = make_engine()
    events = start(engine, CHAT + "<think>\nI need")
    assert [event.inside for event in of(ev.Thinking, events)][:1] == [True]
    admitted = run(engine, ev.NewRequest(prompt=engine.tokens(CHAT + "<think>\nNo.\n</think>\n")))
    assert not of(ev.Thinking, admitted)
    assert not engine.rt.requests[2].seq.thinking


@pytest.mark.parametrize(
    ("settings", "pool", "remedy"),
    [({"kv_tokens": 1 << 20}, "kv", "--kv-tokens"), ({"slots": 4000}, "ssm_pool", "--slots")],
)
def test_a_plan_that_does_not_fit_names_the_pool_that_is_too_large(
    settings: dict[str, Any], pool: str, remedy: str
) -> None:
    config = EngineConfig(**settings)
    plan = plan_memory(loaded().config, config, has_mtp=True, dtype="float32")
    with pytest.raises(UserError, match=f"Most of it is {pool} .*fewer {remedy}"):
        check_memory(plan, config, 1 << 26)
    check_memory(plan, config, plan.total)


def test_a_block_copied_before_the_pool_ran_short_is_told() -> None:
    """The last free block goes to the copy of a shared one; only then a cached prefix has to make room for growth."""
    engine = make_engine(slots=1, block_size=8, kv_tokens=64, prefix_slots=1)
    events = start(engine, tuple(range(100, 155)), ignore_eos=True)
    events += rounds(engine, 1, drafts=(5, 6, 7))
    table: list[int] = []
    for event in events:
        if isinstance(event, ev.KvAlloc):
            table += event.blocks
        elif isinstance(event, ev.KvCopy):
            table[table.index(event.src)] = event.dst
    assert of(ev.KvCopy, events) and of(ev.KvDrop, events)
    assert table == engine.rt.requests[1].seq.table.blocks
    assert findings([engine.start(), *events]) == []


def findings(events: Iterable[Event]) -> list[Finding]:
    """What the invariants say about a run."""
    checker, ledger, found = Checker(), Ledger(), []
    for event in events:
        before = ledger.view
        found += checker.check(before, event, ledger.apply(event))
    return found
