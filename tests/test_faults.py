"""Trials of the gallery: what is measured, what counts as explained, and the commands that show it."""

from __future__ import annotations

import json

import pytest
from engine_helpers import loaded, make_engine, run
from typer.testing import CliRunner

from engine.events import NewRequest, Place, RunRound, SetFault, SyncSecondary
from engine.faults import all_faults, find_fault
from inspector.analysis.kinds import Verdict
from inspector.cli import build_app
from inspector.cli_faults import report
from inspector.museum.rooms import rooms
from inspector.trials.expected import KINDS, right
from inspector.trials.explained import applies, explain, unexplained
from inspector.trials.trial import Outcome, engines, run_trial

CLOCK = iter(range(10**9)).__next__


def trial(fault: str = "", **settings: str) -> Outcome:
    outcome = run_trial(engines(loaded("float32"), dtype="float32", **settings), fault, clock=lambda: float(CLOCK()))
    outcome.settings = settings
    return outcome


def test_every_fault_has_an_expected_verdict() -> None:
    assert set(KINDS) == {spec.name for spec in all_faults()}


def test_the_healthy_run_has_no_finding() -> None:
    outcome = trial()
    assert (outcome.how, outcome.findings) == ("healthy", 0) and outcome.rounds > 60
    assert not unexplained(outcome)


def test_a_told_fault_is_caught_at_once_with_a_stopwatch() -> None:
    outcome = trial("conv-omitted")
    assert (outcome.how, outcome.detector, outcome.tokens) == ("at once", "positions-agree", 0)
    assert 0 < outcome.events < 10 and outcome.seconds > 0 and outcome.judging > 0
    assert outcome.verdict == "stale conv" and outcome.verdict_right and not unexplained(outcome)


def test_a_silent_fault_is_caught_by_the_oracle() -> None:
    outcome = trial("reads-checkpoint")
    assert (outcome.how, outcome.detector) == ("at once", "layer0-oracle") and outcome.verdict_right


def test_a_fault_that_cannot_act_is_not_a_miss() -> None:
    outcome = trial("wrong-step-index", rollback="replay")
    assert outcome.how == "idle" and not applies(outcome) and "step planes" in explain(outcome)
    assert not unexplained(outcome)


def test_a_miss_that_nothing_explains_is_reported() -> None:
    healthy, missed = Outcome("", "healthy", findings=0), Outcome("conv-omitted", "missed")
    assert unexplained(missed) and not unexplained(healthy) and unexplained(Outcome("", "healthy", findings=1))
    assert any(line.startswith("NOT EXPLAINED: conv-omitted") for line in report([healthy, missed]))
    idle = Outcome("stale-plane", "idle", settings={"rollback": "replay"})
    assert not unexplained(idle) and any("no step planes" in line for line in report([healthy, idle]))


def test_a_wrong_verdict_is_wrong() -> None:
    assert right("conv-omitted", Verdict("stale_conv", "", tokens=2))
    assert not right("conv-omitted", Verdict("stale_conv", "", tokens=-2))
    assert not right("conv-omitted", Verdict("stale_h", "", tokens=2))
    assert right("slot-leak", None) and not right("conv-omitted", None)


def test_acts_are_counted_only_when_something_changed() -> None:
    engine = make_engine(rollback="snapshot")
    run(engine, SetFault(name="commit-skipped"))
    run(engine, NewRequest(prompt=tuple(range(100, 120)), ignore_eos=True))
    while not engine.rt.requests[1].output_len:
        run(engine, RunRound())
    run(engine, RunRound(accept=4))
    assert engine.rt.acted["commit-skipped"] == []
    events = run(engine, RunRound(accept=1))
    (act,) = engine.rt.acted["commit-skipped"]
    assert events[0].seq < act < events[-1].seq


def test_what_a_fault_remembers_travels_with_an_image() -> None:
    engine = make_engine()
    run(engine, SetFault(name="accepted-of-previous-step"))
    run(engine, NewRequest(prompt=tuple(range(100, 120)), ignore_eos=True))
    while not engine.rt.requests[1].output_len:
        run(engine, RunRound())
    run(engine, RunRound(accept=4))
    image = engine.save()
    after = run(engine, RunRound(accept=2))
    other = make_engine()
    other.load(image)
    assert run(other, RunRound(accept=2)) == after


