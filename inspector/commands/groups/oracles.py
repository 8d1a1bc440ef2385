"""Oracles and the judge as commands: golden, oracle, decode, twin, judge, contribution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from engine.events import Place, TensorData
from inspector.commands.errors import CommandError, UsageError
from inspector.commands.groups.compare import BASES, Side, StateDiff, compare, report_diff
from inspector.commands.groups.tensors import layers_of, parts_of
from inspector.commands.places import PlaceSpec
from inspector.commands.registry import Arg, Args, Context, Registry, Result
from inspector.commands.render import table
from inspector.describe import describe, token_text
from inspector.text import plural, visible
from sessions.errors import NotAvailable
from sessions.finding import Finding

if TYPE_CHECKING:
    from inspector.commands.debugger import Debugger, Instant
    from inspector.judging.layer0 import LayerZero
    from inspector.judging.states import Subject
    from inspector.judging.verdicts import Judge, Judgement

_JUDGES: WeakKeyDictionary[Debugger, Judge] = WeakKeyDictionary()
WORST_HEADS = 4


def register(registry: Registry) -> None:
    registry.command(
        "judge", "compare", "say what kind of difference there is: a verdict on a state, with its evidence",
        Arg("place", "place", "live (default), ring 2, prefix 0; with @1043 for another instant", optional=True),
        Arg("prove", "flag", "check that judging left every byte of the engine alone", option=True, default=False),
        aliases=("j",), needs=("model", "request"), example="judge",
        details=(
            "The round that made the state is done again from the bytes it began from, in the same shapes (must be "
            "equal bit for bit), token by token, and by its recorded inputs; then everything from scratch. When only "
            "the last differs the error is older, and the commit point where it began is judged. Kinds: bitwise, "
            "rounding, wrong position (by how many tokens), stale h, stale conv, wrong owner (whose), zero, "
            "transposed, dtype drift, nonfinite, partial layers or heads, unknown. Noise floors are measured on the open model."
        ),
    )(_judge)  # fmt: skip
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
            "Layer 0 of every settled request is recomputed from its committed ids after each round, rollback and wait, "
            "and compared; a difference is a finding and stops. auto (the default) lets rounding pass only in sessions "
            "that verified rows in a batch, strict never, loose always. It is on in live sessions whose layer 0 is "
            "recurrent; watch oracle is the same as oracle on."
        ),
    )(_oracle)  # fmt: skip
    registry.command(
        "decode", "look", "name the tokens that the conv window of layer 0 really contains",
        Arg("what", "choice", "conv", optional=True, default="conv", choices=("conv",)),
        Arg("place", "place", "live (default), checkpoint, step 1, ring 2, prefix 0", optional=True),
        needs=("model", "request"), example="decode conv live",
    )(_decode)  # fmt: skip
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
    BASES.setdefault("golden", _golden_side)
    BASES.setdefault("twin", _twin_side)


def judge_of(debugger: Debugger) -> Judge:
    """The judge of a debugger's timeline; it keeps the measured noise floors."""
    from inspector.judging.verdicts import Judge

    judge = _JUDGES.get(debugger)
    if judge is None:
        judge = _JUDGES[debugger] = Judge(debugger.timeline)
    return judge


# ------------------------------------------------------------------------------------------------------------- judge


def _judge(ctx: Context, args: Args) -> Result:
    debugger = ctx.debugger
    judge = judge_of(debugger)
    spec: PlaceSpec | None = args["place"]
    if spec is None or (spec.kind == "live" and spec.slot is None):
        req = debugger.current().req if spec is None or spec.req is None else spec.req
        seq = debugger.timeline.now if spec is None or spec.when is None else _here(ctx, spec)
        judgement = judge.request(req, seq, args["prove"])
    else:
        place, instant = debugger.place(spec)
        judgement = judge.place(place, _here(ctx, spec) if spec.when is not None else instant.seq)
    ctx.say(*judgement_lines(debugger, judgement))
    return ctx.result("ok" if judgement.right else "failed", data=judgement)


