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
        "mixed-batch",
        "stale-plane",
    )
)
QUEUED = frozenset(("missing-stream-wait", "rollback-while-pending", "moved-before-landed", "free-in-flight"))


def explain(outcome: Outcome) -> str:
    """A sentence, "" for an outcome that needs none and for one that has no explanation (see :func:`unexplained`)."""
    fault, how = outcome.fault, outcome.how
    replay = outcome.settings.get("rollback") == "replay"
    if how == "idle" and replay and fault in STEP_PLANES:
        return "not applicable: replay mode keeps no step planes to take a wrong one from"
    if how == "idle" and replay and fault in QUEUED:
        return "not applicable: replay mode commits on the default stream, nothing is queued"
    if how == "idle" and fault == "rollback-while-pending":
        return "not applicable: in this run no request is rolled back while a commit of its own is queued"
    if how == "error" and replay and fault == "index-minus-one":
        return "loud: replay mode has no such plane, so the engine stops with an error"
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
