"""Invariants over the ledger: what holds in an engine that keeps recurrent state right.

Each is a function of (view before, event, view after) that is looked at only at its commit points, so a check costs a
few microseconds per event. All are on by default, each can be switched off.

``golden``, ``twin``, ``layer0-oracle`` and ``head-oracle`` need the model to run again, so they are not functions of a
view: whoever has the model makes findings under these names, and people switch them and ask ``why`` about them like any
other.
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.events import Event
from sessions.finding import Finding
from sessions.invariants import claims, copies, inputs, ownership, pools, positions, ring, snapshots
from sessions.invariants.base import INVARIANTS, Check, Invariant
from sessions.ledger import Ledger
from sessions.view import LedgerView

__all__ = ["INVARIANTS", "ORACLES", "Checker", "Invariant", "check_all", "explain"]

_MODULES = (positions, snapshots, copies, ownership, pools, ring, claims, inputs)
_RANK = {module.__name__: rank for rank, module in enumerate(_MODULES)}
for _name in sorted(INVARIANTS, key=lambda name: _RANK[INVARIANTS[name].check.__module__]):
    # Checked and listed in this order, whatever the order of the imports: what went wrong before what was believed.
    INVARIANTS[_name] = INVARIANTS.pop(_name)

ORACLES: dict[str, Invariant] = {
    name: Invariant(name, sentence, cause, (), lambda before, event, after: ())
    for name, sentence, cause in (
        (
            "golden",
            "The state equals the one recomputed by running the committed tokens from scratch.",
            "Something outside the ledger's facts: arithmetic, a kernel, bytes overwritten in place.",
        ),
        (
            "twin",
            "Greedy text equals that of the same request without speculation.",
            "A rollback or commit that is wrong in a way no counted position shows.",
        ),
        (
            "layer0-oracle",
            "h and conv of the first recurrent layer equal those computed from the committed token ids alone.",
            "A wrong token was absorbed, or a state of another position came back.",
        ),
        (
            "head-oracle",
            "The MTP head gives what its committed inputs give when they are fed to it again.",
            "The halves of its input are swapped, or its layer reads another KV; only acceptance suffers.",
        ),
    )
}


def explain(name: str) -> Invariant:
    """The invariant or oracle called ``name``. Raises KeyError with the names that exist."""
    found = INVARIANTS.get(name) or ORACLES.get(name)
    if found is None:
        raise KeyError(f"no invariant {name!r}; there are {', '.join(sorted({**INVARIANTS, **ORACLES}))}")
    return found


class Checker:
    """The invariants that are switched on, by kind of event. Keeps nothing between events: the same three arguments
    give the same findings. An invariant that stays broken is found again at its next commit point."""

    def __init__(self, disabled: Iterable[str] = ()) -> None:
        self._disabled = {explain(name).name for name in disabled}
        self._plan: dict[str, tuple[Check, ...]] = {}
        self._arrange()

    @property
    def disabled(self) -> frozenset[str]:
        """Names that are switched off."""
        return frozenset(self._disabled)

    def switch(self, name: str, on: bool) -> None:
        """Switch one invariant. Raises KeyError for an unknown name."""
        (self._disabled.discard if on else self._disabled.add)(explain(name).name)
        self._arrange()

    def enabled(self, name: str) -> bool:
        """Whether findings of this name are wanted. Raises KeyError for an unknown name."""
        return explain(name).name not in self._disabled

    def _arrange(self) -> None:
        plan: dict[str, list[Check]] = {}
        for item in INVARIANTS.values():
            if item.name not in self._disabled:
                for kind in item.commit_points:
                    plan.setdefault(kind, []).append(item.check)
        self._plan = {kind: tuple(checks) for kind, checks in plan.items()}

    def check(self, before: LedgerView, event: Event, after: LedgerView) -> list[Finding]:
        """Findings of one event."""
        findings: list[Finding] = []
        for check in self._plan.get(event.kind, ()):
            found = check(before, event, after)
            if found:
                findings += found
        return findings


def check_all(events: Iterable[Event], checker: Checker | None = None) -> list[Finding]:
    """Fold ``events`` from the beginning and collect every finding."""
    checker = Checker() if checker is None else checker
    ledger, findings = Ledger(), []
    before = ledger.view
    for event in events:
        after = ledger.apply(event)
        findings += checker.check(before, event, after)
        before = after
    return findings
