"""Sessions made with the fake engine, for the tests of the record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fake_engine import FakeEngine

from engine.events import Event, NewRequest, Place, RunRound, TensorRef
from sessions.store import Store
from sessions.timeline import Timeline

PROMPT = "the ring holds four entries and a cursor"
Factory = Callable[[], FakeEngine]


def new(text: str = PROMPT, **fields: Any) -> NewRequest:
    return NewRequest(prompt=FakeEngine().tokens(text), **{"max_tokens": 40, "ignore_eos": True, **fields})


def engine_of(**options: Any) -> Factory:
    return lambda: FakeEngine(**options)


def live(path: Path | None = None, level: str = "digests", scratch: bool = True, **options: Any) -> Timeline:
    """A fresh live timeline, recorded when ``path`` is given."""
    store = Store(path, "x", level=level) if path is not None else None
    return Timeline.live(FakeEngine(**options), store, factory=engine_of(**options) if scratch else None)


def two_requests(timeline: Timeline) -> Timeline:
    """Two requests run to their ends: prefix hit, verify rounds, boundaries, finish, compaction."""
    timeline.perform(new(PROMPT + " moves on while every slot keeps"))
    timeline.perform(new(PROMPT + " moves on while every slot reads", max_tokens=24))
    assert timeline.run(findings=False).reason == "idle"
    return timeline


def recording(path: Path, level: str = "digests", **options: Any) -> Path:
    """A closed recording of :func:`two_requests`."""
    two_requests(live(path, level, **options)).close()
    return path


def refs(engine: FakeEngine) -> Iterator[TensorRef]:
    """Every tensor of the engine."""
    for place in sorted(engine.memory.h):
        for layer in (0, 1, 2):
            for part in ("h", "conv"):
                yield TensorRef(place, layer, part)


def everything(engine: FakeEngine) -> dict[TensorRef, bytes]:
    return {ref: engine.read(ref).raw for ref in refs(engine)}


def undisturbed(actions: list[Any], **options: Any) -> list[Event]:
    """Events of ``actions`` on an engine that nobody looks into."""
    engine = FakeEngine(**options)
    events: list[Event] = [engine.start()]
    for action in actions:
        events += engine.perform(action)
    return events


def rounds(count: int) -> list[RunRound]:
    return [RunRound() for _ in range(count)]


LIVE0 = Place("live", 0)
