"""Golden, the layer-0 oracle, the conv decoder and the twin on a live timeline."""

from __future__ import annotations

from dataclasses import replace

import pytest
from engine_helpers import unnumbered
from hypothesis import given, settings
from hypothesis import strategies as st
from judging_helpers import PROMPT, begin, broken, debug, open_timeline, rounds
from model_helpers import load_tiny

from engine.config import EngineConfig
from engine.engine import Engine
from engine.events import (
    FreeRequest,
    Golden,
    NewRequest,
    Place,
    Rerun,
    Residuals,
    RollBack,
    RunRound,
    SetFault,
    SetOption,
    SyncSecondary,
    TensorRef,
)
from inspector.judging.floor import measure, measure_first
from inspector.judging.layer0 import NAME, LayerZero
from inspector.judging.oracles import Oracles
from inspector.judging.states import bitwise, equal, placed, read, states_of, subject
from inspector.judging.twin import Twin
from inspector.judging.verdicts import Judge
from inspector.judging.windows import decode_place
from sessions.errors import NotAvailable
from sessions.timeline import Timeline
from sessions.view import rows_upto


def names(timeline: Timeline) -> set[str]:
    return {finding.name for finding in timeline.findings()}


def golden_is_live(timeline: Timeline, req: int) -> bool:
    about = subject(timeline, req)
    (golden,) = timeline.compute(Golden(tokens=about.tokens, chunks=about.chunks, rows=about.rows))
    return equal(read(timeline, about.sources, about.seq, about.branch), states_of(golden))


@pytest.mark.parametrize("verify", ["exact", "batched"])
@pytest.mark.parametrize("mode", ["snapshot", "replay"])
def test_golden_with_the_chunks_of_the_ledger_meets_live_after_hits_forks_and_rollbacks(mode: str, verify: str) -> None:
    timeline = open_timeline(rollback=mode, verify=verify)
    req = begin(timeline)
    rounds(timeline, req, None, 2, 1, None)
    assert golden_is_live(timeline, req)
    second = begin(timeline, (*PROMPT, 5, 6))
    assert timeline.view.counters["tokens.skipped"] > 0
    assert timeline.view.requests[second].chunks[0] == (0, 16)
    assert golden_is_live(timeline, second)
    rounds(timeline, second, None, 2)
    assert golden_is_live(timeline, second)
    entries = timeline.view.requests[req].ring.entries
    if entries:
        timeline.perform(RollBack(req=req, to="length", value=entries[0].token_position))
        assert golden_is_live(timeline, req)


def test_between_accept_and_landing_the_source_of_the_queued_copy_is_the_state() -> None:
    timeline = open_timeline()
    req = begin(timeline)
    rounds(timeline, req, 2)
    about = subject(timeline, req)
    assert about.queued and about.sources[0].kind == "step"
    assert golden_is_live(timeline, req)


@pytest.mark.parametrize("settings", [{}, {"rollback": "replay"}, {"verify": "batched"}, {"dtype": "bfloat16"}])
def test_the_layer_zero_oracle_is_quiet_on_a_healthy_engine(settings: dict[str, str]) -> None:
    timeline = open_timeline(**settings)
    first, second = begin(timeline), begin(timeline, (*PROMPT[:20], 9))
    for accept in (None, 2, 1, None, 3):
        rounds(timeline, first, accept)
        rounds(timeline, second, accept)
    timeline.perform(FreeRequest(req=first))
    begin(timeline, (4, 5, 6))
    assert timeline.findings() == []
    assert isinstance(timeline.oracle, Oracles) and timeline.oracle.layer0.compared > 10


@pytest.mark.parametrize("name", ["pending-twice", "reads-checkpoint", "chunk-drops-history"])
def test_the_layer_zero_oracle_finds_what_no_fact_shows(name: str) -> None:
    timeline = open_timeline()
    req = begin(timeline)
    rounds(timeline, req, 3)
    timeline.perform(SetFault(name=name))
    rounds(timeline, req, None, drafts=())
    begin(timeline, tuple(range(700, 740)))
    assert names(timeline) == {NAME}
    quiet = open_timeline(oracle=False)
    req = begin(quiet)
    rounds(quiet, req, 3)
    quiet.perform(SetFault(name=name))
    rounds(quiet, req, None, drafts=())
    assert quiet.findings() == []


