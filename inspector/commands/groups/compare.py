"""Comparison of states: any place against any base, at any two instants, with the numbers that tell causes apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engine.events import Place, TensorData
from inspector.commands.errors import CommandError
from inspector.commands.golden import golden_of
from inspector.commands.groups.tensors import NO_LAYERS, PARTS, layers_of, parts_of, read
from inspector.commands.places import Base, PlaceSpec
from inspector.commands.registry import Arg, Args, Context, Registry, Result
from inspector.commands.render import positions, table
from inspector.text import plural
from sessions.view import LedgerView

if TYPE_CHECKING:
    from inspector.analysis.diff import Diff
    from inspector.commands.debugger import Instant


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison: how it is called, where its state stands, its tensors by (layer, part)."""

    label: str
    position: str
    tensor: Callable[[int, str], TensorData]
    known: Callable[[int, str], str] = lambda layer, part: ""


# Computed bases: a name of places.COMPUTED -> how its side is made. Others add theirs here.
Make = Callable[[Context, PlaceSpec, Place, "Instant"], Side]
BASES: dict[str, Make] = {}


def _golden(ctx: Context, spec: PlaceSpec, place: Place, instant: Instant) -> Side:
    state = golden_of(ctx.debugger, place, instant)
    return Side(f"golden ({plural(state.data.tokens, 'token')})", str(state.data.tokens), state.tensor)


BASES["golden"] = _golden


@dataclass(frozen=True, slots=True)
class LayerDiff:
    """``diff`` is None when both digests are known and equal: no tensor was read."""

    layer: int
    part: str
    diff: Diff | None

    @property
    def equal(self) -> bool:
        return self.diff is None or self.diff.equal


@dataclass(frozen=True, slots=True)
class StateDiff:
    """Found against expected, layer by layer."""

    found: str
    expected: str
    rows: tuple[LayerDiff, ...]
    shift: str = ""

    @property
    def differing(self) -> list[LayerDiff]:
        return [row for row in self.rows if not row.equal]


def register(registry: Registry) -> None:
    registry.command(
        "diff", "compare", "compare a place with a base, layer by layer",
        Arg("place", "side", "what is there: live, ring 2, live.h[3], live@1043"),
        Arg("base", "base", "what it should be: a place, previous, @1043, 'mark, golden, twin"),
        Arg("layer", "count", "only this layer", optional=True),
        Arg("tol", "float", "relative tolerance; a difference beyond it is a failure", option=True),
        Arg("exact", "flag", "any difference is a failure", option=True, default=False),
        Arg("all", "flag", "show equal layers too", option=True, default=False),
        aliases=("D",), needs=("model",), example="diff live checkpoint",
        details=(
            "previous is the place before it was last written; an instant alone is the same place then. error is "
            "norm(found - expected) / norm(expected); least rtol is the smallest relative tolerance "
            "with which it would pass. "
            "Without --tol or --exact a difference is an answer, not a failure."
        ),
    )(_diff)  # fmt: skip


def _diff(ctx: Context, args: Args) -> Result:
    debugger = ctx.debugger
    spec: PlaceSpec = args["place"]
    if args["layer"] is not None:
        spec = replace(spec, layer=args["layer"])
    place, instant = debugger.place(spec)
    found = _side(ctx, place, instant)
    expected = _base(ctx, args["base"], spec, place, instant)
    layers = layers_of(debugger, spec)
    if not layers:
        raise CommandError(NO_LAYERS)
    tolerance = args["tol"] if args["tol"] is not None else debugger.settings.tolerance or None
    result = compare(ctx, found, expected, layers, parts_of(spec), tolerance)
    failed = _report(ctx, result, found, expected, args["all"], tolerance, args["exact"])
    return ctx.result("failed" if failed else "ok", data=result)


def _side(ctx: Context, place: Place, instant: Instant) -> Side:
    debugger = ctx.debugger
    view = debugger.view_of(instant)
    state = view.states.get(place)
    if state is None:
        raise CommandError(_never_written(view, place))
    layers = view.start.recurrent_layers
    digests = state.digests if len(state.digests) == len(layers) else ()

    def known(layer: int, part: str) -> str:
        return digests[layers.index(layer)][PARTS.index(part)] if digests else ""

    at = "" if instant.seq == debugger.timeline.now else f" @{instant.seq}"
    at += f" of branch {instant.branch}" if instant.branch != debugger.timeline.branch else ""
    return Side(
        f"{place}{at}", positions(state), lambda layer, part: read(debugger, place, instant, layer, part), known
    )


def _never_written(view: LedgerView, place: Place) -> str:
    """``ring:0.0 was never written up to event 60; written: live:0, ring:0.1``"""
    near = sorted((other for other in view.states if other.slot == place.slot), key=str)
    there = ", ".join(map(str, near)) or "no place of this slot"
    return f"{place} was never written up to event {view.seq}; written: {there}"


