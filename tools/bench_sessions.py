"""How fast the record is: prints what was measured and the bound it has to keep.

python tools/bench_sessions.py [NAME ...]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from engine import events as ev
from engine.events import Event, Place

EVENTS = 100_000
LAYERS = tuple(range(18))
DIGESTS = (("0123456789abcdef", "fedcba9876543210"),) * len(LAYERS)
STATE = {"parts": "h+conv", "bytes": 1 << 20, "layers": len(LAYERS), "digests": DIGESTS}


def speculative_run(count: int, outputs: int = 2000, k: int = 4) -> Iterator[Event]:
    """``count`` events of healthy speculative rounds, two of four rows accepted, in requests of ``outputs`` tokens."""
    made = round_ = copies = 0

    def event(cls: type[Event], req: int = -1, **fields: Any) -> Event:
        nonlocal made
        made += 1
        return cls(seq=made, round=round_, req=req, **fields)

    yield event(ev.Start, slots=1, k=k, recurrent_layers=LAYERS, layers=24, digests=True)
    req, live = 0, Place("live", 0)
    while made < count:
        req += 1
        yield event(ev.Request, req, prompt=tuple(range(100)), prompt_len=100)
        yield event(ev.Claim, req, slot=0, epoch=req)
        yield event(ev.Zero, req, place=live, bytes=1 << 20, digests=DIGESTS)
        yield event(ev.RoundBegin, req, mode="prefill")
        yield event(ev.Prefill, req, slot=0, count=100, last=True, cursor=100, position=100, digests=DIGESTS)
        yield event(ev.Emit, req, token=1)
        yield event(ev.RoundEnd, req)
        cursor = 100
        while cursor < 100 + outputs and made < count:
            round_ += 1
            yield event(ev.RoundBegin, req, mode="verify")
            if cursor > 100:
                yield event(
                    ev.Landed, req, copy=copies, src=Place("step", 0, 1), dst=live, bytes=1 << 20, digests=DIGESTS
                )
            yield event(ev.Sync, req, count=1)
            yield event(ev.Draft, req, tokens=(2, 3, 4), source="mtp")
            copies += 1
            yield event(ev.Checkpoint, req, copy=copies, src=live, dst=Place("checkpoint", 0), position=cursor, **STATE)
            for row in range(k):
                parts = "h+conv" if row < k - 1 else "conv"
                at = cursor + row + 1
                yield event(
                    ev.VerifyRow, req, slot=0, row=row, token=row + 1, step_parts=parts, position=at, digests=DIGESTS
                )
            yield event(ev.Verify, req, slot=0, k=k, cursor=cursor + k, position=cursor + k)
            yield event(ev.Decision, req, what="accept", default=2, low=1, high=k)
            yield event(ev.Accept, req, slot=0, accepted=2, k=k, natural=2, emitted=(2, 1))
            yield event(ev.KvRewind, req, before=cursor + k, cursor=cursor + 2)
            copies += 1
            queued = {**STATE, "digests": (), "stream": "secondary", "landed": False}
            yield event(ev.Commit, req, copy=copies, src=Place("step", 0, 1), dst=live, accepted=2, k=k, **queued)
            for index, mark in enumerate(("accepted", "bonus")):
                yield event(ev.Emit, req, token=2 - index, index=cursor - 99 + index, mark=mark)
            yield event(ev.RoundEnd, req)
            cursor += 2
        yield event(ev.Landed, req, copy=copies, src=Place("step", 0, 1), dst=live, bytes=1 << 20, digests=DIGESTS)
        yield event(ev.Sync, req, count=1)
        yield event(ev.Finish, req, reason="length")
        yield event(ev.Release, req, slot=0, epoch=req)


def bench_fold() -> list[tuple[str, float, str]]:
    """Fold of 100,000 events: making every view, making the last one only, and checking every invariant as well."""
    from sessions.invariants import Checker
    from sessions.ledger import Ledger, fold

    events = list(speculative_run(EVENTS))[:EVENTS]
    begin = time.perf_counter()
    ledger = Ledger()
    for event in events:
        ledger.apply(event)
    every = time.perf_counter() - begin
    begin = time.perf_counter()
    fold(events)
    last = time.perf_counter() - begin
    checker, ledger, found = Checker(), Ledger(), 0
    before = ledger.view
    begin = time.perf_counter()
    for event in events:
        after = ledger.apply(event)
        found += len(checker.check(before, event, after))
        before = after
    checked = time.perf_counter() - begin
    assert not found, f"{found} findings in a healthy run"
    return [
        ("fold, every view", every, "2 s"),
        ("fold, last view only", last, "2 s"),
        ("fold, every view, every invariant", checked, "-"),
    ]


def bench_open() -> list[tuple[str, float, str]]:
    """See ``bench_timeline``."""
    from bench_timeline import bench_open

    return bench_open(islice(speculative_run(EVENTS), EVENTS))


def bench_record() -> list[tuple[str, float, str]]:
    """See ``bench_timeline``."""
    from bench_timeline import bench_record

    return bench_record()


def bench_travel() -> list[tuple[str, float, str]]:
    """See ``bench_timeline``."""
    from bench_timeline import bench_travel

    return bench_travel()


BENCHES: dict[str, Callable[[], list[tuple[str, float, str]]]] = {
    "fold": bench_fold,
    "open": bench_open,
    "record": bench_record,
    "travel": bench_travel,
}


def main(names: list[str]) -> None:
    for name in names or list(BENCHES):
        for what, seconds, bound in BENCHES[name]():
            print(f"{name:10} {what:40} {seconds:10.5f} s   bound {bound}")


if __name__ == "__main__":
    main(sys.argv[1:])
