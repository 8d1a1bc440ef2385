"""Positions: what live has absorbed, what the KV holds, what the outputs say. Where most recurrent-state bugs show."""

from __future__ import annotations

from collections.abc import Iterable

from engine.events import (
    Accept,
    Checkpoint,
    Commit,
    Decode,
    Event,
    Landed,
    Place,
    Prefill,
    PrefixSave,
    RingSave,
    Rollback,
    RoundEnd,
    StateRollback,
    Verify,
    VerifyRow,
)
from sessions.finding import Finding
from sessions.invariants.base import OK, broken, invariant, parts_of, settled
from sessions.view import LedgerView, RequestFact, StateFact


def _subject(event: Event, after: LedgerView) -> RequestFact | None:
    """The request whose live state an event has just committed, None when it is in the middle of something."""
    if isinstance(event, Landed):
        if event.dst.kind != "live":
            return None
        request = after.requests.get(after.slot_owner.get(event.dst.slot, -1))
        # In the middle of a round the cursor and the copy may come in either order.
        return None if request is not None and request.round.open and request.round.rows else request
    if isinstance(event, Rollback) and event.outcome != "rolled_back":
        return None
    return after.requests.get(event.req)


@invariant(
    "positions-agree",
    at=("round_end", "prefill", "landed", "rollback"),
    says="h, conv and the KV cursor of a request count the same tokens between rounds.",
    cause="A state was not rolled back, only one of h and conv was, or the KV was rewound alone.",
)
def positions_agree(before: LedgerView, event: Event, after: LedgerView) -> Iterable[Finding]:
    request = _subject(event, after)
    live = settled(after, request)
    if live is None or request is None or live.h_position == live.conv_position == request.cursor:
        return OK
    return broken(
        "positions-agree",
        event,
        live.place,
        f"h = conv = cursor = {request.cursor}",
        f"{parts_of(live)}, cursor {request.cursor}",
        f"live state of r{request.req} has absorbed {parts_of(live)} tokens, its KV holds {request.cursor}"
        + _skew(live, request.cursor),
        request.req,
    )


def _skew(live: StateFact, cursor: int) -> str:
    """In words: ``: conv is 2 tokens ahead of h and KV``."""
    h, conv = (live.h_position or 0) - cursor, (live.conv_position or 0) - cursor
    if h == conv:
        return f": h and conv are {_tokens(h)} of KV"
    if h and conv:
        return f": h is {_tokens(h)} and conv {_tokens(conv)} of KV"
    return f": conv is {_tokens(conv)} of h and KV" if conv else f": h is {_tokens(h)} of conv and KV"


def _tokens(count: int) -> str:
    return f"{abs(count)} token{'' if abs(count) == 1 else 's'} {'ahead' if count > 0 else 'behind'}"


@invariant(
    "position-expected",
    at=("round_end", "rollback"),
    says="Between rounds live has absorbed prompt + outputs - 1 tokens: the last output is the pending input.",
    cause="The pending token was fed twice, left out, or outputs were cut without the state.",
)
def position_expected(before: LedgerView, event: RoundEnd | Rollback, after: LedgerView) -> Iterable[Finding]:
    request = _subject(event, after)
    live = settled(after, request)
    if live is None or request is None or not request.outputs:
        return OK
    have = live.h_position
    # A request that was preempted is prefilled again, over its outputs too.
    again = request.round.mode == "prefill" and have is not None and have < request.expected
    if have == request.expected or again:
        return OK
    return broken(
        "position-expected",
        event,
        live.place,
        f"{request.prompt_len} + {request.outputs} - 1 = {request.expected}",
        have,
        f"live state of r{request.req} is at {have}, prompt and outputs ask for {request.expected}",
        request.req,
    )


