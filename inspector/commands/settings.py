"""What ``set`` and ``show`` change: settings of the debugger, and options of the running engine."""

from __future__ import annotations

from dataclasses import dataclass

from inspector.commands.errors import UsageError
from inspector.text import suggest, visible

ENGINE_OPTIONS = {
    "drafts": "draft tokens per round",
    "drafter": "who drafts: mtp, lookup, none",
    "verify": "exact or batched",
    "digests": "digests with every write: on or off",
    "watchdogs": "loop detectors: on or off",
}
ABOUT = {
    "limit": "events after which continue, until and finish give up",
    "lines": "rows that info and list show at most",
    "findings": "stop when an invariant breaks: on or off",
    "tolerance": "relative tolerance of diff; 0 takes the default of the dtype",
}


@dataclass(slots=True)
class Settings:
    """Debugger settings; each has a name of :data:`ABOUT`."""

    limit: int = 1_000_000
    lines: int = 40
    findings: bool = True
    tolerance: float = 0.0

    def set(self, name: str, text: str) -> None:
        """Raises UsageError for an unknown name or a value that does not fit."""
        if name not in ABOUT:
            raise UsageError(f'there is no setting "{visible(name):.40}".{suggest(name, [*ABOUT, *ENGINE_OPTIONS])}')
        if name == "findings":
            self.findings = on_off(text)
        elif name == "tolerance":
            self.tolerance = _positive(name, text, float)
        else:
            setattr(self, name, int(_positive(name, text, int)))

    def show(self, name: str) -> str:
        value = getattr(self, name)
        return ("on" if value else "off") if isinstance(value, bool) else f"{value}"


def on_off(text: str) -> bool:
    """Raises UsageError for anything but a word for on or off."""
    if text in ("on", "true", "yes", "1"):
        return True
    if text in ("off", "false", "no", "0"):
        return False
    raise UsageError(f'on or off is expected, found "{visible(text):.40}"')


def _positive(name: str, text: str, kind: type[int] | type[float]) -> float:
    try:
        value = kind(text.replace(",", "").replace("_", ""))
    except ValueError:
        raise UsageError(f'{name} is a number, not "{visible(text):.40}"') from None
    if not 0 <= value < 1e12 or (kind is int and value < 1):
        raise UsageError(f"{name} is a positive number, found {visible(text):.40}")
    return value