@pytest.mark.parametrize("mode", ["snapshot", "replay"])
@pytest.mark.parametrize("name", ["pending-twice", "verify-drops-history"])
def test_rows_that_began_from_a_wrong_state_are_seen_in_the_same_round(mode: str, name: str) -> None:
    timeline = open_timeline(rollback=mode)
    req = begin(timeline)
    rounds(timeline, req, 3)
    timeline.perform(SetFault(name=name))
    begun = timeline.now
    rounds(timeline, req, 2)
    timeline.perform(SyncSecondary())
    first = timeline.findings()[0]
    assert first.name == NAME
    kinds = [event.kind for event in timeline.events(begun, first.seq)]
    assert kinds.count("round") == 1
    # replay mode heals layer 0 at the commit, so it is looked at before
    assert ("accept" in kinds) is (mode == "snapshot")


def test_a_chunk_that_lost_its_history_shows_in_the_layers_before_the_first_attention() -> None:
    timeline = open_timeline()
    timeline.perform(SetFault(name="chunk-drops-history"))
    begin(timeline, tuple(int(7 + 31 * n) % 1000 for n in range(96)))
    found = timeline.findings()[0]
    assert found.name == NAME
    assert found.text.startswith(("layer 0 of live:0", "layer 1 of live:0", "layer 2 of live:0"))
    assert timeline.event(found.seq).round == 2  # the first chunk with a history


def test_its_finding_names_the_tokens_in_the_window() -> None:
    timeline, _ = broken("commit-lost")
    found = next(finding for finding in timeline.findings() if finding.name == NAME)
    assert "2 tokens ahead" in found.text and found.where == "live:0" and found.req == 1


def test_it_stops_a_run_and_can_be_switched_off() -> None:
    timeline = open_timeline()
    begin(timeline)
    timeline.perform(SetFault(name="pending-twice"))
    stop = timeline.run(None, limit=200)
    assert stop.reason == "finding" and stop.finding is not None and stop.finding.name == NAME
    run = debug(timeline)
    assert timeline.checker is not None
    timeline.checker.switch(NAME, False)
    before = len(timeline.findings())
    timeline.perform(RunRound())
    assert len(timeline.findings()) == before
    timeline.checker.switch(NAME, True)
    assert "off" in run("oracle off")[0]
    timeline.perform(RunRound())
    assert len(timeline.findings()) == before
    assert "every 3" in run("oracle every 3")[0]


@pytest.mark.parametrize("verify", ["exact", "batched"])
def test_rounding_is_a_finding_where_the_same_bits_are_expected(verify: str) -> None:
    timeline = open_timeline(verify=verify)
    req = begin(timeline)
    rounds(timeline, req, None, 2)
    assert names(timeline) == set()
    timeline.perform(SetFault(name="decode-by-prefill"))
    rounds(timeline, req, *([None] * 3), drafts=())
    assert names(timeline) == {NAME}
    assert "rounding passes" in debug(timeline)("oracle loose")[0]
    before = len(timeline.findings())
    rounds(timeline, req, *([None] * 3), drafts=())
    assert len(timeline.findings()) == before


def test_batches_are_recomputed_as_batches_also_when_the_mode_changes() -> None:
    timeline = open_timeline()
    req = begin(timeline)
    for verify in ("batched", "exact", "batched"):
        timeline.perform(SetOption(name="verify", value=verify))
        rounds(timeline, req, None, 2)
    timeline.perform(SyncSecondary())
    request = timeline.view.requests[req]
    assert [len(span) - 2 + span[1] - span[0] for span in request.rows] == [4] * 4  # rows of each batch
    assert [span[1] - span[0] for span in request.rows][1::2] == [2, 2]
    assert timeline.findings() == []
    assert golden_is_live(timeline, req)
    about = subject(timeline, req)
    for other in (Golden(tokens=about.tokens, chunks=about.chunks), Golden(tokens=about.tokens)):
        (single,) = timeline.compute(other)
        assert not equal(read(timeline, about.sources, about.seq, about.branch), states_of(single))


