"""What a fault did in a timeline, and what is said about it."""

from __future__ import annotations

from engine.engine import Engine
from inspector.judging.judgement import Judgement
from inspector.judging.verdicts import Judge
from sessions.timeline import Timeline


def acts(timeline: Timeline, fault: str) -> int:
    """How often a fault made a difference."""
    engine = timeline._tensors.edge.machine.engine  # type: ignore[union-attr]
    assert isinstance(engine, Engine)
    return len(engine.rt.acted[fault])


def judged(timeline: Timeline) -> tuple[str, Judgement]:
    """The detector of the first finding, and the judgement on it."""
    first = timeline.findings()[0]
    return first.name, Judge(timeline).finding(first)
