"""Recomputed states as commands: golden, the layer-0 oracle, the conv decoder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.events import Place, TensorData
from inspector.commands.errors import CommandError, UsageError
from inspector.commands.golden import recompute
from inspector.commands.groups.compare import Side, StateDiff, compare, report_diff
from inspector.commands.groups.tensors import layers_of, parts_of
from inspector.commands.places import PlaceSpec
from inspector.commands.registry import Arg, Args, Context, Registry, Result
from inspector.commands.render import table
from inspector.describe import token_text
from inspector.text import plural, visible
from sessions.errors import NotAvailable
from sessions.finding import Finding

if TYPE_CHECKING:
    from inspector.commands.debugger import Instant
    from inspector.judging.oracles import Oracles
    from inspector.judging.states import Subject

WORST_HEADS = 4
FORMS = {"steps": "as absorbed", "single": "one by one", "prefill": "in chunks"}


def register(registry: Registry) -> None:
    registry.command(
        "golden", "compare", "recompute a state from its committed tokens and compare, by layer and head",
        Arg("place", "place", "live (default), ring 2, prefix 0, checkpoint, ...", optional=True),
        Arg("form", "choice", "steps: as the session absorbed them; single: one by one; prefill: in chunks",
            option=True, default="steps", choices=tuple(FORMS)),
        aliases=("gold",), needs=("model", "request"), example="golden",
        details="steps uses the prefill chunks and batches of the session, so that a healthy one is met bit for bit.",
    )(_golden)  # fmt: skip
    registry.command(
        "oracle", "stop", "the layer-0 oracle at commit points: on, off, check now, strict, every N rounds",
        Arg("what", "choice", "on, off, check, strict, loose, auto, every", optional=True,
            choices=("on", "off", "check", "strict", "loose", "auto", "every")),
        Arg("count", "times", "with every: commit points", optional=True),
        example="oracle every 4",
        details=(
            "Layer 0 of every settled request is recomputed from its committed ids after each round, rollback and "
            "wait, and compared; a difference is a finding and stops. auto (the default) lets rounding pass only in "
            "sessions that verified rows in a batch, strict never, loose always. It is on in live sessions whose "
            "layer 0 is recurrent; watch oracle is the same as oracle on."
        ),
    )(_oracle)  # fmt: skip
    registry.command(
        "decode", "look", "name the tokens that the conv window of layer 0 really contains",
        Arg("what", "choice", "conv", optional=True, default="conv", choices=("conv",)),
        Arg("place", "place", "live (default), checkpoint, step 1, ring 2, prefix 0", optional=True),
        needs=("model", "request"), example="decode conv live",
    )(_decode)  # fmt: skip


# ---------------------------------------------------------------------------------------------------------- golden


def _golden(ctx: Context, args: Args) -> Result:
    spec: PlaceSpec = args["place"] or PlaceSpec("live")
    debugger = ctx.debugger
    place, instant = debugger.place(spec)
    about = about_place(ctx, place, instant)
    found = _bytes_of(ctx, about)
    expected = _golden_of(ctx, about, args["form"])
    result = compare(
        ctx, found, expected, layers_of(debugger, spec), parts_of(spec), debugger.settings.tolerance or None
    )
    report_diff(ctx, result, found, expected)
    _heads(ctx, result)
    if not result.differing:
        return ctx.result(data=result)
    _say_kind(ctx, about, args["form"])
    return ctx.result(data=result)


def _say_kind(ctx: Context, about: Subject, form: str) -> None:
    same = "judge says which kind of difference this is"
    ctx.say(same if form == "steps" else f"golden by {form} differs by rounding at least: another order of sums")


def _heads(ctx: Context, result: StateDiff) -> None:
    """The heads with the largest error, layer by layer."""
    rows: list[tuple[Any, ...]] = []
    for row in result.differing:
        if row.part != "h" or row.diff is None or not row.diff.heads:
            continue
        worst = sorted(row.diff.heads, key=lambda head: -head.error)[:WORST_HEADS]
        shown = "  ".join(f"{head.head}: {head.error:.2g}" for head in worst)
        rows.append((f"L{row.layer:02d}.h", f"{sum(h.error > 0 for h in row.diff.heads)}/{len(row.diff.heads)}", shown))
    if rows:
        ctx.say(*table(("name", "heads", "largest error by head"), rows))


def about_place(ctx: Context, place: Place, instant: Instant) -> Subject:
    """What a place should hold. Raises NotAvailable when nothing says it."""
    from inspector.judging.states import placed

    return placed(ctx.debugger.timeline, place, instant.seq, instant.branch)


def _bytes_of(ctx: Context, about: Subject) -> Side:
    from engine.events import TensorRef

    def tensor(layer: int, part: str) -> TensorData:
        source = about.sources[0 if part == "h" else 1]
        return ctx.debugger.tensor(TensorRef(source, layer, part), about.seq, about.branch)

    return Side(str(about), str(about.position), tensor)


def _golden_of(ctx: Context, about: Subject, form: str) -> Side:
    state = recompute(ctx.debugger.timeline, about, form)
    return Side(f"golden ({FORMS[form]}, {plural(about.position, 'token')})", str(state.data.tokens), state.tensor)


# ---------------------------------------------------------------------------------------------------------- oracle


def _oracle(ctx: Context, args: Args) -> Result:
    timeline, what = ctx.debugger.timeline, args["what"]
    if what == "check":
        return _check(ctx)
    oracles = _the_oracles(ctx)
    oracle = oracles.layer0
    if what is None:
        ctx.say(_oracle_line(ctx))
        return ctx.result()
    if what == "every":
        if args["count"] is None:
            raise UsageError("oracle every needs a number: oracle every 4")
        oracle.every = args["count"]
    elif what in ("strict", "loose", "auto"):
        oracle.strict = {"strict": True, "loose": False, "auto": None}[what]
    oracle.on = oracles.head.on = what != "off"
    if oracle.on and not timeline.can_act:
        ctx.say("nothing runs here, so nothing is asked; oracle check looks at this instant")
    ctx.say(_oracle_line(ctx))
    return ctx.result(changed=("settings",))


def _the_oracles(ctx: Context) -> Oracles:
    from inspector.judging.oracles import Oracles

    timeline = ctx.debugger.timeline
    if 0 not in timeline.start.recurrent_layers:
        raise CommandError("layer 0 of this model is not recurrent: the layer-0 oracle does not apply; golden does")
    if not isinstance(timeline.oracle, Oracles):
        timeline.oracle = Oracles()
    assert isinstance(timeline.oracle, Oracles)
    return timeline.oracle


def _oracle_line(ctx: Context) -> str:
    oracles = _the_oracles(ctx)
    oracle, head = oracles.layer0, oracles.head
    if not oracle.on:
        return "the layer-0 oracle is off"
    every = "every commit point" if oracle.every == 1 else f"every {oracle.every} commit points"
    bits = "any bit counts" if oracle.wants_bits(ctx.debugger.view) else "rounding passes"
    line = f"the layer-0 oracle is on: {every}, {bits}; {plural(oracle.compared, 'state')} compared so far"
    line += f"; of the MTP head {plural(head.compared, 'row')}" if head.compared else ""
    refused = [f"; {what} not looked at: {one.refused}" for what, one in (("layer 0", oracle), ("the head", head))
               if one.refused]  # fmt: skip
    return line + "".join(refused)


def _check(ctx: Context) -> Result:
    """Layer 0 of every request, here and now or in the past."""
    from engine.events import FirstLayer, TensorRef
    from inspector.judging.floor import measure_first
    from inspector.judging.layer0 import NAME, difference
    from inspector.judging.states import subject

    debugger, timeline = ctx.debugger, ctx.debugger.timeline
    view = debugger.view
    if 0 not in view.start.recurrent_layers:
        raise CommandError("layer 0 of this model is not recurrent: the layer-0 oracle does not apply; golden does")
    floor = None
    wrong = 0
    for req in sorted(view.requests.keys()):
        if view.requests[req].slot < 0:
            continue
        about = subject(timeline, req)
        (right,) = timeline.compute(FirstLayer(tokens=about.tokens, chunks=about.chunks, rows=about.rows))
        h, conv = (
            debugger.tensor(TensorRef(source, 0, part))
            for source, part in zip(about.sources, ("h", "conv"), strict=True)
        )
        if h == right.h[0] and conv == right.conv[0]:
            ctx.say(f"{about}: layer 0 is bit-equal to the one computed from its {plural(about.position, 'token')}")
            continue
        floor = floor or measure_first(timeline.compute, view.start)
        diff = difference(h, conv, right.h[0], right.conv[0], floor)
        word = "WRONG" if diff.beyond else "within rounding"
        ctx.say(f"{about}: layer 0: {diff}: {word}")
        if diff.beyond:
            wrong += 1
            text = f"layer 0 of {about} is not what its {plural(about.position, 'token')} give: {diff}"
            finding = Finding(
                NAME, view.seq, req, str(about.place), f"the state after {about.position} tokens",
                str(diff), text,
            )  # fmt: skip
            timeline.add_finding(finding)
    return ctx.result("failed" if wrong else "ok", changed=("now",) if wrong else ())


# ---------------------------------------------------------------------------------------------------------- decode


def _decode(ctx: Context, args: Args) -> Result:
    from dataclasses import replace

    from inspector.analysis.conv_decoder import EMPTY, MATCH
    from inspector.judging.windows import decode_place

    debugger = ctx.debugger
    spec: PlaceSpec = args["place"] or PlaceSpec("live")
    place, instant = debugger.place(spec)
    try:
        about = about_place(ctx, place, instant)
    except NotAvailable:
        about = replace(about_place(ctx, Place("live", place.slot), instant), place=place, sources=(place, place))
    decoded = decode_place(debugger.timeline, about)
    view = debugger.view_of(instant)
    read = visible(decoded.reading.text(str(place)))
    if decoded.reading.unmatched:
        ctx.say(read)
    else:
        texts = " ".join("-" if c.token == EMPTY else token_text(view, c.token) for c in decoded.columns)
        ctx.say(f"{place} believes the last tokens were {texts}", f"  {read}")
    rows = [
        (f"t-{len(decoded.columns) - 1 - i}" if i + 1 < len(decoded.columns) else "t",
         "-" if c.token == EMPTY else c.token,
         "empty" if c.token == EMPTY else token_text(view, c.token) if c.matches else "no match; the nearest",
         f"{c.distance:.1e}", "exact" if c.ratio == float("inf") else f"{c.ratio:.0f}x", c.runner_up)
        for i, c in enumerate(decoded.columns)
    ]  # fmt: skip
    ctx.say(*table(("column", "id", "text", "distance", "runner-up", "its id"), rows, ("id", "its id")))
    doubt = "" if decoded.reading.certain else "; not certain: some column has another id nearly as near"
    if decoded.reading.unmatched:
        doubt = f"; a match is a distance of at most {MATCH:g}"
    ctx.say(f"  searched {plural(decoded.searched, 'id')}{doubt}")
    return ctx.result("ok" if decoded.reading.right else "failed", data=decoded)
