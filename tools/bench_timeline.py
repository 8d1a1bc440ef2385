"""What recording, opening and travelling cost; run by ``bench_sessions.py``. Processor time where an engine runs."""

from __future__ import annotations

import gc
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from engine.events import EnginePort, Event, NewRequest, Place, RunRound, TensorRef
from sessions.store import Store
from sessions.timeline import Timeline

Row = tuple[str, float, str]
PROMPT = "In the beginning God created the heaven and the earth."
LIVE = Place("live", 0)


def bundled(**options: object) -> Callable[[], EnginePort]:
    import torch

    from engine.config import EngineConfig
    from engine.engine import open_engine

    torch.set_num_threads(1)
    settings = {"drafts": 3, "ring": 8, "slots": 1, "device": "cpu", "threads": 1, **options}
    return lambda: open_engine(None, EngineConfig(**settings))  # type: ignore[arg-type]


def wide() -> Callable[[], EnginePort]:
    """24 layers, hidden 1024, 16 value heads of 128x128, random weights: where bytes, not Python, take the time."""
    import torch
    from random_model import random_model, wide_config

    from engine.checkpoint import LoadedModel
    from engine.config import EngineConfig
    from engine.engine import Engine

    torch.set_num_threads(1)
    config = wide_config()
    weights = random_model(config, torch.bfloat16, "cpu")
    loaded = LoadedModel(config, weights, None, "wide", "random", "bfloat16", torch.device("cpu"), [])
    settings = EngineConfig(drafts=3, ring=2, slots=1, prefix_caching=False, device="cpu", threads=1, kv_tokens=512)
    return lambda: Engine(loaded, settings)


def request(engine: EnginePort, tokens: int) -> NewRequest:
    try:
        prompt = engine.tokens(PROMPT)
    except ValueError:
        prompt = tuple(range(1, 17))
    return NewRequest(prompt=prompt, max_tokens=tokens, ignore_eos=True, drafter="" if len(prompt) != 16 else "lookup")


def record_cost(make: Callable[[], EnginePort], tokens: int, repeats: int) -> tuple[float, float, float]:
    """Processor seconds per token: engine alone, with ledger and invariants, and recorded as well."""
    clock, costs = time.process_time, ([], [], [])  # type: ignore[var-annotated]
    engine = make()
    fresh = engine.save()
    action = request(engine, tokens)
    for _ in range(repeats):
        for kind in range(3):
            engine.load(fresh)
            with tempfile.TemporaryDirectory() as folder:
                if kind == 0:
                    begin = clock()
                    for _event in drain(engine, action):
                        pass
                else:
                    store = Store(Path(folder) / "a.mtl", "x") if kind == 2 else None
                    timeline = Timeline.live(engine, store)
                    begin = clock()
                    timeline.perform(action)
                    timeline.run(findings=False)
                costs[kind].append((clock() - begin) / tokens)
                if kind == 2:
                    timeline.close()
    return min(costs[0]), min(costs[1]), min(costs[2])


def drain(engine: EnginePort, action: NewRequest) -> Iterator[Event]:
    yield from engine.perform(action)
    while engine.runnable():
        yield from engine.perform(RunRound())


def bench_record() -> list[Row]:
    """Recording at level digests, per token; the share of a token's time is what the bounds are about."""
    rows: list[Row] = []
    for name, make, tokens, repeats, bound in (
        ("bundled", bundled(), 160, 3, "10 %"), ("wide", wide(), 24, 1, "3 %")
    ):  # fmt: skip
        alone, watched, recorded = record_cost(make, tokens, repeats)
        rows += [
            (f"{name}: engine alone, a token", alone, "-"),
            (f"{name}: ledger and invariants add", watched - alone, "-"),
            (f"{name}: the file adds ({(recorded - watched) / alone:.1%})", recorded - watched, bound),
        ]
    return rows


def bench_open(events: Iterable[Event]) -> list[Row]:
    """Opening a recording of 100,000 events and seeking anywhere in its facts."""
    from sessions.exporters import jsonl  # noqa: F401  (imported before the clock starts)
    from sessions.history import History
    from sessions.opening import Opened

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.mtl"
        history = History.of(events, None)
        Timeline(Opened("trace", history, None, None, {}, []), checker=None, factory=None).save_as(path)
        last = history.record.last(0)
        size = path.stat().st_size
        del history
        gc.collect()  # what writing it left behind
        begin = time.perf_counter()
        timeline = Timeline.open(path)
        view = timeline.view
        opened = time.perf_counter() - begin
        assert view.seq == last
        chance, seeks = random.Random(1), []
        for _ in range(60):
            seq = chance.randrange(1, last)
            begin = time.perf_counter()
            timeline.seek(seq)
            assert timeline.view.seq == seq
            seeks.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        timeline.step("round", 50, back=True)
        stepped = (time.perf_counter() - begin) / 50
        timeline.close()
    return [
        (f"open {last} events, {size >> 20} MiB, look at the end", opened, "1 s"),
        ("seek anywhere, worst of 60", max(seeks), "0.050 s"),
        ("seek anywhere, median", statistics.median(seeks), "-"),
        ("step back a round", stepped, "-"),
    ]


def bench_travel() -> list[Row]:
    """Stepping back by tokens with the tensors of the place, anywhere in a session of 2,000 tokens."""
    make = bundled(kv_tokens=4096)
    engine = make()
    timeline = Timeline.live(engine, factory=make)
    timeline.perform(request(engine, 2000))
    begin = time.process_time()
    timeline.run(findings=False)
    ran = time.process_time() - begin
    gc.collect()
    layer = timeline.start.recurrent_layers[0]
    chance, first, steps = random.Random(2), [], []
    for _ in range(12):
        timeline.seek(chance.randrange(timeline.last // 20, timeline.last))
        for count in range(9):
            begin = time.process_time()
            timeline.step("token", back=True)
            for part in ("h", "conv"):
                timeline.tensor(TensorRef(LIVE, layer, part))
            (steps if count else first).append(time.process_time() - begin)
    return [
        (f"run 2,000 tokens, {timeline.last} events, a token", ran / 2000, "-"),
        ("first step back at a place never seen, worst", max(first), "0.100 s"),
        ("step back with tensors, worst of 96", max(steps), "0.100 s"),
        ("step back with tensors, median", statistics.median(steps), "-"),
        (f"({len(timeline.keyframes)} keyframes in {timeline.keyframes.bytes >> 20} MiB of 256)", 0.0, "-"),
    ]
