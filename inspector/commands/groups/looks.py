"""Looks at facts: values, tables, where one is, who wrote what, why something is wrong."""

from __future__ import annotations

from inspector.commands.errors import CommandError, UsageError
from inspector.commands.expressions import compile_expression
from inspector.commands.groups.explaining import why, writers_of
from inspector.commands.groups.info import TOPICS
from inspector.commands.parser import split_commas
from inspector.commands.places import PlaceSpec
from inspector.commands.registry import Arg, Args, Context, Registry, Result
from inspector.commands.render import place_of, positions, request_line
from inspector.describe import token_text
from inspector.text import visible


def register(registry: Registry) -> None:
    registry.command(
        "print", "look", "value of expressions", Arg("expr", "rest", "EXPR, ..."),
        aliases=("p",), example="print cursor, position, skew",
        details='"help names" lists the names, "help functions" the functions.',
    )(_print)  # fmt: skip
    registry.command(
        "display", "look", "show an expression after every movement; alone: show all now",
        Arg("expr", "rest", "an expression", optional=True), aliases=("disp",), example="display accepted",
    )(_display)  # fmt: skip
    registry.command(
        "undisplay", "look", "stop showing", Arg("displays", "count", "numbers; nothing means all", optional=True,
                                                 repeated=True), example="undisplay 1",
    )(_undisplay)  # fmt: skip
    registry.command(
        "info", "look", "tables of facts",
        Arg("topic", "choice", "which table", choices=tuple(TOPICS)),
        Arg("which", "rest", "a number, range or name, where the topic has one", optional=True),
        aliases=("inf",), example="info ring",
        details="\n".join(f"  {name:<12} {about}" for name, (about, _) in TOPICS.items()),
    )(_info)  # fmt: skip
    registry.command("where", "look", "where one is: source, event, request, round", aliases=("bt",), example="where")(
        _where
    )
    registry.command(
        "last", "look", "the event that last wrote a place, and the one before it",
        Arg("place", "place", "live, checkpoint, step 1, ring 2.conv, prefix 0"),
        aliases=("l",), example="last live",
        details="goto @N goes there, back comes back.",
    )(_last)  # fmt: skip
    registry.command(
        "why", "look", "explain a broken invariant: the first one that is still about what is wrong now",
        Arg("at", "when", "@115: the finding of that event; now: the newest", optional=True),
        Arg("name", "choice", "which one, where an event has several", optional=True,
            choices=lambda debugger: list(debugger.invariants)),
        aliases=("explain",), example="why",
        details=(
            "Once a state is wrong, invariants go on to break. why alone explains the first finding after which this "
            "state was not restored from before it, and names the later ones with their events; info findings lists "
            "all. judge asks about the newest round first: when that went wrong by itself, judge says since when."
        ),
    )(why)  # fmt: skip
    registry.command(
        "list", "look", "tokens around the end (or an index) with their marks",
        Arg("what", "choice", "tokens, events", optional=True, default="tokens", choices=("tokens", "events")),
        Arg("at", "count", "index of a token, or an event number", optional=True),
        aliases=("ls",), example="list tokens",
    )(_list)  # fmt: skip


def _print(ctx: Context, args: Args) -> Result:
    scope = ctx.debugger.scope()
    values = []
    for source in split_commas(args["expr"]):
        expression = compile_expression(source)
        ctx.say(f"{source} = {expression.show(scope)}")
        values.append(expression.value(scope))
    return ctx.result(data=tuple(values))


def _display(ctx: Context, args: Args) -> Result:
    debugger = ctx.debugger
    if args["expr"]:
        debugger.add_display(compile_expression(args["expr"]))
        ctx.say(debugger.display_lines()[-1])
        return ctx.result(changed=("displays",))
    ctx.say(*(debugger.display_lines() or ["nothing is displayed"]))
    return ctx.result()


def _undisplay(ctx: Context, args: Args) -> Result:
    displays = ctx.debugger.displays
    numbers = args["displays"] or list(displays)
    for number in numbers:
        if number not in displays:
            raise CommandError(f"there is no display {number}; displays: {', '.join(map(str, displays)) or 'none'}")
    for number in set(numbers):
        del displays[number]
    return ctx.result(changed=("displays",))


def _info(ctx: Context, args: Args) -> Result:
    lines = TOPICS[args["topic"]][1](ctx.debugger, args["which"] or "")
    limit = ctx.debugger.settings.lines
    ctx.say(*lines[: limit + 1])
    if len(lines) > limit + 1:
        ctx.say(f"... {len(lines) - limit - 1:,} more (set lines N shows more)")
    return ctx.result()


def _where(ctx: Context, args: Args) -> Result:
    debugger = ctx.debugger
    timeline, view = debugger.timeline, debugger.view
    ctx.say(f"{timeline.source} {visible(debugger.name) or visible(view.start.model)}".rstrip())
    ctx.say(f"  {place_of(timeline)}")
    request = view.requests.get(debugger.request)
    if request is not None:
        ctx.say(f"  {request_line(view, request)}")
        state = request.round
        if state.number:
            drafts = " ".join(token_text(view, token) for token in state.drafts) or "none"
            accepted = f", {state.accepted} of {state.k} rows accepted" if state.accepted else ""
            ctx.say(f"  round {state.number} since event {state.first}: {state.mode}, drafts {drafts}{accepted}")
    if view.last is not None:
        ctx.say(f"  {debugger.describe(view.last, view)}")
    for name, seq in sorted(timeline.bookmarks.items()):
        if seq == timeline.now:
            ctx.say(f"  bookmark '{visible(name)}")
    ctx.say(
        *(f"  ! {finding.name}: {visible(finding.text)}" for finding in timeline.findings(timeline.now, timeline.now))
    )
    return ctx.result()


def _last(ctx: Context, args: Args) -> Result:
    debugger = ctx.debugger
    spec: PlaceSpec = args["place"]
    place, instant = debugger.place(spec)
    seq = instant.seq
    if instant.branch != debugger.timeline.branch:
        raise CommandError(f"last looks at this branch; go to branch {instant.branch} first")
    writers = writers_of(ctx, place, spec.part, seq, 2)
    shown = f"{place}{'.' + spec.part if spec.part else ''}"
    if not writers:
        raise CommandError(f"{shown} was never written up to event {seq}")
    view = debugger.timeline.view_at(seq)
    ctx.say(f"{shown}: position {positions(view.states.get(place))}, last written by")
    ctx.say(*(f"  {debugger.describe(event, view)}" for event in writers))
    return ctx.result(data=writers[0].seq)


def _list(ctx: Context, args: Args) -> Result:
    if args["what"] == "events":
        at = ctx.debugger.timeline.now if args["at"] is None else args["at"]
        ctx.say(*TOPICS["events"][1](ctx.debugger, f"{max(1, at - 10)} {at + 10}"))
        return ctx.result()
    request = ctx.debugger.current()
    limit = ctx.debugger.settings.lines
    high = len(request.tokens) if args["at"] is None else min(len(request.tokens), args["at"] + limit // 2)
    low = max(0, high - limit)
    if args["at"] is not None and args["at"] >= len(request.tokens):
        raise UsageError(f"r{request.req} has {len(request.tokens)} tokens; the last is {len(request.tokens) - 1}")
    ctx.say(*TOPICS["tokens"][1](ctx.debugger, f"{low} {high - 1}"))
    return ctx.result()
