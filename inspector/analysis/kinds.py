"""The verdict: which kinds of difference there are, and what is said about one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inspector.analysis.profile import LayerError
from inspector.analysis.shift import ahead

KINDS = (
    "bitwise",
    "rounding",
    "wrong_position",
    "stale_h",
    "stale_conv",
    "wrong_owner",
    "zero",
    "transposed",
    "swapped_parts",
    "dtype_drift",
    "nonfinite",
    "partial_layers",
    "partial_heads",
    "torn_conv",
    "unknown",
)
BENIGN = ("bitwise", "rounding")


@dataclass(frozen=True, slots=True)
class Verdict:
    """``kind`` is one of :data:`KINDS`; ``evidence`` says in one sentence what was seen.

    ``parts``: "h+conv", "h", "conv" or "". ``layers``: model layer numbers that differ. ``heads``, and ``channels`` of
    conv: set when only these differ. ``tokens``: how far found is ahead (+) or behind (-), None when not known.
    ``owner`` and ``match``: whose state it is, and the label of the candidate it equals. ``dtype``: for a drift.
    ``inner``: for partial kinds, what the touched layers, heads or channels look like. ``flags``: further remarks.
    ``confidence``: 1 for a bitwise fact, 0.9 for a pattern with a second witness, 0.5 to 0.8 for a pattern alone, less
    for a guess. ``profile``: all measurements.
    """

    kind: str
    evidence: str
    parts: str = ""
    layers: tuple[int, ...] = ()
    heads: tuple[int, ...] = ()
    channels: tuple[int, ...] = ()
    tokens: int | None = None
    owner: str = ""
    match: str = ""
    dtype: str = ""
    inner: str = ""
    flags: tuple[str, ...] = ()
    confidence: float = 1.0
    profile: tuple[LayerError, ...] = ()

    @property
    def benign(self) -> bool:
        """Bitwise or rounding."""
        return self.kind in BENIGN

    @property
    def errors(self) -> dict[int, tuple[float, float]]:
        """Relative (h, conv) errors by layer: what :func:`~inspector.analysis.noise.measured_floor` takes."""
        return {line.layer: (line.h.error, line.conv.error) for line in self.profile}

    @property
    def detail(self) -> str:
        """A few words: how many tokens, whose, which dtype, which layers."""
        words = [self.inner.replace("_", " ")]
        if self.tokens:
            words.append(ahead(self.tokens))
        words += [f"owner {self.owner}" if self.owner else "", f"equals {self.match}" if self.match else "", self.dtype]
        if self.kind in ("partial_layers", "zero") or (self.kind in ("dtype_drift", "transposed") and self.layers):
            words.append(listed("layer", self.layers))
        if self.heads:
            words.append(listed("head", self.heads))
        if self.channels:
            words.append(listed("conv channel", self.channels))
        return ", ".join(word for word in words if word)


def listed(noun: str, values: Sequence[int]) -> str:
    """``layer 2``, ``layers 0-2, 4``."""
    return f"{noun if len(values) == 1 else noun + 's'} {numbers(values)}"


def differ(values: Sequence[int]) -> str:
    """The verb for so many."""
    return "differs" if len(values) == 1 else "differ"


def numbers(values: Sequence[int]) -> str:
    """0, 1, 2, 4 as "0-2, 4"; long lists are cut."""
    runs: list[list[int]] = []
    for value in sorted(values):
        if runs and value == runs[-1][1] + 1:
            runs[-1][1] = value
        else:
            runs.append([value, value])
    words = [str(a) if a == b else f"{a}-{b}" for a, b in runs]
    return ", ".join(words[:8]) + (", ..." if len(words) > 8 else "")
