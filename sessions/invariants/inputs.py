"""What the drafter is fed with, and what is said when a cached state is passed over: contracts without a position."""

from __future__ import annotations

from collections.abc import Iterable

from engine.events import Draft, PrefixMiss, RoundEnd
from sessions.finding import Finding
from sessions.invariants.base import OK, broken, invariant
from sessions.view import LedgerView


@invariant(
    "drafter-input",
    at=("draft", "round_end"),
    says="The drafter's head is fed the trunk's newest hidden state, after the final norm, at its own position; its KV "
    "holds one row for each token below the cursor.",
    cause="The hidden state before the final norm or of an earlier row is handed over, positions are shifted, or rows "
    "of rejected drafts stay; only acceptance suffers.",
)
def drafter_input(before: LedgerView, event: Draft | RoundEnd, after: LedgerView) -> Iterable[Finding]:
    name, where = "drafter-input", f"r{event.req}"
    if event.fed and event.hidden and event.fed != event.hidden:
        text = f"the head of {where} was fed hidden state {event.fed}, the newest is {event.hidden}"
        return broken(name, event, where, event.hidden, event.fed, text)
    request = after.requests.get(event.req)
    if isinstance(event, Draft) or event.head_rows < 0 or request is None or request.status == "finished":
        return OK
    cursor, rows, position = request.cursor, event.head_rows, event.fed_position
    if rows != cursor:
        text = f"the head of {where} keeps {rows} rows in its KV, {cursor} tokens are below the cursor"
        return broken(name, event, where, f"{cursor} rows", f"{rows} rows", text)
    if position not in (-1, cursor - 1):
        text = f"the head of {where} was fed its newest row at position {position}, it belongs to {cursor - 1}"
        return broken(name, event, where, f"position {cursor - 1}", f"position {position}", text)
    return OK


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
