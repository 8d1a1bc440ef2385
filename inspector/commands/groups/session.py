"""The session: focus, bookmarks, notes, branches, files, assertions, scripts, settings, help."""

from __future__ import annotations

from pathlib import Path

from engine.events import SetOption
from inspector.commands.errors import CommandError, UsageError
from inspector.commands.expressions import compile_expression
from inspector.commands.groups.common import act, name_of, stop_result
from inspector.commands.groups.info import TOPICS
from inspector.commands.places import MARK
from inspector.commands.registry import Arg, Args, Context, Registry, Result
from inspector.commands.settings import ABOUT, ENGINE_OPTIONS
from inspector.text import plural, shorten, visible

LEVELS = ("events", "digests", "full")
FORMATS = ("json", "trace", "tensors", "test", "session")
SHOWN = 20


def register(registry: Registry) -> None:
    registry.command(
        "focus", "session", "choose the request, layer or head that commands speak of",
        Arg("what", "choice", "request, layer, head, or auto to follow the events", optional=True,
            choices=("request", "layer", "head", "auto")),
        Arg("number", "word", "r0 or 0; nothing takes it back", optional=True),
        aliases=("fo",), example="focus request 0",
    )(_focus)  # fmt: skip
    registry.command(
        "mark", "session", "set a bookmark here", Arg("name", "word", "letters, digits, - and _"),
        Arg("text", "text", "a remark", optional=True), aliases=("m",), example="mark a",
        details="goto 'a comes back; bookmarks are kept in the session file.",
    )(_mark)  # fmt: skip
    registry.command("note", "session", "write a remark at this event", Arg("text", "text", "the remark"),
                     example='note "conv looks stale"')(_note)  # fmt: skip
    registry.command("marks", "session", "bookmarks and notes", example="marks")(lambda ctx, args: _topic(ctx, "marks"))
    registry.command(
        "branch", "session", "go to the end of another line of history", Arg("number", "count", "0 is the main line"),
        example="branch 0",
    )(_branch)  # fmt: skip
    registry.command("branches", "session", "lines of history", example="branches")(
        lambda ctx, args: _topic(ctx, "branches")
    )
    registry.command(
        "record", "session", "write the whole session so far into a new session file",
        Arg("file", "file", "NAME.mtl"),
        Arg("level", "choice", "events, digests, full", optional=True, default="digests", choices=LEVELS),
        aliases=("rec",), example="record session.mtl",
        details="Branches, bookmarks and notes go with it. A session opened with --record is recorded as it runs.",
    )(_record)  # fmt: skip
    registry.command(
        "export", "session", "write the events as JSON lines or a Chrome trace, this instant as tensors or as a test",
        Arg("format", "choice", "", choices=FORMATS), Arg("file", "file", "where to"),
        example="export json events.jsonl",
    )(_export)  # fmt: skip
    registry.command(
        "assert", "session", "a check: fails, and shows both sides, when the expression is not true",
        Arg("expr", "rest", "an expression"), aliases=("check",), example="assert skew == 0",
        details=(
            "In batch a failed assertion ends the script with exit status 1. So does an invariant that broke while the "
            "script ran, unless an assertion that holds speaks of finding or findings, or findings are set off."
        ),
    )(_assert)  # fmt: skip
    registry.command(
        "source", "session", "run the commands of a file", Arg("file", "file", "a script"), aliases=("so",),
        example="source tour.mtls",
    )(_source)  # fmt: skip
    registry.command(
        "set", "session", "change a setting", Arg("name", "choice", "", choices=(*ABOUT, *ENGINE_OPTIONS)),
        Arg("value", "rest", "the new value"), example="set limit 5000",
        details="\n".join(f"  {name:<11} {about}" for name, about in (*ABOUT.items(), *ENGINE_OPTIONS.items())),
    )(_set)  # fmt: skip
    registry.command(
        "show", "session", "the settings", Arg("name", "choice", "", optional=True, choices=tuple(ABOUT)),
        example="show",
    )(_show)  # fmt: skip
    registry.command(
        "echo", "session", "print a text", Arg("text", "rest", "", optional=True), example="echo before the rollback"
    )(_echo)
    registry.command(
        "history", "session", "the last commands", Arg("count", "times", "how many; 20 without", optional=True),
        example="history 5",
    )(_history)  # fmt: skip
    registry.command(
        "help", "session", "about a command, or what commands are written with",
        Arg("topic", "word", "a command, or rev, WHERE, expressions, names, functions, places, time", optional=True),
        aliases=("h", "?"), example="help break",
    )(_help)  # fmt: skip
    registry.command("quit", "session", "leave", aliases=("q", "exit"), example="quit")(_quit)


def _topic(ctx: Context, name: str) -> Result:
    ctx.say(*TOPICS[name][1](ctx.debugger, ""))
    return ctx.result()


def _focus(ctx: Context, args: Args) -> Result:
    debugger = ctx.debugger
    what, number = args["what"], args["number"]
    if what == "auto":
        debugger.set_focus(req=None, layer=None, head=None)
    elif what is not None:
        value = None if number is None else _number(number)
        if what == "request":
            if value is not None and value not in debugger.view.requests:
                raise CommandError(f"there is no request {value} at event {debugger.view.seq}")
            debugger.set_focus(req=value)
        elif what == "layer":
            known = debugger.view.start.recurrent_layers
            if value is not None and value not in known:
                raise CommandError(
                    f"layer {value} keeps no recurrent state; layers that do: {', '.join(map(str, known))}"
                )
            debugger.set_focus(layer=value)
        else:
            debugger.set_focus(head=value)
    focus = debugger.focus
    who = f"r{focus.req}" if focus.req is not None else f"follows the events (now r{debugger.request})"
    ctx.say(f"focus: request {who}, layer {_any(focus.layer)}, head {_any(focus.head)}")
    return ctx.result(changed=("focus",))


