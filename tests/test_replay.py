"""Replay is a test of determinism; comparison finds the first event, layer and place that differ."""

from __future__ import annotations

from pathlib import Path

import pytest
import session_helpers as make
from engine_helpers import make_engine
from fake_engine import FakeEngine

from engine.events import Draft, NewRequest, RollBack, RunRound, SetFault, Start, TensorData, VerifyRow
from sessions.compare import compare, compare_branches
from sessions.divergence import Comparison
from sessions.errors import Cancelled, NotAvailable, SessionError
from sessions.exporters import jsonl
from sessions.meta import ENVIRONMENT
from sessions.replay import as_array, relative_difference, replay
from sessions.store import Store
from sessions.timeline import Timeline


@pytest.fixture(scope="module")
def branched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two branches, answers, a rollback, a half-done round at the end."""
    path = tmp_path_factory.mktemp("branched") / "a.mtl"
    timeline = make.two_requests(make.live(path))
    decision = next(e for e in timeline.events(90, timeline.last) if e.kind == "decision" and e.default > 1)  # type: ignore[attr-defined]
    timeline.seek(decision.seq)
    timeline.answer(decision.what, 1)  # type: ignore[attr-defined]
    timeline.step("round", 3)
    timeline.perform(RollBack(req=1, value=1))
    timeline.step("token")
    timeline.close()
    return path


def test_a_recording_is_met_again_on_every_branch(branched: Path) -> None:
    report = replay(branched, FakeEngine())
    assert report.same and report.branches == 2 and report.remarks == []
    with Store(branched) as store:
        first, second = store.branches()
        assert report.events == first.last + second.last - second.at
    assert report.digests > 500 and report.compared == "every fact and every state digest"


@pytest.mark.parametrize("rollback", ["snapshot", "replay"])
@pytest.mark.parametrize("drafter", ["mtp", "none"])
def test_every_mode_can_be_met_again(tmp_path: Path, rollback: str, drafter: str) -> None:
    options = {"rollback": rollback, "drafter": drafter, "watchdog_at": 20}
    path = make.recording(tmp_path / "a.mtl", **options)
    assert replay(path, FakeEngine(**options)).same  # type: ignore[arg-type]


def test_a_session_is_met_again_without_its_drafter(tmp_path: Path) -> None:
    class Mute(FakeEngine):
        def _propose(self, seq: object) -> tuple[int, ...]:
            raise AssertionError("the drafter was asked")

    path = make.recording(tmp_path / "a.mtl")
    assert replay(path, Mute()).same


def test_the_first_difference_names_event_layer_and_part(branched: Path) -> None:
    report = replay(branched, FakeEngine(drift_at=150))
    assert report.difference is not None and report.branch == 0
    assert report.difference.seq >= 150 and (report.difference.layer, report.difference.part) == (1, "h")
    assert str(report.difference).startswith(f"diverged at event {report.difference.seq}, layer 1, h")
    assert 140 < report.events < 400


def test_a_difference_on_a_branch_only_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.mtl"
    timeline = make.live(path)
    timeline.perform(make.new())
    timeline.step("round", 2)
    at = timeline.now
    timeline.step("round")
    timeline.seek(at)
    timeline.perform(SetFault(name="wrong_step"))
    timeline.step("round", 6)
    timeline.close()

    class Healthy(FakeEngine):
        faults = property(lambda self: set(), lambda self, value: None)  # type: ignore[assignment]

    report = replay(path, Healthy())
    assert report.difference is not None and report.branch == 1 and report.difference.seq > at


def test_facts_are_compared_when_the_recording_has_no_digests(tmp_path: Path) -> None:
    path = make.recording(tmp_path / "a.mtl", level="events")
    report = replay(path, FakeEngine())
    assert report.same and report.compared == "every fact; the record holds no state digests"
    assert not replay(path, FakeEngine(drift_at=100)).same


class Elsewhere(FakeEngine):
    """The same model on another device: equal up to a tolerance."""

    def start(self) -> Start:
        import dataclasses

        return dataclasses.replace(super().start(), device="cuda")


def test_on_another_device_it_compares_within_tolerance_and_says_so(tmp_path: Path) -> None:
    path = make.recording(tmp_path / "a.mtl", level="full")
    report = replay(path, Elsewhere(noise=1e-3))
    assert report.same and report.remarks == ["device: recorded cpu, here cuda"]
    assert (
        report.compared == "facts exactly, margins within 0.001 of the logits; state digests are not compared bitwise"
    )
    assert 0 < report.worst <= 1e-3 and "layer" in report.worst_place
    apart = replay(path, Elsewhere(noise=0.4))
    assert apart.difference is not None and "tolerance 0.001" in str(apart.difference)
    assert not replay(path, FakeEngine(noise=1e-3)).same, "on the same device only bitwise will do"
    assert replay(path, FakeEngine(noise=1e-3), tolerance=0.01).same


def test_another_environment_counts_as_another_machine(tmp_path: Path) -> None:
    store = Store(tmp_path / "a.mtl", "x", meta={ENVIRONMENT: "cpu one"})
    timeline = Timeline.live(FakeEngine(), store)
    timeline.perform(make.new(max_tokens=8))
    timeline.run()
    timeline.close()
    assert replay(tmp_path / "a.mtl", FakeEngine(), environment="cpu one").remarks == []
    assert replay(tmp_path / "a.mtl", FakeEngine()).remarks == []
    report = replay(tmp_path / "a.mtl", FakeEngine(), environment="cpu two")
    assert report.same and "not compared bitwise" in report.compared


def test_another_model_is_refused(branched: Path) -> None:
    with pytest.raises(SessionError, match="another model"):
        replay(branched, FakeEngine(fingerprint="other"))


def test_replay_can_be_cancelled(branched: Path) -> None:
    with pytest.raises(Cancelled):
        replay(branched, FakeEngine(), cancel=lambda: True)


# -------------------------------------------------------------------------------------------------------- comparison


def session(
    path: Path, *, rounds: int = 8, accept: int | None = None, level: str = "digests", **options: object
) -> Path:
    timeline = make.live(path, level, **options)
    timeline.perform(make.new())
    for number in range(rounds):
        timeline.perform(RunRound(accept=accept if number == 4 else None))
    timeline.close()
    return path


def test_equal_recordings_are_the_same(tmp_path: Path) -> None:
    found = compare(session(tmp_path / "a.mtl"), session(tmp_path / "b.mtl"))
    assert found.same and found.text == f"all {found.compared} events are the same" and found.settings == ()


def test_the_first_differing_event_is_found(tmp_path: Path) -> None:
    a, b = session(tmp_path / "a.mtl"), session(tmp_path / "b.mtl", accept=1)
    found = compare(a, b)
    with Store(a) as left, Store(b) as right:
        pairs = zip(left.events(1, 10**6), right.events(1, 10**6), strict=False)
        expected = next(x.seq for x, y in pairs if x != y)
    assert not found.same and found.seq == expected and found.a is not None and found.b is not None
    assert found.a.kind == found.b.kind == "decision" and "default" in found.text


def test_a_difference_in_the_state_alone_names_layer_and_place(tmp_path: Path) -> None:
    a, b = session(tmp_path / "a.mtl"), session(tmp_path / "b.mtl", noise=1e-3)
    found = compare(a, b)
    assert (found.seq, found.layer, found.part, found.place) == (5, 0, "h", "live:0") or found.place == "live:0"
    assert found.text == f"differs at event {found.seq}, layer 0, h of live:0"
    assert found.a is not None and found.a.kind in ("zero", "prefill")


def test_one_recording_that_goes_on_is_said(tmp_path: Path) -> None:
    a, b = session(tmp_path / "a.mtl", rounds=4), session(tmp_path / "b.mtl", rounds=6)
    found = compare(a, b)
    assert found.a is None and found.b is not None and found.seq == found.b.seq
    assert found.text.startswith("the first ends after event")
    assert compare(b, a).text.startswith("the second ends after event")


def test_settings_are_told_apart_from_differences(tmp_path: Path) -> None:
    a, b = session(tmp_path / "a.mtl", rounds=2), session(tmp_path / "b.mtl", rounds=2, fingerprint="two")
    found = compare(a, b)
    assert found.same and found.settings == ("fingerprint: fake-1 and two",)


def test_a_recording_without_digests_is_compared_by_facts(tmp_path: Path) -> None:
    assert compare(session(tmp_path / "a.mtl"), session(tmp_path / "b.mtl", level="events")).same


def test_recordings_and_exported_lines_compare(tmp_path: Path) -> None:
    path = session(tmp_path / "a.mtl")
    timeline = Timeline.open(path, write=False)
    jsonl.write(timeline.history, tmp_path / "a.jsonl")
    assert compare(path, tmp_path / "a.jsonl").same


def test_branches_are_compared_from_where_they_part(branched: Path) -> None:
    timeline = Timeline.open(branched, write=False)
    at = timeline.branches[1].at
    found = compare_branches(timeline.history, 0, 1)
    assert found.seq > at and timeline.event(found.seq, 0) != timeline.event(found.seq, 1)
    assert timeline.events(1, found.seq - 1, 0) == timeline.events(1, found.seq - 1, 1)
    assert compare_branches(timeline.history, 0, 0).same
    assert compare(branched, branched, 0, 1) == found
    with pytest.raises(NotAvailable, match="no branch 5"):
        compare_branches(timeline.history, 0, 5)


def test_bfloat16_words_are_read_as_numbers() -> None:
    words = b"\x80\x3f\x00\xc0\xc0\x7f"  # 1.0, -2.0, NaN
    values = as_array(TensorData("bfloat16", (3,), words))
    assert values[:2].tolist() == [1.0, -2.0] and values[2] != values[2]
    a, b = TensorData("float32", (2,), b"\0\0\x80\x3f" * 2), TensorData("float32", (1,), b"\0\0\x80\x3f")
    assert relative_difference(a, a) == 0 and relative_difference(a, b) == float("inf")


def test_hashes_of_floating_point_bytes_are_not_compared_on_another_dtype() -> None:
    recorded = Draft(seq=5, tokens=(1, 2), source="mtp", fed="aa", hidden="aa")
    elsewhere = Draft(seq=5, tokens=(1, 2), source="mtp", fed="bb", hidden="bb")
    assert Comparison(tolerance=0.05).equal(recorded, elsewhere)
    assert not Comparison().equal(recorded, elsewhere)
    assert not Comparison(tolerance=0.05).equal(recorded, Draft(seq=5, tokens=(1, 3), source="mtp", fed="bb"))


def test_the_tolerance_of_a_margin_is_one_of_logits() -> None:
    def row(margin: float) -> VerifyRow:
        return VerifyRow(seq=7, slot=0, token=3, pick=4, margin=margin)

    assert Comparison(tolerance=0.05).equal(row(1.0), row(1.5))
    assert not Comparison(tolerance=0.05).equal(row(1.0), row(2.0))
    assert Comparison(tolerance=0.05).equal(row(float("nan")), row(float("nan")))


def test_a_recording_of_the_bundled_model_compares_in_another_dtype(tmp_path: Path) -> None:
    """Speculation with the real MTP head: the tolerance is that of the coarser dtype."""
    path = tmp_path / "a.mtl"
    engine = make_engine(dtype="bfloat16")
    timeline = Timeline.live(engine, Store(path, "x"))
    timeline.perform(NewRequest(prompt=engine.tokens("And it came to pass"), max_tokens=12))
    timeline.run()
    assert any(event.kind == "draft" and event.fed for event in timeline.events(1, timeline.last))
    timeline.close()
    report = replay(path, make_engine(dtype="float32"))
    assert report.difference is None and report.remarks == ["dtype: recorded bfloat16, here float32"]
    assert "within 0.05" in report.compared