@invariant(
    "accept-length",
    at=("round_end",),
    says="A round that accepts n rows moves the request on by n tokens.",
    cause="The cursor was rewound by the wrong number (k instead of k - accepted, or by one).",
)
def accept_length(before: LedgerView, event: RoundEnd, after: LedgerView) -> Iterable[Finding]:
    request = after.requests.get(event.req)
    if request is None or request.status == "finished" or request.slot < 0:
        return OK
    told = request.round
    if not told.rows or not told.accepted or told.base < 0 or request.last_rollback > told.first:
        return OK
    expected = told.base + told.accepted
    if request.cursor == expected:
        return OK
    return broken(
        "accept-length",
        event,
        f"r{request.req}",
        f"{told.base} + {told.accepted} = {expected}",
        request.cursor,
        f"r{request.req} began the round at {told.base}, accepted {told.accepted} rows, and is at {request.cursor}",
    )


@invariant(
    "accepted-range",
    at=("accept", "commit", "state_rollback"),
    says="Accepted rows are 1..K (row 0 is always confirmed), and the commit is told the same numbers.",
    cause="Drafts were counted instead of rows, the count was clamped, or a discarded step wrote 0.",
)
def accepted_range(before: LedgerView, event: Accept | Commit | StateRollback, after: LedgerView) -> Iterable[Finding]:
    request = before.requests.get(event.req)
    told = request.round if request is not None else None
    if isinstance(event, StateRollback):
        k, low = max(after.start.k, told.k if told else 0), 0
    else:
        k, low = event.k, 1
    if not low <= event.accepted <= k:
        text = f"{event.kind} of r{event.req} names {event.accepted} accepted rows, possible are {low}..{k}"
        return broken("accepted-range", event, f"r{event.req}", f"{low}..{k}", event.accepted, text)
    if told is None or not told.rows:
        return OK
    if isinstance(event, Accept):
        if event.k != told.rows:
            text = f"r{event.req} accepts out of {event.k} rows, {told.rows} were verified"
            return broken("accepted-range", event, f"r{event.req}", f"k {told.rows}", f"k {event.k}", text)
        if len(event.emitted) > event.accepted:
            text = f"r{event.req} emits {len(event.emitted)} tokens for {event.accepted} accepted rows"
            return broken("accepted-range", event, f"r{event.req}", event.accepted, len(event.emitted), text)
    elif isinstance(event, Commit) and told.accepted and (event.accepted, event.k) != (told.accepted, told.k):
        expected, found = f"{told.accepted} of {told.k}", f"{event.accepted} of {event.k}"
        text = f"commit of r{event.req} is for {found} rows, accepted were {expected}"
        return broken("accepted-range", event, f"r{event.req}", expected, found, text)
    return OK


@invariant(
    "step-index",
    at=("commit", "state_rollback"),
    says="n accepted rows come back from step n - 1, written in this round (0: from the checkpoint; K: nothing moves).",
    cause="Step n was taken instead of n - 1, or a plane left over from an older round.",
)
def step_index(before: LedgerView, event: Commit | StateRollback, after: LedgerView) -> Iterable[Finding]:
    if not event.parts or event.bytes == 0:
        return OK
    slot = event.dst.slot
    full = isinstance(event, Commit) and event.accepted == event.k
    replayed = isinstance(event, Commit) and event.replayed > 0
    if full:
        text = f"all {event.accepted} rows of r{event.req} are accepted, live is right, and yet {event.src} was copied"
        return broken("step-index", event, event.dst, "no copy", event.src, text)
    wanted = Place("checkpoint", slot) if replayed or event.accepted == 0 else Place("step", slot, event.accepted - 1)
    if event.src != wanted:
        text = f"{event.accepted} accepted rows of r{event.req} are in {wanted}, copied was {event.src}"
        return broken("step-index", event, event.src, wanted, event.src, text)
    if isinstance(event, Commit) and replayed and event.replayed != event.accepted:
        text = f"{event.replayed} rows of r{event.req} are run again for {event.accepted} accepted ones"
        return broken("step-index", event, event.src, event.accepted, event.replayed, text)
    request, step = before.requests.get(event.req), before.states.get(event.src)
    if wanted.kind != "step" or request is None or step is None:
        return OK
    writers = [w for part, w in (("h", step.h_writer), ("conv", step.conv_writer)) if part in event.parts]
    if request.round.first and 0 < min(writers) < request.round.first:
        text = f"{event.src} was last written at @{min(writers)}, before the round of r{event.req} began: a stale plane"
        return broken("step-index", event, event.src, f"after @{request.round.first}", f"@{min(writers)}", text)
    return OK


