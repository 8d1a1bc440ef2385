"""One trial: the scenario on a fresh engine, with a fault or none, up to the first finding, and its verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from engine.events import Action, SetFault, SyncSecondary
from inspector.judging.judgement import Judgement
from inspector.judging.oracles import Oracles
from inspector.judging.origin import origin
from inspector.judging.states import subject
from inspector.judging.verdicts import Judge
from inspector.trials.expected import right
from inspector.trials.scenario import ROUNDS, SETTINGS, scenario
from sessions.errors import DivergedError, NotAvailable
from sessions.finding import Finding
from sessions.timeline import Timeline

if TYPE_CHECKING:
    from engine.engine import Engine

Clock = Callable[[], float]
Factory = Callable[[], "Engine"]


@dataclass(slots=True)
class Outcome:
    """What came of a trial.

    ``how``: at once (before another token of the request is written in a later round), late (``tokens`` of the request
    later), golden (no finding; the state is wrong against golden), error (the engine stopped with an error), refused,
    missed (the fault acted, everything looks right), idle (it never acted: it does not apply in this mode), healthy.
    ``acted`` is the last event before it first changed something, ``events`` from there to the finding. ``seconds``
    from switching on to the finding, ``judging`` from the finding to the verdict."""

    fault: str
    how: str = "missed"
    detector: str = ""
    finding: Finding | None = None
    acted: int = 0
    events: int = 0
    tokens: int = 0
    rounds: int = 0
    findings: int = 0
    judgement: Judgement | None = None
    verdict_right: bool = False
    seconds: float = 0.0
    judging: float = 0.0
    text: str = ""
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def caught(self) -> bool:
        return self.how in ("at once", "late", "error")

    @property
    def verdict(self) -> str:
        """The kind, or why there is none."""
        if self.judgement is None:
            return "no state concerned" if self.caught else ""
        return self.judgement.verdict.kind.replace("_", " ")


def engines(model: Any, **settings: Any) -> Factory:
    """Makes engines on an already loaded model."""
    from engine.config import EngineConfig
    from engine.engine import Engine

    config = EngineConfig(**{**SETTINGS, **settings})
    return lambda: Engine(model, config)


def run_trial(
    factory: Factory, fault: str = "", seed: int = 0, rounds: int = ROUNDS, clock: Clock | None = None
) -> Outcome:
    """Run the scenario with ``fault`` ("" is the healthy run, which goes on to its end)."""
    engine = factory()
    timeline = Timeline.live(engine, factory=factory)
    timeline.oracle = Oracles()
    outcome = Outcome(fault, "healthy" if not fault else "missed")
    begun = clock() if clock is not None else 0.0
    if fault:
        timeline.perform(SetFault(name=fault))
    for action in scenario(timeline, seed, rounds):
        if not _perform(timeline, action, outcome) or (fault and timeline.findings()):
            break
    found = timeline.findings()
    outcome.findings, outcome.rounds = len(found), timeline.view.round
    acts = tuple(engine.rt.acted.get(fault, ()))
    outcome.acted = acts[0] if acts else 0
    if clock is not None:
        outcome.seconds = clock() - begun
    if not fault:
        return outcome
    if found:
        _classify(timeline, outcome, found[0])
    elif not outcome.acted and outcome.how != "error":
        outcome.how = "idle"
    if outcome.how in ("at once", "late", "missed"):
        judged = clock() if clock is not None else 0.0
        _judge(timeline, outcome)
        if outcome.how == "late":
            _lasting(timeline, outcome, acts)
        if clock is not None:
            outcome.judging = clock() - judged
    return outcome


def _perform(timeline: Timeline, action: Action, outcome: Outcome) -> bool:
    """Whether the scenario can go on."""
    stop = timeline.perform(action)
    if stop.reason == "error":
        outcome.how, outcome.detector, outcome.text = "error", "engine error", stop.text
        return False
    if stop.reason == "refused" and outcome.fault:
        outcome.text = stop.text
    return True


def _classify(timeline: Timeline, outcome: Outcome, first: Finding) -> None:
    """The detector, and how much was written between the first act of the fault and the finding."""
    outcome.finding, outcome.detector = first, first.name
    acted = outcome.acted or first.seq
    outcome.events = max(0, first.seq - acted)
    begun = timeline.event(min(acted + 1, first.seq)).round
    outcome.tokens = sum(
        1
        for event in timeline.events(acted + 1, first.seq - 1)
        if event.kind == "emit" and event.req == first.req and event.round > begun
    )
    outcome.how = "late" if outcome.tokens else "at once"


def _lasting(timeline: Timeline, outcome: Outcome, acts: tuple[int, ...]) -> None:
    """Count from the act whose harm lasted: an earlier one may have been undone, as by a commit that restores."""
    first = outcome.finding
    assert first is not None
    try:
        about = subject(timeline, first.req, first.seq)
        judge = Judge(timeline)
        begun = origin(timeline, about, None if judge.exact(about) else judge.floors.states, judge.exact(about))
    except (NotAvailable, DivergedError):
        return
    before = [act for act in acts if begun is not None and act < begun.wrong]
    if before and before[-1] > outcome.acted:
        outcome.acted = before[-1]
        _classify(timeline, outcome, first)


def _judge(timeline: Timeline, outcome: Outcome) -> None:
    judge = Judge(timeline)
    if outcome.finding is None:
        _last_resort(timeline, judge, outcome)
        return
    outcome.judgement = _judged(judge, outcome, outcome.finding)
    if outcome.judgement is not None and outcome.judgement.right and timeline.view.queued:
        timeline.perform(SyncSecondary())
        later = Finding(outcome.finding.name, timeline.now, outcome.finding.req, outcome.finding.where)
        outcome.judgement = _judged(judge, outcome, later) or outcome.judgement
    outcome.verdict_right = right(outcome.fault, outcome.judgement.verdict if outcome.judgement is not None else None)


def _judged(judge: Judge, outcome: Outcome, finding: Finding) -> Judgement | None:
    try:
        return judge.finding(finding)
    except (NotAvailable, DivergedError) as error:
        outcome.text = outcome.text or str(error)
        return None


def _last_resort(timeline: Timeline, judge: Judge, outcome: Outcome) -> None:
    """No detector spoke: is a running state wrong against golden?"""
    for req in timeline.runnable():
        try:
            judgement = judge.request(req)
        except (NotAvailable, DivergedError) as error:
            outcome.text = str(error)
            continue
        if not judgement.right:
            outcome.how, outcome.detector, outcome.judgement = "golden", "golden", judgement
            outcome.verdict_right = right(outcome.fault, judgement.verdict)
            return
