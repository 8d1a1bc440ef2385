"""Measure the detectors: every fault of the gallery in every mode over several seeds, healthy rounds beside them, cost.

python tools/measure_detection.py measure RAW.jsonl [--seeds 3] [--healthy 10000]   one line for each trial; resumes
python tools/measure_detection.py write RAW.jsonl                                    docs/detection.md from it
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from engine.checkpoint import load_checkpoint  # noqa: E402
from engine.demo import demo_path  # noqa: E402
from engine.events import NewRequest, RunRound  # noqa: E402
from engine.faults import CLASSES, FaultSpec, all_faults  # noqa: E402
from inspector.judging.oracles import Oracles  # noqa: E402
from inspector.trials.explained import applies, explain, unexplained  # noqa: E402
from inspector.trials.trial import engines, run_trial  # noqa: E402
from sessions.timeline import Timeline  # noqa: E402

Put = Callable[[dict[str, Any]], None]
MODES = tuple(itertools.product(("exact", "batched"), ("float32", "bfloat16"), ("snapshot", "replay")))
SHORT = {"float32": "fp32", "bfloat16": "bf16"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("measure", "write"))
    parser.add_argument("raw", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--healthy", type=int, default=10_000, help="healthy rounds over all modes")
    args = parser.parse_args()
    if args.what == "measure":
        measure(args.raw, args.seeds, args.healthy)
    else:
        target = ROOT / "docs" / "detection.md"
        target.write_text("\n".join(write(read(args.raw))) + "\n", encoding="utf-8")
        sys.stdout.write(f"{target.relative_to(ROOT)}\n")


# ----------------------------------------------------------------------------------------------------------- measure


def measure(raw: Path, seeds: int, healthy: int) -> None:
    import torch

    torch.set_num_threads(1)
    done = {key(line) for line in read(raw)} if raw.exists() else set()
    models: dict[str, Any] = {}
    with raw.open("a", encoding="utf-8") as file:

        def put(line: dict[str, Any]) -> None:
            file.write(json.dumps(line, separators=(",", ":")) + "\n")
            file.flush()

        for seed in range(seeds):
            if seed == 1:  # a first seed of everything, then the healthy runs, then more seeds
                _healthy(put, done, models, healthy)
            for mode in MODES:
                factory = _factory(models, mode)
                for spec in all_faults():
                    line = {"type": "fault", "mode": mode, "seed": seed, "fault": spec.name}
                    if key(line) not in done:
                        put(line | _trial(factory, mode, spec, seed))
        if seeds < 2:
            _healthy(put, done, models, healthy)
        for mode in MODES:
            line = {"type": "cost", "mode": mode, "seed": 0}
            if key(line) not in done:
                put(line | cost(_factory(models, mode)))


def _healthy(put: Put, done: set[Any], models: dict[str, Any], healthy: int) -> None:
    per_mode = -(-healthy // len(MODES))
    for mode in MODES:
        factory = _factory(models, mode)
        rounds, seed = 0, 1000
        while rounds < per_mode:
            line = {"type": "healthy", "mode": mode, "seed": seed}
            if key(line) not in done:
                outcome = run_trial(factory, "", seed)
                line |= {"rounds": outcome.rounds, "findings": outcome.findings}
                put(line)
                rounds += outcome.rounds
            else:
                rounds += 85
            seed += 1


def key(line: dict[str, Any]) -> tuple[Any, ...]:
    return (line["type"], tuple(line["mode"]), line["seed"], line.get("fault", ""))


def _factory(models: dict[str, Any], mode: tuple[str, str, str]) -> Any:
    verify, dtype, rollback = mode
    if dtype not in models:
        models[dtype] = load_checkpoint(demo_path(), dtype=dtype, device="cpu")
    return engines(models[dtype], dtype=dtype, verify=verify, rollback=rollback)


def _trial(factory: Any, mode: tuple[str, str, str], spec: FaultSpec, seed: int) -> dict[str, Any]:
    begun = time.perf_counter()
    outcome = run_trial(factory, spec.name, seed)
    outcome.settings = {"verify": mode[0], "dtype": mode[1], "rollback": mode[2]}
    return {
        "how": outcome.how, "detector": outcome.detector, "events": outcome.events, "tokens": outcome.tokens,
        "verdict": outcome.judgement.verdict.kind if outcome.judgement else "", "right": outcome.verdict_right,
        "applies": applies(outcome), "explanation": explain(outcome), "unexplained": unexplained(outcome),
        "text": (outcome.judgement.sentence() if outcome.judgement else outcome.text)[:300],
        "seconds": round(time.perf_counter() - begun, 3),
    }  # fmt: skip


def cost(factory: Any, blocks: int = 40, rounds: int = 10) -> dict[str, Any]:
    """CPU time of the same rounds four ways, in turns in one run, medians over blocks relative to the engine alone:
    engine, recorded facts, with invariants, with invariants and the oracles."""
    names = ("engine", "facts", "invariants", "oracle")
    ways = [_way(factory, name) for name in names]
    for way in ways:
        next(way)
    ratios: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(blocks):
        spent = []
        for way in ways:
            begun = time.process_time()
            for _ in range(rounds):
                next(way)
            spent.append(time.process_time() - begun)
        for name, seconds in zip(names, spent, strict=True):
            ratios[name].append(seconds / spent[0])
    return {name: round(median(values), 4) for name, values in ratios.items()}


def _way(factory: Any, name: str) -> Iterator[None]:
    """One more round at each step; a fresh request every 100 rounds keeps all ways alike."""
    while True:
        engine = factory()
        request = NewRequest(prompt=tuple(range(100, 140)), max_tokens=10_000, ignore_eos=True)
        if name == "engine":
            engine.start()
            list(engine.perform(request))
            for _ in range(100):
                list(engine.perform(RunRound()))
                yield
            continue
        timeline = Timeline.live(engine, check=name != "facts")
        timeline.oracle = Oracles() if name == "oracle" else None
        timeline.perform(request)
        for _ in range(100):
            timeline.perform(RunRound())
            yield


# ------------------------------------------------------------------------------------------------------------- write


def read(raw: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in raw.read_text(encoding="utf-8").splitlines() if line.strip()]


def write(lines: list[dict[str, Any]]) -> Iterator[str]:
    faults = [line for line in lines if line["type"] == "fault"]
    acting = [line for line in faults if line["applies"]]
    seeds = len({line["seed"] for line in faults})
    yield from (
        "# What is caught, when, and by which verdict",
        "",
        "<!-- Made by tools/measure_detection.py; run it again, do not edit. -->",
        "",
        f"Every fault of the gallery (`metrale-inspect faults` lists them) in 8 modes, up to {seeds} seeds each, on",
        "the bundled model with default detectors: all invariants, the layer-0 oracle at every commit point, and the",
        "oracle of the MTP head. The scenario is that of `metrale-inspect faults --all`. *At once*: before the request",
        "writes another token in a later round.",
        "",
        "| | |",
        "|---|---|",
    )
    count = Counter(line["how"] for line in acting)
    total = max(1, len(acting))
    right = sum(line["right"] for line in acting)
    yield f"| trials in which the fault can act | {len(acting)} of {len(faults)} |"
    yield f"| caught at once | {count['at once']} ({count['at once'] / total:.1%}) |"
    late = [line["tokens"] for line in acting if line["how"] == "late"]
    yield f"| caught within n tokens | {count['late']}" + (f", n up to {max(late)}" if late else "") + " |"
    yield f"| only by golden | {count['golden']} |"
    yield f"| missed | {count['missed']} |"
    yield f"| verdict right | {right} ({right / total:.1%}) |"
    silent = {spec.name for spec in all_faults() if spec.silent}
    quiet = [line for line in acting if line["fault"] in silent]
    at_once = sum(line["how"] == "at once" for line in quiet)
    yield f"| silent faults caught at once | {at_once} of {len(quiet)} ({at_once / max(1, len(quiet)):.1%}) |"
    healthy = [line for line in lines if line["type"] == "healthy"]
    false, rounds = sum(line["findings"] for line in healthy), sum(line["rounds"] for line in healthy)
    yield f"| false findings | {false} in {rounds:,} healthy rounds |"
    yield ""
    yield from _modes(acting, healthy)
    yield from _table(faults)
    yield from _words(faults)
    yield from _cost([line for line in lines if line["type"] == "cost"])


def _name(mode: Any) -> str:
    return f"{mode[0]} {SHORT[mode[1]]} {mode[2]}"


def _modes(acting: list[dict[str, Any]], healthy: list[dict[str, Any]]) -> Iterator[str]:
    yield from (
        "## By mode",
        "",
        "| mode | can act | at once | later | only golden | missed | verdict right | healthy rounds | false findings |",
    )
    yield "|---|--:|--:|--:|--:|--:|--:|--:|--:|"
    for mode in MODES:
        mine = [line for line in acting if tuple(line["mode"]) == mode]
        well = [line for line in healthy if tuple(line["mode"]) == mode]
        how = Counter(line["how"] for line in mine)
        good = sum(line["right"] for line in mine) / max(1, len(mine))
        yield (
            f"| {_name(mode)} | {len(mine)} | {how['at once']} | {how['late']} | {how['golden']} | {how['missed']} "
            f"| {good:.1%} | {sum(line['rounds'] for line in well):,} | {sum(line['findings'] for line in well)} |"
        )
    yield ""


def _table(faults: list[dict[str, Any]]) -> Iterator[str]:
    """One row for each fault, by class: detectors, and how often at once / later / golden / missed over all modes."""
    yield from (
        "## By class and injection",
        "",
        "Numbers are trials over all modes and seeds: at once / later / only golden / missed (not applicable).",
        "",
    )
    by_name: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in faults:
        by_name[line["fault"]].append(line)
    for group, about in CLASSES.items():
        yield from (
            f"### {group}: {about}",
            "",
            "| injection | tells | caught by | trials | verdict | right |",
            "|---|---|---|---|---|--:|",
        )
        for spec in all_faults():
            if spec.group != group:
                continue
            mine = by_name[spec.name]
            can = [line for line in mine if line["applies"]]
            how = Counter(line["how"] for line in can)
            detectors = ", ".join(
                name for name, _ in Counter(line["detector"] for line in can if line["detector"]).most_common(3)
            )
            verdicts = ", ".join(
                f"{name.replace('_', ' ')}"
                for name, _ in Counter(line["verdict"] or "no state concerned" for line in can).most_common(3)
            )
            idle = len(mine) - len(can)
            numbers = f"{how['at once']} / {how['late']} / {how['golden']} / {how['missed']}" + (
                f" ({idle})" if idle else ""
            )
            good = f"{sum(line['right'] for line in can)}/{len(can)}"
            tells = "silent" if spec.silent else "told"
            yield f"| `{spec.name}` | {tells} | {detectors or '-'} | {numbers} | {verdicts or '-'} | {good} |"
        yield ""


def _words(faults: list[dict[str, Any]]) -> Iterator[str]:
    yield from ("## Missed, late, not applicable: why", "")
    told: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for line in faults:
        if line["explanation"]:
            told[line["fault"], line["explanation"]].append(line)
    for (fault, text), mine in sorted(told.items()):
        how = ", ".join(f"{name} {count}" for name, count in Counter(line["how"] for line in mine).most_common())
        modes = ", ".join(dict.fromkeys(_name(line["mode"]) for line in mine))
        yield f"- `{fault}` ({how}; {modes}): {text}."
    odd = [line for line in faults if line["unexplained"]]
    yield from ("", "## Not explained", "")
    if not odd:
        yield "Nothing."
    for line in odd:
        verdict = line["verdict"] or "none"
        what = f"`{line['fault']}`, {_name(line['mode'])}, seed {line['seed']}: {line['how']}, verdict {verdict}"
        yield f"- {what}. {line['text']}"
    yield ""


def _cost(lines: list[dict[str, Any]]) -> Iterator[str]:
    if not lines:
        return
    yield from (
        "## Cost",
        "",
        "CPU time of the same rounds in one process, in turns: medians relative to the engine alone, digests included.",
        "",
        "| | engine alone | + recorded facts | + invariants | + oracles | invariants and oracles |",
        "|---|--:|--:|--:|--:|--:|",
    )
    for line in lines:
        engine, facts, invariants, oracle = (line[name] for name in ("engine", "facts", "invariants", "oracle"))
        yield (
            f"| {_name(line['mode'])} | 1.00 | {facts / engine:.2f} | {invariants / engine:.2f} "
            f"| {oracle / engine:.2f} | {(oracle - facts) / engine:.1%} of a step |"
        )
    yield ""


if __name__ == "__main__":
    main()