def test_rows_and_planes_in_the_middle_of_a_batched_round_are_met_too() -> None:
    timeline = open_timeline(verify="batched")
    req = begin(timeline)
    rounds(timeline, req, None, 1)
    timeline.perform(RunRound(req=req, drafts=(5, 6, 7), accept=2))
    met = 0
    for event in timeline.events(1, timeline.now):
        view = timeline.view_at(event.seq)
        if event.kind in ("verify", "accept", "ring_save"):
            places = [event.dst] if event.kind == "ring_save" else [Place("step", 0, row) for row in range(3)]
            for place in places:
                about = placed(timeline, place, event.seq, timeline.branch)
                (golden,) = timeline.compute(Golden(tokens=about.tokens, chunks=about.chunks, rows=about.rows))
                assert equal(read(timeline, (place, place), event.seq, timeline.branch), states_of(golden)), place
                met += 1
        if event.kind == "verify" and view.requests[req].round.open:
            about = subject(timeline, req, event.seq)
            (golden,) = timeline.compute(Golden(tokens=about.tokens, chunks=about.chunks, rows=about.rows))
            assert equal(read(timeline, about.sources, event.seq, timeline.branch), states_of(golden))
    assert met >= 9


@pytest.mark.parametrize("verify", ["exact", "batched"])
def test_a_verify_that_got_no_drafts_is_a_decode_at_every_event(verify: str) -> None:
    timeline = open_timeline(verify=verify)
    timeline.perform(NewRequest(prompt=PROMPT[:12], max_tokens=5, ignore_eos=True))
    timeline.perform(RunRound(req=1))
    for drafts in ((), (5, 6), (), ()):
        timeline.perform(RunRound(req=1, drafts=drafts, accept=1 if drafts else None))
    assert timeline.findings() == []
    assert timeline.view.requests[1].status == "finished"
    judge, asked = Judge(timeline), 0
    for event in timeline.events(1, timeline.now):
        request = timeline.view_at(event.seq).requests.get(1)
        if (
            event.kind in ("decode", "emit", "verify_row", "verify", "sync")
            and request is not None
            and request.slot >= 0
        ):
            assert judge.request(1, event.seq).verdict.kind == "bitwise", event
            asked += 1
    assert asked > 12


def test_planes_of_earlier_rounds_are_what_they_were_when_they_were_written() -> None:
    for verify in ("exact", "batched"):
        timeline = open_timeline(verify=verify)
        req = begin(timeline)
        rounds(timeline, req, 2, drafts=(5, 6, 7))
        rounds(timeline, req, 1, drafts=(8,))
        rounds(timeline, req, None, drafts=())
        for place in (Place("step", 0, 0), Place("step", 0, 1), Place("step", 0, 2), Place("checkpoint", 0)):
            fact = timeline.view.states[place]
            if fact.h_writer != fact.conv_writer:
                with pytest.raises(NotAvailable, match=r"of two moments|no position of its own"):
                    placed(timeline, place, timeline.now, timeline.branch)
                continue
            about = placed(timeline, place, timeline.now, timeline.branch)
            (golden,) = timeline.compute(Golden(tokens=about.tokens, chunks=about.chunks, rows=about.rows))
            assert equal(read(timeline, (place, place), timeline.now, timeline.branch), states_of(golden)), (
                verify,
                place,
            )


