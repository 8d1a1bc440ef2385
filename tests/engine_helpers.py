"""Driving a real engine in tests: the bundled model in fp32 on one thread, actions to lists of events."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeVar

import torch

from engine.checkpoint import LoadedModel, load_checkpoint
from engine.config import EngineConfig
from engine.demo import demo_path
from engine.engine import Engine
from engine.events import Action, Digests, Event, NewRequest, Place, RunRound

E = TypeVar("E", bound=Event)

PROMPT = "Genesis 1\n1 In the beginning"
SMALL: dict[str, Any] = {"slots": 3, "kv_tokens": 1024, "prefix_slots": 4, "dtype": "float32", "device": "cpu"}


@functools.cache
def loaded(dtype: str = "float32") -> LoadedModel:
    torch.set_num_threads(1)
    return load_checkpoint(demo_path(), dtype=dtype, device="cpu")


def make_engine(**settings: Any) -> Engine:
    config = EngineConfig(**{**SMALL, **settings})
    return Engine(loaded(config.dtype or "float32"), config)


def run(engine: Engine, action: Action) -> list[Event]:
    return list(engine.perform(action))


def start(engine: Engine, prompt: str | tuple[int, ...] = PROMPT, **fields: Any) -> list[Event]:
    """Admit a request and run its prefill."""
    ids = engine.tokens(prompt) if isinstance(prompt, str) else prompt
    events = run(engine, NewRequest(prompt=ids, **{"max_tokens": 400, **fields}))
    req = events[-1].req if events[-1].req >= 0 else max(engine.rt.requests)
    while req in engine.rt.requests and engine.rt.requests[req].prefilling:
        events += run(engine, RunRound(req=req))
    return events


def rounds(engine: Engine, count: int, **fields: Any) -> list[Event]:
    events: list[Event] = []
    for _ in range(count):
        if engine.rt.requests:
            events += run(engine, RunRound(**fields))
    return events


def until_outputs(engine: Engine, req: int, count: int) -> list[Event]:
    """Rounds of ``req`` until it has at least ``count`` outputs or has ended."""
    events: list[Event] = []
    while req in engine.rt.requests and engine.rt.requests[req].output_len < count:
        events += run(engine, RunRound(req=req))
    return events


def of(kind: type[E], events: Iterable[Event]) -> list[E]:
    return [event for event in events if isinstance(event, kind)]


def live(engine: Engine, req: int) -> Digests:
    """Digests of the live state of ``req``, after waiting for the secondary stream."""
    list(engine.rt.sync_secondary(req))
    return engine.rt.memory.digests(Place("live", engine.rt.requests[req].seq.slot))


def tokens(engine: Engine, req: int) -> tuple[int, ...]:
    return tuple(engine.rt.requests[req].outputs)


def unnumbered(events: Iterable[Event]) -> list[Event]:
    """Events without their sequence numbers, for comparing runs that differ in what came before."""
    return [replace(event, seq=0) for event in events]
