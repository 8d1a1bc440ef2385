"""``why``: the current finding in words, with the fault that is on and what to look at next."""

from __future__ import annotations

from judging_helpers import begin, broken, debug, open_timeline

from inspector.judging.why import NEXT, OF_STATE, chain, in_order, more
from sessions.finding import Finding
from sessions.invariants import INVARIANTS, ORACLES
from sessions.view import LedgerView


def test_why_tells_what_was_expected_what_is_since_when_and_who_wrote_it() -> None:
    timeline, _ = broken("conv-omitted")
    first = timeline.findings()[0]
    lines = debug(timeline)("why")
    text = "\n".join(lines)
    assert lines[0] == f"{first.name} of r1, since event {first.seq}, at live:0"
    for part in ("expected", "rule:", "usual cause:", "broken by", "last written by", "look next:"):
        assert part in text, part
    assert "fault conv-omitted is switched on" in text and "mlx-swift-lm#218" in text


def test_why_explains_the_first_finding_about_a_state_and_names_the_later_ones() -> None:
    timeline, _ = broken("conv-omitted", (2, 2, None))
    found = in_order(timeline.findings())
    assert len(found) > 2 and found[0].name == "positions-agree"
    run = debug(timeline)
    run("next")
    lines = run("why")
    assert lines[0].startswith(f"{found[0].name} of r1, since event {found[0].seq}")
    (later,) = (line for line in lines if "later about the same" in line)
    assert f"@{found[1].seq} {found[1].name}, " in later and f"why @{found[1].seq} explains that one" in later
    one = run(f"why @{found[1].seq}")
    assert one[0].startswith(f"{found[1].name} of r1, since event {found[1].seq}")
    assert any(f"the first one about this: @{found[0].seq} {found[0].name}" in line for line in one)
    newest = in_order(timeline.findings())[-1].seq
    assert f"since event {newest}" in run("why now")[0]
    run(f"goto @{found[0].seq}")
    assert not any("later" in line for line in run("why"))
    between = run(f"why @{found[0].seq + 1}") if found[1].seq > found[0].seq + 1 else run(f"why @{newest + 1}")
    assert "has no finding; the last before it:" in between[0]


def test_of_one_event_invariants_are_explained_before_oracles_and_each_can_be_asked_for() -> None:
    timeline, req = broken("conv-omitted")
    (seq,) = (finding.seq for finding in timeline.findings() if finding.name == "layer0-oracle")
    timeline.add_finding(Finding("positions-agree", seq, req, "live:0", "a", "b", "told after the oracle"))
    lines = debug(timeline)(f"why @{seq}")
    assert lines[0].startswith(f"positions-agree of r1, since event {seq}") and "told after" in lines[1]
    assert any(f"why @{seq} layer0-oracle explains it" in line for line in lines)
    assert debug(timeline)(f"why @{seq} layer0-oracle")[0].startswith("layer0-oracle of r1")
    assert "has no finding twin; it has positions-agree" in debug(timeline)(f"why @{seq} twin", "error")[0]


def test_what_was_undone_is_not_the_cause_of_what_broke_after() -> None:
    timeline, req = open_timeline(), 1
    begin(timeline)
    run = debug(timeline)
    run("save")
    old = []
    for _ in range(2):
        for line in ("fault conv-omitted", "accept 2", "sync", "fault conv-omitted off"):
            run(line)
        old.append(in_order(timeline.findings(None, timeline.now)))
        lines = run("why")
        assert lines[0].startswith(f"positions-agree of r{req}, since event "), lines
        assert not any("undone since" in line for line in lines)
        run("rollback ring 0")
        assert any("undone since by" in line and "ring:0.0 -> live:0" in line for line in run("why"))
        run("run")  # one without drafts
    second = next(finding for finding in old[1] if finding.seq > old[0][-1].seq)
    assert f"since event {second.seq}" in lines[0]
    run(f"goto @{old[0][-1].seq}")
    assert f"since event {old[0][0].seq}" in run("why")[0]


def test_a_state_that_another_requests_event_wrote_is_its_owners() -> None:
    timeline = open_timeline()
    begin(timeline), begin(timeline)
    slots = {req: fact.slot for req, fact in timeline.view.requests.items()}
    first, second = timeline.now - 2, timeline.now - 1
    timeline.add_finding(Finding("digest-after-restore", first, 1, f"live:{slots[2]}"))
    timeline.add_finding(Finding("positions-agree", second, 2, f"live:{slots[2]}"))
    timeline.add_finding(Finding("positions-agree", second, 1, f"live:{slots[1]}"))
    about = [chain(timeline, finding) for finding in timeline.findings()]
    assert [[(one.name, one.req) for one in found] for found in about] == [
        [("digest-after-restore", 1), ("positions-agree", 2)],
        [("digest-after-restore", 1), ("positions-agree", 2)],
        [("positions-agree", 1)],
    ]


def test_comparisons_say_in_words_what_they_compared_and_what_would_pass() -> None:
    timeline, _ = broken("conv-omitted", (2, None))
    run = debug(timeline)
    shown = "\n".join(run("golden"))
    assert "expected golden (as absorbed, " in shown and "least rtol" in shown and "inf" not in shown
    assert "none up to 1" in shown
    assert "expected golden (one by one, " in run("golden --form single")[0]


def test_findings_about_no_state_are_explained_from_the_first_of_their_kind() -> None:
    timeline, _ = broken("pre-norm-mtp", (2, None, None))
    assert {finding.name for finding in timeline.findings()} == {"drafter-input", "head-oracle"}
    lines = debug(timeline)("why")
    assert f"since event {timeline.findings()[0].seq}" in lines[0]


def test_only_known_findings_are_told_to_be_about_a_state() -> None:
    assert set(OF_STATE) <= {*INVARIANTS, *ORACLES}


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
