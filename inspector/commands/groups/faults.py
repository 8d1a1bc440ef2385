"""The fault gallery as commands: switch a fault, list them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.events import SetFault
from inspector.commands.groups.common import act, stop_result
from inspector.commands.registry import Arg, Args, Context, Registry, Result
from inspector.commands.render import table
from inspector.commands.settings import on_off
from inspector.text import shorten, suggest

if TYPE_CHECKING:
    from inspector.commands.debugger import Debugger


def register(registry: Registry) -> None:
    registry.command(
        "fault", "act", "switch a fault of the gallery on, or off again",
        Arg("name", "choice", "a name of the gallery; faults lists them", choices=_names, closed=False),
        Arg("switch", "choice", "on, off", optional=True, default="on", choices=("on", "off")),
        needs=("live", "past"), example="fault conv-omitted",
        details="The engine is wrong from here on in the way a real engine was wrong; in the past this opens a branch.",
    )(_fault)  # fmt: skip
    registry.command(
        "faults", "look", "the fault gallery: what each imitates and where it was reported",
        Arg("part", "rest", "a class (F2), a name, or a part of one", optional=True),
        example="faults F2",
    )(_faults)  # fmt: skip


def _names(debugger: Debugger) -> list[str]:
    from engine.faults import all_faults

    return [spec.name for spec in all_faults()]


def _fault(ctx: Context, args: Args) -> Result:
    stop = act(ctx, SetFault(name=args["name"], on=on_off(args["switch"])))
    if stop.reason == "done" and on_off(args["switch"]):
        ctx.say(_about(args["name"]))
    if stop.reason == "refused" and (hint := suggest(args["name"], _names(ctx.debugger))):
        ctx.say(hint.strip())
    return stop_result(ctx, stop)


def _about(name: str) -> str:
    from engine.faults import find_fault

    try:
        spec = find_fault(name)
    except ValueError:
        return name
    return f"{spec.name} ({spec.group}): {spec.imitates}; reported in {spec.report}"


def _faults(ctx: Context, args: Args) -> Result:
    from engine.faults import CLASSES, all_faults

    part = (args["part"] or "").strip()
    on = ctx.debugger.view.faults
    rows = [
        (spec.name, "on" if spec.name in on else "", spec.group, "silent" if spec.silent else "told",
         shorten(spec.imitates, 72), spec.report)
        for spec in sorted(all_faults(), key=lambda spec: int(spec.group[1:]))
        if not part or part == spec.group or part in spec.name
    ]  # fmt: skip
    if not rows:
        ctx.say(f"no fault matches; classes: {', '.join(f'{name} {about}' for name, about in CLASSES.items())}")
        return ctx.result("error")
    ctx.say(*table(("fault", "", "class", "tells", "imitates", "reported in"), rows))
    return ctx.result(data=rows)