def _here(ctx: Context, spec: PlaceSpec) -> int:
    assert spec.when is not None
    instant = ctx.debugger.instant(spec.when)
    if instant.branch != ctx.debugger.timeline.branch:
        raise CommandError(f"judge looks at this branch; go to branch {instant.branch} first")
    return instant.seq


def judgement_lines(debugger: Debugger, found: Judgement) -> list[str]:
    """The answer, then the evidence."""
    from inspector.analysis.flips import Flips

    timeline, about = debugger.timeline, found.about
    view = timeline.view_at(about.seq, about.branch)
    lines = [visible(found.sentence())]
    if found.older:
        lines.append(
            f"  the error is older: judged is event {about.seq}, where it began; the rounds after it inherit it"
        )
    if about.queued:
        lines.append(f"  a copy into {about.place} is queued; judged is its source, {about.sources[0]}")
    for one in found.comparisons:
        detail = f" ({one.verdict.detail})" if one.verdict.detail else ""
        lines.append(f"  against {one.name}: {one.verdict.kind.replace('_', ' ')}{detail}")
    if found.verdict.kind != "bitwise":
        profile = found.verdict.profile
        lines.append("  h by layer:    " + "  ".join(f"L{line.layer:02d} {line.h.error:.2g}" for line in profile))
        lines.append("  conv by layer: " + "  ".join(f"L{line.layer:02d} {line.conv.error:.2g}" for line in profile))
    lines += [f"  {text}" for text in (visible(found.window), *map(visible, found.verdict.flags)) if text]
    if found.made is not None and found.made.picks:
        noise = judge_of(debugger).floors.logits if found.flips else 0.0
        flips = Flips(len(found.made.picks), found.flips, noise, True)
        lines.append(f"  picks of the round: {flips.text()}")
    if found.writer:
        lines.append(f"  last written by {describe(timeline.event(found.writer, about.branch), view)}")
    if not found.right and found.since and found.since != found.writer:
        lines.append(f"  wrong since {describe(timeline.event(found.since, about.branch), view)}")
    if view.faults and not found.right:
        lines.append(f"  switched on: fault {', '.join(view.faults)}")
    if found.inert is not None:
        lines.append(
            "  the probe is inert: " + ("every byte of the engine is as before" if found.inert else "NO, it is not")
        )
    return lines


# ------------------------------------------------------------------------------------------------------------ golden


def _golden(ctx: Context, args: Args) -> Result:
    spec: PlaceSpec = args["place"] or PlaceSpec("live")
    debugger = ctx.debugger
    place, instant = debugger.place(spec)
    about = _about(ctx, spec, place, instant)
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


def _about(ctx: Context, spec: PlaceSpec, place: Place, instant: Instant) -> Subject:
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
    return _golden_of(ctx, _about(ctx, spec, place, instant))


# ------------------------------------------------------------------------------------------------------------ oracle


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


# ------------------------------------------------------------------------------------------------------------ decode


def _decode(ctx: Context, args: Args) -> Result:
    from dataclasses import replace

    from inspector.analysis.conv_decoder import EMPTY
    from inspector.judging.windows import decode_place

    debugger = ctx.debugger
    spec: PlaceSpec = args["place"] or PlaceSpec("live")
    place, instant = debugger.place(spec)
    try:
        about = _about(ctx, spec, place, instant)
    except CommandError:
        about = replace(_about(ctx, spec, Place("live", place.slot), instant), place=place, sources=(place, place))
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


# -------------------------------------------------------------------------------------------------------------- twin


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
    about = _about(ctx, spec, place, instant)
    request = ctx.debugger.view_of(instant).requests[about.req]
    twin = Twin(ctx.debugger.timeline, about.req)
    twin.advance(request.outputs)
    states = twin.states()

    def tensor(layer: int, part: str) -> TensorData:
        found = states[layer].h if part == "h" else states[layer].conv
        assert isinstance(found, TensorData)
        return found

    return Side(f"twin of r{about.req}", str(twin.position), tensor)


# ------------------------------------------------------------------------------------------------------ contribution


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
