"""The rows of one verify round as far as they are known at an instant, read from the events of that round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from inspector.tui.frame import VerifyRows
from sessions.view import LedgerView

LONGEST = 400


def verify_rows(timeline: Any, view: LedgerView, req: int, text: Callable[[int], str]) -> VerifyRows | None:
    """Rows of the verify round of ``req`` that is open at ``view``, or was its last; None when there is none.

    ``text`` gives the text of a token id. The accept decision is looked for after the instant too: it may be recorded.
    """
    request = view.requests.get(req)
    if request is None or request.round.mode != "verify" or not request.round.first:
        return None
    facts = request.round
    inputs: dict[int, int] = {}
    picks: dict[int, int] = {}
    decision = 0
    for event in timeline.events(facts.first, min(timeline.last, facts.first + LONGEST)):
        if event.req != req or event.seq < facts.first:
            continue
        if event.kind == "round_end" or (event.kind == "round" and event.seq > facts.first):
            break
        if event.kind == "verify_row" and event.seq <= view.seq:
            inputs[event.row], picks[event.row] = event.token, event.pick
        elif event.kind == "decision" and event.what == "accept":
            decision = event.seq
    count = max(len(facts.drafts) + 1 if facts.drafts else 0, len(inputs))
    for row, draft in enumerate(facts.drafts, 1):
        inputs.setdefault(row, draft)
    if not facts.accepted and request.pending >= 0:
        inputs.setdefault(0, request.pending)
    rows = tuple((inputs.get(row, -1), picks.get(row, -1)) for row in range(count))
    names = {token: text(token) for pair in rows for token in pair if token >= 0}
    return VerifyRows(facts.number, rows, tuple(sorted(names.items())), decision, facts.open)
