"""A healthy engine trips no invariant, whatever is done to it; the ledger is the judge, not the engine."""

from __future__ import annotations

import pytest
from engine_helpers import make_engine, of, run
from test_engine import script

from engine import events as ev
from sessions.invariants import Checker
from sessions.ledger import Ledger


@pytest.mark.parametrize("verify", ["exact", "batched"])
@pytest.mark.parametrize("mode", ["snapshot", "replay"])
def test_random_actions_trip_nothing(mode: str, verify: str) -> None:
    for seed in range(2):
        engine = make_engine(rollback=mode, verify=verify)
        ledger, checker = Ledger(), Checker()
        view = ledger.apply(engine.start())
        for _, events in script(engine, seed, 120):
            for event in events:
                before, view = view, ledger.apply(event)
                assert checker.check(before, event, view) == []


def test_a_prefill_chunk_waits_for_a_checkpoint_that_was_queued_by_hand() -> None:
    engine = make_engine(prefill_chunk=16)
    run(engine, ev.NewRequest(prompt=tuple(range(40, 90))))
    run(engine, ev.RunRound(req=1))
    run(engine, ev.TakeCheckpoint(req=1, queued=True))
    events = run(engine, ev.RunRound(req=1))
    kinds = [event.kind for event in events]
    assert kinds.index("sync") < kinds.index("prefill")
    assert of(ev.Landed, events)