def test_where_equal_shapes_promise_no_equal_bits_rounding_passes() -> None:
    timeline = open_timeline()
    view = timeline.view
    gpu = replace(view, start=replace(view.start, device="cuda:0"))
    assert bitwise(view) and bitwise(gpu)
    batched = replace(gpu, counters=gpu.counters.set("verifies.batched", 1))
    assert not bitwise(batched) and bitwise(replace(batched, start=view.start))
    assert not LayerZero().wants_bits(batched) and LayerZero(strict=True).wants_bits(batched)


@pytest.mark.parametrize("family", ["qwen3_next", "qwen3_5_moe"])
def test_batches_of_a_mixture_of_experts_are_met_bit_for_bit(family: str) -> None:
    model = load_tiny(family)

    def factory() -> Engine:
        return Engine(model, EngineConfig(device="cpu", threads=1, prefill_chunk=16, verify="batched", drafter="none"))

    timeline = Timeline.live(factory(), factory=factory)
    timeline.oracle = Oracles()
    req = begin(timeline, tuple(range(3, 60)))
    for accept in (1, 2, 4, 3, 1):
        rounds(timeline, req, accept, drafts=(9, 8, 7))
    timeline.perform(SyncSecondary())
    assert timeline.findings() == []
    assert golden_is_live(timeline, req)


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3)), max_size=6), st.integers(0, 30))
@settings(deadline=None)
def test_rows_are_cut_where_the_tokens_are(batches: list[tuple[int, int]], position: int) -> None:
    rows, at = [], 0
    for accepted, rejected in batches:
        rows.append((at, at + accepted, *range(900, 900 + rejected)))
        at += accepted
    cut = rows_upto(tuple(rows), tuple(range(at)), position)
    assert all(span[1] <= position for span in cut)
    assert [n for start, end, *_ in cut for n in range(start, end)] == list(range(min(at, position)))
    width = {span[0]: span[1] - span[0] + len(span) - 2 for span in rows}
    assert all(span[1] - span[0] + len(span) - 2 == width[span[0]] for span in cut), "the shape of a batch is kept"
    assert rows_upto(cut, tuple(range(at)), position) == cut


def test_the_oracle_leaves_no_trace_in_the_session() -> None:
    runs = []
    for oracle in (True, False):
        timeline = open_timeline(oracle=oracle)
        req = begin(timeline)
        rounds(timeline, req, None, 2, 1)
        runs.append((unnumbered(timeline.events(1, timeline.last)), timeline.image_digest()))
    assert runs[0] == runs[1]


def test_noise_floors_are_measured_and_small_in_fp32() -> None:
    timeline = open_timeline()
    floors = measure(timeline.compute, timeline.start)
    assert floors.states.measured and 0 < floors.states.limit(0, "h") < 1e-4
    assert floors.logits < 1e-3
    low = open_timeline(dtype="bfloat16")
    wide = measure_first(low.compute, low.start)
    assert wide.limit(0, "h") >= 2.0**-8 > floors.first.limit(0, "h")


def test_the_conv_decoder_reads_right_and_wrong_windows() -> None:
    timeline = open_timeline()
    req = begin(timeline)
    rounds(timeline, req, None)
    timeline.perform(SyncSecondary())
    about = subject(timeline, req)
    decoded = decode_place(timeline, about)
    assert decoded.reading.right and decoded.reading.ids == about.tokens[-4:] and decoded.ratio > 1000
    wrong, req = broken("conv-omitted")
    decoded = decode_place(wrong, subject(wrong, req))
    assert decoded.reading.tokens == 2
    assert decoded.reading.strange == wrong.view.requests[req].rejected[:2]


def test_the_twin_agrees_with_a_healthy_request_and_parts_from_a_broken_one() -> None:
    timeline = open_timeline()
    req = begin(timeline)
    rounds(timeline, req, None, None)
    result = Twin(timeline, req).compare(timeline.view.requests[req], timeline.now, timeline.branch)
    assert result.same and result.states == "equal" and result.tokens == timeline.view.requests[req].outputs
    wrong, req = broken("commit-lost", (2, None, None, None))
    result = Twin(wrong, req).compare(wrong.view.requests[req], wrong.now, wrong.branch)
    assert not result.same


