"""What is asked by default wherever something runs: the oracles that are cheap enough for every round."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inspector.judging.head import HeadOracle
from inspector.judging.layer0 import LayerZero

if TYPE_CHECKING:
    from engine.events import EnginePort, Event
    from sessions.finding import Finding
    from sessions.view import LedgerView


class Oracles:
    """``layer0`` for the recurrent state, ``head`` for the MTP head; each keeps quiet where it does not apply."""

    def __init__(self) -> None:
        self.layer0, self.head = LayerZero(), HeadOracle()

    def __call__(self, before: LedgerView, event: Event, after: LedgerView, engine: EnginePort) -> list[Finding]:
        found = self.layer0(before, event, after, engine)
        return found + self.head(before, event, after, engine)
