"""Movement: through events, tokens, rounds, chunks and requests, forwards and backwards; to an instant; to a stop."""

from __future__ import annotations

from inspector.commands.errors import UsageError
from inspector.commands.groups.common import Predicate, move, stop_result, walk_units
from inspector.commands.locations import parse_location
from inspector.commands.places import When
from inspector.commands.registry import Arg, Args, Context, Registry, Result
from inspector.commands.stops import StopPoint
from sessions.timeline import Stop

COUNT = Arg("count", "times", "how many", optional=True, default=1)
UNITS = (
    # name, unit, what, aliases, reverse aliases, example
    ("step", "token", "go one token on (with rev: back)", ("s",), ("S", "rs"), "step 5"),
    ("event", "event", "go one engine event on (with rev: back)", ("i", "stepi", "si"), ("I", "ri", "rsi"), "event 3"),
    (
        "next",
        "round",
        "go to the end of the round (with rev: to the end of the round before)",
        ("n",),
        ("N", "rn"),
        "next",
    ),
    (
        "chunk",
        "chunk",
        "go to the next chunk or round boundary (with rev: to the chunk or round boundary before)",
        ("o", "nexti"),
        ("O", "ro"),
        "chunk",
    ),
    (
        "finish",
        "request",
        "go to the end of the request (with rev: to the start of the request)",
        ("f", "fin"),
        ("F", "rf"),
        "finish",
    ),
)

BACK = {"step": " rev step 10 goes to where there were ten tokens fewer, also from the end of a round."}


def register(registry: Registry) -> None:
    for name, unit, what, aliases, backwards, example in UNITS:
        registry.command(
            name, "move", what, COUNT,
            aliases=aliases, rev_aliases=backwards, example=example, reversible=True, repeats=True,
            details=(
                "At the live edge a forward step executes, before it a step moves. "
                f"rev {name} goes back, which changes nothing. Enabled stops end it early." + BACK.get(name, "")
            ),
        )(_unit(unit))  # fmt: skip
    registry.command(
        "continue", "move", "run to the next stop (with rev: to the last stop before now)", COUNT,
        aliases=("c", "cont"), rev_aliases=("C", "rc"), example="continue", reversible=True, repeats=True,
        details="Ends at a stop, at a broken invariant, when nothing is left to run, or at the limit (set limit N).",
    )(_continue)  # fmt: skip
    registry.command(
        "until", "move", "run until a place or a condition, as break takes it (with rev: to the last event before now)",
        Arg("where", "rest", "an event kind, @1043, pos 318, a token, a place, or an expression"),
        aliases=("u", "advance"), rev_aliases=("ru",), example="until pos 20", reversible=True, repeats=True,
        details="Other stops end it too. rev until goes back to the last event before now for which it holds.",
    )(_until)  # fmt: skip
    registry.command(
        "goto", "move", "go to an event, a bookmark, start or end",
        Arg("when", "when", "@1043, 'a, start, end"),
        aliases=("g", "seek"), example="goto @12",
        details="Moves only: nothing is executed and nothing is changed. end is the live edge.",
    )(_goto)  # fmt: skip
    registry.command(
        "back", "move", "to where the last movement came from (jump list)", COUNT, aliases=("<",), example="back",
    )(_back)  # fmt: skip
    registry.command("forward", "move", "undo back", COUNT, aliases=(">", "fwd"), example="forward")(_forward)
    registry.command(
        "restart", "move", "to the first event", aliases=("r",), example="restart",
        details="The same as goto start: the run stays recorded, walk on from there.",
    )(lambda ctx, args: _goto(ctx, {"when": When("start")}))  # fmt: skip


def _unit(unit: str):  # type: ignore[no-untyped-def]
    def run(ctx: Context, args: Args) -> Result:
        return stop_result(ctx, walk_units(ctx, unit, args["count"]))

    return run


def _continue(ctx: Context, args: Args) -> Result:
    stop: Stop | None = None
    for _ in range(args["count"]):
        stop = move(ctx, ctx.debugger.predicate())
        if stop.reason not in ("stop", "finding"):
            break
    assert stop is not None
    return stop_result(ctx, stop)


def _until(ctx: Context, args: Args) -> Result:
    debugger = ctx.debugger
    location, condition = parse_location(args["where"], debugger)
    point = StopPoint(0, "until", location, condition)
    if point.counts:
        raise UsageError("until does not count hits; use break ... if hits == N")
    others = debugger.predicate()

    def ask(before, event, after):  # type: ignore[no-untyped-def]
        hit = point.ask(before, event, after, debugger.scopes)
        other = others(before, event, after)
        return f"until {hit.text}" if hit is not None else other

    predicate: Predicate = ask
    stop = move(ctx, predicate)
    if stop.reason == "limit":
        ctx.say(f"{args['where']}: never so within {debugger.settings.limit:,} events; set limit N allows more")
    return stop_result(ctx, stop)


def _goto(ctx: Context, args: Args) -> Result:
    debugger = ctx.debugger
    instant = debugger.instant(args["when"])
    return stop_result(ctx, debugger.timeline.seek(instant.seq, instant.branch))


def _back(ctx: Context, args: Args) -> Result:
    return _jump(ctx, args["count"], back=True)


def _forward(ctx: Context, args: Args) -> Result:
    return _jump(ctx, args["count"], back=False)


def _jump(ctx: Context, count: int, back: bool) -> Result:
    jumps = ctx.debugger.timeline.jumps
    stop: Stop | None = None
    for _ in range(count):
        stop = jumps.back() if back else jumps.forward()
    assert stop is not None
    return stop_result(ctx, stop)