def _base(ctx: Context, base: Base, spec: PlaceSpec, place: Place, instant: Instant) -> Side:
    debugger = ctx.debugger
    if base.place is not None:
        # Without an instant of its own the base is meant at the instant of the other side.
        return _side(ctx, *debugger.place(base.place, instant))
    if base.when is not None:
        return _side(ctx, *debugger.place(replace(spec, when=base.when)))
    if base.name == "previous":
        state = debugger.view_of(instant).states.get(place)
        writer = max(state.h_writer, state.conv_writer) if state is not None else 0
        if writer <= debugger.timeline.first:
            raise CommandError(f"{place} was not written before event {instant.seq}: there is nothing to compare with")
        return _side(ctx, place, instant._replace(seq=writer - 1))
    make = BASES.get(base.name)
    if make is None:
        raise CommandError(f"{base.name} is not available in this session; bases: places, previous, @1043, 'mark")
    return make(ctx, spec, place, instant)


def compare(
    ctx: Context, found: Side, expected: Side, layers: list[int], parts: tuple[str, ...], tolerance: float | None
) -> StateDiff:
    """Digests first: what they call equal is not read."""
    from inspector.analysis.diff import diff_tensors
    from inspector.analysis.shift import best_shift
    from inspector.analysis.tolerance import Tolerance, default_tolerance

    rows: list[LayerDiff] = []
    shift = ""
    for part in parts:
        for layer in layers:
            if ctx.debugger.cancelled:
                raise CommandError("cancelled")
            digest = found.known(layer, part)
            if digest and digest == expected.known(layer, part):
                rows.append(LayerDiff(layer, part, None))
                continue
            a, b = found.tensor(layer, part), expected.tensor(layer, part)
            default = default_tolerance(a.dtype, b.dtype)
            given = Tolerance(tolerance, default.atol) if tolerance is not None else default
            diff = diff_tensors(a, b, given)
            rows.append(LayerDiff(layer, part, diff))
            if part == "conv" and not diff.equal and not shift and len(diff.shape) == 2:
                best = best_shift(a, b)
                if best.matches(1e-3) is not None:
                    shift = f"L{layer:02d}.conv: {best.text('found', 'expected')}"
    return StateDiff(found.label, expected.label, tuple(rows), shift)


def _needs(rtol: float) -> str:
    """The smallest relative tolerance with which a tensor passes; beyond the largest that is tried there is none."""
    from inspector.analysis.tolerance import LOOSE

    return f"{rtol:.2g}" if rtol <= LOOSE else f"none up to {LOOSE:g}"


def report_diff(ctx: Context, result: StateDiff, found: Side, expected: Side) -> None:
    """Tell a comparison as ``diff`` does; a difference is no failure."""
    _report(ctx, result, found, expected, False, None, False)


def _stands(side: Side) -> str:
    return "never written" if side.position == "-" else f"position {side.position}"


def _report(
    ctx: Context, result: StateDiff, found: Side, expected: Side, everything: bool, tolerance: float | None, exact: bool
) -> bool:
    ctx.say(f"found {found.label}, {_stands(found)}; expected {expected.label}, {_stands(expected)}")
    shown = [row for row in result.rows if everything or not row.equal]
    cells = []
    for row in shown:
        d = row.diff
        if d is None:
            cells.append((f"L{row.layer:02d}.{row.part}", "yes", "0", "0", "-", "-", "-", "-", "0"))
            continue
        at = "-" if d.worst is None else "(" + ",".join(map(str, d.worst.at)) + ")"
        values = ("-", "-") if d.worst is None else (f"{d.worst.a:.6g}", f"{d.worst.b:.6g}")
        flags = "".join(mark for mark, on in (("N", d.mismatched > 0), ("0", d.zero_a)) if on)
        cells.append(
            (f"L{row.layer:02d}.{row.part}", "yes" if d.equal else "NO" + (f" {flags}" if flags else ""),
             f"{d.error:.3g}", f"{d.max_abs:.3g}", at, *values, f"{d.cosine:.6g}", _needs(d.passing.rtol))
        )  # fmt: skip
    if cells:
        head = ("name", "equal", "error", "max|d|", "at", "found", "expected", "cosine", "least rtol")
        ctx.say(*table(head, cells, right=("error", "max|d|", "found", "expected", "cosine", "least rtol")))
    beyond = [row for row in result.differing if row.diff is not None and not row.diff.passes]
    for part in dict.fromkeys(row.part for row in result.rows):
        of_part = [row for row in result.rows if row.part == part]
        wrong = [row for row in of_part if not row.equal]
        say = f"{part}: {plural(len(of_part), 'layer')}, "
        say += f"{len(wrong)} differ, the first is L{wrong[0].layer:02d}" if wrong else "all bitwise equal"
        ctx.say(say)
    if result.shift:
        ctx.say(f"best shift: {result.shift}")
    if exact:
        return bool(result.differing)
    if tolerance is None:
        return False
    ctx.say(
        f"{plural(len(beyond), 'tensor')} beyond the tolerance {tolerance:g}" if beyond else f"all within {tolerance:g}"
    )
    return bool(beyond)
