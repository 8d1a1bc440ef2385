"""Happens-before over streams: what the default stream must not touch until it has waited."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from event_helpers import Script, altered, healthy

from engine import events as ev
from engine.events import Event, Place
from sessions.invariants import check_all
from sessions.ledger import fold
from sessions.ordering import accesses, conflict

LIVE, CHECKPOINT, STEP = Place("live", 0), Place("checkpoint", 0), Place("step", 0, 1)


def races(events: list[Event]) -> list[int]:
    """Numbers of the events that use a place too early."""
    return [finding.seq for finding in check_all(events) if finding.name == "read-after-sync"]


def queued(src: Place, dst: Place, parts: str = "h+conv") -> ev.StateCopy:
    return ev.StateCopy(seq=5, req=1, copy=1, src=src, dst=dst, parts=parts, bytes=-1, stream="secondary", landed=False)


COMMIT, SAVE = queued(STEP, LIVE), queued(LIVE, CHECKPOINT)


@pytest.mark.parametrize(
    ("copy", "event", "how"),
    [
        (COMMIT, ev.Decode(slot=0), "reads"),
        (COMMIT, ev.Prefill(slot=0, count=2), "reads"),
        (COMMIT, ev.VerifyRow(slot=0), "reads"),
        (COMMIT, ev.Zero(place=LIVE, bytes=4), "overwrites"),
        (COMMIT, ev.RingSave(src=LIVE, dst=Place("ring", 0, 0), bytes=4), "reads"),
        (COMMIT, ev.RingRestore(src=Place("ring", 0, 0), dst=LIVE, bytes=4), "overwrites"),
        (COMMIT, ev.StateCopy(src=LIVE, dst=LIVE, bytes=-1), "reads"),
        (COMMIT, ev.VerifyRow(slot=1, row=1, step_parts="h"), ""),
        (COMMIT, ev.Decode(slot=1), ""),
        (COMMIT, ev.Emit(req=1), ""),
        (COMMIT, ev.StateCopy(src=STEP, dst=CHECKPOINT, bytes=4), ""),
        (COMMIT, ev.StateCopy(src=LIVE, dst=CHECKPOINT, bytes=4, stream="secondary", landed=False), ""),
        (COMMIT, ev.StateCopy(src=LIVE, dst=CHECKPOINT, bytes=0), ""),
        (COMMIT, ev.StateCopy(src=LIVE, dst=CHECKPOINT, parts="", bytes=4), ""),
        (COMMIT, ev.Compact(src=0, dst=1, bytes=4), "reads"),
        (COMMIT, ev.Compact(src=1, dst=0, bytes=4), "overwrites"),
        (COMMIT, ev.Compact(src=2, dst=1, bytes=4), ""),
        (SAVE, ev.Decode(slot=0), "overwrites the source of"),
        (SAVE, ev.StateCopy(src=LIVE, dst=Place("ring", 0, 0), bytes=4), ""),
        (SAVE, ev.StateCopy(src=CHECKPOINT, dst=LIVE, bytes=4), "reads"),
        (SAVE, ev.ReplayRow(place=CHECKPOINT), "reads"),
        (queued(STEP, LIVE, "h"), ev.StateCopy(src=LIVE, dst=CHECKPOINT, parts="conv", bytes=4), ""),
        (queued(STEP, LIVE, "h"), ev.StateCopy(src=LIVE, dst=CHECKPOINT, parts="h", bytes=4), "reads"),
        (queued(STEP, LIVE), ev.VerifyRow(slot=1, row=0, step_parts="h+conv"), ""),
        (queued(STEP, CHECKPOINT), ev.VerifyRow(slot=0, row=1, step_parts="conv"), "overwrites the source of"),
        (queued(STEP, CHECKPOINT), ev.VerifyRow(slot=0, row=1, step_parts=""), ""),
    ],
)
def test_conflicts_of_a_queued_copy(copy: ev.StateCopy, event: Event, how: str) -> None:
    assert conflict(copy, event) == how


def test_events_that_touch_no_place_have_no_accesses() -> None:
    assert accesses(ev.Emit(req=1)) == ((), ())
    assert accesses(ev.Landed(src=LIVE, dst=CHECKPOINT)) == ((), ())


def speculative() -> Script:
    """Two partial accepts with queued commits."""
    script = Script()
    script.new(1, (5, 6, 7, 8))
    script.prefill(1, first=3)
    for _ in range(2):
        script.verify(1, (4, 5, 6), accepted=2)
    script.decode(1)
    return script


def without_syncs(events: list[Event], keep: Any = lambda event: False) -> list[Event]:
    return [event for event in events if not isinstance(event, ev.Sync) or keep(event)]


def test_a_wait_before_each_use_is_enough() -> None:
    assert races(healthy().events) == [] == races(speculative().events)


def test_a_copy_that_is_said_to_have_landed_is_not_ordered_by_that() -> None:
    script = speculative()
    events = list(altered(script.events, lambda e: isinstance(e, ev.Sync) and e.count == 1, lambda e: None))
    first = next(e for e in events if isinstance(e, ev.Commit))
    use = next(e for e in events if e.seq > first.seq and isinstance(e, (ev.Checkpoint, ev.VerifyRow)))
    assert races(events) == [use.seq]


def test_one_missing_wait_is_told_once() -> None:
    script = speculative()
    events = without_syncs(script.events)
    commits = [event for event in events if isinstance(event, ev.Commit)]
    assert len(races(events)) == len(commits) == 2


def test_the_first_use_is_kept_with_the_copy() -> None:
    script = speculative()
    events = without_syncs(script.events)
    view = fold(events)
    assert [item.touched for item in view.in_flight] == races(events)
    assert all(item.landed for item in view.in_flight)


def test_a_wait_covers_everything_queued_before_it() -> None:
    script = speculative()
    script.sync()
    assert fold(script.events).in_flight == ()
    # One wait at the right moment is as good as many.
    late = [event for event in script.events if isinstance(event, ev.Sync)]
    events = [event for event in script.events if not isinstance(event, ev.Sync) or event.count or event is late[0]]
    assert races(events) == []


def test_a_slot_zeroed_for_its_next_owner_while_a_copy_is_in_hand() -> None:
    script = Script(slots=1)
    script.new(1, (5, 6, 7, 8))
    script.prefill(1, first=3)
    script.verify(1, (4, 5, 6), accepted=2)
    script.finish(1)
    script.new(2, (5, 6))
    events = without_syncs(script.events)
    zero = next(event for event in events if isinstance(event, ev.Zero) and event.req == 2)
    assert races(events) == [zero.seq]


def test_a_copy_into_the_slot_a_survivor_left_does_not_follow_it() -> None:
    script = Script()
    for req in (1, 2):
        script.new(req, (5, 6, 7, 8))
        script.prefill(req, first=3)
    script.finish(1)
    script.verify(2, (4, 5, 6), accepted=2)
    script.compact(2)
    move = script.events[-1]
    view = fold(script.events)
    assert races(script.events) == [move.seq]
    assert not view.states[Place("live", 0)].queued and view.states[Place("live", 1)].queued


def test_copies_of_other_slots_do_not_wait_for_each_other() -> None:
    script = Script()
    for req in (1, 2):
        script.new(req, (5, 6, 7, 8))
        script.prefill(req, first=3)
    script.verify(1, (4, 5, 6), accepted=2)
    at = len(script.events)
    script.decode(2)
    events = [*script.events[:at], *without_syncs(script.events[at:])]
    assert races(events) == []


def test_the_finding_names_the_copy_and_its_stream() -> None:
    script = speculative()
    (finding, *_) = [f for f in check_all(without_syncs(script.events)) if f.name == "read-after-sync"]
    commit = next(event for event in script.events if isinstance(event, ev.Commit))
    assert finding.expected == f"a sync after @{commit.seq}" and finding.where == "live:0"
    assert "step:0.1 to live:0" in finding.text and "secondary" in finding.text


def test_a_copy_without_bytes_is_never_in_flight() -> None:
    script = speculative()
    events = [replace(e, bytes=0) if isinstance(e, ev.Commit) else e for e in without_syncs(script.events)]
    assert races(events) == [] and fold(events).in_flight == ()
