"""Each invariant is broken on purpose by changing one fact of a healthy run; the healthy run breaks none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from event_helpers import Script, altered, healthy, nbytes

from engine import events as ev
from engine.events import Event, Place
from sessions.finding import Finding
from sessions.invariants import INVARIANTS, ORACLES, Checker, check_all, explain
from sessions.ledger import Ledger, fold

Events = list[Event]
BREAKERS: dict[str, list[Callable[[], Events]]] = {}


def breaks(*names: str) -> Callable[[Callable[[], Events]], Callable[[], Events]]:
    """The decorated function makes a run that breaks these invariants."""

    def register(make: Callable[[], Events]) -> Callable[[], Events]:
        for name in names:
            BREAKERS.setdefault(name, []).append(make)
        return make

    return register


def change(events: Events, cls: type[Event], test: Callable[[Any], bool] = lambda e: True, **fields: Any) -> Events:
    """``events`` with fields of the first matching event of a class replaced."""
    return list(altered(events, lambda e: type(e) is cls and test(e), lambda e: replace(e, **fields)))


def drop(events: Events, cls: type[Event], test: Callable[[Any], bool] = lambda e: True) -> Events:
    """``events`` without the first matching event of a class."""
    return list(altered(events, lambda e: type(e) is cls and test(e), lambda e: None))


def partial(accepted: int = 2, queued: bool = False) -> Script:
    """A verify of four rows that accepts some, and a decode after it."""
    script = Script(queued=queued)
    script.new(1, (5, 6, 7, 8))
    script.prefill(1, first=3)
    script.verify(1, (4, 5, 6), accepted=accepted)
    script.decode(1, pick=4)
    return script


def two() -> Script:
    """Two requests, both decoding, both with a ring entry."""
    script = Script()
    for req in (1, 2):
        script.new(req, (5, 6, 7, req))
        script.prefill(req, first=9)
    for req in (1, 2):
        script.decode(req, pick=4)
    return script


# ------------------------------------------------------------------------------------------------------ positions


@breaks("positions-agree")
def conv_left_out_of_a_commit() -> Events:
    return change(partial().events, ev.Commit, parts="h", bytes=nbytes("h"))


@breaks("positions-agree")
def conv_left_out_of_a_queued_commit() -> Events:
    return change(partial(queued=True).events, ev.Commit, parts="h", bytes=nbytes("h"))


@breaks("positions-agree")
def state_not_restored_by_a_rollback() -> Events:
    script = two()
    script.rollback(1, keep=1)
    return drop(script.events, ev.RingRestore)


@breaks("position-expected")
def an_output_that_is_not_told() -> Events:
    return drop(two().events, ev.Emit, lambda e: e.index == 1)


@breaks("position-expected")
def a_pending_token_fed_twice() -> Events:
    script = two()
    script.decode(1, pick=4)
    return drop(script.events, ev.Emit, lambda e: e.index == 2)


@breaks("accept-length")
def a_cursor_rewound_one_short() -> Events:
    return change(partial().events, ev.KvRewind, cursor=7)


@breaks("accepted-range")
def no_row_accepted() -> Events:
    return change(partial().events, ev.Accept, accepted=0)


@breaks("accepted-range")
def more_rows_accepted_than_verified() -> Events:
    return change(partial().events, ev.Accept, k=5)


@breaks("accepted-range")
def a_commit_for_another_number_of_rows() -> Events:
    return change(partial().events, ev.Commit, accepted=3)


@breaks("step-index")
def step_n_instead_of_n_minus_one() -> Events:
    return change(partial().events, ev.Commit, src=Place("step", 0, 2))


@breaks("step-index")
def a_stale_plane() -> Events:
    script = partial()
    script.verify(1, (4, 5, 6), accepted=3)
    return change(script.events, ev.VerifyRow, lambda e: e.row == 2 and e.round == 4, step_parts="")


@breaks("step-index")
def a_copy_though_every_row_is_accepted() -> Events:
    return change(
        partial(4).events, ev.Commit, src=Place("step", 0, 2), parts="h+conv", bytes=nbytes("h+conv"), layers=3
    )


@breaks("clean-live")
def a_commit_left_out() -> Events:
    return drop(partial().events, ev.Commit)


@breaks("clean-live")
def a_snapshot_before_the_commit() -> Events:
    events = partial().events
    at = next(i for i, event in enumerate(events) if isinstance(event, ev.Commit))
    save = ev.RingSave(seq=0, req=1, src=Place("live", 0), dst=Place("ring", 0, 0), bytes=-1, token_position=3)
    return [*events[:at], save, *events[at:]]


@breaks("verify-rows")
def a_row_left_out() -> Events:
    return drop(partial().events, ev.VerifyRow, lambda e: e.row == 1)


@breaks("verify-rows")
def fewer_rows_than_the_verify_claims() -> Events:
    return drop(partial().events, ev.VerifyRow, lambda e: e.row == 3)


@breaks("token-fed")
def another_token_decoded() -> Events:
    return change(two().events, ev.Decode, token=77)


@breaks("token-fed")
def another_draft_verified() -> Events:
    return change(partial().events, ev.VerifyRow, lambda e: e.row == 2, token=77)


@breaks("token-fed")
def another_prompt_prefilled() -> Events:
    return change(two().events, ev.Prefill, tokens=(5, 6, 8, 8))


# ------------------------------------------------------------------------------------------------------ snapshots


@breaks("snapshot-label")
def a_ring_save_one_output_late() -> Events:
    return change(two().events, ev.RingSave, token_position=2)


@breaks("snapshot-label")
def a_ring_entry_of_another_position_restored() -> Events:
    script = two()
    script.rollback(1, keep=1)
    return change(script.events, ev.RingRestore, token_position=2)


@breaks("prefix-depth")
def a_key_rounded_down_to_a_block() -> Events:
    return change(healthy().events, ev.PrefixSave, tokens=4)


@breaks("prefix-depth")
def a_hit_deeper_than_the_snapshot() -> Events:
    return change(healthy().events, ev.PrefixHit, tokens=6)


@breaks("prefix-session")
def a_tail_restored_by_another_session() -> Events:
    return change(healthy().events, ev.PrefixSave, origin="tail", session=7)


@breaks("digest-after-restore")
def a_snapshot_overwritten_in_place() -> Events:
    script = two()
    script.rollback(1, keep=1)
    return change(script.events, ev.RingRestore, digests=(("0" * 16, "1" * 16),) * 3)


@breaks("digest-after-restore")
def a_queued_copy_with_other_bytes() -> Events:
    return change(partial(queued=True).events, ev.Landed, lambda e: e.dst.kind == "live", digests=(("0" * 16, ""),) * 3)


@breaks("sealed-immutable")
def a_cached_snapshot_written_in_place() -> Events:
    script = two()
    script.save_prefix(1, 0)
    script.save_prefix(1, 0)
    return script.events


@breaks("sealed-immutable")
def a_ring_slot_saved_without_being_recorded() -> Events:
    events = two().events
    again = next(event for event in events if isinstance(event, ev.RingSave))
    return [*events, replace(again, seq=len(events) + 1)]


@breaks("dtype-and-shape")
def a_snapshot_in_half_precision() -> Events:
    return change(partial().events, ev.Checkpoint, bytes=nbytes("h+conv") // 2)


@breaks("dtype-and-shape")
def a_size_computed_in_two_ways() -> Events:
    return change(partial().events, ev.Start, h_bytes=64)


# ---------------------------------------------------------------------------------------------------------- copies


@breaks("bytes-moved")
def a_copy_of_zero_bytes() -> Events:
    return change(partial().events, ev.Commit, bytes=0, layers=0)


@breaks("bytes-moved")
def a_default_method_that_does_nothing() -> Events:
    return change(two().events, ev.RingSave, parts="", bytes=0, layers=0)


@breaks("all-layers")
def a_layer_left_behind() -> Events:
    return change(partial().events, ev.Checkpoint, layers=2, bytes=nbytes("h+conv", 2))


@breaks("read-after-sync")
def a_wait_left_out() -> Events:
    script = partial(queued=True)
    return drop(script.events, ev.Sync, lambda e: e.count == 1)


@breaks("released-at-rest")
def a_slot_given_back_with_a_commit_on_its_way() -> Events:
    script = Script()
    script.new(1, (5, 6, 7, 8))
    script.prefill(1, first=3)
    script.verify(1, (4, 5, 6), accepted=2)
    script.finish(1)
    return drop(script.events, ev.Landed)


@breaks("sync-lands")
def a_copy_that_does_not_land() -> Events:
    return drop(partial(queued=True).events, ev.Landed)


# -------------------------------------------------------------------------------------------------------- ownership


@breaks("written-before-read")
def a_ring_slot_nobody_wrote() -> Events:
    script = two()
    script.rollback(1, keep=1)
    return change(script.events, ev.RingRestore, src=Place("ring", 0, 2))


@breaks("written-before-read")
def a_decode_from_nothing() -> Events:
    script = Script()
    script.put(ev.Request, 1, prompt_len=2)
    script.put(ev.Claim, 1, slot=0, epoch=1)
    script.put(ev.Decode, 1, slot=0)
    return script.events


@breaks("zeroed-on-reuse")
def a_slot_handed_on_without_a_reset() -> Events:
    script = Script(slots=1)
    script.new(1, (5, 6))
    script.prefill(1)
    script.finish(1)
    script.new(2, (5, 6))
    script.prefill(2)
    return drop(script.events, ev.Zero, lambda e: e.req == 2)


@breaks("zeroed-alike")
def a_slot_with_something_left_in_one_layer() -> Events:
    events = partial().events
    zeroed = next(event for event in events if isinstance(event, ev.Zero))
    (_, conv), *others = zeroed.digests
    return change(events, ev.Zero, digests=(("f" * 16, conv), *others))


@breaks("zeroed-alike")
def a_window_that_was_not_cleared_everywhere() -> Events:
    events = partial().events
    zeroed = next(event for event in events if isinstance(event, ev.Zero))
    *others, (h, _) = zeroed.digests
    return change(events, ev.Zero, digests=(*others, (h, "f" * 16)))


@breaks("one-owner")
def a_slot_given_to_two_requests() -> Events:
    return change(two().events, ev.Claim, lambda e: e.req == 2, slot=0)


@breaks("one-owner")
def a_slot_freed_by_somebody_else() -> Events:
    script = two()
    script.finish(1)
    return change(script.events, ev.Release, req=2)


@breaks("one-owner")
def a_slot_freed_twice() -> Events:
    script = two()
    script.finish(1)
    return [*script.events, script.events[-1]]


@breaks("one-writer")
def a_decode_into_the_slot_of_another_request() -> Events:
    return change(two().events, ev.Decode, slot=1)


@breaks("one-writer")
def a_copy_that_lands_after_the_slot_was_handed_on() -> Events:
    script = Script(slots=1)
    script.new(1, (5, 6))
    script.prefill(1)
    live, checkpoint = Place("live", 0), Place("checkpoint", 0)
    queued = {"copy": 50, "src": live, "dst": checkpoint, "bytes": nbytes("h+conv")}
    script.put(ev.Checkpoint, 1, layers=3, stream="secondary", landed=False, **queued)
    script.put(ev.Finish, 1)
    script.put(ev.KvFree, 1, blocks=(0,))
    script.put(ev.Release, 1, slot=0, epoch=1)
    script.free = [0]
    script.new(2, (5, 6))
    script.put(ev.Landed, 2, **queued)
    return script.events


@breaks("index-in-range")
def a_slot_outside_the_pool() -> Events:
    return change(partial().events, ev.Checkpoint, dst=Place("checkpoint", 9))


@breaks("index-in-range")
def a_step_outside_the_planes() -> Events:
    return change(partial().events, ev.Commit, src=Place("step", 0, 4))


@breaks("index-in-range")
def the_ring_of_another_request() -> Events:
    script = two()
    script.rollback(1, keep=1)
    return change(script.events, ev.RingRestore, src=Place("ring", 1, 0))


@breaks("padded-rows")
def a_padded_row_in_a_live_slot() -> Events:
    return [*two().events, ev.Decode(seq=999, slot=1)]


@breaks("padded-rows")
def a_request_in_the_dummy_slot() -> Events:
    return change(two().events, ev.Decode, slot=2)


@breaks("own-bytes")
def the_state_of_another_request() -> Events:
    script = two()
    script.rollback(1, keep=1)
    script.decode(1)
    events = change(script.events, ev.RingRestore, src=Place("ring", 1, 0))
    end = next(i for i, e in enumerate(events) if isinstance(e, ev.RingRestore))
    return [*events[: end + 1], ev.RoundEnd(seq=998, req=1)]


# ------------------------------------------------------------------------------------------------------------ pools


@breaks("pool-partition")
def more_free_slots_than_there_are() -> Events:
    return change(two().events, ev.Claim, lambda e: e.req == 2, free=1)


@breaks("pool-partition")
def a_slot_that_is_free_twice() -> Events:
    script = two()
    script.finish(1)
    return change(script.events, ev.Release, free=2)


@breaks("pool-partition")
def a_block_handed_out_twice() -> Events:
    return change(two().events, ev.KvAlloc, lambda e: e.req == 2, blocks=(0,))


@breaks("pool-partition")
def blocks_freed_twice() -> Events:
    script = two()
    script.finish(1)
    free = next(event for event in script.events if isinstance(event, ev.KvFree))
    return [*script.events, free]


@breaks("pool-partition")
def a_block_left_out_of_the_free() -> Events:
    script = two()
    script.finish(1)
    return change(script.events, ev.KvFree, blocks=(0,))


@breaks("pool-partition")
def a_block_outside_the_pool() -> Events:
    return change(two().events, ev.KvAlloc, blocks=(99,))


@breaks("blocks-exclusive")
def a_shared_block_written() -> Events:
    return drop(healthy().events, ev.KvCopy)


@breaks("released-on-finish")
def a_slot_that_is_not_given_back() -> Events:
    script = two()
    script.finish(1)
    script.decode(2)
    return drop(script.events, ev.Release)


@breaks("released-on-finish")
def blocks_that_are_not_given_back() -> Events:
    script = two()
    script.finish(1)
    script.decode(2)
    return drop(script.events, ev.KvFree)


@breaks("blocks-cover-cursor")
def tokens_without_blocks() -> Events:
    return drop(partial().events, ev.KvAlloc)


@breaks("rollback-frees-nothing")
def a_rewind_that_frees_blocks() -> Events:
    script = two()
    script.rollback(1, keep=1)
    at = next(i for i, event in enumerate(script.events) if isinstance(event, ev.KvRewind))
    told = script.requests[1].blocks
    return [*script.events[:at], ev.KvFree(seq=0, req=1, blocks=tuple(told)), *script.events[at:]]


def looping(times: int) -> Script:
    """A watchdog rolls one request back again and again."""
    script = Script()
    script.new(1, (5, 6))
    script.prefill(1, first=9)
    for _ in range(times):
        script.decode(1, pick=4)
        script.decode(1, pick=4)
        script._begin(script.requests[1], "decode")
        script.rollback(1, keep=1, watchdog=2)
        script._end(script.requests[1])
    return script


@breaks("rollback-cap")
def a_third_rollback() -> Events:
    return looping(3).events


@breaks("rollback-cap")
def fewer_outputs_dropped_than_asked_for() -> Events:
    return change(looping(1).events, ev.Watchdog, min_keep=3)


@breaks("epochs-count")
def a_stale_handle() -> Events:
    script = two()
    script.finish(1)
    return change(script.events, ev.Release, epoch=4)


@breaks("epochs-count")
def an_epoch_left_out() -> Events:
    return change(two().events, ev.Claim, epoch=3)


# ------------------------------------------------------------------------------------------------------------- ring


def wrapped() -> Script:
    """A ring of one slot, recorded twice."""
    script = Script(ring=1)
    script.new(1, (5, 6))
    script.prefill(1, first=9)
    script.decode(1, pick=9)
    return script


@breaks("ring-distinct-slots")
def a_ring_slot_of_two_entries() -> Events:
    return drop(wrapped().events, ev.RingEvict)


@breaks("ring-distinct-slots")
def more_entries_than_capacity() -> Events:
    events = drop(wrapped().events, ev.RingEvict)
    return change(events, ev.RingRecord, lambda e: e.token_position == 2, ring_slot=1)


@breaks("ring-order")
def entries_past_a_rollback() -> Events:
    script = Script()
    script.new(1, (5, 6))
    script.prefill(1, first=9)
    script.decode(1, pick=9)
    script.rollback(1, keep=1)
    return drop(script.events, ev.RingTruncate)


@breaks("ring-order")
def a_position_recorded_twice() -> Events:
    script = two()
    script.decode(1, pick=9)
    return change(script.events, ev.RingRecord, lambda e: e.token_position == 3, token_position=1)


@breaks("ring-boundary")
def a_token_that_is_no_boundary() -> Events:
    return change(two().events, ev.Texts, boundary=(False,))


@breaks("ring-boundary")
def a_boundary_inside_thinking() -> Events:
    events = two().events
    at = next(i for i, event in enumerate(events) if isinstance(event, ev.Emit))
    return [*events[:at], ev.Thinking(seq=0, req=1, inside=True), *events[at:]]


# ----------------------------------------------------------------------------------------------------------- claims


@breaks("engine-agrees")
def a_position_the_engine_only_believes() -> Events:
    return change(two().events, ev.Decode, position=9)


@breaks("engine-agrees")
def a_cursor_the_engine_only_believes() -> Events:
    return change(partial().events, ev.Verify, cursor=9)


@breaks("engine-agrees")
def a_ring_cursor_left_behind() -> Events:
    script = Script()
    script.new(1, (5, 6))
    script.prefill(1, first=9)
    script.decode(1, pick=9)
    script.rollback(1, keep=1)
    return change(script.events, ev.RingTruncate, next_slot=2)


@breaks("engine-agrees")
def a_landing_that_was_never_queued() -> Events:
    return change(partial(queued=True).events, ev.Landed, copy=99)


@breaks("engine-agrees")
def an_output_number_left_out() -> Events:
    return change(two().events, ev.Emit, lambda e: e.index == 1, index=2)


@breaks("engine-agrees")
def a_rollback_count_left_behind() -> Events:
    return change(looping(2).events, ev.Rollback, lambda e: e.count == 2, count=1)


@breaks("ring-saved")
def an_entry_whose_save_failed() -> Events:
    return drop(two().events, ev.RingSave)


@breaks("drafter-input")
def a_head_fed_another_hidden_state() -> Events:
    return change(partial().events, ev.Draft, fed="0011", hidden="2233")


@breaks("refusal-has-a-reason")
def a_known_prompt_computed_again_without_a_word() -> Events:
    events = partial().events
    return [*events, ev.PrefixMiss(seq=events[-1].seq + 1, req=1, matched=8)]


def test_an_older_mistake_is_not_told_again_by_what_the_engine_says() -> None:
    script = partial()
    for _ in range(3):
        script.decode(1, pick=4)
    names = [f.name for f in check_all(drop(script.events, ev.Commit))]
    assert names.count("clean-live") > 1 and "engine-agrees" not in names


# ----------------------------------------------------------------------------------------------------------- inputs


@breaks("drafter-input")
def a_drafter_fed_with_a_stale_hidden_state() -> Events:
    return change(partial().events, ev.Draft, fed="0" * 16, hidden="1" * 16)


@breaks("drafter-input")
def a_head_fed_at_the_end_of_a_round_with_another_hidden_state() -> Events:
    return change(partial().events, ev.RoundEnd, fed="0" * 16, hidden="1" * 16)


@breaks("drafter-input")
def a_head_that_keeps_rows_of_rejected_drafts() -> Events:
    events, cursor = partial().events, fold(partial().events).requests[1].cursor
    return change(events, ev.RoundEnd, head_rows=cursor + 2, fed_position=cursor + 1)


@breaks("drafter-input")
def a_head_fed_one_position_too_high() -> Events:
    events, cursor = partial().events, fold(partial().events).requests[1].cursor
    return change(events, ev.RoundEnd, head_rows=cursor, fed_position=cursor)


@breaks("refusal-has-a-reason")
def a_cached_prefix_passed_over_in_silence() -> Events:
    return [*two().events, ev.PrefixMiss(seq=999, req=1, matched=16)]


# ------------------------------------------------------------------------------------------------------------- tests

CASES = [(name, make) for name, makes in BREAKERS.items() for make in makes]


def test_a_healthy_run_breaks_nothing() -> None:
    assert check_all(healthy().events) == []
    for script in (partial(), partial(4), partial(queued=True), two(), wrapped(), looping(2)):
        assert check_all(script.events) == []


def test_every_invariant_is_broken_by_a_test() -> None:
    assert set(BREAKERS) == set(INVARIANTS)


@pytest.mark.parametrize(("name", "make"), CASES, ids=[f"{name}:{make.__name__}" for name, make in CASES])
def test_broken(name: str, make: Callable[[], Events]) -> None:
    events = make()
    found = [finding for finding in check_all(events) if finding.name == name]
    assert found, f"{name} was not found"
    first = found[0]
    assert first.expected != "" and first.found != "" and first.expected != first.found
    assert first.where and first.text
    assert any(event.seq == first.seq and event.kind in INVARIANTS[name].commit_points for event in events)


@pytest.mark.parametrize("name", sorted(INVARIANTS))
def test_each_can_be_switched_off_and_on(name: str) -> None:
    events = BREAKERS[name][0]()
    assert name not in {finding.name for finding in check_all(events, Checker(disabled=[name]))}
    checker = Checker(disabled=INVARIANTS)
    assert check_all(events, checker) == []
    checker.switch(name, True)
    assert checker.enabled(name) and {finding.name for finding in check_all(events, checker)} == {name}


def test_the_values_are_those_of_the_run() -> None:
    (finding,) = [f for f in check_all(step_n_instead_of_n_minus_one()) if f.name == "step-index"]
    assert (finding.expected, finding.found, finding.where, finding.req) == ("step:0.1", "step:0.2", "step:0.2", 1)
    first = next(f for f in check_all(conv_left_out_of_a_commit()) if f.name == "positions-agree")
    assert (first.expected, first.found) == ("h = conv = cursor = 6", "h 6, conv 8, cursor 6")


def test_a_wrong_step_is_found_at_the_commit_and_at_the_end_of_the_round() -> None:
    names = [finding.name for finding in check_all(step_n_instead_of_n_minus_one())]
    assert names[0] == "step-index" and "positions-agree" in names


def test_the_same_arguments_give_the_same_findings() -> None:
    events = conv_left_out_of_a_commit()
    assert check_all(events) == check_all(events)
    checker, ledger = Checker(), Ledger()
    before, found = ledger.view, []
    for event in events:
        after = ledger.apply(event)
        found.append((checker.check(before, event, after), checker.check(before, event, after)))
        before = after
    assert all(once == twice for once, twice in found)


def test_unknown_names_are_refused_with_those_that_exist() -> None:
    with pytest.raises(KeyError, match="positions-agree"):
        Checker(disabled=["nonsense"])
    with pytest.raises(KeyError, match="golden"):
        explain("nonsense")


def test_every_invariant_says_what_holds_and_what_is_usually_wrong() -> None:
    for name, item in {**INVARIANTS, **ORACLES}.items():
        assert item.name == name and item.sentence.endswith(".") and item.usual_cause.endswith(".")
        assert set(item.commit_points) <= set(ev.EVENTS)
    assert set(ORACLES) == {"golden", "twin", "layer0-oracle", "head-oracle"}
    assert explain("golden") is ORACLES["golden"]


def test_nothing_is_concluded_from_what_is_not_known() -> None:
    """An engine that tells states only: no tokens, no sizes, no blocks, no digests."""
    script = Script()
    bare: Events = [ev.Start(seq=1)]
    keep = (ev.Request, ev.Claim, ev.Zero, ev.Prefill, ev.VerifyRow, ev.Verify, ev.Accept, ev.KvRewind, ev.Commit)
    script.new(1, (5, 6, 7, 8))
    script.prefill(1, first=3)
    script.verify(1, (4, 5, 6), accepted=2)
    for event in script.events:
        if isinstance(event, keep):
            blank = {"prompt": (), "tokens": (), "picks": (), "digests": (), "bytes": -1, "layers": 0, "cursor": 0}
            blank |= {"position": 0, "token": -1, "emitted": (), "epoch": 0}
            known = {name: value for name, value in blank.items() if hasattr(event, name)}
            if isinstance(event, ev.KvRewind):
                known.pop("cursor")
            bare.append(replace(event, seq=len(bare) + 1, **known))
    bare.append(ev.Landed(seq=90, copy=2, src=Place("step", 0, 1), dst=Place("live", 0), bytes=-1))
    bare.append(ev.Sync(seq=91))
    bare.append(ev.RoundEnd(seq=92, req=1))
    assert check_all(bare) == []


def test_a_finding_is_plain_data() -> None:
    finding: Finding = check_all(a_copy_of_zero_bytes())[0]
    assert finding == replace(finding) and isinstance(finding.seq, int)