@invariant(
    "clean-live",
    at=("round_end", "checkpoint", "ring_save", "prefix_save"),
    says="Live holds no rejected drafts when a round ends or a snapshot is taken of it.",
    cause="The commit after the verify was left out, moved nothing, or comes after the snapshot.",
)
def clean_live(
    before: LedgerView, event: RoundEnd | Checkpoint | RingSave | PrefixSave, after: LedgerView
) -> Iterable[Finding]:
    if isinstance(event, RoundEnd):
        request = after.requests.get(event.req)
        if request is None or request.status == "finished":
            return OK
        live = after.live(event.req)
    else:
        live = before.states.get(event.src) if event.src.kind == "live" and event.parts else None
    if live is None or not live.dirty or live.queued:
        return OK
    doing = "the round ends" if isinstance(event, RoundEnd) else f"{event.dst} is taken from it"
    text = f"{live.place} has absorbed all verify rows and no commit has cleaned it, and {doing}"
    return broken("clean-live", event, live.place, "committed", "dirty", text)


@invariant(
    "verify-rows",
    at=("verify_row", "verify"),
    says="A verify absorbs rows 0, 1, 2 ... in order, K of them.",
    cause="A row was left out, run twice, or two requests of a batch were mixed up.",
)
def verify_rows(before: LedgerView, event: VerifyRow | Verify, after: LedgerView) -> Iterable[Finding]:
    request = before.requests.get(event.req)
    if request is None:
        return OK
    rows = request.round.rows
    if isinstance(event, VerifyRow):
        if event.row == rows:
            return OK
        text = f"row {event.row} of r{event.req} was absorbed after {rows} rows"
        return broken("verify-rows", event, f"step:{event.slot}.{event.row}", rows, event.row, text)
    if event.k == rows or not rows:
        return OK
    text = f"a verify of {event.k} rows of r{event.req} absorbed {rows}"
    return broken("verify-rows", event, f"live:{event.slot}", event.k, rows, text)


@invariant(
    "token-fed",
    at=("prefill", "decode", "verify_row"),
    says="What is fed is the pending token, then the drafts; a prefill feeds the prompt.",
    cause="A stale or reordered token buffer, or a token that was fed twice.",
)
def token_fed(before: LedgerView, event: Prefill | Decode | VerifyRow, after: LedgerView) -> Iterable[Finding]:
    request = before.requests.get(event.req)
    if request is None:
        return OK
    if isinstance(event, Prefill):
        wanted = request.tokens[event.start : event.start + event.count]
        if len(event.tokens) != len(wanted) or event.tokens == wanted:
            return OK
        at = next((i for i, (a, b) in enumerate(zip(event.tokens, wanted, strict=True)) if a != b and b >= 0), -1)
        if at < 0:
            return OK
        text = (
            f"r{event.req} was fed token {event.tokens[at]} at position {event.start + at}, its prompt has {wanted[at]}"
        )
        return broken("token-fed", event, f"r{event.req}", wanted[at], event.tokens[at], text)
    row = event.row if isinstance(event, VerifyRow) else 0
    drafts = request.round.drafts
    wanted_token = request.pending if row == 0 else drafts[row - 1] if row <= len(drafts) else -1
    if event.token == wanted_token or event.token < 0 or wanted_token < 0:
        return OK
    what = "pending token" if row == 0 else f"draft {row}"
    text = f"r{event.req} was fed token {event.token}, its {what} is {wanted_token}"
    return broken("token-fed", event, f"r{event.req}", wanted_token, event.token, text)
