"""Verdicts: the kind, by how many tokens, whose, which dtype, since when; and silence where nothing is wrong."""

from __future__ import annotations

import pytest
from judging_helpers import PROMPT, begin, broken, debug, open_timeline, rounds

from engine.events import FreeRequest, NewRequest, Place, Rerun, RunRound, SetFault, SyncSecondary
from inspector.analysis.arrays import as_floats
from inspector.judging.origin import origin
from inspector.judging.states import subject
from inspector.judging.verdicts import Judge
from sessions.errors import NotAvailable

AHEAD = [
    ("commit-lost", "wrong_position", 2),
    ("attention-only-rewind", "wrong_position", 2),
    ("crop-conv-only", "stale_h", 2),
    ("conv-omitted", "stale_conv", 2),
    ("wrong-step-index", "wrong_position", 1),
    ("one-row-short", "wrong_position", -1),
    ("conv-of-another-step", "stale_conv", -1),
    ("conv-column-off", "stale_conv", -1),
]


@pytest.mark.parametrize(("name", "kind", "tokens"), AHEAD)
def test_how_far_a_state_is_off(name: str, kind: str, tokens: int) -> None:
    timeline, req = broken(name)
    found = Judge(timeline).request(req)
    assert (found.verdict.kind, found.verdict.tokens) == (kind, tokens)
    assert not found.right and found.since and "r1" in found.sentence()


@pytest.mark.parametrize(
    ("name", "kind", "detail"),
    [
        ("h-through-bf16", "dtype_drift", "bfloat16"),
        ("h-through-fp16", "dtype_drift", "float16"),
        ("h-transposed", "transposed", ""),
        ("nan-state", "nonfinite", ""),
        ("layer-left-behind", "partial_layers", "layer 6"),
        ("half-restore", "partial_layers", "layers 4-6"),
    ],
)
def test_which_kind_it_is(name: str, kind: str, detail: str) -> None:
    timeline, req = broken(name)
    found = Judge(timeline).request(req)
    assert found.verdict.kind == kind and detail in found.verdict.detail


def test_in_replay_mode_the_copy_is_judged_before_rows_run_on_top_of_it() -> None:
    timeline, _ = broken("h-through-bf16", rollback="replay")
    first = timeline.findings()[0]
    found = Judge(timeline).finding(first)
    assert timeline.event(first.seq).kind == "commit"
    assert (found.verdict.kind, found.verdict.dtype) == ("dtype_drift", "bfloat16")


@pytest.mark.parametrize(("name", "kind"), [("crop-conv-only", "stale_h"), ("conv-omitted", "stale_conv")])
def test_in_replay_mode_the_part_that_stayed_is_named(name: str, kind: str) -> None:
    timeline, req = broken(name, rollback="replay")
    assert Judge(timeline).request(req).verdict.kind == kind


@pytest.mark.parametrize(
    "settings", [{}, {"rollback": "replay"}, {"verify": "batched"}, {"verify": "batched", "dtype": "bfloat16"}]
)
def test_a_right_state_is_called_right_and_the_probe_is_inert(settings: dict[str, str]) -> None:
    timeline = open_timeline(**settings)
    req = begin(timeline)
    for accept in (None, 2, 1):
        rounds(timeline, req, accept)
        found = Judge(timeline).request(req, prove=True)
        assert found.right and found.inert is True and not found.since
        assert found.comparisons[0].verdict.kind == "bitwise"
        assert found.flips == ()


def test_batched_rows_are_rounding_against_single_steps() -> None:
    timeline = open_timeline(verify="batched")
    req = begin(timeline)
    rounds(timeline, req, None, 3)
    found = Judge(timeline).request(req)
    kinds = {one.name: one.verdict.kind for one in found.comparisons}
    assert kinds["its round done again from the state it began with"] == "bitwise"
    assert kinds["its round done again token by token"] == "rounding"


