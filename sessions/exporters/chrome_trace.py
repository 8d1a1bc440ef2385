"""Chrome trace JSON, which Perfetto and chrome://tracing open.

Rounds are slices of their request, with draft, verify and commit inside; pools are counters; findings, rollbacks and
boundaries are instants. Time is the event number, in microseconds: a record has no wall clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine.events import (
    Accept,
    Boundary,
    Event,
    Finish,
    Request,
    Rollback,
    RoundBegin,
    RoundEnd,
    Trouble,
    Verify,
    Watchdog,
)
from sessions.canonical import canonical_json
from sessions.exporters.atomic import atomic
from sessions.history import History
from sessions.view import LedgerView

PROCESS, POOLS = 1, 2
INSTANTS = (Rollback, Boundary, Watchdog, Finish, Trouble)


def entries(history: History, branch: int = 0, lo: int = 1, hi: int | None = None) -> Iterator[dict[str, Any]]:
    """Trace entries of events ``lo``..``hi`` of a branch. Raises NotAvailable for an unknown branch."""
    history.record.branch(branch)
    last = history.record.last(branch)
    end = last if hi is None else min(hi, last)
    yield {"ph": "M", "pid": PROCESS, "name": "process_name", "args": {"name": "requests"}}
    yield {"ph": "M", "pid": POOLS, "name": "process_name", "args": {"name": "pools"}}
    begun: dict[int, RoundBegin] = {}
    verified: dict[int, Verify] = {}
    for _, event, after in history.steps(branch, max(1, lo), end):
        if isinstance(event, Request):
            name = f"r{event.req}"
            yield {"ph": "M", "pid": PROCESS, "tid": event.req, "name": "thread_name", "args": {"name": name}}
        elif isinstance(event, RoundBegin):
            begun[event.req] = event
        elif isinstance(event, Verify):
            verified[event.req] = event
        elif isinstance(event, Accept) and event.req in verified:
            start = verified.pop(event.req)
            args = {"k": event.k, "accepted": event.accepted, "natural": event.natural}
            yield _slice(f"verify {event.accepted}/{event.k}", event.req, start.seq - start.k, event.seq, args)
        elif isinstance(event, RoundEnd) and event.req in begun:
            first = begun.pop(event.req)
            yield _slice(first.mode, event.req, first.seq, event.seq, {"round": first.round})
        if isinstance(event, INSTANTS):
            yield _instant(event)
        yield from _counters(event, after)
    for req, first in begun.items():  # a round the record ends in
        yield _slice(first.mode, req, first.seq, end, {"round": first.round, "open": True})
    for finding in history.findings(branch, max(1, lo), end):
        yield {
            "ph": "i", "s": "g", "pid": PROCESS, "tid": max(0, finding.req), "ts": finding.seq,
            "name": f"finding: {finding.name}",
            "args": {name: getattr(finding, name) for name in ("text", "expected", "found", "where")},
        }  # fmt: skip


def _slice(name: str, req: int, first: int, last: int, args: dict[str, Any]) -> dict[str, Any]:
    return {
        "ph": "X", "pid": PROCESS, "tid": req, "ts": first, "dur": max(1, last - first), "name": name, "args": args
    }  # fmt: skip


def _instant(event: Event) -> dict[str, Any]:
    texts = {
        Rollback: lambda e: f"rollback: {e.outcome}", Boundary: lambda e: f"boundary at {e.output_len}",
        Watchdog: lambda e: f"watchdog: {e.name}", Finish: lambda e: f"finish: {e.reason}", Trouble: lambda e: e.text,
    }  # fmt: skip
    name: str = texts[type(event)](event)  # type: ignore[no-untyped-call]
    return {"ph": "i", "s": "t", "pid": PROCESS, "tid": max(0, event.req), "ts": event.seq, "name": name, "args": {}}


def _counters(event: Event, after: LedgerView) -> Iterator[dict[str, Any]]:
    for name, pool in sorted(after.pools.items()):
        if ("pool", name) in after.changed:
            yield {"ph": "C", "pid": POOLS, "ts": event.seq, "name": name, "args": {"used": pool.used}}


def write(history: History, path: str | Path, branch: int = 0, lo: int = 1, hi: int | None = None) -> int:
    """Write a trace; the number of entries. Raises SessionError when it cannot be written."""
    count = 0
    with atomic(path) as part, part.open("w", encoding="ascii", newline="\n") as file:
        file.write('{"displayTimeUnit":"ms","otherData":{"time":"event numbers"},"traceEvents":[')
        for entry in entries(history, branch, lo, hi):
            file.write(("," if count else "") + "\n" + canonical_json(entry))
            count += 1
        file.write("\n]}\n")
    return count
