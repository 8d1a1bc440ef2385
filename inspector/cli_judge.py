"""``metrale-inspect judge A B``: what kind of difference is there between two files of states?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from inspector.analysis.judge_files import Judged
    from inspector.analysis.profile import PartError

FAILED, USAGE, UNREADABLE = 1, 2, 3


def judge(
    a: Annotated[Path, typer.Argument(metavar="A.safetensors", help="The states found.")],
    b: Annotated[Path, typer.Argument(metavar="B.safetensors", help="The states expected.")],
    layout: Annotated[str, typer.Option(help="Layout of both: vllm, sglang, ... or axes. Default: as stored.")] = "",
    layout_a: Annotated[str, typer.Option("--layout-a", help="Layout of A.")] = "",
    layout_b: Annotated[str, typer.Option("--layout-b", help="Layout of B.")] = "",
    h_pattern: Annotated[str, typer.Option(help="Regular expression for names of h, with a group for the layer.")] = "",
    conv_pattern: Annotated[str, typer.Option(help="The same for conv.")] = "",
    place_a: Annotated[str, typer.Option("--place-a", help="Which place of A, when it holds several.")] = "",
    place_b: Annotated[str, typer.Option("--place-b", help="Which place of B.")] = "",
    slot_a: Annotated[int, typer.Option("--slot-a", help="Slot or batch entry of A's tensors.")] = -1,
    slot_b: Annotated[int, typer.Option("--slot-b", help="Slot or batch entry of B's tensors.")] = -1,
    offset_a: Annotated[int, typer.Option("--conv-offset-a", min=0, help="First column of A's window.")] = 0,
    offset_b: Annotated[int, typer.Option("--conv-offset-b", min=0, help="First column of B's window.")] = 0,
    columns_a: Annotated[int, typer.Option("--conv-columns-a", min=0, help="How many columns of A count.")] = 0,
    columns_b: Annotated[int, typer.Option("--conv-columns-b", min=0, help="How many columns of B count.")] = 0,
    h_shape: Annotated[str, typer.Option(help="Shape of flat rows of h, such as 32,128,128.")] = "",
    conv_shape: Annotated[str, typer.Option(help="Shape of flat rows of conv, such as 8192,3.")] = "",
    arithmetic: Annotated[str, typer.Option(help="Dtype of the activations; read off the windows by default.")] = "",
    json: Annotated[bool, typer.Option("--json", help="Print the verdict as JSON.")] = False,
) -> None:
    """Say what kind of difference two files of recurrent states show, and why.

    Exit status: 0 bitwise or rounding, 1 anything else, 2 usage, 3 a file that cannot be read or compared.
    """
    from engine.errors import UserError
    from inspector.analysis.judge_files import Side, judge_files
    from inspector.analysis.layout import LayoutError, parse_layout
    from inspector.analysis.noise import DEFAULTS

    if arithmetic and arithmetic not in DEFAULTS:
        raise typer.BadParameter(f"{arithmetic!r}: expected one of {', '.join(DEFAULTS)}", param_hint="--arithmetic")
    sides = []
    for which, place, slot, offset, columns in (
        (layout_a, place_a, slot_a, offset_a, columns_a),
        (layout_b, place_b, slot_b, offset_b, columns_b),
    ):
        try:
            chosen = parse_layout(which or layout) if which or layout else None
        except LayoutError as error:
            raise typer.BadParameter(str(error), param_hint="--layout") from None
        sides.append(
            Side(
                layout=chosen,
                h_pattern=h_pattern,
                conv_pattern=conv_pattern,
                place=place,
                slot=slot if slot >= 0 else None,
                offset=offset,
                columns=columns,
                h_shape=_shape(h_shape, "--h-shape"),
                conv_shape=_shape(conv_shape, "--conv-shape"),
            )
        )
    try:
        judged = judge_files(a, b, sides[0], sides[1], arithmetic)
    except UserError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(UNREADABLE) from None
    typer.echo(_json(judged) if json else "\n".join(lines(judged)))
    if not judged.verdict.benign:
        raise typer.Exit(FAILED)


def _shape(text: str, option: str) -> tuple[int, ...]:
    parts = text.split(",") if text else []
    if not all(part.strip().isdecimal() and len(part) < 10 for part in parts):
        raise typer.BadParameter(f"{text!r}: expected sizes such as 32,128,128", param_hint=option)
    return tuple(int(part) for part in parts)


def _json(judged: Judged) -> str:
    import json

    from inspector.analysis.judge_files import report

    data: dict[str, Any] = report(judged)
    return json.dumps(data, indent=2, allow_nan=False)


def lines(judged: Judged) -> list[str]:
    """The verdict for people: what was compared, kind, evidence, remarks, and one line per layer."""
    from inspector.text import visible

    verdict = judged.verdict
    head = verdict.kind.replace("_", " ") + (f": {verdict.detail}" if verdict.detail else "")
    out = [f"{judged.text()}:", head, f"  {verdict.evidence}", f"  confidence {verdict.confidence:.2f}"]
    out += [f"  note: {flag}" for flag in verdict.flags]
    out.append("  layer       h error    conv error")
    out += [f"  {line.layer:5d}  {_cell(line.h)}  {_cell(line.conv)}" for line in verdict.profile]
    # names of places come from the file
    return [visible(line) for line in out]


def _cell(part: PartError) -> str:
    """The error; "=" for the same bits, "-" for a part that one side lacks."""
    text = "-" if not part.compared else "=" if part.equal else f"{part.error:.2e}"
    return f"{text:>12}"


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("judge")(judge)
