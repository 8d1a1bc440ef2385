"""A debugger over the bundled model with the layer-0 oracle, and scripts run on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine_helpers import make_engine

from engine.engine import Engine
from engine.events import NewRequest, RunRound, SetFault, SyncSecondary
from inspector.commands.debugger import Debugger
from inspector.judging.oracles import Oracles
from sessions.timeline import Timeline

PROMPT = tuple(range(300, 340))


def open_timeline(oracle: bool = True, **settings: Any) -> Timeline:
    def factory() -> Engine:
        return make_engine(**{"prefill_chunk": 16, **settings})

    timeline = Timeline.live(factory(), factory=factory)
    timeline.oracle = Oracles() if oracle else None
    return timeline


def begin(timeline: Timeline, prompt: tuple[int, ...] = PROMPT) -> int:
    """Admit a request and run its prefill; its number."""
    timeline.perform(NewRequest(prompt=prompt, max_tokens=200, ignore_eos=True))
    req = max(timeline.view.requests)
    while not timeline.view.requests[req].outputs:
        timeline.perform(RunRound(req=req))
    return req


def rounds(timeline: Timeline, req: int, *accepts: int | None, **fields: Any) -> None:
    for accept in accepts:
        timeline.perform(RunRound(req=req, accept=accept, **fields))


def broken(name: str, accepts: tuple[int | None, ...] = (2,), **settings: Any) -> tuple[Timeline, int]:
    """A request after a healthy round, the fault, rounds with these accepted rows, and the wait that lands the last."""
    timeline = open_timeline(**settings)
    req = begin(timeline)
    rounds(timeline, req, None)
    timeline.perform(SetFault(name=name))
    rounds(timeline, req, *accepts)
    timeline.perform(SyncSecondary())
    return timeline, req


def debug(timeline: Timeline) -> Callable[..., list[str]]:
    """Runs a command line and gives its answer; the status must be the one expected."""
    debugger = Debugger(timeline)

    def run(line: str, status: str = "ok") -> list[str]:
        result = debugger.execute(line)
        assert result.status == status, (line, result.status, result.lines)
        return list(result.lines)

    return run
