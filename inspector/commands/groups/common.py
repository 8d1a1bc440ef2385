"""What movements and actions share: running under the stops, and telling where one has come to."""

from __future__ import annotations

from collections.abc import Callable

from engine.events import Action, Decision, Event
from inspector.commands.errors import UsageError
from inspector.commands.registry import Context, Result
from inspector.commands.render import place_of, request_line
from inspector.describe import describe
from inspector.text import visible
from sessions.stop import Predicate
from sessions.timeline import Stop
from sessions.view import LedgerView

__all__ = ["Predicate", "move", "say_stop", "stop_result", "walk_units"]

# Reasons that are answers, not accidents.
FAILED = ("error", "diverged")
ERRORS = ("refused", "cancelled", "limit")
WORDS = {
    "edge": "the end of the record",
    "idle": 'nothing left to run: start a request with new "text"',
    "start": "the first event",
    "limit": "stopped at the limit of {limit:,} events (set limit N)",
    "cancelled": "cancelled",
}


def move(ctx: Context, predicate: Predicate | None) -> Stop:
    """Run to the next stop in the direction of ``ctx``."""
    debugger = ctx.debugger
    return debugger.timeline.run(
        predicate,
        back=ctx.rev,
        limit=debugger.settings.limit,
        cancel=lambda: debugger.cancelled,
        findings=debugger.settings.findings,
    )


def walk_units(ctx: Context, unit: str, count: int) -> Stop:
    """Step ``count`` units; enabled stops end it early."""
    debugger = ctx.debugger
    req = debugger.request if unit == "request" else None
    return debugger.timeline.step(unit, count, back=ctx.rev, req=req, cancel=lambda: debugger.cancelled)


def say_stop(ctx: Context, stop: Stop) -> None:
    """Why and where the movement ended; traces on the way; displays."""
    debugger = ctx.debugger
    timeline, view = debugger.timeline, debugger.view
    _say_traces(ctx, stop)
    for hit in debugger.hits.get(stop.seq, ()) if stop.reason == "stop" else ():
        if hit.halts:
            ctx.say(f"stop {hit.number}: {visible(hit.text)}")
    if stop.reason == "stop" and not any(hit.halts for hit in debugger.hits.get(stop.seq, ())):
        ctx.say(*(visible(text) for text in stop.hits))
    if stop.finding is not None:
        finding = stop.finding
        who = f" r{finding.req}" if finding.req >= 0 else ""
        ctx.say(f"! {finding.name}{who}: {visible(finding.text)} (why explains it)")
    word = WORDS.get(stop.reason, "").format(limit=debugger.settings.limit)
    if word:
        ctx.say(word)
    elif stop.reason in (*FAILED, "refused") and stop.text:
        ctx.say(visible(stop.text))
    if view.last is not None:
        ctx.say(describe(view.last, view))
    request = view.requests.get(debugger.request)
    ctx.say(f"  {place_of(timeline)}" + (f"; {request_line(view, request)}" if request is not None else ""))
    waiting = timeline.waiting
    if isinstance(waiting, Decision):
        ctx.say(f"  waiting for {waiting.what}: {_how_to_answer(waiting)}")
    ctx.say(*(f"  {line}" for line in debugger.display_lines()))


def _how_to_answer(decision: Decision) -> str:
    if decision.what == "accept":
        return f"accept {decision.low}..{decision.high} rows (the rule says {decision.default}), or go on"
    if decision.what == "drafts":
        return f'verify with {decision.low}..{decision.high} drafts or "text" (the drafter gives {decision.default}), or go on'
    return f"rollback length {decision.low}..{decision.high} (the search found {decision.default}), or go on"


def _say_traces(ctx: Context, stop: Stop) -> None:
    """What tracepoints printed on the way, in the order of travel."""
    hits = ctx.debugger.hits
    for seq in sorted(hits, reverse=ctx.rev):
        if ctx.rev and seq < stop.seq:
            continue
        for hit in hits[seq]:
            if not hit.halts:
                shown = ", ".join(visible(line) for line in hit.lines) or visible(hit.text)
                ctx.say(f"trace {hit.number} @{seq}: {shown}")


def stop_result(ctx: Context, stop: Stop) -> Result:
    """Tell, drop temporary stops that were hit, and make the result."""
    debugger = ctx.debugger
    debugger.last_stop = stop
    say_stop(ctx, stop)
    changed = {"now"}
    if stop.reason == "stop":
        for hit in debugger.hits.get(stop.seq, ()):
            if hit.halts and hit.number and debugger.stops.get(hit.number).kind == "tbreak":
                debugger.stops.delete(hit.number)
                changed.add("stops")
    debugger.hits = {}
    status = "failed" if stop.reason in FAILED else "error" if stop.reason in ERRORS else "ok"
    return ctx.result(status, stop, changed)


# ---------------------------------------------------------------------------------------------------------- acting


def act(ctx: Context, action: Action) -> Stop:
    """Perform an action under the stops. In the past this opens a branch, and the answer says so."""
    return _acting(ctx, lambda pause: ctx.debugger.timeline.perform(action, pause, _cancel(ctx)))


def finish_round(ctx: Context) -> Stop:
    """Let the paused action run to its end, under the stops."""
    return _acting(ctx, lambda pause: ctx.debugger.timeline.resume(pause, _cancel(ctx)))


def run_to_decision(ctx: Context, action: Action | None, what: str, value: int | tuple[int, ...]) -> Stop:
    """Perform ``action`` (None: go on with the paused one) up to its decision about ``what``, answer, and finish."""
    timeline = ctx.debugger.timeline

    def at(event: Event) -> object:
        return isinstance(event, Decision) and event.what == what

    if action is None:
        stop = timeline.resume(at, _cancel(ctx))
    else:
        stop = timeline.perform(action, at, _cancel(ctx))
    waiting = timeline.waiting
    if waiting is None or waiting.what != what:
        return stop
    if isinstance(value, int) and not waiting.low <= value <= waiting.high:
        raise UsageError(f"{what}: {waiting.low} to {waiting.high} are possible here, not {value}")
    timeline.answer(what, value)
    return finish_round(ctx)


def _cancel(ctx: Context) -> Callable[[], bool]:
    return lambda: ctx.debugger.cancelled


def _acting(ctx: Context, go: Callable[[Callable[[Event], object] | None], Stop]) -> Stop:
    debugger = ctx.debugger
    branch = debugger.timeline.branch
    stop = go(None)
    if debugger.timeline.branch != branch:
        ctx.say(f"BRANCH {debugger.timeline.branch}: acted in the past of {name_of(branch)}, which stays as it is")
    return stop


def name_of(branch: int) -> str:
    return f"branch {branch}" if branch else "the main line"
