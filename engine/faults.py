"""The fault gallery: switches that make the engine wrong in the ways real engines were wrong.

A fault is a set of changes on seams (``engine.seams``; the points of the state memory are listed in
``engine.state.memory``); no engine code is copied. Each says what it imitates and where that was reported. ``told``
faults leave honest facts behind, so an invariant over the ledger sees them; ``silent`` ones tell nobody and show only
in the bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from engine.runtime import EngineRefusal, Runtime
from engine.seams import Change

CLASSES = {
    "F1": "rollback omitted or without effect",
    "F2": "conv not moved in step with h",
    "F3": "accepted count or step index wrong",
    "F4": "two paths disagree on where the live state is",
    "F5": "wrong unit or boundary",
    "F6": "prefix cache serves a state of another position or owner",
    "F7": "slot ownership: aliasing, reuse, stride",
    "F8": "padding rows",
    "F9": "lifecycle: reuse without reset, half restores",
    "F10": "asynchrony: stream order, counts of another step",
    "F11": "pool accounting: leaks",
    "F12": "numerics: dtype, overflow, NaN, layout",
    "F13": "a multi-token forward drops the history",
    "F14": "silent refusal",
    "F15": "drafter input contract",
}

ACTS = 1024
"""Acts of a fault that are remembered."""

Make = Callable[[Runtime], Mapping[str, Change]]


@dataclass(frozen=True, slots=True)
class FaultSpec:
    """``group`` is the class (F1 to F15), ``make`` builds fresh changes (seam point to function) for one engine, so
    that a fault may keep memory of its own. ``needs`` names a setting it depends on ("" for any)."""

    name: str
    group: str
    imitates: str
    report: str
    make: Make
    silent: bool = False
    needs: str = ""


FAULTS: dict[str, FaultSpec] = {}


def fault(
    name: str, group: str, imitates: str, report: str, *, silent: bool = False, needs: str = ""
) -> Callable[[Make], Make]:
    """Register a fault."""

    def register(make: Make) -> Make:
        FAULTS[name] = FaultSpec(name, group, imitates, report, make, silent, needs)
        return make

    return register


def find_fault(name: str) -> FaultSpec:
    """The fault called ``name``. Raises EngineRefusal with the names that exist."""
    import engine.gallery  # noqa: F401  registers the faults

    spec = FAULTS.get(name)
    if spec is None:
        raise EngineRefusal(f"no fault {name!r}; there are {', '.join(FAULTS)}")
    return spec


def all_faults() -> list[FaultSpec]:
    """Every fault, in the order of the classes."""
    import engine.gallery  # noqa: F401

    return list(FAULTS.values())


def _noting(rt: Runtime, name: str, point: str, change: Change) -> Change:
    """``change``, remembering in ``rt.acted`` when it made a difference."""
    acts = rt.acted.setdefault(name, [])

    def noting(value: Any, **context: Any) -> Any:
        if len(acts) >= ACTS:
            return change(value, **context)
        before = _touched(rt, value, context)
        changed = change(value, **context)
        if value is None:
            acted = before != _touched(rt, value, context)
        else:
            acted = not _same(changed, value) and not _harmless(rt, point, changed, context)
        if acted and (not acts or acts[-1] != rt.counters.seq):
            acts.append(rt.counters.seq)
        return changed

    return noting


def _touched(rt: Runtime, value: Any, context: Mapping[str, Any]) -> Any:
    """What a change at a point without a value can touch: the live state of the request."""
    request = context.get("request")
    return rt.memory.digests(request.seq.live) if value is None and request is not None else None


def _same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if hasattr(a, "equal") and hasattr(b, "equal"):
        return a.shape == b.shape and bool(a.equal(b))
    return bool(a == b)


def _harmless(rt: Runtime, point: str, changed: Any, context: Mapping[str, Any]) -> bool:
    """It came to nothing: no copy to wait for, a slot that was all zero anyway, a prefix that is cached already."""
    if point == "sync.skip":
        return not rt.memory.pending
    if point == "zero.skip":
        place = context.get("dst")
        view = rt.memory.places.view(place) if place is not None else None
        return view is not None and view.blob is not None and not bool(view.blob.any())
    if point == "prefix.coverage" and rt.prefix is not None:
        return rt.prefix.contains(rt.requests[context["req"]].seq.tokens[:changed])
    return False


def switch_fault(rt: Runtime, name: str, on: bool) -> None:
    """Switch a fault. Switching it to what it is already changes nothing. Raises EngineRefusal for an unknown name."""
    spec = find_fault(name)
    active = rt.active_faults.get(name)
    if on and active is None:
        changes = {point: _noting(rt, name, point, change) for point, change in spec.make(rt).items()}
        for point, change in changes.items():
            rt.seams.add(point, change)
        rt.active_faults[name] = changes
        rt.faults.add(name)
    elif not on and active is not None:
        for point, change in active.items():
            rt.seams.remove(point, change)
        del rt.active_faults[name]
        rt.faults.discard(name)
