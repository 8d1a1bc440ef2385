"""A pytest file that reproduces an instant: it opens the session file beside it and asserts what is found there.

With the settings of the engine in the session (``sessions.meta``) a second test lets the engine do it again.
"""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

from sessions.exporters.atomic import atomic
from sessions.finding import Finding
from sessions.invariants import check_all
from sessions.meta import CONFIG, MODEL
from sessions.timeline import Timeline
from sessions.view import LedgerView

HEAD = '''"""{title}

Made from the session {session} beside this file: event {event} of branch {branch}.
"""

from __future__ import annotations

from pathlib import Path

from sessions.finding import Finding
from sessions.invariants import check_all
from sessions.timeline import Timeline

SESSION = Path(__file__).with_name({session!r})
EVENT, BRANCH = {event}, {branch}
'''

FINDING = """
FINDING = Finding(
{fields}
)


def test_{name}_is_found() -> None:
    timeline = Timeline.open(SESSION, write=False)
    found = {source}
    assert FINDING in found
"""

FACTS = """
FACTS = {facts}


def test_facts_at_event_{event}() -> None:
    view = Timeline.open(SESSION, write=False).view_at(EVENT, BRANCH)
    found = {{str(place): (fact.owner, fact.h_position, fact.conv_position) for place, fact in view.states.items()}}
    assert found == FACTS
    assert {{req: fact.cursor for req, fact in view.requests.items()}} == {cursors}
"""

AGAIN = """

def test_the_engine_gives_the_same_events_again() -> None:
    from engine.config import EngineConfig
    from engine.engine import open_engine
    from sessions.replay import replay

    report = replay(SESSION, open_engine({model!r}, EngineConfig(**{config})))
    assert report.same, report.difference
"""


def write(timeline: Timeline, path: str | Path, seq: int | None = None, finding: Finding | None = None) -> Path:
    """Write a test of event ``seq`` (default now) of the current branch: it asserts ``finding`` (default: the first of
    that event), or without one the owner and positions of every place. The session is copied beside it when it is
    elsewhere; the copy's path is returned.

    Raises:
        NotAvailable: there is no such event.
        SessionError: it cannot be written.
    """
    target, seq = Path(path), timeline.now if seq is None else seq
    timeline.history.require(timeline.branch, seq)
    finding = finding or timeline.finding_at(seq)
    session = _beside(timeline, target)
    title = finding.text or finding.name if finding is not None else f"Facts after event {seq}."
    text = HEAD.format(title=_safe(title), session=session.name, event=seq, branch=timeline.branch)
    if finding is not None:
        text += _finding_test(timeline, finding)
    else:
        text = text.replace("from sessions.finding import Finding\nfrom sessions.invariants import check_all\n", "")
        text += _facts_test(timeline.view_at(seq), seq)
    if CONFIG in timeline.meta:
        config = json.loads(timeline.meta[CONFIG])
        text += AGAIN.format(model=timeline.meta.get(MODEL) or None, config=repr(config))
    with atomic(target) as part:
        part.write_text(text, encoding="utf-8", newline="\n")
    return session


def _finding_test(timeline: Timeline, finding: Finding) -> str:
    values = ",\n".join(f"    {field.name}={getattr(finding, field.name)!r}" for field in fields(finding))
    seen = finding in check_all(timeline.events(1, finding.seq))
    # what no invariant over the ledger finds again (golden, diverged) is asserted from the record
    source = "check_all(timeline.events(1, EVENT, BRANCH))" if seen else "timeline.findings(EVENT, EVENT, BRANCH)"
    name = re.sub(r"\W+", "_", finding.name)
    return FINDING.format(fields=values + ",", name=name, source=source)


def _facts_test(view: LedgerView, seq: int) -> str:
    facts = {
        str(place): (fact.owner, fact.h_position, fact.conv_position) for place, fact in sorted(view.states.items())
    }
    lines = "".join(f"    {place!r}: {values!r},\n" for place, values in facts.items())
    cursors = {req: fact.cursor for req, fact in sorted(view.requests.items())}
    return FACTS.format(facts="{\n" + lines + "}", event=seq, cursors=repr(cursors))


def _beside(timeline: Timeline, target: Path) -> Path:
    """The session file in the folder of ``target``; made when it is not there."""
    here = timeline.path
    if here is not None and here.parent.resolve() == target.parent.resolve():
        timeline.flush()
        return here
    session = target.with_suffix(".mtl")
    timeline.pack(session)
    return session


def _safe(text: str) -> str:
    """Text that cannot end a docstring."""
    return text.replace("\\", "/").replace('"', "'").replace("\n", " ")
