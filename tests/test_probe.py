"""The recorder that other engines paste calls to: what it writes is read, folded and checked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xxhash

import sessions
from engine import events as ev
from engine.events import Event, Place
from sessions.importers import load
from sessions.invariants import check_all
from sessions.ledger import fold
from sessions.probe import Probe, digest
from sessions.view import StateFact


def run(
    path: Path, step: str = "step:0.1", parts: str = "h+conv", queued: bool = False, wait: bool = True
) -> list[Event]:
    """A verify of four rows, two accepted, told through a probe."""
    probe = Probe(path, slots=2, k=4, ring_depth=2)
    probe.claim(0, 1, prompt=[5, 6, 7])
    with probe.round(1, "prefill"):
        probe.write("live:0", 1, tokens=[5, 6, 7], start=0)
        probe.output(1, 3, 0)
    with probe.round(1, "verify"):
        for row, token in enumerate((3, 4, 5, 6)):
            probe.write(f"step:0.{row}", 1, tokens=[token], position=4 + row)
        probe.accept(0, 1, accepted=2, k=4)
        probe.rewind(1, cursor=5)
        probe.restore(step, "live:0", 1, parts=parts, queued=queued)
        probe.output(1, 4, 1)
        probe.output(1, 9, 2)
    with probe.round(1):
        if wait:
            probe.sync()
        probe.write("live:0", 1, tokens=[9], position=6)
        probe.output(1, 2, 3)
    probe.close()
    return load(path)


def live(events: list[Event], slot: int = 0) -> StateFact:
    return fold(events).states[Place("live", slot)]


def test_a_right_engine_has_no_findings(tmp_path: Path) -> None:
    for queued in (False, True):
        events = run(tmp_path / "run.jsonl", queued=queued)
        assert check_all(events) == []
        assert live(events).position == 6 and fold(events).requests[1].tokens == (5, 6, 7, 3, 4, 9, 2)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"step": "step:0.2"}, "step-index"),
        ({"step": "step:0.2"}, "positions-agree"),
        ({"parts": "h"}, "positions-agree"),
        ({"queued": True, "wait": False}, "read-after-sync"),
        ({"step": "ring:0.1"}, "written-before-read"),
    ],
)
def test_a_wrong_engine_is_found(change: dict[str, object], name: str, tmp_path: Path) -> None:
    assert name in {finding.name for finding in check_all(run(tmp_path / "run.jsonl", **change))}  # type: ignore[arg-type]


def test_snapshots_are_labelled_and_restored(tmp_path: Path) -> None:
    probe = Probe(tmp_path / "run.jsonl", slots=1, ring_depth=2, prefix_slots=2)
    probe.claim(0, 1, prompt=4)
    probe.write("live:0", 1, tokens=4, start=0)
    probe.output(1, 9, 0)
    probe.save("live:0", "ring:0.1", 1, label=1)
    probe.save("live:0", "prefix:0", 1, label=4)
    probe.restore("live:0", "checkpoint:0", 1)
    probe.write("live:0", 1, tokens=[9])
    probe.read("checkpoint:0", 1, position=4)
    probe.restore("ring:0.1", "live:0", 1, label=1)
    probe.close()
    events = load(tmp_path / "run.jsonl")
    view = fold(events)
    assert check_all(events) == []
    assert (view.states[Place("ring", 0, 1)].label, view.states[Place("prefix", -1, 0)].label) == (1, 4)
    assert live(events).position == 4
    kinds = [event.kind for event in events]
    assert kinds[6:9] == ["ring_record", "ring_save", "prefix_save"] and kinds[-1] == "ring_restore"


def test_a_snapshot_place_is_evicted_before_it_is_reused(tmp_path: Path) -> None:
    def names(evict: bool) -> set[str]:
        probe = Probe(tmp_path / "run.jsonl", slots=1, ring_depth=2, prefix_slots=2)
        probe.claim(0, 1, prompt=4)
        probe.write("live:0", 1, tokens=4, start=0)
        for index in range(2):
            probe.output(1, 9, index)
            probe.save("live:0", "ring:0.1", 1, label=index + 1)
            probe.save("live:0", "prefix:0", 1, label=4 + index)
            if evict:
                probe.evict("ring:0.1", 1, label=index + 1)
                probe.evict("prefix:0", 1, label=4 + index)
            probe.write("live:0", 1, tokens=[9])
        probe.close()
        return {finding.name for finding in check_all(load(tmp_path / "run.jsonl"))}

    assert names(evict=True) == set()
    assert names(evict=False) == {"ring-distinct-slots", "sealed-immutable"}


def test_a_read_at_another_position_is_found(tmp_path: Path) -> None:
    probe = Probe(tmp_path / "run.jsonl")
    probe.claim(0, 1, prompt=4)
    probe.write("live:0", 1, tokens=4, start=0)
    probe.read("live:0", 1, position=5)
    probe.read("step:0.1", 1)
    probe.close()
    found = [(f.name, f.where) for f in check_all(load(tmp_path / "run.jsonl"))]
    assert found == [("engine-agrees", "position of live:0"), ("written-before-read", "step:0.1")]


def test_hashed_tensors_are_compared_with_what_was_there(tmp_path: Path) -> None:
    h, conv = np.arange(6, dtype=np.float32), np.ones((2, 4), dtype=np.float32)
    probe = Probe(tmp_path / "run.jsonl")
    probe.claim(0, 1, prompt=4)
    probe.write("live:0", 1, tokens=4, start=0)
    probe.tensor("live:0", 1, h=[h, h], conv=[conv, conv])
    probe.tensor("live:0", 1, h=[h, h])
    probe.restore("live:0", "checkpoint:0", 1)
    probe.tensor("checkpoint:0", 1, h=[h, h + 1], conv=[conv, conv])
    probe.close()
    (finding,) = check_all(load(tmp_path / "run.jsonl"))
    assert (finding.name, finding.where) == ("digest-after-restore", "checkpoint:0")
    assert finding.expected == xxhash.xxh3_64_hexdigest(h.tobytes()) and "h of layer 1" in finding.text


def test_digests_do_not_depend_on_the_container() -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert digest(array) == digest(array.tobytes()) == digest(bytearray(array.tobytes())) == digest(array.copy().data)
    assert digest(array[:, ::2]) == digest(np.ascontiguousarray(array[:, ::2]))
    assert digest([1.0, 2.0]) == digest(np.array([1.0, 2.0]))
    assert digest(array) != digest(array + 1)


def test_lines_are_there_without_closing(tmp_path: Path) -> None:
    probe = Probe(tmp_path / "run.jsonl")
    probe.claim(0, 1, prompt=2)
    assert [event.kind for event in load(tmp_path / "run.jsonl")] == ["start", "request", "claim", "zero"]
    probe.event(ev.Unknown, text="phase two")
    assert load(tmp_path / "run.jsonl")[-1] == ev.Unknown(seq=5, text="phase two")
    probe.close()


def test_a_place_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    probe = Probe(tmp_path / "run.jsonl")
    with pytest.raises(ValueError, match="expected a place such as live:0"):
        probe.write("life:0", 1)
    probe.close()


def test_the_probe_is_exported_and_needs_no_torch() -> None:
    assert sessions.Probe is Probe
    with pytest.raises(AttributeError, match="Prob"):
        sessions.Prob  # noqa: B018
    code = "import sys, sessions; sessions.Probe; assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parent.parent)
