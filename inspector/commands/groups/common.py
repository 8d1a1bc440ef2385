"""What movements and actions share: running under the stops, and telling where one has come to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from engine.events import Action, Decision, Event
from inspector.commands.errors import CommandError, UsageError
from inspector.commands.registry import Context, Result
from inspector.commands.render import place_of, request_line
from inspector.text import visible
from sessions.stop import Predicate
from sessions.timeline import Stop
from sessions.units import counted_from, ends
from sessions.view import LedgerView

__all__ = ["Predicate", "move", "say_stop", "stop_result", "walk_units"]

# Reasons that are answers, not accidents.
FAILED = ("error", "diverged")
ERRORS = ("refused", "cancelled", "limit")
_STEPPED = "the asked units were walked"
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
        cancel=_cancel(ctx),
        findings=debugger.settings.findings,
    )


def walk_units(ctx: Context, unit: str, count: int) -> Stop:
    """Step ``count`` units; an enabled stop on the way ends it."""
    debugger = ctx.debugger
    req = debugger.request if unit == "request" and debugger.request >= 0 else None
    # A single step counts as one movement with its neighbours in the jump list; long ones tell how far they are.
    long = debugger.reports and (count > 1 or unit == "request")
    if not debugger.asks and not long:
        return debugger.timeline.step(unit, count, back=ctx.rev, req=req, cancel=_cancel(ctx))
    begun = debugger.timeline.now
    test = ends(unit, req, ctx.rev)
    stop = _walk_under_stops(ctx, test, count + _passed_over(ctx, unit, test))
    if stop.finding is None and not ctx.rev:
        found = debugger.timeline.findings(begun + 1, stop.seq)
        stop = replace(stop, finding=found[0] if found else None)
    return stop


def _passed_over(ctx: Context, unit: str, test: Callable[[Event], bool]) -> int:
    """1 when a walk back meets the unit that it is counted from (see ``sessions.units.counted_from``), else 0."""
    timeline = ctx.debugger.timeline
    if not ctx.rev:
        return 0
    return int(counted_from(timeline.history.record, timeline.branch, timeline.now, unit, test) != timeline.now)


def _walk_under_stops(ctx: Context, test: Callable[[Event], bool], count: int) -> Stop:
    """The same walk with the stops asked about every event."""
    debugger = ctx.debugger
    ask, left, begun = debugger.predicate(), count, debugger.timeline.now

    def predicate(before: LedgerView, event: Event, after: LedgerView) -> str | None:
        nonlocal left
        hit = ask(before, event, after)
        if test(event):
            left -= 1
            # As a plain step: a broken invariant ends the walk with the unit it happened in.
            if not ctx.rev and debugger.timeline.findings(begun + 1, after.seq):
                left = 0
        return hit or (_STEPPED if left <= 0 else None)

    stop = debugger.timeline.run(
        predicate, back=ctx.rev, limit=debugger.settings.limit, cancel=_cancel(ctx), findings=False
    )
    return replace(stop, reason="step", text="", hits=()) if stop.text == _STEPPED else stop


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
    if stop.reason in WORDS or (stop.reason in (*FAILED, "refused") and stop.text):
        ctx.say(_reason(ctx, stop))
    if view.last is not None:
        ctx.say(debugger.describe(view.last, view))
    request = view.requests.get(debugger.request)
    ctx.say(f"  {place_of(timeline)}" + (f"; {request_line(view, request)}" if request is not None else ""))
    waiting = timeline.waiting
    if isinstance(waiting, Decision):
        ctx.say(f"  waiting for {waiting.what}: {_how_to_answer(waiting)}")
    ctx.say(*(f"  {line}" for line in debugger.display_lines()))


def _reason(ctx: Context, stop: Stop) -> str:
    """Why a movement ended, in words."""
    word = WORDS.get(stop.reason, "").format(limit=ctx.debugger.settings.limit)
    return word or visible(stop.text) or stop.reason


def _how_to_answer(decision: Decision) -> str:
    if decision.what == "accept":
        return f"accept {decision.low}..{decision.high} rows, or go on with {decision.default}"
    if decision.what == "drafts":
        return f"verify with {decision.low}..{decision.high} drafts, or go on with {decision.default}"
    return f"rollback length {decision.low}..{decision.high}, or go on with {decision.default}"


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
    if ctx.acted and debugger.timeline.branch != ctx.branch:
        number = debugger.timeline.branch
        ctx.say(f"BRANCH {number}: acted in the past of {name_of(ctx.branch)}, which stays as it is")
    say_stop(ctx, stop)
    changed = {"now"} | ({"branch"} if debugger.timeline.branch != ctx.branch else set())
    if stop.reason == "stop":
        for hit in debugger.hits.get(stop.seq, ()):
            if hit.halts and hit.number and debugger.stops.get(hit.number).kind == "tbreak":
                debugger.stops.delete(hit.number)
                changed.add("stops")
    debugger.hits = {}
    status = "failed" if stop.reason in FAILED else "error" if stop.reason in ERRORS else "ok"
    return ctx.result(status, stop, changed, error="" if status == "ok" else _reason(ctx, stop))


# ---------------------------------------------------------------------------------------------------------- acting


def act(ctx: Context, action: Action) -> Stop:
    """Perform an action under the stops. In the past this opens a branch, and the answer says so."""
    ctx.acted = True
    return _as_stop(ctx, ctx.debugger.timeline.perform(action, _pause(ctx), _cancel(ctx)))


def finish_round(ctx: Context) -> Stop:
    """Let the paused action run to its end, under the stops."""
    ctx.acted = True
    return _as_stop(ctx, ctx.debugger.timeline.resume(_pause(ctx), _cancel(ctx)))


def answer(ctx: Context, what: str, value: int | tuple[int, ...]) -> Stop:
    """Answer the decision that waits here (in the past: on a branch) and finish the round.

    Raises:
        CommandError: it cannot be answered so."""
    ctx.acted = True
    stop = ctx.debugger.timeline.answer(what, value)
    if stop.reason != "decision":
        raise CommandError(stop.text or stop.reason)
    return finish_round(ctx)


def run_to_decision(ctx: Context, action: Action | None, what: str, value: int | tuple[int, ...]) -> Stop:
    """Perform ``action`` (None: go on with the round one is in) up to its decision about ``what``, answer, finish."""
    timeline = ctx.debugger.timeline
    ctx.acted = True

    def at(event: Event) -> object:
        return isinstance(event, Decision) and event.what == what

    if action is not None:
        stop = timeline.perform(action, at, _cancel(ctx))
    else:
        opened = timeline.open_branch(f"{what} {value}")
        stop = timeline.resume(at, _cancel(ctx)) if opened.reason == "done" else opened
    waiting = timeline.waiting
    if stop.reason != "decision" or waiting is None:
        return stop
    if isinstance(value, int) and not waiting.low <= value <= waiting.high:
        raise UsageError(f"{what}: {waiting.low} to {waiting.high} are possible here, not {value}")
    return answer(ctx, what, value)


def _cancel(ctx: Context) -> Callable[[], bool]:
    return lambda: ctx.debugger.cancelled


def _pause(ctx: Context) -> Callable[[Event], object]:
    """Asks the stops about each event of an action; the timeline stands at it when it asks."""
    timeline, ask = ctx.debugger.timeline, ctx.debugger.predicate()
    asks = ctx.debugger.asks

    def pause(event: Event) -> object:
        if not asks:
            ctx.debugger.tick(event.seq)
            return None
        return ask(timeline.view_at(event.seq - 1), event, timeline.view)

    return pause


def _as_stop(ctx: Context, stop: Stop) -> Stop:
    """A pause is a stop that was hit."""
    hits = [hit.text for hit in ctx.debugger.hits.get(stop.seq, ()) if hit.halts]
    if hits and stop.reason in ("pause", "decision"):
        return replace(stop, reason="stop", text="; ".join(hits), hits=tuple(hits))
    return stop


def name_of(branch: int) -> str:
    return f"branch {branch}" if branch else "the main line"
