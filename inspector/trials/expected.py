"""What a right verdict on each fault is: kinds, and where it matters the sign of the distance.

Written down from what each fault does to the bytes, not from what the judge says. ``RIGHT`` stands for faults that
leave every state as it should be: the finding is about a pool, a drafter or a missing word.
"""

from __future__ import annotations

from inspector.analysis.kinds import BENIGN, Verdict

RIGHT = frozenset(BENIGN)
POSITION = frozenset(("wrong_position",))
OWNER = frozenset(("wrong_owner", "zero"))  # a neighbour's row, or one that nobody has written yet
OTHER = frozenset(("wrong_owner", "wrong_position", "zero"))  # a cached state of anybody

KINDS: dict[str, frozenset[str]] = {
    "commit-skipped": POSITION,
    "zero-byte-copy": POSITION,
    "noop-default": POSITION,
    "live-dirty": POSITION,
    "attention-only-rewind": POSITION,
    "crop-conv-only": frozenset(("stale_h",)),
    "commit-lost": POSITION,
    "layer-left-behind": frozenset(("partial_layers",)),
    "conv-omitted": frozenset(("stale_conv",)),
    "conv-column-off": frozenset(("stale_conv",)),
    "conv-of-another-step": frozenset(("stale_conv",)),
    "parts-swapped": frozenset(("swapped_parts",)),
    "wrong-step-index": POSITION,
    "one-row-short": POSITION,
    "accepted-clamped": POSITION,
    "index-minus-one": OWNER,
    "accepted-of-previous-step": POSITION,
    "zero-draft-step": POSITION,
    "reads-checkpoint": POSITION,
    "pending-twice": POSITION,
    "one-token-tail": POSITION,
    "mixed-batch": POSITION | frozenset(("wrong_owner",)),  # a plane of an older round, or of the former tenant
    "shared-ring-slot": POSITION | RIGHT,  # found before the slot is overwritten: nothing is wrong yet
    "kept-failed-save": frozenset(("zero", "wrong_position")),
    "strided-index": OWNER,
    "commit-to-neighbour": POSITION | frozenset(("wrong_owner",)),
    "rank-local-free-order": frozenset(("partial_heads",)),
    "padded-row": frozenset(("wrong_owner",)),
    "stale-padding": frozenset(("wrong_owner",)),
    "pad-unmasked": POSITION,
    "slot-not-zeroed": frozenset(("wrong_owner", "stale_h")),
    "resume-without-reset": OWNER,
    "poisoned-slot": frozenset(("nonfinite",)),
    "half-restore": frozenset(("partial_layers",)),
    "rollback-while-pending": POSITION,
    "moved-before-landed": POSITION,
    "free-in-flight": RIGHT,  # found when the slot is given back: the next tenant is not there yet
    "stale-plane": POSITION,
    "double-free": RIGHT,
    "dummy-forgotten": RIGHT,
    "slot-leak": RIGHT,
    "block-leak": RIGHT,
    "h-through-bf16": frozenset(("dtype_drift",)),
    "h-through-fp16": frozenset(("dtype_drift",)),
    "h-transposed": frozenset(("transposed",)),
    "offset-overflow": POSITION,
    "nan-state": frozenset(("nonfinite",)),
    "pre-norm-mtp": RIGHT,
    "mtp-stale-hidden": RIGHT,
    "mtp-halves-swapped": RIGHT,
    "mtp-positions-shifted": RIGHT,
    "mtp-kv-not-rewound": RIGHT,
    "floored-key": POSITION,
    "backward-copy": frozenset(("zero", "wrong_position")),
    "precopy-skipped": POSITION,  # the chunk alone: shorter by all that came before
    "wrong-block-unit": OTHER,
    "preverify-key": POSITION,
    "chunk-grid-per-batch": OTHER,
    "published-unwritten": frozenset(("zero", "wrong_position", "wrong_owner")),
    "sealed-mutated": OTHER,
    "other-sessions-state": OTHER,
    "silent-refusal": RIGHT,
    "missing-stream-wait": POSITION,
    "overlapping-copy": frozenset(("torn_conv",)),
    "snapshot-before-producer": POSITION | frozenset(("zero",)),
    "chunk-drops-history": frozenset(("wrong_position", "stale_h")),  # shorter than it should be; which row is open
    "verify-drops-history": frozenset(("wrong_position", "stale_h")),
    "decode-by-prefill": frozenset(("rounding",)),
}
AHEAD = frozenset(
    ("commit-skipped", "zero-byte-copy", "noop-default", "live-dirty", "attention-only-rewind", "crop-conv-only",
     "commit-lost", "conv-omitted", "offset-overflow", "pending-twice", "floored-key", "pad-unmasked", "preverify-key",
     "rollback-while-pending", "moved-before-landed", "overlapping-copy")
)  # fmt: skip
BEHIND = frozenset(
    (
        "one-row-short",
        "accepted-clamped",
        "reads-checkpoint",
        "snapshot-before-producer",
        "one-token-tail",
        "stale-plane",
    )
)


def right(fault: str, verdict: Verdict | None) -> bool:
    """Whether ``verdict`` (None: no state is concerned) names what ``fault`` does."""
    allowed = KINDS.get(fault)
    if allowed is None:
        return False
    if verdict is None:
        return bool(allowed & RIGHT)
    if verdict.kind not in allowed:
        return False
    if verdict.tokens and verdict.kind in ("wrong_position", "stale_h", "stale_conv", "torn_conv"):
        return not (fault in AHEAD and verdict.tokens < 0) and not (fault in BEHIND and verdict.tokens > 0)
    return True
