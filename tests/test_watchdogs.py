"""Loop detectors: thresholds and the worked example of the scheduler they come from."""

from __future__ import annotations

from engine.watchdogs import (
    WatchdogConfig,
    content_loop,
    fuzzy_repetition,
    inter_tool_prose,
    repetition,
    thinking_loop,
)

CONFIG = WatchdogConfig(loop=True)
GOLDEN = [*range(100, 150), 12, *range(151, 160), *([*range(20, 39), 12] * 4)]


def never(token: int) -> bool:
    return False


def test_fuzzy_repetition_fires_on_the_worked_example_at_119_outputs_and_not_before() -> None:
    fired = [n for n in range(len(GOLDEN)) if fuzzy_repetition(GOLDEN[:n], CONFIG)]
    assert fired[0] == 119
    alarm = fuzzy_repetition(GOLDEN[:119], CONFIG)
    assert alarm is not None
    assert alarm.min_keep == 60


def test_fuzzy_repetition_needs_ninety_outputs() -> None:
    assert fuzzy_repetition([1, 2, 3] * 29, CONFIG) is None
    assert fuzzy_repetition([1, 2, 3] * 30, CONFIG) is not None


def test_fuzzy_repetition_allows_one_mismatch_in_twelve_tokens() -> None:
    base = list(range(36))
    lead = list(range(500, 620))
    two = [*base[:5], 900, *base[6:20], 901, *base[21:]]
    assert fuzzy_repetition([*lead, *base, *two, *base], CONFIG) is not None
    five = [900 + i if i % 7 == 0 else token for i, token in enumerate(base)]
    assert fuzzy_repetition([*lead, *base, *five, *base], CONFIG) is None


def test_exact_loop_is_looked_for_every_sixteenth_content_token_only() -> None:
    outputs = [*range(200, 250), *([1, 2, 3, 4] * 3)]
    assert content_loop(outputs, 63, never, CONFIG) is None
    alarm = content_loop(outputs, 64, never, CONFIG)
    assert alarm is not None
    assert alarm.min_keep == 64
    assert content_loop(outputs, 32, never, CONFIG) is None


def test_loops_that_differ_in_numbers_need_four_copies_and_a_number() -> None:
    outputs = [*range(200, 250), *(token for n in range(4) for token in (1, 2, 90 + n, 3))]
    assert content_loop(outputs, 64, never, CONFIG) is None
    assert content_loop(outputs, 64, lambda token: 90 <= token < 100, CONFIG) is not None
    assert content_loop(outputs[:-4], 64, lambda token: 90 <= token < 100, CONFIG) is None


def test_prose_budget() -> None:
    config = WatchdogConfig(prose_budget=384)
    assert inter_tool_prose(384, config) is None
    assert inter_tool_prose(385, config) is not None
    assert inter_tool_prose(100000, WatchdogConfig()) is None


def test_thinking_loop_is_looked_for_every_eighth_token_from_48_on() -> None:
    thought = list(range(40)) + [7, 8, 9, 10] * 4
    assert thinking_loop(thought)
    assert not thinking_loop(thought[:-1])
    assert not thinking_loop(list(range(300, 356)))


def test_repetition_gives_the_smallest_period() -> None:
    assert repetition([9, 1, 2, 1, 2, 1, 2], 2, 64, 3) == 2
    assert repetition([1, 2, 1, 2], 2, 64, 3) == 0
