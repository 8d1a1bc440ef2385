"""Which decisions of a recorded action were already taken at an instant inside it."""

from __future__ import annotations

from dataclasses import replace

from engine.events import Action, Decision, RunRound
from sessions.record import Record
from sessions.rows import ActionRow


def with_decisions(record: Record, branch: int, row: ActionRow, seq: int) -> Action:
    """The action of ``row``, to be done again up to event ``seq``: all decisions when it is done to its end, otherwise
    those taken before ``seq``, the others as they were asked. Paused at a Decision, that one is still open."""
    if seq >= row.last or not isinstance(row.taken, RunRound) or not isinstance(row.asked, RunRound):
        return row.taken
    decided = {event.what for event in record.events(branch, row.first, seq - 1) if isinstance(event, Decision)}
    taken, action = row.taken, replace(row.asked, req=row.taken.req)
    if "drafts" in decided:
        action = replace(action, drafts=taken.drafts, source=taken.source)
    if "accept" in decided:
        action = replace(action, accept=taken.accept)
    if "boundary" in decided:
        action = replace(action, boundary=taken.boundary)
    return action


def without_decision(action: Action, what: str) -> Action:
    """``action`` with nothing said about the decision ``what``, so that an answer is free."""
    if not isinstance(action, RunRound):
        return action
    if what == "drafts":
        return replace(action, drafts=None, source="")
    return replace(action, accept=None) if what == "accept" else replace(action, boundary=-1)
