"""F4 to F6 where two ways through the engine disagree: when each fault acts, when it must not, what it is judged."""

from __future__ import annotations

import pytest
from engine_helpers import loaded
from gallery_helpers import acts, judged
from judging_helpers import PROMPT, begin, open_timeline, rounds

from engine.events import NewRequest, Place, RunRound, SetFault
from inspector.judging.verdicts import Judge
from inspector.trials.explained import explain, unexplained
from inspector.trials.trial import engines, run_trial


@pytest.mark.parametrize(
    ("name", "detector", "tokens"),
    [
        ("one-token-tail", "layer0-oracle", -1),
        ("precopy-skipped", "layer0-oracle", None),
        ("preverify-key", "prefix-depth", 4),
        ("chunk-grid-per-batch", "digest-after-restore", None),
        ("mixed-batch", "layer0-oracle", None),
    ],
)
def test_caught_at_once_and_judged_right(name: str, detector: str, tokens: int | None) -> None:
    outcome = run_trial(engines(loaded("float32"), dtype="float32"), name)
    assert (outcome.how, outcome.detector) == ("at once", detector) and outcome.verdict_right
    assert outcome.judgement is not None and outcome.judgement.verdict.tokens == tokens


def test_a_prompt_of_one_token_is_no_tail() -> None:
    timeline = open_timeline()
    timeline.perform(SetFault(name="one-token-tail"))
    begin(timeline, (300,))
    begin(timeline, PROMPT[:20])
    assert acts(timeline, "one-token-tail") == 0 and timeline.findings() == []
    begin(timeline, PROMPT[:17])
    assert acts(timeline, "one-token-tail") == 1
    name, judgement = judged(timeline)
    assert name == "layer0-oracle" and judgement.verdict.match == "the state before the round"


def test_the_count_of_another_request_selects_the_step() -> None:
    timeline = open_timeline()
    timeline.perform(SetFault(name="mixed-batch"))
    first, second = begin(timeline), begin(timeline, (5, 6, 7, 8))
    rounds(timeline, first, 3)
    rounds(timeline, first, None, drafts=())
    rounds(timeline, second, 4)
    rounds(timeline, first, None, drafts=())
    rounds(timeline, first, 2)
    rounds(timeline, second, 2)
    rounds(timeline, first, None, drafts=())  # the same count: the step it reads is the right one
    assert acts(timeline, "mixed-batch") == 0 and timeline.findings() == []
    rounds(timeline, first, 3)
    rounds(timeline, second, 1)
    rounds(timeline, first, None, drafts=())
    name, judgement = judged(timeline)
    assert (name, judgement.verdict.kind) == ("layer0-oracle", "wrong_position")
    assert (judgement.verdict.match, judgement.verdict.tokens) == ("going on from step:0.0", -2)


def test_replay_mode_has_no_steps_to_mix_up() -> None:
    settings = {"rollback": "replay"}
    outcome = run_trial(engines(loaded("float32"), dtype="float32", **settings), "mixed-batch")
    outcome.settings = dict(settings)
    assert outcome.how == "idle" and "step planes" in explain(outcome) and not unexplained(outcome)


def test_only_chunks_that_cross_a_block_boundary_start_from_nothing() -> None:
    timeline = open_timeline(prefill_chunk=8)
    timeline.perform(SetFault(name="precopy-skipped"))
    timeline.perform(NewRequest(prompt=PROMPT, max_tokens=9, ignore_eos=True))
    for chunks in range(2):
        timeline.perform(RunRound())
        assert acts(timeline, "precopy-skipped") == 0 and timeline.findings() == [], chunks
    timeline.perform(RunRound())
    name, judgement = judged(timeline)
    assert name == "layer0-oracle" and "alone, from an empty state" in judgement.verdict.match


def test_a_state_after_a_decode_keeps_its_key() -> None:
    timeline = open_timeline()
    timeline.perform(SetFault(name="preverify-key"))
    req = begin(timeline, tuple(range(300, 363)))
    rounds(timeline, req, None, drafts=())
    assert timeline.view.requests[req].cursor == 64 and len(timeline.view.prefixes) == 4
    assert acts(timeline, "preverify-key") == 0 and timeline.findings() == []


def test_the_snapshot_of_another_requests_row_is_judged_by_its_owner() -> None:
    timeline = open_timeline()
    timeline.perform(SetFault(name="chunk-grid-per-batch"))
    begin(timeline)
    assert acts(timeline, "chunk-grid-per-batch") == 0  # alone in its batch
    begin(timeline, tuple(range(100, 140)))
    name, judgement = judged(timeline)
    assert name == "digest-after-restore" and judgement.about.place.kind == "prefix"
    assert (judgement.verdict.kind, judgement.verdict.owner) == ("wrong_owner", "r1")
    leaf = max(timeline.view.prefixes.values(), key=lambda fact: (fact.saved, fact.index))
    assert leaf.origin == "leaf" and Judge(timeline).place(Place("prefix", -1, leaf.index)).right
