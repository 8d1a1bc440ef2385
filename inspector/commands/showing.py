"""Values of the expression language as one line of text."""

from __future__ import annotations

from typing import Any

from engine.events import Event, to_dict
from inspector.commands.fields import TABLES
from inspector.commands.values import Scope, Tensors, kind_of, plain
from inspector.text import quoted, shorten, visible
from sessions.view import PoolFact, RequestFact, RingFact


def show(value: Any, scope: Scope) -> str:
    """``value`` as one line of text."""
    value = plain(value, scope) if not isinstance(value, (RequestFact, PoolFact)) else value
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.9g}"
    if isinstance(value, str):
        return quoted(value, 400)
    if isinstance(value, tuple):
        return "(" + ", ".join(show(item, scope) for item in value) + ")"
    return _show_fact(value, scope)


def _show_fact(value: Any, scope: Scope) -> str:
    if isinstance(value, Tensors):
        lines = []
        for layer, array in scope.arrays(value):
            shape = "x".join(map(str, array.shape)) or "scalar"
            rms = float((array.astype("float64") ** 2).mean() ** 0.5) if array.size else 0.0
            lines.append(f"L{layer:02d}.{value.part} {shape} rms {rms:.6g}")
        return f"{value.place} " + ", ".join(lines)
    if isinstance(value, Event):
        body = " ".join(f"{k}={v}" for k, v in to_dict(value).items() if k not in ("kind", "digests"))
        return shorten(visible(f"{value.kind} {body}"), 400)
    for cls, noun, table in TABLES:
        if isinstance(value, cls):
            shown = {k: get(value, scope) for k, (_, get) in table.items() if k not in ("h", "conv", "text", "tokens")}
            body = " ".join(
                f"{k}={show(v, scope) if not isinstance(v, RingFact) else len(v.entries)}" for k, v in shown.items()
            )
            return f"{noun} {body}"
    return str(value) if isinstance(value, int) else f"({kind_of(value)})"
