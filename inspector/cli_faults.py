"""``faults``: the gallery on the bundled model (or another), each fault with a stopwatch, beside the healthy run."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inspector import cli_options as options
from inspector.cli_options import remark

if TYPE_CHECKING:
    from engine.faults import FaultSpec
    from inspector.trials.trial import Outcome

TELLS = {
    "told": "told: the engine's own events contradict each other (a position, a part, a slot), so an invariant sees it",
    "silent": "silent: every event looks right, bytes are wrong; a digest, or an oracle that computes again, sees it",
}
AT_ONCE = "at once: before the request wrote another token in a later round"
RIGHT = "{kinds}: the state is (still) right; the finding is about a pool, a drafter, a refusal or a queue"
HEAD = ("fault", "class", "tells", "caught by", "caught", "events between", "found in", "judged in", "verdict", "right")


def register(app: typer.Typer) -> None:
    app.command(
        "faults", help="Run faults of the gallery with a stopwatch: who catches them, when, with which verdict."
    )(_faults)


def _faults(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Faults, or classes such as F2.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every fault of the gallery, and the healthy run.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line instead of the table.")] = False,
    model: Annotated[
        Path | None, typer.Option("--model", help="A model with a recurrent layer; bundled without it.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Prompts and accepted counts of the scenario.")] = 0,
    verify: options.Verify = "exact",
    rollback_mode: options.RollbackMode = "snapshot",
    dtype: options.Dtype = None,
    device: options.Device = "cpu",
) -> None:
    """Without a name or --all the gallery is listed."""
    from engine.faults import all_faults

    chosen = [spec for spec in all_faults() if everything or spec.name in (names or ()) or spec.group in (names or ())]
    known = {name for spec in all_faults() for name in (spec.name, spec.group)}
    wrong = [name for name in names or () if name not in known]
    if wrong:
        from inspector.text import suggest

        hint = suggest(wrong[0], known)
        raise typer.BadParameter(f"no fault or class {wrong[0]!r:.60}.{hint} metrale-inspect faults lists them.")
    if not chosen:
        _list()
        return
    outcomes = []
    for outcome in run_all([spec.name for spec in chosen], model, seed, verify, rollback_mode, dtype, device):
        outcomes.append(outcome)
        if as_json:
            sys.stdout.write(json.dumps(as_data(outcome), separators=(",", ":")) + "\n")
            sys.stdout.flush()
        elif sys.stderr.isatty():
            sys.stderr.write(f"\r{len(outcomes)} of {len(chosen) + 1}: {outcome.fault or 'healthy':40}")
    if sys.stderr.isatty() and not as_json:
        sys.stderr.write("\r" + " " * 60 + "\r")
    if not as_json:
        sys.stdout.write("".join(f"{line}\n" for line in report(outcomes)))
        if names and not everything:
            for spec in chosen:
                sys.stdout.write("".join(f"{line}\n" for line in ("", *card(spec))))
    from inspector.trials.explained import unexplained

    if any(unexplained(outcome) for outcome in outcomes):
        raise typer.Exit(1)


def run_all(
    names: list[str], model: Path | None, seed: int, verify: str, rollback: str, dtype: str | None, device: str
) -> Any:
    """The healthy run, then each fault. Raises UserError for a model that cannot be used."""
    import torch

    from engine.checkpoint import load_checkpoint
    from engine.demo import demo_path
    from inspector.trials.trial import engines, run_trial

    torch.set_num_threads(1)
    loaded = load_checkpoint(demo_path() if model is None else model, dtype=dtype, device=device)
    settings = {"verify": verify, "rollback": rollback, "device": device}
    factory = engines(loaded, dtype=dtype, **settings)
    for name in ("", *names):
        outcome = run_trial(factory, name, seed, clock=time.perf_counter)
        outcome.settings = settings
        yield outcome


def as_data(outcome: Outcome) -> dict[str, Any]:
    """For JSON."""
    from inspector.trials.explained import explain

    judgement = outcome.judgement
    return {
        "fault": outcome.fault or "healthy", "how": outcome.how, "detector": outcome.detector,
        "event": outcome.finding.seq if outcome.finding else None, "events": outcome.events, "tokens": outcome.tokens,
        "findings": outcome.findings, "rounds": outcome.rounds,
        "verdict": judgement.verdict.kind if judgement else None, "right": outcome.verdict_right,
        "sentence": judgement.sentence() if judgement else "", "explanation": explain(outcome),
        "seconds_to_finding": round(outcome.seconds, 4), "seconds_to_verdict": round(outcome.judging, 4),
        **outcome.settings,
    }  # fmt: skip


def report(outcomes: list[Outcome]) -> list[str]:
    """The table and its summary."""
    from engine.faults import find_fault
    from inspector.commands.render import table
    from inspector.text import plural
    from inspector.trials.explained import applies, explain, unexplained

    rows = []
    for outcome in sorted(outcomes, key=lambda one: int(find_fault(one.fault).group[1:]) if one.fault else 0):
        if not outcome.fault:
            continue
        spec = find_fault(outcome.fault)
        when = {
            "late": f"{plural(outcome.tokens, 'token')} later",
            "idle": "not applicable" if explain(outcome) else "never acted",
        }
        rows.append(
            (outcome.fault, spec.group, "silent" if spec.silent else "told", outcome.detector or "-",
             when.get(outcome.how, outcome.how), outcome.events if outcome.caught else "-", f"{outcome.seconds:.2f} s",
             f"{outcome.judging:.2f} s" if outcome.judgement else "-", outcome.verdict or "-",
             "yes" if outcome.verdict_right else "-" if not applies(outcome) else "NO")
        )  # fmt: skip
    lines = table(HEAD, rows, ("events between", "found in", "judged in"))
    healthy = next((outcome for outcome in outcomes if not outcome.fault), None)
    faulty = [outcome for outcome in outcomes if outcome.fault and applies(outcome)]
    caught = [outcome for outcome in faulty if outcome.how == "at once"]
    verdicts = [outcome for outcome in faulty if outcome.verdict_right]
    lines += ["", f"{len(caught)} of {len(faulty)} caught at once, {len(verdicts)} of {len(faulty)} verdicts right"]
    if healthy is not None:
        lines.append(f"the healthy run beside them: {healthy.rounds} rounds, {healthy.findings} findings")
    notes = [(outcome.fault, explain(outcome)) for outcome in outcomes if explain(outcome)]
    lines += [f"{name}: {text}" for name, text in notes]
    lines += _legend(outcomes)
    for outcome in outcomes:
        if unexplained(outcome):
            told = outcome.judgement.sentence() if outcome.judgement else outcome.text
            lines.append(f"NOT EXPLAINED: {outcome.fault or 'the healthy run'}: {outcome.how}. {told}")
    return lines


def _legend(outcomes: list[Outcome]) -> list[str]:
    """One line for each word of the table that is not said there."""
    from engine.faults import find_fault

    faulty = [outcome for outcome in outcomes if outcome.fault]
    tells = {"silent" if find_fault(outcome.fault).silent else "told" for outcome in faulty}
    lines = [text for word, text in TELLS.items() if word in tells]
    lines += [AT_ONCE] if any(outcome.how == "at once" for outcome in faulty) else []
    kinds = sorted({outcome.verdict for outcome in faulty if outcome.caught} & {"bitwise", "no state concerned"})
    return ["", *lines, *([RIGHT.format(kinds=", ".join(kinds))] if kinds else [])] if lines else []


def card(spec: FaultSpec) -> Iterator[str]:
    """What a fault imitates, and where to see it."""
    from engine.faults import CLASSES
    from inspector.museum.rooms import rooms

    room = rooms().get(spec.name)
    yield f"{spec.name} ({spec.group}: {CLASSES[spec.group]})" + (f": {room.title}" if room is not None else "")
    yield f"  imitates: {spec.imitates}"
    yield f"  reported in: {spec.report}"
    yield "  silent: no event tells of it" if spec.silent else "  told: its events give it away"
    if room is not None:
        yield f"  what happened: {room.happened}"
        yield f"  look at: {room.look}"
        yield f"  metrale-inspect museum {spec.name} shows it on the screen"


def _list() -> None:
    from engine.faults import CLASSES, all_faults
    from inspector.commands.render import table

    for group, about in CLASSES.items():
        rows = [
            (f"  {s.name}", "silent" if s.silent else "told", s.imitates, s.report)
            for s in all_faults()
            if s.group == group
        ]
        sys.stdout.write(f"{group}: {about}\n" + "".join(f"{line}\n" for line in table(("", "", "", ""), rows)[1:]))
    remark("metrale-inspect faults --all runs them; faults NAME runs one; museum NAME shows one on the screen")
