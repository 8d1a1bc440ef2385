"""Exports: whole files in other programs' formats, true to the record."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import session_helpers as make
from fake_engine import FakeEngine
from safetensors import safe_open
from safetensors.numpy import load_file

from engine.events import RunRound, SetFault, TensorData, TensorRef
from sessions.errors import NotAvailable, SessionError
from sessions.exporters import chrome_trace, jsonl, pytest_file, safetensors_file
from sessions.finding import Finding
from sessions.timeline import Timeline


@pytest.fixture(scope="module")
def timeline() -> Timeline:
    """Two requests, a finding, a branch."""
    made = make.two_requests(make.live())
    made.seek(60)
    made.perform(SetFault(name="stale_live"))
    made.run(findings=False)
    made.checkout(0)
    return made


# ------------------------------------------------------------------------------------------------------- JSON lines


def test_json_lines_come_back_as_the_same_events(timeline: Timeline, tmp_path: Path) -> None:
    count = jsonl.write(timeline.history, tmp_path / "a.jsonl")
    assert count == timeline.last
    again = Timeline.open(tmp_path / "a.jsonl")
    assert again.events(1, again.last) == timeline.events(1, timeline.last)


def test_json_lines_of_a_range_and_of_a_branch(timeline: Timeline) -> None:
    lines = list(jsonl.lines(timeline.history, 1, 58, 63))
    assert len(lines) == 7 and json.loads(lines[0])["format"]
    kinds = [json.loads(line)["kind"] for line in lines[1:]]
    assert kinds == [event.kind for event in timeline.events(58, 63, branch=1)]
    assert list(jsonl.lines(timeline.history, 0, 10**6))[1:] == []
    with pytest.raises(NotAvailable):
        list(jsonl.lines(timeline.history, 7))


def test_equal_histories_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        jsonl.write(make.two_requests(make.live()).history, tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


# ------------------------------------------------------------------------------------------------------ chrome trace


def test_rounds_are_slices_pools_counters_and_findings_instants(timeline: Timeline, tmp_path: Path) -> None:
    count = chrome_trace.write(timeline.history, tmp_path / "a.json", branch=1)
    trace = json.loads((tmp_path / "a.json").read_text())["traceEvents"]
    assert len(trace) == count
    last = timeline.history.record.last(1)
    events = timeline.events(1, last, branch=1)
    rounds = [e for e in trace if e["ph"] == "X" and e["name"] in ("prefill", "decode", "verify")]
    begun = [event for event in events if event.kind == "round"]
    assert [(e["ts"], e["tid"], e["name"]) for e in rounds] == [(b.seq, b.req, b.mode) for b in begun]  # type: ignore[attr-defined]
    ends = [event.seq for event in events if event.kind == "round_end"]
    assert [e["ts"] + e["dur"] for e in rounds] == ends
    verified = [e for e in trace if e["ph"] == "X" and e["name"].startswith("verify ")]
    assert len(verified) == sum(event.kind == "accept" for event in events)
    found = [e for e in trace if e["name"].startswith("finding: ")]
    assert [e["ts"] for e in found] == [finding.seq for finding in timeline.findings(branch=1)] != []
    slots = [(e["ts"], e["args"]["used"]) for e in trace if e["ph"] == "C" and e["name"] == "slots"]
    assert slots[0][1] == 0 and max(used for _, used in slots) == 2 and slots[-1][1] == 0
    assert {e["args"]["name"] for e in trace if e["name"] == "thread_name"} == {"r1", "r2"}


def test_a_round_the_record_ends_in_is_an_open_slice() -> None:
    timeline = make.live()
    timeline.perform(make.new())
    timeline.perform(RunRound())
    timeline.perform(RunRound(), lambda event: event.kind == "verify")
    trace = list(chrome_trace.entries(timeline.history))
    opened = [e for e in trace if e["ph"] == "X" and e["args"].get("open")]
    assert len(opened) == 1 and opened[0]["ts"] + opened[0]["dur"] == timeline.last


# ------------------------------------------------------------------------------------------------------- safetensors


def test_the_states_of_an_instant_are_written_with_their_facts(timeline: Timeline, tmp_path: Path) -> None:
    seq = next(e.seq for e in timeline.events(150, timeline.last) if e.kind == "accept")
    count = safetensors_file.write(timeline, tmp_path / "a.safetensors", seq)
    tensors = load_file(tmp_path / "a.safetensors")
    assert len(tensors) == count > 20
    for ref in (TensorRef(make.LIVE0, 1, "h"), TensorRef(make.LIVE0, 2, "conv")):
        data = timeline.tensor(ref, seq)
        values = tensors[f"{ref.place}/layer.{ref.layer}/{ref.part}"]
        assert values.dtype == np.float32 and values.shape == data.shape and values.tobytes() == data.raw
    with safe_open(tmp_path / "a.safetensors", "np") as file:
        metadata = file.metadata()
    fact = timeline.view_at(seq).live(1)
    assert fact is not None and metadata["event"] == str(seq) and metadata["fingerprint"] == "fake-1"
    assert json.loads(metadata["places"])["live:0"] == {
        "owner": 1,
        "epoch": 1,
        "h": fact.h_position,
        "conv": fact.conv_position,
        "dirty": fact.dirty,
        "queued": [],
    }


def test_a_queued_copy_and_a_dirty_state_are_told(timeline: Timeline, tmp_path: Path) -> None:
    seqs = range(150, timeline.last)
    queued = next(seq for seq in seqs if any(copy.dst == make.LIVE0 for copy in timeline.view_at(seq).queued))
    dirty = next(seq for seq in seqs if timeline.view_at(seq).states[make.LIVE0].dirty)
    for seq in (queued, dirty):
        safetensors_file.write(timeline, tmp_path / "a.safetensors", seq)
        with safe_open(tmp_path / "a.safetensors", "np") as file:
            told = json.loads(file.metadata()["places"])["live:0"]
        view = timeline.view_at(seq)
        assert told["dirty"] is view.states[make.LIVE0].dirty
        copies = [{"src": str(copy.src), "parts": copy.parts} for copy in view.queued if copy.dst == make.LIVE0]
        assert told["queued"] == copies and (copies or seq != queued)


class Narrow(FakeEngine):
    """Says its states are bfloat16."""

    def read(self, ref: TensorRef) -> TensorData:
        data = super().read(ref)
        return TensorData("bfloat16", data.shape, data.raw[: len(data.raw) // 2])


def test_bfloat16_is_written_as_its_words(tmp_path: Path) -> None:
    timeline = Timeline.live(Narrow(digests=False))
    timeline.perform(make.new())
    timeline.step("round")
    safetensors_file.write(timeline, tmp_path / "a.safetensors")
    written = load_file(tmp_path / "a.safetensors")["live:0/layer.0/h"]
    assert written.dtype == np.uint16
    assert written.tobytes() == timeline.tensor(TensorRef(make.LIVE0, 0, "h")).raw
    with safe_open(tmp_path / "a.safetensors", "np") as file:
        assert "live:0/layer.0/h" in json.loads(file.metadata()["bfloat16"])


def test_without_a_model_it_says_why_there_are_no_tensors(tmp_path: Path) -> None:
    timeline = Timeline.open(make.recording(tmp_path / "a.mtl"), write=False)
    with pytest.raises(NotAvailable, match="no model is open"):
        safetensors_file.write(timeline, tmp_path / "a.safetensors", 40)
    assert not (tmp_path / "a.safetensors").exists()


# ------------------------------------------------------------------------------------------------------------ pytest


def run(path: Path) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parent.parent
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", str(path)]
    return subprocess.run(command, capture_output=True, text=True, cwd=root)


def test_a_test_of_a_finding_passes_as_written_and_fails_when_it_is_gone(timeline: Timeline, tmp_path: Path) -> None:
    timeline.checkout(1)
    finding = timeline.findings()[0]
    timeline.seek(finding.seq)
    session = pytest_file.write(timeline, tmp_path / "test_found.py")
    assert session == tmp_path / "test_found.mtl"
    assert "check_all" in (tmp_path / "test_found.py").read_text()
    timeline.seek(40)
    pytest_file.write(timeline, tmp_path / "test_facts.py")
    timeline.checkout(0)
    done = run(tmp_path)
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout
    text = (tmp_path / "test_found.py").read_text()
    (tmp_path / "test_found.py").write_text(text.replace(f"name={finding.name!r}", "name='other'"))
    (tmp_path / "test_facts.py").write_text(
        (tmp_path / "test_facts.py").read_text().replace("'live:0': (1, ", "'live:0': (2, ")
    )
    assert "2 failed" in run(tmp_path).stdout


def test_a_finding_that_no_invariant_repeats_is_asserted_from_the_record(tmp_path: Path) -> None:
    timeline = make.two_requests(make.live(tmp_path / "a.mtl"))
    finding = Finding("golden", 40, 1, 'live:0 "x"\n\\', "same", "0.3 apart", 'h differs """')
    timeline.add_finding(finding)
    timeline.seek(40)
    assert pytest_file.write(timeline, tmp_path / "test_golden.py") == tmp_path / "a.mtl", "it lies beside already"
    timeline.close()
    done = run(tmp_path)
    assert "1 passed" in done.stdout, done.stdout