def test_parts_are_exchanged_layer_by_layer_on_commit_and_on_restore() -> None:
    engine = make_engine(rollback="snapshot", ring=2)
    run(engine, NewRequest(prompt=tuple(range(100, 120)), ignore_eos=True))
    while not engine.rt.requests[1].output_len:
        run(engine, RunRound())
    memory, seq = engine.rt.memory, engine.rt.requests[1].seq
    run(engine, RunRound(accept=4))
    memory.save_decode_ssm_snapshot(seq, 0)
    live, kept = memory.places.view(seq.live), memory.places.view(Place("ring", seq.slot, 0))
    assert kept.h is not None and live.h is not None
    run(engine, SetFault(name="parts-swapped"))
    memory.restore_decode_ssm_snapshot(seq, 0)
    for layer in range(len(kept.conv)):
        h, conv = kept.h[layer].flatten(), kept.conv[layer].flatten()
        assert live.conv[layer].flatten().equal(h[: conv.numel()])
        assert live.h[layer].flatten().equal(conv.repeat(h.numel() // conv.numel()))
    run(engine, RunRound(accept=2))
    run(engine, SyncSecondary())
    step = memory.places.view(Place("step", seq.slot, 1))
    assert live.h[0].flatten()[: step.conv[0].numel()].equal(step.conv[0].flatten())


def test_ranks_disagree_only_about_slots_that_another_request_wrote() -> None:
    engine = make_engine(rollback="snapshot")
    for first in (100, 200):
        run(engine, NewRequest(prompt=tuple(range(first, first + 20)), ignore_eos=True))
    while not all(request.output_len for request in engine.rt.requests.values()):
        for req in (1, 2):
            run(engine, RunRound(req=req))
    run(engine, RunRound(req=2, accept=4))
    run(engine, SetFault(name="rank-local-free-order"))
    planes = [engine.rt.memory.places.view(Place("step", slot, 1)) for slot in (0, 1)]
    live = engine.rt.memory.places.view(Place("live", 0))
    run(engine, RunRound(req=1, accept=2))
    run(engine, SyncSecondary())
    assert all(plane.h is not None for plane in planes) and live.h is not None
    assert live.h[:, :2].equal(planes[0].h[:, :2]) and live.h[:, 2:].equal(planes[1].h[:, 2:])
    for low, high in ((0, 64), (64, 128), (128, 256)):
        middle = (low + high) // 2
        assert live.conv[:, low:middle].equal(planes[0].conv[:, low:middle])
        assert live.conv[:, middle:high].equal(planes[1].conv[:, middle:high])


def test_one_request_alone_has_no_slot_to_confuse() -> None:
    engine = make_engine(rollback="snapshot")
    run(engine, SetFault(name="rank-local-free-order"))
    run(engine, NewRequest(prompt=tuple(range(100, 120)), ignore_eos=True))
    while not engine.rt.requests[1].output_len:
        run(engine, RunRound())
    run(engine, RunRound(accept=2))
    run(engine, SyncSecondary())
    assert engine.rt.acted["rank-local-free-order"] == []


def test_the_command_lists_runs_and_reports() -> None:
    runner = CliRunner()
    app = build_app()
    listed = runner.invoke(app, ["faults"])
    assert listed.exit_code == 0 and "F15" in listed.stdout and "conv-omitted" in listed.stdout
    ran = runner.invoke(app, ["faults", "conv-omitted"])
    assert ran.exit_code == 0 and "1 of 1 caught at once, 1 of 1 verdicts right" in ran.stdout
    assert "0 findings" in ran.stdout and "metrale-inspect museum conv-omitted" in ran.stdout
    room, spec = rooms()["conv-omitted"], find_fault("conv-omitted")
    for part in (room.title, room.happened, room.look, spec.imitates, spec.report, "told: ", "at once: before"):
        assert part in ran.stdout, part
    assert "silent: " not in ran.stdout and "the state is (still) right" not in ran.stdout
    mixed = runner.invoke(app, ["faults", "block-leak", "commit-lost", "double-free"]).stdout
    for part in ("told: ", "silent: ", "no state concerned: the state is (still) right"):
        assert part in mixed, part
    lines = runner.invoke(app, ["faults", "F15", "--json"]).stdout.splitlines()
    data = [json.loads(line) for line in lines]
    assert [one["fault"] for one in data] == ["healthy", *(spec.name for spec in all_faults() if spec.group == "F15")]
    (one,) = (one for one in data if one["fault"] == "pre-norm-mtp")
    assert one["detector"] == "drafter-input" and one["seconds_to_verdict"] >= 0
    assert runner.invoke(app, ["faults", "bogus"]).exit_code == 2
    near = runner.invoke(app, ["faults", "conv-omited"])
    assert near.exit_code == 2 and 'Did you mean "conv-omitted"?' in " ".join(near.stderr.replace("│", " ").split())


def test_the_museum_command_lists_and_checks() -> None:
    runner = CliRunner()
    listed = runner.invoke(build_app(), ["museum"])
    assert listed.exit_code == 0 and "Conv was left behind" in listed.stdout
    checked = runner.invoke(build_app(), ["museum", "conv-omitted", "--check"])
    assert checked.exit_code == 0 and checked.stdout.startswith("ok")
    assert runner.invoke(build_app(), ["museum", "conv-omitted"]).exit_code == 2


@pytest.mark.parametrize("name", ["pending-twice", "verify-drops-history"])
def test_replay_heals_layer_zero_so_the_rows_are_looked_at_before_the_commit(name: str) -> None:
    outcome = run_trial(engines(loaded("float32"), dtype="float32", rollback="replay"), name, 0)
    assert (outcome.how, outcome.detector, outcome.verdict_right) == ("at once", "layer0-oracle", True)


def test_in_replay_mode_a_wrong_count_is_judged_after_the_rows_that_are_run_again() -> None:
    outcome = run_trial(engines(loaded("float32"), dtype="float32", rollback="replay"), "accepted-of-previous-step", 1)
    assert (outcome.how, outcome.verdict, outcome.verdict_right) == ("at once", "wrong position", True)
