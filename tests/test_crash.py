"""Kill -9 while recording, 100 times at random moments: every acknowledged round is there, and the file goes on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from fake_engine import FakeEngine
from session_helpers import LIVE0, engine_of

from engine.events import RunRound, TensorRef
from sessions.replay import replay
from sessions.store import Store
from sessions.timeline import Timeline

KILLS = 100


def test_every_acknowledged_round_survives_a_kill(tmp_path: Path) -> None:
    script = Path(__file__).with_name("crash_recorder.py")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), str(KILLS), "1"], capture_output=True, text=True, check=True
    )
    killed = dict(line.split() for line in done.stdout.splitlines())
    assert len(killed) == KILLS
    logs = 0
    for name, acknowledged in killed.items():
        path = tmp_path / name
        wal = Path(f"{path}-wal")
        logs += wal.exists() and wal.stat().st_size > 0
        with Store(path) as store:
            events = store.events(1, 10**9)
            assert len(events) >= int(acknowledged), name
            assert store.actions()[-1].last == len(events), "a round is there as a whole or not at all"
            assert store.remarks == ["was not closed properly; every acknowledged round is here"]
    assert logs > KILLS // 2, "the kills came while the log was in use"
    for name in list(killed)[:5]:
        assert replay(tmp_path / name, FakeEngine(slots=3)).same
        timeline = Timeline.open(tmp_path / name, engine_of(slots=3))
        last = timeline.last
        assert timeline.perform(RunRound()).reason == "done" and timeline.branches[1].at == last
        timeline.tensor(TensorRef(LIVE0, 1, "h"))
        timeline.close()
        assert Timeline.open(tmp_path / name).remarks == []
