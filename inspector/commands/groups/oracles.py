"""Recomputed states as commands: golden, the layer-0 oracle, the conv decoder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.events import Place, TensorData
from inspector.commands.errors import CommandError, UsageError
from inspector.commands.groups.compare import BASES, Side, StateDiff, compare, report_diff
from inspector.commands.groups.tensors import layers_of, parts_of
from inspector.commands.places import PlaceSpec
from inspector.commands.registry import Arg, Args, Context, Registry, Result
from inspector.commands.render import table
from inspector.describe import token_text
from inspector.text import plural, visible
from sessions.finding import Finding

if TYPE_CHECKING:
    from inspector.commands.debugger import Instant
    from inspector.judging.layer0 import LayerZero
    from inspector.judging.states import Subject

WORST_HEADS = 4


def register(registry: Registry) -> None:
    registry.command(
        "golden", "compare", "recompute a state from its committed tokens and compare, by layer and head",
        Arg("place", "place", "live (default), ring 2, prefix 0, checkpoint, ...", optional=True),
        Arg("form", "choice", "steps: as the session absorbed them; single: one by one; prefill: in chunks",
            option=True, default="steps", choices=("steps", "single", "prefill")),
        aliases=("gold",), needs=("model", "request"), example="golden",
        details="steps uses the prefill chunks of the session, so that a healthy exact session is met bit for bit.",
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
    BASES.setdefault("golden", _golden_side)


# ---------------------------------------------------------------------------------------------------------- golden


def _golden(ctx: Context, args: Args) -> Result:
    spec: PlaceSpec = args["place"] or PlaceSpec("live")
    debugger = ctx.debugger
    place, instant = debugger.place(spec)
    about = about_place(ctx, spec, place, instant)
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


def about_place(ctx: Context, spec: PlaceSpec, place: Place, instant: Instant) -> Subject:
    """What a place should hold: by its label, or what the live state should have absorbed."""
    from dataclasses import replace

    from inspector.judging.states import snapshot, subject

    timeline = ctx.debugger.timeline
    if place.kind in ("ring", "prefix"):
        return snapshot(timeline, place, instant.seq, instant.branch)
    view = timeline.view_at(instant.seq, instant.branch)
    owner = view.slot_owner.get(place.slot, -1)
    about = subject(timeline, owner, instant.seq, instant.branch)
    if place.kind == "live":
        return about
    fact = view.states.get(place)
    if fact is None or fact.position is None:
        raise CommandError(f"{place} has no position of its own here: nothing says what it should hold")
    line = (*about.tokens, *about.future)
    if fact.position > len(line):
        raise CommandError(f"the {fact.position} tokens {place} should hold are not all known")
    chunks = tuple(span for span in about.chunks if span[1] <= fact.position)
    return replace(about, place=place, tokens=line[: fact.position], chunks=chunks, sources=(place, place))


def _bytes_of(ctx: Context, about: Subject) -> Side:
    from engine.events import TensorRef

    def tensor(layer: int, part: str) -> TensorData:
        source = about.sources[0 if part == "h" else 1]
        return ctx.debugger.tensor(TensorRef(source, layer, part), about.seq, about.branch)

    return Side(str(about), str(about.position), tensor)


def _golden_of(ctx: Context, about: Subject, form: str = "steps") -> Side:
    from engine.events import Golden

    asked = {
        "steps": Golden(tokens=about.tokens, chunks=about.chunks),
        "single": Golden(tokens=about.tokens),
        "prefill": Golden(tokens=about.tokens, form="prefill"),
    }[form]
    (data,) = ctx.debugger.timeline.compute(asked, about.seq, about.branch)
    index = {layer: i for i, layer in enumerate(data.layers)}
    label = f"golden ({form}, {plural(about.position, 'token')})"
    return Side(label, str(data.tokens), lambda layer, part: (data.h if part == "h" else data.conv)[index[layer]])


def _golden_side(ctx: Context, spec: PlaceSpec, place: Place, instant: Instant) -> Side:
    return _golden_of(ctx, about_place(ctx, spec, place, instant))


# ---------------------------------------------------------------------------------------------------------- oracle


def _oracle(ctx: Context, args: Args) -> Result:
    timeline, what = ctx.debugger.timeline, args["what"]
    if what == "check":
        return _check(ctx)
    oracle = _the_oracle(ctx)
    if what is None:
        ctx.say(_oracle_line(ctx))
        return ctx.result()
    if what == "every":
        if args["count"] is None:
            raise UsageError("oracle every needs a number: oracle every 4")
        oracle.every = args["count"]
    elif what in ("strict", "loose", "auto"):
        oracle.strict = {"strict": True, "loose": False, "auto": None}[what]
    oracle.on = what != "off"
    if oracle.on and not timeline.can_act:
        ctx.say("nothing runs here, so nothing is asked; oracle check looks at this instant")
    ctx.say(_oracle_line(ctx))
    return ctx.result(changed=("settings",))


def _the_oracle(ctx: Context) -> LayerZero:
    from inspector.judging.layer0 import LayerZero

    timeline = ctx.debugger.timeline
    if 0 not in timeline.start.recurrent_layers:
        raise CommandError("layer 0 of this model is not recurrent: the layer-0 oracle does not apply; golden does")
    if not isinstance(timeline.oracle, LayerZero):
        timeline.oracle = LayerZero()
    assert isinstance(timeline.oracle, LayerZero)
    return timeline.oracle


def _oracle_line(ctx: Context) -> str:
    oracle = _the_oracle(ctx)
    if not oracle.on:
        return "the layer-0 oracle is off"
    every = "every commit point" if oracle.every == 1 else f"every {oracle.every} commit points"
    bits = "any bit counts" if oracle.wants_bits(ctx.debugger.view) else "rounding passes"
    return f"the layer-0 oracle is on: {every}, {bits}; {plural(oracle.compared, 'state')} compared so far"


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
        (right,) = timeline.compute(FirstLayer(tokens=about.tokens, chunks=about.chunks))
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
        ctx.say(f"{about}: layer 0 is off by h {diff.h:.3g}, conv {diff.conv:.3g}: {word}")
        if diff.beyond:
            wrong += 1
            text = f"layer 0 of {about} is off by h {diff.h:.2g}, conv {diff.conv:.2g} after {about.position} tokens"
            finding = Finding(
                NAME, view.seq, req, str(about.place), f"the state after {about.position} tokens",
                f"h {diff.h:.2g}, conv {diff.conv:.2g} off", text,
            )  # fmt: skip
            timeline.add_finding(finding)
    return ctx.result("failed" if wrong else "ok", changed=("now",) if wrong else ())


# ---------------------------------------------------------------------------------------------------------- decode


def _decode(ctx: Context, args: Args) -> Result:
    from dataclasses import replace

    from inspector.analysis.conv_decoder import EMPTY
    from inspector.judging.windows import decode_place

    debugger = ctx.debugger
    spec: PlaceSpec = args["place"] or PlaceSpec("live")
    place, instant = debugger.place(spec)
    try:
        about = about_place(ctx, spec, place, instant)
    except CommandError:
        about = replace(about_place(ctx, spec, Place("live", place.slot), instant), place=place, sources=(place, place))
    decoded = decode_place(debugger.timeline, about)
    view = debugger.view_of(instant)
    texts = " ".join("-" if c.token == EMPTY else token_text(view, c.token) for c in decoded.columns)
    ctx.say(f"{place} believes the last tokens were {texts}")
    ctx.say(f"  {visible(decoded.reading.text(str(place)))}")
    rows = [
        (f"t-{len(decoded.columns) - 1 - i}" if i + 1 < len(decoded.columns) else "t",
         "-" if c.token == EMPTY else c.token, "empty" if c.token == EMPTY else token_text(view, c.token),
         f"{c.distance:.1e}", "exact" if c.ratio == float("inf") else f"{c.ratio:.0f}x", c.runner_up)
        for i, c in enumerate(decoded.columns)
    ]  # fmt: skip
    ctx.say(*table(("column", "id", "text", "distance", "runner-up", "its id"), rows, ("id", "its id")))
    ctx.say(f"  searched {plural(decoded.searched, 'id')}" + ("" if decoded.reading.certain else "; not certain"))
    return ctx.result("ok" if decoded.reading.right else "failed", data=decoded)
