"""``why``: the current finding in words, with the fault that is on and what to look at next."""

from __future__ import annotations

from judging_helpers import begin, broken, debug, open_timeline

from inspector.judging.why import NEXT, more
from sessions.finding import Finding
from sessions.invariants import INVARIANTS, ORACLES
from sessions.view import LedgerView


def test_why_tells_what_was_expected_what_is_since_when_and_who_wrote_it() -> None:
    timeline, _ = broken("conv-omitted")
    first = timeline.findings()[0]
    lines = debug(timeline)("why")
    text = "\n".join(lines)
    assert f"since event {timeline.findings()[-1].seq}" in lines[0] or f"since event {first.seq}" in lines[0]
    for part in ("expected", "rule:", "usual cause:", "broken by", "last written by", "look next:"):
        assert part in text, part
    assert "fault conv-omitted is switched on" in text and "mlx-swift-lm#218" in text


def test_why_explains_the_oracle_too() -> None:
    timeline, _ = broken("pending-twice", (None,))
    text = "\n".join(debug(timeline)("why"))
    assert "layer0-oracle" in text and "judge finds the kind" in text and "token ids alone" in text


def test_every_next_step_belongs_to_a_finding_that_exists() -> None:
    assert set(NEXT) <= {*INVARIANTS, *ORACLES, "diverged"}


def test_a_fault_of_another_program_is_not_invented() -> None:
    (line,) = more(LedgerView(faults=("elsewhere",)), Finding("unheard-of", 1))
    assert "not one of this program's gallery" in line


def test_without_a_finding_why_says_so() -> None:
    timeline = open_timeline()
    begin(timeline)
    assert "no invariant is broken" in debug(timeline)("why")[0]
