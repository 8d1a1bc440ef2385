"""Stops: where to halt, what to watch, what to print on the way."""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING

from inspector.commands.errors import CommandError, UsageError
from inspector.commands.expressions import compile_expression
from inspector.commands.locations import FORMS, parse_location, place_location
from inspector.commands.parser import Words, split_commas, split_if
from inspector.commands.places import try_place
from inspector.commands.registry import Arg, Args, Context, Registry, Result
from inspector.commands.render import table
from inspector.commands.settings import on_off
from inspector.commands.stops import StopPoint, watch_location
from inspector.text import plural, shorten, visible

if TYPE_CHECKING:
    from inspector.commands.debugger import Debugger

WHERE = "\n".join(f"  {form:<34} {about}" for form, about in FORMS.items())
STOP = Arg("stop", "count", "number of the stop")
PAST_SHOWN = 10


def register(registry: Registry) -> None:
    where = Arg("where", "rest", "WHERE [if EXPR]", optional=True)
    registry.command(
        "break", "stop", "stop at an event kind, position, token, slot, place, invariant or condition", where,
        aliases=("b", "br"), example="break accept if accepted < 2",
        details=(
            "WHERE is one of\n" + WHERE + "\nWithout WHERE: at the event one is at. In a condition, bare names speak "
            "of the request the event is about, and hits is how often WHERE was met since the first event. A stop "
            "is at an event that has happened: at accept the count of rows is settled. Before that, where accept 2 "
            'answers, stops break decision if event.what == "accept".'
        ),
    )(lambda ctx, args: _break(ctx, args, "break"))  # fmt: skip
    registry.command(
        "tbreak", "stop", "a stop that is gone after its first hit", where, aliases=("tb",), example="tbreak commit",
    )(lambda ctx, args: _break(ctx, args, "tbreak"))  # fmt: skip
    for name, about, reads, writes, aliases in (
        ("watch", "stop when an expression changes, or when a place is written", False, True, ("w",)),
        ("rwatch", "stop when a place is read", True, False, ("rw",)),
        ("awatch", "stop when a place is read or written", True, True, ("aw",)),
    ):
        registry.command(
            name, "stop", about, Arg("what", "rest", "EXPR or PLACE, [if EXPR]"),
            aliases=aliases, example={"watch": "watch skew", "rwatch": "rwatch ring 0"}.get(name, "awatch checkpoint"),
            details=(
                "An expression is watched for the request in focus; in the condition old and new are its values. "
                "A place may name a part: ring 0.conv."
            ),
        )(_watch(name, reads, writes))  # fmt: skip
    registry.command(
        "trace", "stop", "print expressions at each hit without stopping",
        Arg("where", "rest", "WHERE [print EXPR, ...] [if EXPR]"),
        example="trace accept print accepted, skew",
        details=(
            "WHERE as for break. It prints while walking and running, and at once for what is recorded up to now "
            f"(the last {PAST_SHOWN}; hits N shows all)."
        ),
    )(_trace)  # fmt: skip
    registry.command(
        "hits", "stop", "every hit of a stop in the record up to the last event", STOP,
        Arg("count", "times", "show at most so many", optional=True), example="hits 1",
    )(_hits)  # fmt: skip
    registry.command(
        "condition", "stop", "change or drop the condition of a stop", STOP,
        Arg("expr", "rest", "an expression; nothing drops it", optional=True),
        aliases=("cond",), example="condition 1 hits % 10 == 0",
    )(_condition)  # fmt: skip
    registry.command(
        "ignore", "stop", "skip the next hits of a stop", STOP, Arg("count", "count", "how many"), example="ignore 1 3",
    )(_ignore)  # fmt: skip
    numbers = Arg("stops", "count", "numbers; nothing means all", optional=True, repeated=True)
    registry.command("delete", "stop", "delete stops", numbers, aliases=("del", "d"), example="delete 1")(_delete)
    registry.command(
        "disable", "stop", "keep stops but do not ask them", numbers, aliases=("dis",), example="disable 1"
    )(lambda ctx, args: _enable(ctx, args, False))
    registry.command("enable", "stop", "ask stops again", numbers, aliases=("en",), example="enable 1")(
        lambda ctx, args: _enable(ctx, args, True)
    )
    registry.command(
        "invariants", "stop", "list the invariants, or turn them on or off",
        Arg("switch", "choice", "on, off", optional=True, choices=("on", "off")),
        Arg("name", "choice", "one of them; nothing means all", optional=True,
            choices=lambda debugger: list(debugger.invariants)),
        aliases=("inv",), example="invariants off position",
    )(_invariants)  # fmt: skip


