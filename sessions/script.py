"""How a recorded action is done again without a drafter and without a person.

What a person answered is given again at the same Decision; what the drafter proposed stands in the recorded Decision
and is handed to the engine, so the same events come, defaults included.
"""

from __future__ import annotations

from dataclasses import replace

from engine.events import Action, Decision, RunRound
from sessions.record import Record
from sessions.rows import ActionRow


def scripted(record: Record, branch: int, row: ActionRow, upto: int) -> Action:
    """The action of ``row`` with what its drafter proposed before event ``upto``."""
    asked, taken = row.asked, row.taken
    if not isinstance(asked, RunRound) or not isinstance(taken, RunRound):
        return asked
    action = replace(asked, req=taken.req)
    if asked.drafts is not None or taken.drafts is None:
        return action
    for event in record.events(branch, row.first, min(row.last, upto - 1)):
        if isinstance(event, Decision) and event.what == "drafts":
            return replace(action, drafts=event.tokens, source=taken.source)
    return action
