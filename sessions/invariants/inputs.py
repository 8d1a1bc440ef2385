"""What the drafter is fed with, and what is said when a cached state is passed over: contracts without a position."""

from __future__ import annotations

from collections.abc import Iterable

from engine.events import Draft, PrefixMiss
from sessions.finding import Finding
from sessions.invariants.base import OK, broken, invariant
from sessions.view import LedgerView


@invariant(
    "drafter-input",
    at=("draft",),
    says="The drafter's head is fed the trunk's newest hidden state, after the final norm.",
    cause="The hidden state before the final norm, or that of an earlier row, is handed over; only acceptance suffers.",
)
def drafter_input(before: LedgerView, event: Draft, after: LedgerView) -> Iterable[Finding]:
    if not event.fed or not event.hidden or event.fed == event.hidden:
        return OK
    text = f"the {event.source} head of r{event.req} was fed hidden state {event.fed}, the newest is {event.hidden}"
    return broken("drafter-input", event, f"r{event.req}", event.hidden, event.fed, text)


@invariant(
    "refusal-has-a-reason",
    at=("prefix_miss",),
    says="When tokens of a prompt are known and no snapshot is used, a reason is given.",
    cause="A capability check returns early: the prompt is computed again and nobody notices.",
)
def refusal_has_a_reason(before: LedgerView, event: PrefixMiss, after: LedgerView) -> Iterable[Finding]:
    if event.matched <= 0 or event.reason:
        return OK
    text = (
        f"{event.matched} tokens of the prompt of r{event.req} are cached, no snapshot was used, and no reason is given"
    )
    return broken("refusal-has-a-reason", event, f"r{event.req}", "a reason", "none", text)