def test_settings_in_the_session_add_a_test_of_the_engine(tmp_path: Path) -> None:
    from sessions.meta import CONFIG, MODEL
    from sessions.store import Store

    store = Store(tmp_path / "a.mtl", "x", meta={CONFIG: '{"slots": 2}', MODEL: "m.safetensors"})
    timeline = Timeline.live(FakeEngine(), store)
    timeline.perform(make.new(max_tokens=6))
    pytest_file.write(timeline, tmp_path / "test_a.py")
    timeline.close()
    text = (tmp_path / "test_a.py").read_text()
    assert "replay(SESSION, open_engine('m.safetensors', EngineConfig(**{'slots': 2})))" in text
    compile(text, "test_a.py", "exec")


# ------------------------------------------------------------------------------------------------------------ atomic


def test_a_failed_export_leaves_the_old_file(tmp_path: Path) -> None:
    path, target = make.recording(tmp_path / "a.mtl"), tmp_path / "a.jsonl"
    target.write_text("old")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DELETE FROM event WHERE seq = 300")
    with pytest.raises(SessionError, match="damaged"):
        jsonl.write(Timeline.open(path, write=False).history, target)
    assert target.read_text() == "old" and sorted(file.name for file in tmp_path.iterdir()) == ["a.jsonl", "a.mtl"]


def test_a_folder_that_is_not_there_is_said(timeline: Timeline, tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="No such file or directory"):
        chrome_trace.write(timeline.history, tmp_path / "no" / "a.json")
