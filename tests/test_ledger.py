"""The fold: positions, owners, rings, pools and requests follow from the events alone."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from itertools import pairwise

import pytest
from event_helpers import H_BYTES, Script, altered, healthy, nbytes
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import events as ev
from engine.events import Event, Place
from sessions.evolve import evolve
from sessions.ledger import Ledger, fold
from sessions.view import LedgerView, RequestFact, RingEntry, StateFact


def views(events: list[Event]) -> list[LedgerView]:
    """The view before the first event, then after each."""
    ledger = Ledger()
    return [ledger.view, *(ledger.apply(event) for event in events)]


def speculative(accepted: int, queued: bool = True) -> Script:
    """One request, prompt of 4, one verify of 4 rows."""
    script = Script(queued=queued)
    script.new(1, (5, 6, 7, 8))
    script.prefill(1, first=3)
    script.verify(1, (4, 5, 6), accepted=accepted)
    return script


# ------------------------------------------------------------------------------------------------------ positions


def test_prefill_decode_and_verify_add_what_they_absorb() -> None:
    script = Script()
    script.new(1, (5, 6, 7, 8, 9))
    script.prefill(1, first=3, chunk=2)
    script.decode(1, pick=4)
    live = fold(script.events).live(1)
    assert live is not None
    assert (live.h_position, live.conv_position) == (6, 6)
    script.verify(1, (1, 2), accepted=3)
    assert fold(script.events).live(1).position == 9  # type: ignore[union-attr]


def test_positions_do_not_come_from_the_engine() -> None:
    events = [replace(event, position=77) if hasattr(event, "position") else event for event in speculative(2).events]
    events = [replace(event, cursor=99) if isinstance(event, (ev.Prefill, ev.Verify)) else event for event in events]
    view = fold(events)
    assert view.requests[1].cursor == 6
    assert view.states[Place("step", 0, 1)].position == 6


def test_step_planes_hold_the_state_after_their_row() -> None:
    view = fold(speculative(2).events)
    assert [view.states[Place("step", 0, row)].h_position for row in range(3)] == [5, 6, 7]
    last = view.states[Place("step", 0, 3)]
    assert (last.h_position, last.conv_position) == (None, 8)


def test_live_is_dirty_from_the_first_row_until_the_commit_has_landed() -> None:
    script = speculative(2)
    dirty = [view.live(1).dirty for view in views(script.events) if view.live(1) is not None]  # type: ignore[union-attr]
    assert dirty[-1] is True and dirty[0] is False
    view = fold(script.events)
    live = view.states[Place("live", 0)]
    assert live.queued and live.position == 8
    script.sync()
    after = fold(script.events).states[Place("live", 0)]
    assert (after.dirty, after.queued, after.position) == (False, False, 6)


def test_live_is_clean_at_the_accept_when_every_row_is_accepted() -> None:
    events = speculative(4).events
    at = next(i for i, event in enumerate(events) if isinstance(event, ev.Accept))
    assert fold(events[:at]).states[Place("live", 0)].dirty
    live = fold(events[: at + 1]).states[Place("live", 0)]
    assert not live.dirty and live.position == 8


def test_a_commit_on_the_default_stream_is_there_at_once() -> None:
    live = fold(speculative(3, queued=False).events).states[Place("live", 0)]
    assert (live.position, live.dirty, live.queued) == (7, False, False)


def test_a_copy_of_one_part_leaves_the_other_where_it_was() -> None:
    script = speculative(2, queued=False)
    events = list(altered(script.events, lambda e: isinstance(e, ev.Commit), lambda e: replace(e, parts="h")))
    live = fold(events).states[Place("live", 0)]
    assert (live.h_position, live.conv_position, live.position) == (6, 8, None)
    assert live.h_writer > live.conv_writer


@pytest.mark.parametrize("change", [{"bytes": 0}, {"parts": ""}])
def test_a_copy_that_moves_nothing_changes_no_position(change: dict[str, object]) -> None:
    events = list(
        altered(speculative(2, queued=False).events, lambda e: isinstance(e, ev.Commit), lambda e: replace(e, **change))
    )
    live = fold(events).states[Place("live", 0)]
    assert live.position == 8 and live.dirty


def test_bytes_that_nobody_counted_are_moved_bytes() -> None:
    events = list(
        altered(speculative(2, queued=False).events, lambda e: isinstance(e, ev.Commit), lambda e: replace(e, bytes=-1))
    )
    view = fold(events)
    assert view.states[Place("live", 0)].position == 6
    assert view.counters["bytes.commit"] == 0


def test_a_queued_copy_takes_what_its_source_holds_when_it_lands() -> None:
    script = Script()
    script.new(1, (5, 6))
    script.prefill(1)
    live, checkpoint = Place("live", 0), Place("checkpoint", 0)
    script.put(ev.Checkpoint, 1, copy=50, src=live, dst=checkpoint, bytes=8, layers=3, stream="secondary", landed=False)
    script.put(ev.Decode, 1, slot=0, token=1, pick=2)
    before = fold(script.events)
    assert before.states[checkpoint].queued and before.states[checkpoint].position is None
    assert [copy.copy for copy in before.queued] == [50]
    script.put(ev.Landed, 1, copy=50, src=live, dst=checkpoint, bytes=8)
    after = fold(script.events)
    assert after.states[checkpoint].position == 3
    assert after.queued == () and len(after.in_flight) == 1 and after.in_flight[0].landed
    script.put(ev.Sync, 1, count=1)
    assert fold(script.events).in_flight == ()


def test_replayed_rows_advance_the_checkpoint_that_came_back() -> None:
    script = speculative(4)
    live, checkpoint = Place("live", 0), Place("checkpoint", 0)
    script.put(ev.Commit, 1, src=checkpoint, dst=live, bytes=8, accepted=2, k=4, replayed=2)
    script.put(ev.ReplayRow, 1, slot=0, place=live, row=0)
    script.put(ev.ReplayRow, 1, slot=0, place=live, row=1)
    script.put(ev.ReplayRow, 1, slot=0, place=checkpoint, row=0)
    view = fold(script.events)
    assert view.states[live].position == 6
    assert view.states[checkpoint].position == 5


def test_a_verify_without_rows_absorbs_all_of_them_at_once() -> None:
    script = Script()
    script.new(1, (5, 6))
    script.prefill(1)
    script.put(ev.RoundBegin, 1, mode="verify")
    script.put(ev.Verify, 1, slot=0, k=3)
    view = fold(script.events)
    assert view.states[Place("live", 0)].position == 5 and view.requests[1].cursor == 5


def test_a_read_changes_nothing_but_the_digest() -> None:
    script = speculative(2, queued=False)
    live = Place("live", 0)
    before = fold(script.events).states[live]
    script.put(ev.StateCopy, 1, src=live, dst=live, bytes=-1, digests=(("a", "b"),))
    assert fold(script.events).states[live] == replace(before, digests=(("a", "b"),))


# ------------------------------------------------------------------------------------------- owners, slots, epochs


def test_a_claim_begins_an_epoch_in_which_nothing_is_written() -> None:
    script = Script(slots=1)
    script.new(1, (5, 6))
    script.prefill(1)
    script.save_ring(1)
    script.finish(1)
    freed = fold(script.events)
    assert freed.states[Place("live", 0)].owner == -1 and freed.states[Place("live", 0)].position == 2
    assert not freed.slot_owner and freed.pools["slots"].used == 0 and freed.pools["ring"].used == 0
    script.put(ev.Request, 2, prompt_len=2)
    script.put(ev.Claim, 2, slot=0, epoch=2)
    view = fold(script.events)
    for place in (Place("live", 0), Place("ring", 0, 0)):
        assert view.states[place] == StateFact(
            place, owner=2, epoch=2, layout=view.start.layout, dtype=view.start.state_dtype
        )
    assert view.requests[2].slot == 0 and view.requests[1].slot == -1


def test_compaction_moves_every_place_of_the_slot() -> None:
    script = Script(slots=2)
    script.new(1, (5, 6))
    script.new(2, (7, 8))
    script.prefill(2, first=3)
    script.verify(2, (4, 5), accepted=3)
    script.save_ring(2)
    script.finish(1)
    before = fold(script.events)
    script.compact(2)
    view = fold(script.events)
    for place in (Place("live", 1), Place("checkpoint", 1), Place("step", 1, 1), Place("ring", 1, 0)):
        moved = view.states[Place(place.kind, 0, place.index)]
        assert (moved.h_position, moved.conv_position) == (
            before.states[place].h_position,
            before.states[place].conv_position,
        )
        assert (moved.owner, moved.epoch, moved.label) == (2, 2, before.states[place].label)
        assert view.states[place].owner == -1
    assert view.requests[2].slot == 0 and dict(view.slot_owner) == {0: 2}


def test_compaction_without_bytes_leaves_the_state_behind() -> None:
    script = Script(slots=2)
    script.new(1, (5, 6))
    script.new(2, (7, 8))
    script.prefill(2)
    script.finish(1)
    script.compact(2)
    events = list(altered(script.events, lambda e: isinstance(e, ev.Compact), lambda e: replace(e, bytes=0)))
    live = fold(events).states[Place("live", 0)]
    assert (live.h_position, live.h_writer, live.owner) == (None, 0, 2)


def test_a_fork_adopts_its_parents_state_outputs_and_ring() -> None:
    script = Script()
    script.new(1, (5, 6, 7))
    script.prefill(1, first=9)
    script.decode(1, pick=4)
    script.fork(1, 2)
    view = fold(script.events)
    child, parent = view.requests[2], view.requests[1]
    assert (child.tokens, child.marks, child.cursor, child.parent) == (parent.tokens, parent.marks, parent.cursor, 1)
    assert child.blocks == parent.blocks and all(view.block_refs[block] == 2 for block in child.blocks)
    live, ring = view.states[Place("live", 1)], view.states[Place("ring", 1, 0)]
    assert (live.position, live.h_owner, ring.position, ring.label, ring.conv_owner) == (4, 2, 3, 1, 2)
    assert [entry.token_position for entry in child.ring.entries] == [1]


def test_a_restore_from_another_request_keeps_the_owner_of_the_bytes() -> None:
    script = Script()
    script.new(1, (5, 6, 7))
    script.new(2, (5, 6, 7))
    script.prefill(1, first=9)
    script.prefill(2)
    script.put(ev.RingRestore, 2, src=Place("ring", 0, 0), dst=Place("live", 1), bytes=8, token_position=1)
    live = fold(script.events).states[Place("live", 1)]
    assert (live.owner, live.h_owner, live.conv_owner) == (2, 1, 1)


def test_finished_requests_that_hold_something_linger_and_then_leak() -> None:
    script = Script()
    script.new(1, (5, 6))
    script.new(2, (5, 6))
    script.prefill(1)
    script.prefill(2)
    script.finish(1)
    events = [e for e in script.events if not (isinstance(e, ev.Release) and e.req == 1)]
    assert fold(events).lingering == (1,)
    assert fold(script.events).lingering == ()
    later = [*events, ev.RoundBegin(seq=999, req=2, mode="decode")]
    assert (fold(later).lingering, fold(later).leaked) == ((), (1,))


# -------------------------------------------------------------------------------------------------- ring and cache


def test_ring_entries_are_reserved_saved_evicted_and_truncated() -> None:
    script = Script(ring=2)
    script.new(1, (5, 6))
    script.prefill(1, first=9)
    script.decode(1, pick=9)
    first = fold(script.events).requests[1].ring
    assert [(e.token_position, e.ring_slot, e.saved) for e in first.entries] == [(1, 0, True), (2, 1, True)]
    script.decode(1, pick=9)
    view = fold(script.events)
    ring = view.requests[1].ring
    assert [(e.token_position, e.ring_slot) for e in ring.entries] == [(2, 1), (3, 0)]
    assert (ring.evictions, ring.next_slot, ring.capacity, view.pools["ring"].used) == (1, 1, 2, 2)
    assert (view.states[Place("ring", 0, 0)].label, view.states[Place("ring", 0, 0)].position) == (3, 4)
    script.rollback(1, keep=2)
    view = fold(script.events)
    assert [e.token_position for e in view.requests[1].ring.entries] == [2]
    dropped = view.states[Place("ring", 0, 0)]
    assert (dropped.sealed, dropped.label) == (False, -1)
    assert view.states[Place("ring", 0, 1)].sealed


def test_an_entry_is_only_reserved_until_its_save_has_moved_bytes() -> None:
    script = Script()
    script.new(1, (5, 6))
    script.prefill(1, first=9)
    events = list(altered(script.events, lambda e: isinstance(e, ev.RingSave), lambda e: replace(e, bytes=0)))
    view = fold(events)
    assert view.requests[1].ring.entries == (RingEntry(1, 0, view.requests[1].ring.entries[0].recorded, saved=False),)
    assert Place("ring", 0, 0) not in view.states or view.states[Place("ring", 0, 0)].h_writer == 0


def test_prefix_snapshots_hold_blocks_until_they_are_evicted() -> None:
    script = Script()
    script.new(1, (5, 6, 7, 8, 9))
    script.prefill(1)
    script.save_prefix(1, 2, "leaf")
    view = fold(script.events)
    held = view.prefixes[2]
    assert (held.tokens, held.key, held.origin, held.blocks) == (5, "key2", "leaf", (0, 1))
    assert view.states[Place("prefix", -1, 2)].sealed and view.states[Place("prefix", -1, 2)].label == 5
    assert view.block_refs[0] == 2 and view.pools["prefix"].used == 1
    script.finish(1)
    script.new(2, (5, 6, 7, 8, 9, 4), prefix=2)
    view = fold(script.events)
    assert (view.requests[2].cursor, view.states[Place("live", 0)].position) == (5, 5)
    assert view.states[Place("live", 0)].h_owner == 2 and view.counters["tokens.skipped"] == 5
    script.prefill(2)
    script.evict_prefix(2)
    view = fold(script.events)
    assert 2 not in view.prefixes and view.pools["prefix"] == replace(view.pools["prefix"], used=0, peak=1)
    assert all(refs == 1 for refs in view.block_refs.values())


# ----------------------------------------------------------------------------------------------- requests and KV


def test_cursor_follows_what_is_written_and_rewound() -> None:
    script = speculative(2)
    cursors = [view.requests[1].cursor for view in views(script.events) if 1 in view.requests]
    assert cursors[-1] == 6 and max(cursors) == 8


def test_block_tables_references_and_peaks() -> None:
    script = Script(blocks=8)
    script.new(1, (5, 6, 7, 8, 9))
    script.prefill(1)
    script.fork(1, 2)
    script.decode(2, pick=4)
    view = fold(script.events)
    assert view.requests[1].blocks == (0, 1) and view.requests[2].blocks == (0, 2)
    assert dict(view.block_refs) == {0: 2, 1: 1, 2: 1}
    script.finish(1)
    script.finish(2)
    view = fold(script.events)
    assert not view.block_refs and (view.pools["blocks"].used, view.pools["blocks"].peak) == (0, 3)


def test_marks_tell_where_each_token_came_from() -> None:
    script = Script()
    script.new(1, (5, 6))
    script.prefill(1, first=9)
    script.verify(1, (4, 5, 6), accepted=3, bonus=9)
    script.put(ev.Emit, 1, token=7, index=3, mark="inject")
    request = fold(script.events).requests[1]
    assert request.tokens == (5, 6, 9, 4, 5, 7)
    assert request.marks == "ppNaai"
    assert (request.rejected, request.accepted_by_depth, request.drafted) == ((6,), (1, 1), 3)
    assert (request.outputs, request.pending, request.expected) == (4, 7, 5)


def test_a_rollback_cuts_outputs_and_restores_thinking() -> None:
    script = Script()
    script.new(1, (5, 6))
    script.prefill(1, first=9)
    script.put(ev.Thinking, 1, inside=True)
    script.decode(1, pick=4)
    script.put(ev.Thinking, 1, inside=False)
    script.decode(1, pick=9)
    assert fold(script.events).requests[1].think == "  t  "
    script.rollback(1, keep=1, watchdog=1)
    view = fold(script.events)
    request = view.requests[1]
    assert (request.tokens, request.marks, request.thinking) == ((5, 6, 9), "ppN", True)
    assert (request.rollbacks, request.cursor, view.counters["rollback.rolled_back"]) == (1, 2, 1)
    assert view.states[Place("live", 0)].position == 2


def test_a_declined_rollback_is_counted_and_changes_nothing() -> None:
    script = speculative(2)
    before = fold(script.events)
    script.put(ev.Rollback, 1, outcome="no_boundary", keep_len=1, dropped=2)
    view = fold(script.events)
    assert view.requests == before.requests and view.counters["rollback.no_boundary"] == 1


def test_rounds_tell_phase_drafts_picks_and_rows() -> None:
    script = speculative(2)
    at = next(i for i, event in enumerate(script.events) if isinstance(event, ev.VerifyRow) and event.row == 1)
    told = fold(script.events[: at + 1]).requests[1].round
    assert (told.mode, told.phase, told.drafts, told.rows, told.base, told.open) == (
        "verify",
        "verify",
        (4, 5, 6),
        2,
        4,
        True,
    )
    done = fold(script.events).requests[1].round
    assert (done.phase, done.open, done.accepted, done.k, done.picks) == ("end", False, 2, 4, (4, 2, 0, 0))


def test_counters_add_up() -> None:
    counters = fold(healthy().events).counters
    assert (counters["verifies"], counters["accepted"], counters["drafted"]) == (4, 1 + 3 + 0 + 2, 3 + 3 + 2 + 3)
    assert (counters["accepted.1"], counters["accepted.2"], counters["accepted.3"]) == (3, 2, 1)
    assert counters["bytes.commit"] == 3 * nbytes("h+conv") and counters["copies.commit"] == 4
    assert counters["claims"] == 3 and counters["finish.length"] == 3


def test_a_healthy_run_gives_everything_back() -> None:
    view = fold(healthy().events)
    assert {name: pool.used for name, pool in view.pools.items()} == {"slots": 0, "blocks": 0, "prefix": 0, "ring": 0}
    assert view.queued == () and not view.slot_owner and view.lingering == view.leaked == ()


# ------------------------------------------------------------------------------------------------ unknown facts


def test_what_nobody_told_stays_unknown() -> None:
    script = Script()
    script.put(ev.Request, 1, prompt_len=3)
    script.put(ev.Claim, 1, slot=0)
    script.put(ev.StateCopy, 1, src=Place("ring", 0, 1), dst=Place("live", 0), bytes=-1)
    script.put(ev.Decode, 1, slot=0)
    view = fold(script.events)
    live = view.states[Place("live", 0)]
    assert (live.h_position, live.epoch, view.requests[1].tokens) == (None, 1, (-1, -1, -1))
    assert live.h_writer == len(script.events)


def test_a_prefill_from_nothing_counts_from_zero_even_without_a_reset() -> None:
    script = Script()
    script.put(ev.Request, 1, prompt_len=3)
    script.put(ev.Claim, 1, slot=0)
    script.put(ev.Prefill, 1, slot=0, count=3)
    assert fold(script.events).states[Place("live", 0)].position == 3


def test_events_about_requests_nobody_announced_are_followed() -> None:
    view = fold([ev.Decode(seq=1, req=7, slot=2), ev.Emit(seq=2, req=7, token=4, index=3), ev.Texts(seq=3, ids=(4,))])
    assert view.requests[7].tokens == (-1, -1, -1, 4)
    assert view.requests[7].cursor == 1


@pytest.mark.parametrize(
    "event",
    [
        ev.Request(seq=1, req=1, prompt_len=10**15),
        ev.Emit(seq=1, req=1, index=10**15, token=1),
        ev.Accept(seq=1, req=1, accepted=10**15, k=4),
        ev.Landed(seq=1, copy=10**15),
        ev.Boundary(seq=1, req=1, output_len=-5),
        ev.Rollback(seq=1, req=1, outcome="rolled_back", keep_len=-7),
        ev.PrefixEvict(seq=1, index=-4),
    ],
)
def test_absurd_numbers_are_survived(event: Event) -> None:
    view = fold([event])
    assert view.seq == 1
    assert all(len(request.tokens) <= 1 << 23 for request in view.requests.values())


# ---------------------------------------------------------------------------------------------------------- views


def test_views_stay_as_they_were() -> None:
    events = healthy().events
    kept = views(events)
    copies = [dataclasses.asdict(view)["counters"] for view in kept]
    fold(events, kept[10])
    assert [dataclasses.asdict(view)["counters"] for view in kept] == copies
    assert len({id(view) for view in kept}) == len(kept)
    with pytest.raises(dataclasses.FrozenInstanceError):
        kept[0].seq = 3  # type: ignore[misc]


@given(st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_a_ledger_goes_on_from_any_view(at: int) -> None:
    events = healthy().events
    cut = at % (len(events) + 1)
    assert fold(events[cut:], fold(events[:cut])) == fold(events)


def test_a_new_start_begins_an_empty_run() -> None:
    events = [*healthy().events[:60], ev.Start(seq=61, slots=3)]
    view = fold(events)
    assert not view.requests and view.pools["slots"].total == 3 and not view.counters


def test_changed_names_every_fact_that_changed() -> None:
    kept = views(healthy().events)
    maps = {"states": "state", "requests": "request", "pools": "pool", "block_refs": "block", "prefixes": "prefix"}
    for before, after in pairwise(kept):
        if isinstance(after.last, ev.Start):
            continue
        for name, what in maps.items():
            old, new = getattr(before, name), getattr(after, name)
            differs = {key for key in {*old, *new} if old.get(key) != new.get(key)}
            assert {(what, key) for key in differs} <= after.changed, (after.last, name)
        assert before.queued == after.queued or ("stream", "secondary") in after.changed


def test_extend_equals_apply() -> None:
    events = healthy().events
    assert Ledger().extend(events) == views(events)[-1]


def test_evolve_changes_fields_and_refuses_others() -> None:
    fact = RequestFact(3)
    assert evolve(fact, slot=2) == RequestFact(3, slot=2) and fact.slot == -1
    with pytest.raises(TypeError, match="no field slots"):
        evolve(fact, slots=2)


def test_bytes_are_counted_by_kind() -> None:
    script = speculative(2, queued=False)
    assert fold(script.events).counters["bytes.zero"] == nbytes("h+conv") > 3 * H_BYTES
