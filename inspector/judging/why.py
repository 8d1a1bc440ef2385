"""More about a finding than its invariant says: which fault is on, what to look at, what to do next."""

from __future__ import annotations

from collections.abc import Iterator

from sessions.finding import Finding
from sessions.view import LedgerView

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