def test_replay_mode_is_checked_against_its_recorded_inputs() -> None:
    timeline = open_timeline(rollback="replay")
    req = begin(timeline)
    rounds(timeline, req, 2)
    found = Judge(timeline).request(req)
    replayed = [one for one in found.comparisons if one.name.startswith("the recorded inputs")]
    assert [one.verdict.kind for one in replayed] == ["bitwise"]


def test_an_error_is_traced_back_to_the_round_that_made_it() -> None:
    timeline, req = broken("commit-lost", (2,))
    wrong_from = timeline.now
    timeline.perform(SetFault(name="commit-lost", on=False))
    rounds(timeline, req, None, None, None)
    timeline.perform(SyncSecondary())
    found = Judge(timeline).request(req)
    assert found.older and found.about.seq <= wrong_from and found.verdict.tokens == 2
    begun = origin(timeline, subject(timeline, req), None, True)
    assert begun is not None and begun.right < begun.wrong <= wrong_from


def test_a_right_state_has_no_origin() -> None:
    timeline = open_timeline()
    req = begin(timeline)
    rounds(timeline, req, None, 2)
    assert origin(timeline, subject(timeline, req), None, True) is None


def test_history_is_judged_like_the_present() -> None:
    timeline, req = broken("commit-lost", (2, None))
    now = timeline.now
    first = timeline.findings()[0]
    timeline.seek(first.seq)
    found = Judge(timeline).request(req)
    assert found.verdict.tokens == 2 and found.about.seq == first.seq
    timeline.seek(now)
    assert timeline.at_edge


def test_whose_state_it_is() -> None:
    timeline = open_timeline()
    first = begin(timeline)
    rounds(timeline, first, None)
    timeline.perform(SetFault(name="slot-not-zeroed"))
    timeline.perform(FreeRequest(req=first))
    timeline.perform(NewRequest(prompt=(5, 6, 7)))
    timeline.perform(RunRound())
    found = Judge(timeline).finding(timeline.findings()[0])
    assert (found.verdict.kind, found.verdict.owner) == ("wrong_owner", "r1")
    assert found.older


def test_a_decode_that_went_on_from_elsewhere_is_named() -> None:
    timeline = open_timeline()
    req = begin(timeline)
    rounds(timeline, req, 4)
    timeline.perform(SetFault(name="reads-checkpoint"))
    rounds(timeline, req, None, drafts=())
    found = Judge(timeline).request(req)
    assert found.verdict.match == "going on from checkpoint:0" and found.verdict.tokens == -4


def test_a_token_absorbed_twice_and_a_dropped_history_are_named() -> None:
    for name, match in (
        ("pending-twice", "the pending token absorbed twice"),
        ("verify-drops-history", "alone, from an empty"),
    ):
        timeline, req = broken(name, (None,))
        assert match in Judge(timeline).request(req).verdict.match


@pytest.mark.parametrize("rollback", ["snapshot", "replay"])
def test_exchanged_parts_are_named(rollback: str) -> None:
    timeline, _ = broken("parts-swapped", rollback=rollback)
    found = Judge(timeline).finding(timeline.findings()[0])
    assert (found.verdict.kind, found.verdict.parts, found.window) == ("swapped_parts", "h+conv", "")
    assert "the two parts are exchanged" in found.sentence()


@pytest.mark.parametrize("rollback", ["snapshot", "replay"])
def test_heads_of_another_request_are_named_with_their_channels_and_owner(rollback: str) -> None:
    timeline = open_timeline(rollback=rollback)
    victim, other = begin(timeline), begin(timeline, PROMPT[:20])
    rounds(timeline, other, 2)
    rounds(timeline, victim, None)
    timeline.perform(SetFault(name="rank-local-free-order"))
    rounds(timeline, victim, 2)
    timeline.perform(SyncSecondary())
    found = Judge(timeline).finding(timeline.findings()[0])
    verdict = found.verdict
    assert (verdict.kind, verdict.inner, verdict.owner) == ("partial_heads", "wrong_owner", f"r{other}")
    assert (verdict.heads, len(verdict.channels), verdict.parts) == ((2, 3), 128, "h+conv")
    place = "checkpoint" if rollback == "replay" else "step"
    assert verdict.match.startswith(f"{place}:1") and "those of these heads" in verdict.evidence
    assert f"partial heads; what differs is the state of r{other}" in found.sentence()