def test_a_twin_needs_a_second_engine() -> None:
    timeline = Timeline.live(open_timeline()._tensors.edge.machine.engine)  # type: ignore[union-attr]
    with pytest.raises(NotAvailable, match="second engine"):
        timeline.second_engine()


def test_reruns_by_replay_by_prefill_twice_and_from_nothing() -> None:
    timeline = open_timeline(rollback="replay")
    req = begin(timeline)
    rounds(timeline, req, 2)
    events = timeline.events(1, timeline.now)
    verify = next(event for event in reversed(events) if event.kind == "verify")
    saved = next(event for event in reversed(events) if event.kind == "checkpoint")
    fed = verify.tokens[:2]  # type: ignore[attr-defined]
    base = Rerun(req=req, place=Place("checkpoint", 0), position=saved.position, tokens=fed)  # type: ignore[attr-defined]
    steps = timeline.compute(base, saved.seq)
    replayed = timeline.compute(Rerun(**{**fields(base), "form": "replay"}), verify.seq)
    assert [equal(states_of(a), states_of(b)) for a, b in zip(steps, replayed, strict=True)] == [True, True]
    for change in ({"form": "prefill"}, {"twice": True}, {"empty": True}):
        other = timeline.compute(Rerun(**{**fields(base), **change}), saved.seq)
        assert not equal(states_of(other[-1]), states_of(steps[-1]))


def fields(asked: Rerun) -> dict[str, object]:
    return {name: getattr(asked, name) for name in ("req", "place", "position", "tokens", "form", "empty", "twice")}


def test_residuals_of_one_token_end_in_the_same_stream_whichever_way_it_came() -> None:
    timeline = open_timeline()
    req = begin(timeline)
    rounds(timeline, req, None)
    timeline.perform(SyncSecondary())
    about = subject(timeline, req)
    token = timeline.view.requests[req].tokens[about.position]
    asked = Residuals(req=req, place=about.place, position=about.position, tokens=(token,))
    scratch = Residuals(req=req, place=about.place, tokens=(token,), history=about.tokens, chunks=about.chunks)
    (a,), (b,) = timeline.compute(asked), timeline.compute(scratch)
    assert a.h == b.h and len(a.h) == 2 * timeline.start.layers + 1
    run = debug(timeline)
    assert run("blame golden")[-1] == "no block differs"
    assert "first block that differs" in run("blame shapes")[-1]


def test_commands_show_golden_oracle_and_decoder() -> None:
    timeline = open_timeline()
    begin(timeline)
    run = debug(timeline)
    run("run 2")
    assert "all bitwise equal" in run("golden")[-1]
    assert any("another order of sums" in line for line in run("golden --form prefill"))
    assert "bit-equal" in run("oracle check")[0]
    assert "on" in run("watch oracle")[0]
    assert "holds the last committed tokens" in run("decode")[1]
    assert "equal those of its twin" in run("twin 2")[-1]
    assert "equal" in run("diff live golden")[-1]
    run("fault conv-omitted")
    run("accept 2")
    run("sync")
    assert "2 tokens ahead" in run("decode", "failed")[1]
    assert any(line.startswith("L00.conv") for line in run("golden"))
    assert "WRONG" in run("oracle check", "failed")[0]


def test_a_place_is_compared_with_golden_at_its_own_position() -> None:
    timeline = open_timeline()
    begin(timeline)
    run = debug(timeline)
    run("run 2")
    for place in ("checkpoint", "prefix 0", "step 0"):
        assert "all bitwise equal" in run(f"golden {place}")[-1], place
    assert timeline.tensor(TensorRef(Place("checkpoint", 0), 0, "h")) is not None


def test_the_request_that_is_new_has_nothing_to_be_wrong_about() -> None:
    timeline = open_timeline()
    timeline.perform(NewRequest(prompt=PROMPT))
    about = subject(timeline, 1)
    assert about.position == 0 and golden_is_live(timeline, 1)
