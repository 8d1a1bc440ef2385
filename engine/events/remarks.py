"""Events that only tell: faults, settings, trouble, and calls of a trace that mean nothing here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from engine.events.base import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault(Event):
    """A fault of the gallery was switched on or off."""

    kind: ClassVar[str] = "fault"
    name: str = ""
    on: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Option(Event):
    """A setting of the running engine changed."""

    kind: ClassVar[str] = "option"
    name: str = ""
    value: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble(Event):
    """Something went wrong inside the engine or in a trace; ``place`` says where. The run may go on."""

    kind: ClassVar[str] = "trouble"
    text: str = ""
    place: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown(Event):
    """A call in an imported trace that has no meaning for state memory; kept and shown, never dropped."""

    kind: ClassVar[str] = "unknown"
    text: str = ""
    line: int = 0