def _break(ctx: Context, args: Args, kind: str) -> Result:
    debugger = ctx.debugger
    location, condition = parse_location(args["where"] or "", debugger)
    point = debugger.stops.add(kind, location, condition, now=debugger.timeline.now)
    return _added(ctx, point)


def _added(ctx: Context, point: StopPoint) -> Result:
    ctx.say(f"{point.kind} {point.number}: {point.text}" + (f" (of r{point.req})" if point.req >= 0 else ""))
    return ctx.result(changed=("stops",), data=point.number)


def _watch(kind: str, reads: bool, writes: bool):  # type: ignore[no-untyped-def]
    def run(ctx: Context, args: Args) -> Result:
        debugger = ctx.debugger
        if args["what"].strip() == "oracle" and not reads:
            return debugger.execute("oracle on")
        what, condition_text = split_if(args["what"])
        condition = compile_expression(condition_text) if condition_text else None
        words = Words(what)
        spec = try_place(words)
        now = debugger.timeline.now
        if spec is not None and not words.left():
            # A place named without a request is bound to the one in focus now, as gdb binds a watch to its frame.
            location = place_location(spec, reads, writes)
            req = -1 if spec.slot is not None else debugger.request if spec.req is None else spec.req
            return _added(ctx, debugger.stops.add(kind, location, condition, req=req, now=now))
        if reads:
            raise UsageError(f"{kind} takes a place (live, ring 2, step 0.conv); expressions can only be watched")
        if not what:
            raise UsageError("watch needs an expression or a place")
        expression = compile_expression(what)
        expression.plain(debugger.scope())
        point = debugger.stops.add("watch", watch_location(expression), condition, req=debugger.request, now=now)
        return _added(ctx, point)

    return run


def _trace(ctx: Context, args: Args) -> Result:
    debugger = ctx.debugger
    text, condition_text = split_if(args["where"])
    where, prints = _split_print(text)
    condition = compile_expression(condition_text) if condition_text else None
    if not where:
        raise UsageError("trace needs a WHERE, as break takes it: trace accept print accepted")
    location, none = parse_location(where, debugger)
    assert none is None
    point = debugger.stops.add(
        "trace", location, condition, [compile_expression(part) for part in prints], now=debugger.timeline.now
    )
    result = _added(ctx, point)
    if point.heavy:
        ctx.say("  it reads tensors, so the past is not searched; it prints from here on")
        return ctx.result(changed=result.changed, data=point.number)
    found = _recorded(ctx, point, debugger.timeline.now)
    if len(found) > PAST_SHOWN:
        ctx.say(f"  {len(found):,} hits up to now, the last {PAST_SHOWN}:")
    ctx.say(*(f"  {line}" for line in found[-PAST_SHOWN:]))
    return ctx.result(changed=result.changed, data=point.number)


def _split_print(text: str) -> tuple[str, list[str]]:
    words = Words(text)
    while (word := words.take()) is not None:
        if not word.quoted and word.text in ("print", "p"):
            return text[: word.start].strip(), [part for part in split_commas(words.rest()) if part]
    return text, []


