"""The record: ledger, invariants, session file, time travel. No torch, no Textual."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sessions.probe import Probe

__all__ = ["Probe"]


def __getattr__(name: str) -> Any:
    if name == "Probe":
        from sessions.probe import Probe

        return Probe
    raise AttributeError(f"module 'sessions' has no attribute {name!r}")
