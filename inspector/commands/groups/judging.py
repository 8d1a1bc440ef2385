"""``judge``: what kind of difference there is, with its evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from inspector.commands.errors import CommandError
from inspector.commands.places import PlaceSpec
from inspector.commands.registry import Arg, Args, Context, Registry, Result
from inspector.text import visible

if TYPE_CHECKING:
    from inspector.commands.debugger import Debugger
    from inspector.judging.judgement import Judgement
    from inspector.judging.verdicts import Judge

_JUDGES: WeakKeyDictionary[Debugger, Judge] = WeakKeyDictionary()


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
            "transposed, swapped parts, dtype drift, nonfinite, partial layers or heads (which, and what those are), "
            "torn conv (some channels only), unknown. Noise floors are measured on the open model."
        ),
    )(_judge)  # fmt: skip


def judge_of(debugger: Debugger) -> Judge:
    """The judge of a debugger's timeline; it keeps the measured noise floors."""
    from inspector.judging.verdicts import Judge

    judge = _JUDGES.get(debugger)
    if judge is None:
        judge = _JUDGES[debugger] = Judge(debugger.timeline)
    return judge


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
    from inspector.judging.picks import BETWEEN

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
        lines.append(f"  picks of the round: {flips.text(BETWEEN)}")
    if found.writer:
        lines.append(f"  last written by {debugger.describe(timeline.event(found.writer, about.branch), view)}")
    if not found.right and found.since and found.since != found.writer:
        lines.append(f"  wrong since {debugger.describe(timeline.event(found.since, about.branch), view)}")
    if view.faults and not found.right:
        lines.append(f"  switched on: fault {', '.join(view.faults)}")
    if found.inert is not None:
        lines.append(
            "  the probe is inert: " + ("every byte of the engine is as before" if found.inert else "NO, it is not")
        )
    return lines
