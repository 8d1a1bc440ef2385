"""More about a finding than its invariant says: where it began, which fault is on, what to look at and do next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from engine.events import Event, Place, StateCopy
from sessions.finding import Finding
from sessions.invariants import ORACLES
from sessions.view import LedgerView

if TYPE_CHECKING:
    from sessions.timeline import Timeline

# By the name of the finding: what shows the cause, as commands.
NEXT: dict[str, str] = {
    "positions-agree": "judge names the kind; diff live checkpoint shows which part moved; last live.conv its writer",
    "position-expected": "decode conv reads the tokens live really holds; list tokens shows the committed ones",
    "engine-agrees": "info cursors compares KV, h and conv; the first such finding is the one that counts",
    "clean-live": "judge says by how many tokens live is ahead; the commit of this round is missing or went elsewhere",
    "step-index": "info slots step lists the planes with their positions; the right one is accepted - 1",
    "accepted-range": "where tells rows and accepted; the count belongs to another step or request",
    "accept-length": "info cursors; the KV cursor was rewound by another number than the state",
    "bytes-moved": "diff live checkpoint: nothing was copied; the size or the method behind this copy is empty",
    "all-layers": "judge names the layers left behind",
    "digest-after-restore": "judge compares with golden: the bytes that arrived are not those that were saved",
    "snapshot-label": "info ring: the entry and its position; judge ring N reads what it holds",
    "ring-distinct-slots": "info ring: two entries name one slot; look at the truncation before",
    "ring-order": "info ring; the entries past the last rollback should be gone",
    "prefix-depth": "info prefix: tokens against position; judge prefix N says how far the state is past its key",
    "prefix-session": "info prefix: the session column",
    "sealed-immutable": "last PLACE shows both writers; judge the place",
    "written-before-read": "last PLACE: nobody wrote it; the save failed or was left out",
    "zeroed-on-reuse": "judge says whose bytes they were; rev step to the claim: no zero follows it",
    "read-after-sync": "info streams shows the copy that was not waited for",
    "released-at-rest": "info streams shows the copy; it lands in whoever claims the slot next",
    "pool-partition": "info pools and info slots: what the engine counts as free against what has an owner",
    "zeroed-alike": "judge counts what is not zero; rev continue to the last write of the former tenant",
    "one-writer": "judge the victim's live state; info slots shows owners",
    "one-owner": "info slots; rev continue to the first claim of that slot",
    "own-bytes": "judge names whose state it is",
    "padded-rows": "info slots: padding may write the dummy slot only",
    "index-in-range": "info slots: owner and range of the index",
    "released-on-finish": "info pools; the end of the request gave back less than it held",
    "drafter-input": "accepted.depth counters: acceptance falls while every state is right",
    "refusal-has-a-reason": "info prefix: the entry that would have fitted",
    "layer0-oracle": "judge finds the kind; decode conv reads the window; golden compares all layers",
    "head-oracle": "accepted.depth counters; every state is right, compare how the head's input is put together",
    "golden": "judge; diff live golden shows layers and heads",
    "twin": "goto the round before, judge there; the margin tells a near tie from a fault",
    "diverged": "the bytes changed without an event: break on the last event that wrote the place, and step",
}

# Findings after which the state of a request is wrong, or may be: the later ones follow from the first.
OF_STATE = frozenset(
    ("positions-agree", "position-expected", "accept-length", "accepted-range", "step-index", "clean-live",
     "verify-rows", "token-fed", "engine-agrees", "bytes-moved", "all-layers", "read-after-sync", "snapshot-label",
     "prefix-depth", "digest-after-restore", "sealed-immutable", "written-before-read", "zeroed-on-reuse",
     "zeroed-alike", "one-writer", "own-bytes", "padded-rows", "dtype-and-shape", "layer0-oracle", "golden", "twin")
)  # fmt: skip
# A copy from these brings back what was kept before, so it may undo what went wrong since.
KEPT = ("checkpoint", "ring", "prefix")


def in_order(found: Iterable[Finding]) -> list[Finding]:
    """By event; of one event invariants before oracles, which see only that it came out wrong."""
    return sorted(found, key=lambda finding: (finding.seq, finding.name in ORACLES))


def chain(timeline: Timeline, asked: Finding) -> list[Finding]:
    """The findings up to now about the same as ``asked``, itself among them, in order: the first is where it began.

    About the same is what concerns the state of one request (or one kept place) and was not undone since by a copy from
    before it; where no state is concerned, what breaks the same invariant in the same way."""
    view = timeline.view_at(asked.seq)
    whole, about = in_order(timeline.findings(None, max(timeline.now, asked.seq))), _subject(view, asked)
    alike = [other for other in whole if _subject(view, other) == about]
    low = high = asked.seq
    for other in reversed([other for other in alike if other.seq < asked.seq]):
        if undone_by(timeline, asked, other.seq, low) is not None:
            break
        low = other.seq
    for other in (other for other in alike if other.seq > asked.seq):
        if undone_by(timeline, asked, high, other.seq) is not None:
            break
        high = other.seq
    return [other for other in alike if low <= other.seq <= high]


def undone_by(timeline: Timeline, about: Finding, since: int, until: int) -> Event | None:
    """The event after ``since`` and up to ``until`` by which the request that a finding is about got a state back that
    is older than ``since``; None when there is none."""
    subject = _subject(timeline.view_at(about.seq), about)
    if not isinstance(subject, _State) or subject.kept:
        return None
    events = timeline.events(since + 1, until)
    return next((event for event in events if _brings_back(timeline, event, since, subject.req)), None)


class _State(NamedTuple):
    """The state of a request, or of a kept place of it."""

    req: int
    kept: str = ""


def _subject(view: LedgerView, finding: Finding) -> _State | tuple[str, int, str]:
    if finding.name not in OF_STATE:
        return finding.name, finding.req, finding.where
    where = finding.where.rsplit(" to ", 1)[-1]  # of a route the place that was written
    if where.startswith(("ring:", "prefix:")):
        return _State(finding.req, where)
    try:
        place = Place.from_text(where)
    except ValueError:
        return _State(finding.req)
    # An event in the round of one request may write the state of another; one that has ended has no state to confuse.
    tenant, told = view.slot_owner.get(place.slot, finding.req), view.requests.get(finding.req)
    return _State(finding.req if told is not None and told.status == "finished" else tenant)


def _brings_back(timeline: Timeline, event: Event, since: int, req: int) -> bool:
    if not isinstance(event, StateCopy) or event.dst.kind != "live" or event.src.kind not in KEPT or event.req != req:
        return False
    kept = timeline.view_at(event.seq - 1).states.get(event.src)
    return kept is not None and event.parts == "h+conv" and max(kept.h_writer, kept.conv_writer) < since


def more(view: LedgerView, finding: Finding) -> Iterator[str]:
    """Lines after the invariant's own: faults that are on, and what to look at next."""
    for name in view.faults:
        yield f"  fault {name} is switched on: {_fault(name)}"
    step = NEXT.get(finding.name)
    if step:
        yield f"  look next: {step}"


def _fault(name: str) -> str:
    from engine.faults import find_fault

    try:
        spec = find_fault(name)
    except ValueError:
        return "not one of this program's gallery"
    return f"{spec.imitates} ({spec.group}, {spec.report})"
