"""Targets and texts as command lines write them."""

from __future__ import annotations

from engine.events import Place
from inspector.tui.widgets.content import Target


def quote(text: str) -> str:
    """``text`` as one word of a command line."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def place_words(target: Target | None) -> str:
    """A target as commands write it: ``ring:0.2``, ``live.h[4]``."""
    if target is None:
        return "live"
    kind, value = target
    if isinstance(value, Place):
        return value.to_text()
    if kind == "tensor" and isinstance(value, tuple):
        return f"live.{value[1]}[{value[0]}]"
    return str(value)
