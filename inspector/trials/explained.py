"""Why a fault was not caught at once, in words. What is not listed here is an unexplained miss."""

from __future__ import annotations

from inspector.trials.trial import Outcome

STEP_PLANES = frozenset(
    (
        "conv-of-another-step",
        "wrong-step-index",
        "one-row-short",
        "accepted-clamped",
        "zero-draft-step",
        "index-minus-one",
    )
)
HEAD = frozenset(("pre-norm-mtp", "mtp-stale-hidden"))


def explain(outcome: Outcome) -> str:
    """A sentence, "" for an outcome that needs none and for one that has no explanation (see :func:`unexplained`)."""
    fault, how = outcome.fault, outcome.how
    replay = outcome.settings.get("rollback") == "replay"
    batched = outcome.settings.get("verify") == "batched"
    if how == "idle" and replay and fault in STEP_PLANES:
        return "not applicable: replay mode keeps no step planes to take a wrong one from"
    if how == "idle" and replay and fault == "missing-stream-wait":
        return "not applicable: replay mode commits on the default stream, nothing is queued"
    if how == "error" and replay and fault == "index-minus-one":
        return "loud: replay mode has no such plane, so the engine stops with an error"
    if fault == "decode-by-prefill" and batched and how == "missed":
        return "rounding only, and a batched session rounds anyway: nothing is wrong by more than the measured floor"
    if fault in HEAD and how == "late":
        return "the head's input is told with its first draft, one token after it was fed"
    return ""


def applies(outcome: Outcome) -> bool:
    """Whether the fault can act in this mode at all."""
    return not (outcome.how in ("idle", "error") and explain(outcome))


def unexplained(outcome: Outcome) -> bool:
    """A miss, a late catch or a wrong verdict that nothing here explains."""
    if not outcome.fault:
        return outcome.findings > 0
    if explain(outcome):
        return outcome.how == "late" and not outcome.verdict_right
    return outcome.how != "at once" or not outcome.verdict_right
