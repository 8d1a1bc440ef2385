"""Looks at tensors: a table of all layers, or the numbers of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.events import Place, TensorData, TensorRef
from inspector.commands.errors import CommandError, UsageError
from inspector.commands.places import PlaceSpec
from inspector.commands.registry import Arg, Args, Context, Registry, Result
from inspector.commands.render import positions, table

if TYPE_CHECKING:
    from inspector.analysis.arrays import Floats
    from inspector.commands.debugger import Debugger, Instant

PARTS = ("h", "conv")
NO_LAYERS = "there are no tensors: the run tells of no recurrent layers (an imported trace has facts only)"
RAMP = " .:-=+*#%@"
ROWS, COLUMNS = 8, 8


def register(registry: Registry) -> None:
    registry.command(
        "examine", "look", "tensors of a place: all layers, or the numbers of one",
        Arg("place", "place", "live, ring 2.conv, live.h[3], live.h[3, 0], with @1043 for the past"),
        Arg("rows", "times", f"rows shown, {ROWS} without it", option=True, default=ROWS),
        Arg("map", "flag", "a picture by characters instead of numbers", option=True, default=False),
        aliases=("x",), needs=("model",), example="examine live",
        details=(
            "live.h[3, 0] is layer 3, head 0 of h, a row for each key. live.conv[3] has a row for each channel, "
            "newest input last. Tensors of the past come from stored ones or from running again, checked by digest."
        ),
    )(_examine)  # fmt: skip


def layers_of(debugger: Debugger, spec: PlaceSpec) -> list[int]:
    """The layers ``spec`` means. Raises CommandError for one that keeps no state."""
    known = debugger.view.start.recurrent_layers
    if spec.layer is None:
        return list(known)
    if spec.layer not in known:
        raise CommandError(
            f"layer {spec.layer} keeps no recurrent state; layers that do: {', '.join(map(str, known)) or 'none'}"
        )
    return [spec.layer]


def parts_of(spec: PlaceSpec) -> tuple[str, ...]:
    return (spec.part,) if spec.part else PARTS


def read(debugger: Debugger, place: Place, instant: Instant, layer: int, part: str) -> TensorData:
    """Raises NotAvailable, DivergedError, Cancelled."""
    return debugger.tensor(TensorRef(place, layer, part), instant.seq, instant.branch)


def _examine(ctx: Context, args: Args) -> Result:
    from inspector.analysis.arrays import as_floats
    from inspector.analysis.stats import tensor_stats

    debugger = ctx.debugger
    spec: PlaceSpec = args["place"]
    place, instant = debugger.place(spec)
    layers = layers_of(debugger, spec)
    if not layers:
        raise CommandError(NO_LAYERS)
    state = debugger.view_of(instant).states.get(place)
    rows, data = [], {}
    for layer in layers:
        for part in parts_of(spec):
            tensor = read(debugger, place, instant, layer, part)
            data[layer, part] = tensor
            stats = tensor_stats(tensor)
            rows.append(
                (
                    f"L{layer:02d}.{part}",
                    "x".join(map(str, stats.shape)),
                    stats.dtype,
                    f"{stats.rms:.6g}",
                    f"{stats.low:.5g}",
                    f"{stats.high:.5g}",
                    f"{stats.mean:.3g}",
                    " ".join(stats.flags) or "-",
                )
            )
    ctx.say(
        f"{place} at event {instant.seq}: position {positions(state)}"
        + (f", r{state.owner}" if state and state.owner >= 0 else "")
    )
    ctx.say(
        *table(("name", "shape", "dtype", "rms", "low", "high", "mean", "flags"), rows, ("rms", "low", "high", "mean"))
    )
    if spec.layer is not None and spec.part:
        tensor = data[spec.layer, spec.part]
        ctx.say(*_numbers(as_floats(tensor), spec, args["rows"], args["map"]))
    return ctx.result(data=data)


def _numbers(array: Floats, spec: PlaceSpec, rows: int, as_map: bool) -> list[str]:
    """A corner of one matrix: head 0 unless one is named."""
    if array.ndim == 3:
        head = spec.head or 0
        if head >= array.shape[0]:
            raise UsageError(f"head {head}: there are heads 0 to {array.shape[0] - 1}")
        matrix, title = array[head], f"head {head} of {array.shape[0]}"
    elif array.ndim == 2:
        first = min(spec.head or 0, array.shape[0] - 1)
        matrix, title = array[first:], f"channels from {first}" if first else "channels"
    else:
        matrix, title = array.reshape(1, -1), "values"
    height = min(rows, matrix.shape[0])
    if as_map:
        return [title, *_picture(matrix, height)]
    columns = min(COLUMNS, matrix.shape[1])
    body = [[f"{float(matrix[r, c]):.5g}" for c in range(columns)] for r in range(height)]
    head_line = ["", *(str(c) for c in range(columns))]
    lines = table(head_line, [[str(r), *cells] for r, cells in enumerate(body)], right=head_line)
    hidden = matrix.shape[0] - height, matrix.shape[1] - columns
    more = [f"... {hidden[0]} more rows, {hidden[1]} more columns"] if any(hidden) else []
    return [title, *lines, *more]


def _picture(matrix: Floats, height: int) -> list[str]:
    """Magnitudes by a ramp of characters; NaN is N, infinity I."""
    import numpy as np

    width = min(96, matrix.shape[1])
    part = np.abs(matrix[:height, :width])
    finite = part[np.isfinite(part)]
    top = float(finite.max()) if finite.size else 0.0
    lines = []
    for row in part:
        cells = []
        for value in row:
            if np.isnan(value):
                cells.append("N")
            elif np.isinf(value):
                cells.append("I")
            else:
                cells.append(RAMP[min(len(RAMP) - 1, int(value / top * len(RAMP)))] if top else RAMP[0])
        lines.append("|" + "".join(cells) + "|")
    return [*lines, f'"{RAMP}" is 0 to {top:.5g}']