def _any(value: int | None) -> str:
    return "any" if value is None else str(value)


def _number(text: str) -> int:
    digits = text.removeprefix("r")
    if not digits.isdecimal() or len(digits) > 9:
        raise UsageError(f'focus takes a number, not "{visible(text):.40}"')
    return int(digits)


def _mark(ctx: Context, args: Args) -> Result:
    name = args["name"].removeprefix("'")
    if not MARK.fullmatch(name):
        raise UsageError(f'a bookmark has letters, digits, - and _, not "{visible(name):.60}"')
    ctx.debugger.timeline.mark(name, None, args["text"] or "")
    ctx.say(f"'{name} is event {ctx.debugger.timeline.now}")
    return ctx.result(changed=("marks",))


def _note(ctx: Context, args: Args) -> Result:
    ctx.debugger.timeline.note(args["text"])
    ctx.say(f"noted at event {ctx.debugger.timeline.now}")
    return ctx.result(changed=("marks",))


def _branch(ctx: Context, args: Args) -> Result:
    timeline = ctx.debugger.timeline
    known = [branch.id for branch in timeline.branches]
    if args["number"] not in known:
        raise CommandError(f"there is no branch {args['number']}; branches: {', '.join(map(str, known))}")
    stop = timeline.checkout(args["number"])
    ctx.say(f"on {name_of(timeline.branch)}")
    result = stop_result(ctx, stop)
    return Result(result.lines, result.status, stop, result.changed | {"branch"})


def _record(ctx: Context, args: Args) -> Result:
    timeline = ctx.debugger.timeline
    timeline.save_as(Path(args["file"]), args["level"])
    events = sum(branch.last - branch.at for branch in timeline.branches)
    ctx.say(f"recorded into {visible(args['file'])}: {plural(events, 'event')}")
    return ctx.result(changed=("settings",))


def _export(ctx: Context, args: Args) -> Result:
    from inspector.exporting import export

    written = export(ctx.debugger, args["format"], Path(args["file"]))
    ctx.say(f"{visible(args['file'])}: {written}")
    return ctx.result()


def _assert(ctx: Context, args: Args) -> Result:
    expression = compile_expression(args["expr"])
    scope = ctx.debugger.scope()
    if expression.true(scope):
        ctx.debugger.expected = ctx.debugger.expected or not expression.names.isdisjoint(("finding", "findings"))
        return ctx.result(data=True)
    ctx.say(f"assertion failed at event {ctx.debugger.timeline.now}: {expression.source}")
    ctx.say(*(f"  {source} = {value}" for source, value in dict(expression.sides(scope)).items()))
    return ctx.result("failed", data=False)


def _source(ctx: Context, args: Args) -> Result:
    path = Path(args["file"])
    text = read_script(path)
    status, error = "ok", ""
    for number, command, result in ctx.debugger.source(text, path.name):
        ctx.say(*result.lines)
        if not result.ok:
            error = f"{path.name}:{number}: {shorten(command, 120)}: {result.error or 'failed'}"
            ctx.say(f"{path.name}:{number}: {shorten(command, 120)}")
            status = result.status
    return ctx.result(status, error=error, changed=("now", "stops", "displays", "focus", "marks", "branch", "settings"))


def read_script(path: Path, most: int = 4 << 20) -> str:
    """Raises CommandError for a file that is not there, too large, or not text."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CommandError(f"{path}: cannot be read: {error.strerror}") from None
    if len(data) > most:
        raise CommandError(f"{path}: a script has at most {most >> 20} MiB, this file {len(data) >> 20} MiB")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise CommandError(
            f"{path}: byte {error.start} is not UTF-8; a script is a text with one command a line"
        ) from None


def _set(ctx: Context, args: Args) -> Result:
    name, value = args["name"], args["value"].strip()
    if name in ABOUT:
        ctx.debugger.settings.set(name, value)
        ctx.say(f"{name} = {ctx.debugger.settings.show(name)}")
        return ctx.result(changed=("settings",))
    if not ctx.debugger.can_act:
        raise CommandError(f"{name} is an option of a running engine, and there is none here")
    return stop_result(ctx, act(ctx, SetOption(name=name, value=value)))


def _show(ctx: Context, args: Args) -> Result:
    names = [args["name"]] if args["name"] else list(ABOUT)
    ctx.say(*(f"{name} = {ctx.debugger.settings.show(name)}  ({ABOUT[name]})" for name in names))
    return ctx.result()


def _echo(ctx: Context, args: Args) -> Result:
    ctx.say(visible(args["text"] or ""))
    return ctx.result()


def _history(ctx: Context, args: Args) -> Result:
    lines = ctx.debugger.history[-(args["count"] or SHOWN) :]
    first = len(ctx.debugger.history) - len(lines) + 1
    if first > 1 and not args["count"]:
        ctx.say(f"{first - 1} earlier; history {len(ctx.debugger.history)} shows all")
    ctx.say(*(f"{first + i}  {visible(line)}" for i, line in enumerate(lines)))
    return ctx.result()


def _help(ctx: Context, args: Args) -> Result:
    from inspector.commands.manual import help_lines

    ctx.say(*help_lines(ctx.debugger.registry, args["topic"] or ""))
    return ctx.result()


def _quit(ctx: Context, args: Args) -> Result:
    ctx.debugger.finished = True
    return ctx.result("quit")
