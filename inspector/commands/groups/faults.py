"""Faults of the gallery: make the engine wrong on purpose."""

from __future__ import annotations

from engine.events import SetFault
from inspector.commands.groups.common import act, stop_result
from inspector.commands.registry import Arg, Args, Context, Registry, Result
from inspector.commands.settings import on_off


def register(registry: Registry) -> None:
    registry.command(
        "fault", "act", "switch a fault of the gallery on or off",
        Arg("name", "word", "its name; a wrong one lists them"),
        Arg("switch", "choice", "on, off", optional=True, default="on", choices=("on", "off")),
        needs=("live", "past"), example="fault conv-omitted",
        details="The engine is wrong in that way from here on; info engine lists what is on.",
    )(_fault)  # fmt: skip


def _fault(ctx: Context, args: Args) -> Result:
    return stop_result(ctx, act(ctx, SetFault(name=args["name"], on=on_off(args["switch"]))))
