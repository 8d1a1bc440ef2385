"""``twin`` and ``blame``: a second run of the same request, and which block adds error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.events import Place, TensorData
from inspector.commands.groups.compare import BASES, Side
from inspector.commands.groups.oracles import about_place
from inspector.commands.places import PlaceSpec
from inspector.commands.registry import Arg, Args, Context, Registry, Result
from inspector.commands.render import table
from inspector.describe import token_text
from inspector.text import plural
from sessions.errors import NotAvailable
from sessions.finding import Finding

if TYPE_CHECKING:
    from inspector.commands.debugger import Instant


def register(registry: Registry) -> None:
    registry.command(
        "twin", "compare", "the same request without speculation; with a number: both in lock-step",
        Arg("rounds", "times", "rounds to run, stopping at the first token or state that differs", optional=True),
        needs=("live", "request"), example="twin 20",
    )(_twin)  # fmt: skip
    registry.command(
        "blame", "compare", "contribution diff: which block adds error to the residual stream, and which inherits it",
        Arg("what", "choice", "shapes: rows against steps; prefill: against steps; golden: live against golden",
            optional=True, default="shapes", choices=("shapes", "prefill", "golden")),
        aliases=("contribution",), needs=("model", "request"), example="blame golden",
    )(_contribution)  # fmt: skip
    BASES.setdefault("twin", _twin_side)


def _twin(ctx: Context, args: Args) -> Result:
    from engine.events import RunRound
    from inspector.commands.groups.common import act, stop_result
    from inspector.judging.twin import Twin

    debugger, timeline = ctx.debugger, ctx.debugger.timeline
    req = debugger.current().req
    twin = Twin(timeline, req)
    for left in range(args["rounds"] or 0, -1, -1):
        request = debugger.view.requests[req]
        result = twin.compare(request, timeline.now, timeline.branch)
        if not result.same or left == 0 or request.status == "finished" or debugger.cancelled:
            break
        stop = act(ctx, RunRound(req=req))
        if stop.reason not in ("done", "finding"):
            return stop_result(ctx, stop)
    view = debugger.view
    if result.at >= 0:
        texts = [token_text(view, token) for token in (result.mine, result.other)]
        text = (
            f"output {result.at + 1} of r{req} is {result.mine} {texts[0]}, its twin without speculation writes "
            f"{result.other} {texts[1]} (margin {result.margin:.3g})"
        )
        if any(event.kind == "accept" and event.forced for event in timeline.events(timeline.first, timeline.now)  # type: ignore[attr-defined]
               if event.req == req):  # fmt: skip
            text += "; drafts of r" + str(req) + " were accepted by hand, so the texts may part"
    elif result.states == "differ":
        text = f"the {plural(result.tokens, 'output')} of r{req} equal its twin's, but the states differ: judge"
    else:
        ctx.say(f"the {plural(result.tokens, 'output')} of r{req} equal those of its twin; states: {result.states}")
        return ctx.result(data=result, changed=("now",))
    ctx.say(text)
    timeline.add_finding(Finding("twin", timeline.now, req, f"r{req}", str(result.other), str(result.mine), text))
    return ctx.result("failed", data=result, changed=("now",))


def _twin_side(ctx: Context, spec: PlaceSpec, place: Place, instant: Instant) -> Side:
    from inspector.judging.twin import Twin

    if place.kind != "live":
        raise NotAvailable(f"the twin has a live state only, not {place}")
    about = about_place(ctx, place, instant)
    request = ctx.debugger.view_of(instant).requests[about.req]
    twin = Twin(ctx.debugger.timeline, about.req)
    twin.advance(request.outputs)
    states = twin.states()

    def tensor(layer: int, part: str) -> TensorData:
        found = states[layer].h if part == "h" else states[layer].conv
        assert isinstance(found, TensorData)
        return found

    return Side(f"twin of r{about.req}", str(twin.position), tensor)


def _contribution(ctx: Context, args: Args) -> Result:
    from inspector.judging.contribution import against_golden, by_form
    from inspector.judging.states import subject

    timeline = ctx.debugger.timeline
    about = subject(timeline, ctx.debugger.current().req)
    what = args["what"]
    if what == "golden":
        result, title = against_golden(timeline, about), "one token fed from live against the same from golden"
    else:
        form = "rows" if what == "shapes" else "prefill"
        result, title = by_form(timeline, about, form, "steps"), f"the next tokens as {form} against one by one"
    ctx.say(title)
    rows = [
        (f"L{b.layer:02d}", b.kind, f"{b.inherited:.2e}", f"{b.leaving:.2e}", f"{b.added:+.2e}", f"{b.own:.2e}")
        for b in result.blocks
    ]
    ctx.say(
        *table(
            ("layer", "block", "inherited", "leaving", "added", "own"), rows, ("inherited", "leaving", "added", "own")
        )
    )
    for kind in result.kinds:
        ctx.say(
            f"{kind.kind}: {plural(kind.blocks, 'block')}, added {kind.median_added:+.2e} in the median, "
            f"{kind.total_added:+.2e} together"
        )
    first = result.origin
    ctx.say("no block differs" if first is None and all(b.leaving == 0 for b in result.blocks) else
            "every block inherits an error" if first is None else
            f"the first block that differs on equal inputs: L{first.layer:02d} {first.kind}")  # fmt: skip
    return ctx.result(data=result)
