"""A debugger that can be looked at while it runs."""

from __future__ import annotations

from collections.abc import Callable

from inspector.commands.debugger import Debugger


def _nothing() -> None:
    """Nobody watches."""


class WatchedDebugger(Debugger):
    """Every command asks ``cancelled`` between two events; ``pulse`` is called with that question. That is where frames
    of a running engine come from and where the speed limit is kept; both cost nothing when there is nothing to do."""

    pulse: Callable[[], None] = staticmethod(_nothing)

    @property
    def cancelled(self) -> bool:
        self.pulse()
        return super().cancelled


def watch(debugger: Debugger, pulse: Callable[[], None]) -> WatchedDebugger:
    """The same timeline, registry and name, watched. ``debugger`` must be fresh: it is not used again."""
    watched = WatchedDebugger(debugger.timeline, name=debugger.name, registry=debugger.registry)
    watched.stops, watched.displays, watched.focus = debugger.stops, debugger.displays, debugger.focus
    watched.settings, watched.history = debugger.settings, debugger.history
    watched.pulse = pulse
    return watched
