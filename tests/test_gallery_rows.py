"""F8 and F9: padding or a recycled slot reaches live state: when each fault acts, when it must not, the verdict."""

from __future__ import annotations

import pytest
from engine_helpers import loaded
from gallery_helpers import acts, judged
from judging_helpers import PROMPT, begin, open_timeline, rounds

from engine.events import FreeRequest, NewRequest, RunRound, SetFault, Zero
from inspector.judging.verdicts import Judge
from inspector.judging.windows import decode_place
from inspector.trials.trial import engines, run_trial


@pytest.mark.parametrize(
    ("name", "detector", "kind"),
    [
        ("stale-padding", "one-writer", "wrong owner"),
        ("pad-unmasked", "layer0-oracle", "wrong position"),
        ("resume-without-reset", "bytes-moved", "zero"),
        ("poisoned-slot", "zeroed-alike", "nonfinite"),
    ],
)
def test_caught_at_once_and_judged_right(name: str, detector: str, kind: str) -> None:
    outcome = run_trial(engines(loaded("float32"), dtype="float32"), name)
    assert (outcome.how, outcome.detector, outcome.verdict) == ("at once", detector, kind) and outcome.verdict_right


def test_padding_is_stale_only_after_another_verify() -> None:
    timeline = open_timeline()
    timeline.perform(SetFault(name="stale-padding"))
    first, second = begin(timeline), begin(timeline, (5, 6, 7, 8))
    rounds(timeline, first, 1, drafts=(9,))
    assert acts(timeline, "stale-padding") == 0 and timeline.findings() == []
    rounds(timeline, second, 2)
    rounds(timeline, first, 1, drafts=(9,))
    name, judgement = judged(timeline)
    assert (name, judgement.about.req, judgement.verdict.owner) == ("one-writer", second, f"r{first}")


def test_pad_tokens_are_named_as_tokens_the_request_never_had() -> None:
    timeline = open_timeline()
    timeline.perform(SetFault(name="pad-unmasked"))
    req = begin(timeline, PROMPT[:13])
    name, judgement = judged(timeline)
    assert name == "layer0-oracle" and (judgement.verdict.kind, judgement.verdict.tokens) == ("wrong_position", 3)
    assert timeline.view.requests[req].cursor == 13
    reading = decode_place(timeline, judgement.about).reading
    assert (reading.ids, reading.foreign) == ((312, 0, 0, 0), (0,))
    assert judgement.window.endswith("ending with [0, 0, 0], which this request never had")
    assert "which this request never had" in timeline.findings()[0].text


@pytest.mark.parametrize(("prompt", "pads"), [(15, 1), (14, 2), (16, 0), (32, 0), (3, 3)])
def test_there_are_as_many_pads_as_the_chunk_is_narrow(prompt: int, pads: int) -> None:
    timeline = open_timeline()
    timeline.perform(SetFault(name="pad-unmasked"))
    req = begin(timeline, PROMPT[:prompt])
    judgement = Judge(timeline).request(req)
    assert (judgement.verdict.tokens or 0) == pads and judgement.right == (not pads)


def test_a_resumed_request_goes_on_from_the_former_tenants_state() -> None:
    timeline = open_timeline()
    begin(timeline)
    second = begin(timeline, (5, 6, 7, 8))
    rounds(timeline, second, None)
    timeline.perform(SetFault(name="resume-without-reset"))
    timeline.perform(FreeRequest(req=second))
    timeline.perform(NewRequest(prompt=(*PROMPT, 9, 9), ignore_eos=True))
    name, judgement = judged(timeline)
    assert name == "bytes-moved" and timeline.findings()[0].text.startswith("prefix_hit")
    assert (judgement.verdict.kind, judgement.verdict.owner) == ("wrong_owner", f"r{second}")


def test_a_request_that_resumes_nothing_is_reset() -> None:
    timeline = open_timeline()
    first = begin(timeline)
    rounds(timeline, first, None)
    timeline.perform(SetFault(name="resume-without-reset"))
    timeline.perform(FreeRequest(req=first))
    timeline.perform(NewRequest(prompt=(5, 6, 7), ignore_eos=True))
    timeline.perform(RunRound())
    assert timeline.findings() == []


@pytest.mark.parametrize("digests", [True, False])
def test_what_stayed_in_a_recycled_slot_is_found_with_digests_and_without(digests: bool) -> None:
    timeline = open_timeline(digests=digests)
    first = begin(timeline)
    timeline.perform(SetFault(name="poisoned-slot"))
    second = begin(timeline, (5, 6, 7, 8))
    assert acts(timeline, "poisoned-slot") == 0  # never used before
    timeline.perform(FreeRequest(req=first))
    assert timeline.findings() == []
    begin(timeline, (9, 10, 11))
    name, judgement = judged(timeline)
    assert name == ("zeroed-alike" if digests else "layer0-oracle")
    assert judgement.verdict.kind == "nonfinite" and judgement.about.req not in (first, second)
    zeros = [e for e in timeline.events(1, timeline.now) if isinstance(e, Zero)]
    if digests:
        assert timeline.findings()[0].seq == zeros[-1].seq and judgement.verdict.layers == (0,)