def _recorded(ctx: Context, point: StopPoint, high: int) -> list[str]:
    """One line for each hit in the record up to ``high``."""
    debugger = ctx.debugger
    lines = []
    for before, event, after in debugger.walk(debugger.timeline.first, high):
        hit = point.ask(before, event, after, debugger.scopes)
        if hit is not None:
            shown = ", ".join(visible(line) for line in hit.lines) or visible(hit.text)
            lines.append(f"@{after.seq}: {shown}")
    return lines


def _hits(ctx: Context, args: Args) -> Result:
    point = ctx.debugger.stops.get(args["stop"])
    if point.heavy:
        raise CommandError(
            f"stop {point.number} reads tensors, so the past is not searched; continue and rev continue do"
        )
    found = _recorded(ctx, point, ctx.debugger.timeline.last)
    shown = found[-args["count"] :] if args["count"] else found
    ctx.say(f"{point.kind} {point.number}: {point.text}: {plural(len(found), 'hit')}")
    ctx.say(*(f"  {line}" for line in shown))
    return ctx.result(data=len(found))


def _condition(ctx: Context, args: Args) -> Result:
    text = (args["expr"] or "").removeprefix("if ").strip()
    point = ctx.debugger.stops.condition(args["stop"], compile_expression(text) if text else None)
    return _added(ctx, point)


def _ignore(ctx: Context, args: Args) -> Result:
    debugger = ctx.debugger
    point = debugger.stops.get(args["stop"])
    debugger.count_up_to(point, debugger.timeline.now)
    debugger.stops.ignore(point.number, args["count"], debugger.timeline.now)
    ctx.say(f"{point.kind} {point.number}: the next {plural(args['count'], 'hit')} after now will be skipped")
    return ctx.result(changed=("stops",))


def _chosen(ctx: Context, args: Args) -> list[int]:
    numbers = args["stops"] or [point.number for point in ctx.debugger.stops]
    for number in numbers:
        ctx.debugger.stops.get(number)
    return list(dict.fromkeys(numbers))


def _delete(ctx: Context, args: Args) -> Result:
    numbers = _chosen(ctx, args)
    for number in numbers:
        ctx.debugger.stops.delete(number)
    ctx.say(f"{plural(len(numbers), 'stop')} deleted")
    return ctx.result(changed=("stops",))


def _enable(ctx: Context, args: Args, on: bool) -> Result:
    numbers = _chosen(ctx, args)
    for number in numbers:
        ctx.debugger.stops.get(number).enabled = on
    ctx.say(f"{plural(len(numbers), 'stop')} {'enabled' if on else 'disabled'}")
    return ctx.result(changed=("stops",))


def _invariants(ctx: Context, args: Args) -> Result:
    debugger = ctx.debugger
    if args["switch"] is None:
        ctx.say(*invariant_rows(debugger))
        if not debugger.settings.findings:
            ctx.say("none of them stops now: set findings on")
        return ctx.result()
    names = [args["name"]] if args["name"] else list(debugger.invariants)
    checker = debugger.timeline.checker
    if checker is None:
        raise CommandError("nothing is checked in this session")
    for name in names:
        checker.switch(name, on_off(args["switch"]))
    ctx.say(f"{args['name'] or plural(len(names), 'invariant')} {args['switch']}")
    return ctx.result(changed=("settings",))


def stop_rows(points: list[StopPoint], now: int) -> list[str]:
    """The stops as a table."""
    rows = [
        (
            point.number,
            point.kind,
            "on" if point.enabled else "off",
            bisect.bisect_right(point.hits, now),
            shorten(point.text, 80) + (f" (r{point.req})" if point.req >= 0 else ""),
        )
        for point in points
    ]
    return table(("no", "kind", "on", "hits", "what"), rows, right=("no", "hits"))


def invariant_rows(debugger: Debugger) -> list[str]:
    """The invariants as a table."""
    rows = [
        (name, "off" if name in debugger.disabled else "on", shorten(invariant.sentence, 96))
        for name, invariant in debugger.invariants.items()
    ]
    return table(("invariant", "on", "says"), rows)