@pytest.mark.parametrize("rollback", ["snapshot", "replay"])
def test_a_torn_window_is_named_with_its_channels_and_columns(rollback: str) -> None:
    timeline, _ = broken("overlapping-copy", rollback=rollback)
    found = Judge(timeline).finding(timeline.findings()[0])
    assert (found.verdict.kind, found.verdict.tokens, found.window) == ("torn_conv", 1, "")
    assert found.verdict.channels == tuple(range(128, 256))
    assert "128 of 256 conv channels (128-255) differ by 1 column" in found.sentence()


def test_snapshots_are_judged_by_their_label() -> None:
    timeline = open_timeline()
    begin(timeline)
    judge = Judge(timeline)
    assert judge.place(Place("prefix", -1, 0)).verdict.kind == "bitwise"
    assert judge.place(Place("live", 0)).right
    with pytest.raises(NotAvailable, match="no label"):
        judge.place(Place("checkpoint", 0))
    with pytest.raises(NotAvailable, match="under no label"):
        judge.place(Place("prefix", -1, 3))


def test_flipped_picks_come_with_their_margin() -> None:
    timeline, req = broken("verify-drops-history", (None,))
    found = Judge(timeline).request(req)
    assert found.flips and all(flip.margin > 0 for flip in found.flips)


@pytest.mark.parametrize("settings", [{}, {"verify": "batched", "dtype": "bfloat16"}])
def test_drawn_picks_are_drawn_again_before_they_are_said_to_differ(settings: dict[str, str]) -> None:
    timeline = open_timeline(**settings)
    timeline.perform(NewRequest(prompt=PROMPT, max_tokens=200, ignore_eos=True, temperature=2.0, seed=3))
    req = max(timeline.view.requests)
    while not timeline.view.requests[req].outputs:
        timeline.perform(RunRound(req=req))
    surprising = 0
    for _ in range(3):
        rounds(timeline, req, None)
        found = Judge(timeline).request(req)
        assert found.flips == ()
        how = found.made
        assert how is not None and how.place is not None
        asked = Rerun(req=req, place=how.place, position=how.base, tokens=how.fed, form=how.form)
        rows = timeline.compute(asked, how.before)
        surprising += sum(
            int(as_floats(row.logits).argmax()) != pick for row, pick in zip(rows, how.picks, strict=True)
        )
    assert surprising


def test_which_picks_differ_from_which_is_said() -> None:
    timeline, _ = broken("verify-drops-history", (None,))
    line = next(text for text in debug(timeline)("judge", "failed") if "picks of the round" in text)
    assert "picks differ (those the engine told against those that its own states give when computed again)" in line
    assert "suspicious, far more than rounding does" in line or "unclear, more than rounding" in line


def test_judge_as_a_command_tells_the_evidence() -> None:
    timeline, _ = broken("conv-omitted")
    run = debug(timeline)
    lines = run("judge --prove", "failed")
    assert lines[0].startswith("live:0 of r1: stale conv; conv 2 tokens ahead, wrong since event")
    text = "\n".join(lines)
    for part in (
        "conv by layer",
        "last written by",
        "fault conv-omitted",
        "the probe is inert",
        "2 tokens ahead: it holds",
    ):
        assert part in text
    assert "right" in debug(open_and_begin())("judge")[0]


def open_and_begin():  # type: ignore[no-untyped-def]
    timeline = open_timeline()
    begin(timeline, PROMPT[:20])
    return timeline
