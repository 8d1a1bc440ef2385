"""The record over the real engine: recorded, gone back in, branched, compared and executed again, bit for bit."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from engine_helpers import PROMPT, make_engine

from engine.engine import Engine
from engine.events import (
    Action,
    Decision,
    Event,
    ForkRequest,
    FreeRequest,
    InjectToken,
    NewRequest,
    Place,
    RollBack,
    RunRound,
    SaveRing,
    SetFault,
    SetOption,
    SyncSecondary,
    TakeCheckpoint,
    TensorRef,
)
from sessions.compare import compare_branches
from sessions.replay import replay
from sessions.store import Store
from sessions.timeline import Timeline

SETTINGS = {"ring": 4, "slots": 3, "drafts": 3}


def make(**settings: Any) -> Engine:
    return make_engine(**{**SETTINGS, **settings})


def live(path: Path | None = None, **settings: Any) -> Timeline:
    store = Store(path, "x") if path is not None else None
    return Timeline.live(make(**settings), store, factory=lambda: make(**settings))


def at_accept(event: Event) -> bool:
    return isinstance(event, Decision) and event.what == "accept"


def test_a_session_is_recorded_edited_in_its_past_compared_and_met_again(tmp_path: Path) -> None:
    path = tmp_path / "a.mtl"
    timeline = live(path)
    timeline.perform(NewRequest(prompt=timeline.tokens(PROMPT), max_tokens=90, ignore_eos=True))
    timeline.step("token", 60)
    forced = timeline.perform(RunRound(accept=1))
    assert forced.reason == "done" and forced.finding is None
    timeline.step("token", 40, back=True)
    waits = timeline.run(lambda before, event, after: "waits" if at_accept(event) else None)
    assert waits.reason == "stop" and timeline.waiting is not None and timeline.mode == "HISTORY"
    timeline.answer("accept", 1)
    timeline.run(findings=False, limit=400)
    assert timeline.branch == 1 and timeline.mode == "BRANCH"
    timeline.perform(RollBack(req=1, value=2))
    timeline.step("token", 5)
    found = compare_branches(timeline.history, 0, 1)
    assert found.seq > timeline.branches[1].at
    assert timeline.findings() == []
    timeline.close()
    report = replay(path, make())
    assert report.same, report.difference
    assert report.branches == 2 and report.digests > 1000


@pytest.mark.parametrize("rollback", ["snapshot", "replay"])
def test_whatever_is_done_to_it_every_instant_can_be_reached_again(tmp_path: Path, rollback: str) -> None:
    path = tmp_path / "a.mtl"
    timeline = live(path, rollback=rollback)
    chance = random.Random(7)
    prompt = timeline.tokens(PROMPT)
    wanted: list[Action] = [
        NewRequest(prompt=prompt, max_tokens=50, ignore_eos=True),
        *[RunRound()] * 3,
        NewRequest(prompt=prompt[:-1], max_tokens=30, ignore_eos=True, drafter="none"),
        *[RunRound()] * 6,
        RunRound(drafts=(20, 30)),
        ForkRequest(req=1),
        SaveRing(req=1),
        TakeCheckpoint(req=1, queued=True),
        RollBack(req=1, value=1),
        InjectToken(req=1, token=40),
        SetOption(name="verify", value="batched"),
        *[RunRound()] * 5,
        SetOption(name="drafter", value="lookup"),
        SetFault(name="wrong-step-index"),
        *[RunRound()] * 5,
        FreeRequest(req=2),
        SyncSecondary(),
    ]
    for action in wanted:
        stop = timeline.perform(action)
        assert stop.reason == "done", stop
    timeline.run(findings=False, limit=300)
    layers = timeline.start.recurrent_layers
    looked = 0
    for _ in range(40):
        seq = chance.randrange(5, timeline.last + 1)
        states = timeline.view_at(seq).states
        for place in (Place("live", 0), Place("ring", 0, 1), Place("step", 0, 1), Place("checkpoint", 1)):
            fact = states.get(place)
            if fact is not None and fact.position is not None:
                timeline.tensor(TensorRef(place, chance.choice(layers), chance.choice(("h", "conv"))), seq)
                looked += 1
    assert looked > 60
    timeline.close()
    report = replay(path, make(rollback=rollback))
    assert report.same, report.difference


def test_looking_back_with_one_engine_only_does_not_disturb_it() -> None:
    plain, watched = Timeline.live(make()), Timeline.live(make())
    for timeline in (plain, watched):
        timeline.perform(NewRequest(prompt=timeline.tokens(PROMPT), max_tokens=30, ignore_eos=True))
    for count in range(160):
        plain.step("event")
        watched.step("event")
        if count % 40 == 5:
            watched.tensor(TensorRef(Place("live", 0), watched.start.recurrent_layers[0], "h"), watched.now - 7)
    assert watched.events(1, watched.last) == plain.events(1, plain.last)


def test_the_open_model_names_tokens_that_the_run_has_not_told() -> None:
    timeline = Timeline.live(make_engine())
    told = timeline.view.texts
    (newline,) = timeline.tokens("\n")
    assert newline not in told
    assert timeline.text(newline) == "\n"
    assert timeline.text(3) == "<think>"
