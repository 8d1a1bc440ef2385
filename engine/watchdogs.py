"""Loop detectors that ask for a rollback, or end a request when it is declined.

Thresholds are those of the Metrale scheduler: exact end-anchored repetition, fuzzy repetition, prose budget between
tool calls, and the loop inside thinking, which only forces the closing tag. ``min_keep`` is the engine's name for the
least number of tokens a rollback has to drop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

NUMERIC = -1


@dataclass(frozen=True, slots=True)
class Alarm:
    """A detector fired: its name, the least number of outputs to drop, and what it saw."""

    name: str
    min_keep: int
    detail: str


@dataclass(frozen=True, slots=True)
class WatchdogConfig:
    """``loop`` is the lever of the two repetition detectors; ``prose_budget`` 0 switches that detector off."""

    enabled: bool = True
    loop: bool = False
    min_repeats: int = 3
    prose_budget: int = 0
    fuzzy_divisor: int = 12


def repetition(tail: Sequence[int], low: int, high: int, repeats: int) -> int:
    """Smallest period in [low, high] at which ``tail`` ends in ``repeats`` equal copies; 0 when there is none."""
    n = len(tail)
    for period in range(low, min(high, n // repeats) + 1):
        if all(tail[n - 1 - i] == tail[n - 1 - i - period] for i in range(period * (repeats - 1))):
            return period
    return 0


def content_loop(
    outputs: Sequence[int], content_tokens: int, numeric: Callable[[int], bool], config: WatchdogConfig
) -> Alarm | None:
    """Exact repetition at the end of the outputs, or the same with every number folded into one symbol."""
    if content_tokens < 48 or content_tokens % 16:
        return None
    tail = list(outputs[-280:])
    period = repetition(tail, 2, 64, config.min_repeats)
    if period:
        return Alarm("content_loop", 64, f"period {period}, {config.min_repeats} equal copies")
    folded = [NUMERIC if numeric(token) else token for token in tail]
    period = repetition(folded, 2, 64, 4)
    if period and NUMERIC in folded[-period:]:
        return Alarm("content_loop", 64, f"period {period}, 4 copies that differ in numbers only")
    return None


def fuzzy_repetition(outputs: Sequence[int], config: WatchdogConfig) -> Alarm | None:
    """Three near-copies of a pattern of 40 down to 15 tokens at the end of at least 90 outputs."""
    if len(outputs) < 90:
        return None
    for width in range(40, 14, -1):
        if len(outputs) < 3 * width:
            continue
        a, b, c = outputs[-3 * width : -2 * width], outputs[-2 * width : -width], outputs[-width:]
        allowed = max(1, width // config.fuzzy_divisor)
        if _mismatches(a, b, allowed) <= allowed and _mismatches(b, c, allowed) <= allowed:
            return Alarm("fuzzy_repetition", 3 * width, f"three near-copies of {width} tokens")
    return None


def inter_tool_prose(prose_tokens: int, config: WatchdogConfig) -> Alarm | None:
    """More prose since the last tool call than the budget allows."""
    if config.prose_budget and prose_tokens > config.prose_budget:
        return Alarm("inter_tool_prose", 64, f"{prose_tokens} tokens of prose, budget {config.prose_budget}")
    return None


def thinking_loop(thought: Sequence[int]) -> bool:
    """Exact repetition inside thinking: at least 48 tokens, looked at every 8, period 4..20, three copies."""
    return len(thought) >= 48 and len(thought) % 8 == 0 and repetition(list(thought[-160:]), 4, 20, 3) > 0


def _mismatches(a: Sequence[int], b: Sequence[int], limit: int) -> int:
    count = 0
    for x, y in zip(a, b, strict=True):
        count += x != y
        if count > limit:
            break
    return count
