"""The fault gallery: switches that make the engine wrong in the ways real engines were wrong.

A fault is a set of changes on seams (``engine.seams``); no engine code is copied. Each says what it imitates and where
that was reported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from engine.runtime import EngineRefusal, Runtime
from engine.seams import Change


@dataclass(frozen=True, slots=True)
class FaultSpec:
    """``make`` builds fresh changes (seam point to function), so that a fault may keep state of its own."""

    name: str
    group: str
    imitates: str
    report: str
    make: Callable[[], Mapping[str, Change]]


FAULTS: dict[str, FaultSpec] = {}


def switch_fault(rt: Runtime, name: str, on: bool) -> None:
    """Switch a fault. Switching it to what it is already changes nothing. Raises EngineRefusal for an unknown name."""
    spec = FAULTS.get(name)
    if spec is None:
        raise EngineRefusal(f"no fault {name!r}; there are {', '.join(sorted(FAULTS))}")
    active = rt.active_faults.get(name)
    if on and active is None:
        changes = dict(spec.make())
        for point, change in changes.items():
            rt.seams.add(point, change)
        rt.active_faults[name] = changes
        rt.faults.add(name)
    elif not on and active is not None:
        for point, change in active.items():
            rt.seams.remove(point, change)
        del rt.active_faults[name]
        rt.faults.discard(name)
