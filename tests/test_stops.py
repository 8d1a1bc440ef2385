"""Stops over a real run of the fake engine: where they hit, what they say, how hits are counted."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from fake_engine import FakeEngine

from engine.events import Event, NewRequest, Place, RunRound
from inspector.commands.access import accesses, slots_of, touches
from inspector.commands.errors import CommandError, UsageError
from inspector.commands.expressions import compile_expression
from inspector.commands.locations import FORMS, Scopes, parse_location, place_location
from inspector.commands.places import PlaceSpec
from inspector.commands.stops import StopPoint, StopTable, watch_location
from inspector.commands.values import Scope
from sessions.ledger import Ledger
from sessions.view import LedgerView

Fact = tuple[LedgerView, Event, LedgerView]


def record(requests: int = 2, rounds: int = 14, **options: Any) -> list[Fact]:
    """(before, event, after) of a run with some speculation."""
    engine = FakeEngine(**options)
    events: list[Event] = [engine.start()]
    for i in range(requests):
        events += engine.perform(
            NewRequest(prompt=engine.tokens("the ring holds four entries")[: 6 + i], max_tokens=40, ignore_eos=True)
        )
    for _ in range(rounds):
        events += engine.perform(RunRound())
    ledger, facts = Ledger(), []
    before = ledger.view
    for event in events:
        after = ledger.apply(event)
        facts.append((before, event, after))
        before = after
    return facts


FACTS = record()
FIRST, SECOND = sorted(FACTS[-1][2].requests)


class FakeDebugger:
    """What parsing a location asks of a debugger."""

    class Timeline:
        now = 7

    timeline = Timeline()
    invariants = {"position": None, "seal": None}  # noqa: RUF012

    def instant_of_mark(self, name: str) -> int:
        return {"a": 12}[name]

    def findings_at(self, before: LedgerView, event: Event, after: LedgerView) -> list[Any]:
        return []


def scopes(point: StopPoint, before: LedgerView, event: Event, after: LedgerView) -> Scopes:
    req = point.req if point.req >= 0 else event.req
    return Scopes(lambda: Scope(after, event, req), lambda: Scope(before, before.last, req))


def stop(where: str, condition: str = "", **more: Any) -> StopPoint:
    location, own = parse_location(where, FakeDebugger())  # type: ignore[arg-type]
    return StopPoint(1, "break", location, compile_expression(condition) if condition else own, **more)


def hits(point: StopPoint, facts: list[Fact] | None = None) -> list[int]:
    return [after.seq for before, event, after in facts or FACTS if point.ask(before, event, after, scopes) is not None]


def where(test: Callable[[Event], bool], facts: list[Fact] | None = None) -> list[int]:
    return [event.seq for _, event, _ in facts or FACTS if test(event)]


def test_event_kinds() -> None:
    assert hits(stop("accept")) == where(lambda e: e.kind == "accept") != []
    assert hits(stop("accept,commit")) == where(lambda e: e.kind in ("accept", "commit"))
    assert hits(stop("prefill")) == where(lambda e: e.kind == "prefill")


def test_a_prefix_of_a_kind_is_taken_when_only_one_kind_begins_so() -> None:
    assert stop("verify_r").location.text == "verify_row"
    with pytest.raises(UsageError, match="ring_evict, ring_record"):
        stop("ring_")


def test_event_numbers_and_bookmarks() -> None:
    assert hits(stop("@30")) == [30]
    assert hits(stop("'a")) == [12]
    assert hits(stop("")) == [7]


def test_a_position_is_hit_when_it_is_reached_or_passed() -> None:
    found = hits(stop("pos 7"))
    first = next(a for b, e, a in FACTS if (live := a.live(e.req)) and (live.h_position or 0) >= 7)
    assert found[0] == first.seq
    for seq in found:
        before, event, after = FACTS[seq - 1]
        old, new = before.live(event.req), after.live(event.req)
        assert new is not None and new.h_position is not None
        assert new.h_position == 7 or (old.h_position or 0) < 7 < new.h_position  # type: ignore[union-attr]
    assert {FACTS[seq - 1][1].req for seq in found} == {FIRST, SECOND}


def test_tokens_by_id_and_by_text() -> None:
    emitted = [(e.seq, e.token) for _, e, _ in FACTS if e.kind == "emit"]  # type: ignore[attr-defined]
    seq, token = emitted[3]
    assert hits(stop(f"token {token}")) == [s for s, t in emitted if t == token]
    text = FACTS[-1][2].texts[token]
    expected = [s for s, t in emitted if text in FACTS[-1][2].texts[t]]
    assert hits(stop('token "' + text.replace("\n", "\\n") + '"')) == expected
    assert hits(stop('"' + text.replace("\n", "\\n") + '"')) == expected
    assert seq in expected


def test_slots() -> None:
    found = hits(stop("slot 1"))
    assert found == [e.seq for _, e, _ in FACTS if 1 in slots_of(e)] != []
    assert not set(found) & set(where(lambda e: e.req == FIRST and e.kind == "decode"))


def test_a_place_is_hit_when_it_is_written() -> None:
    place, facts = Place("checkpoint", 0), record(rollback="replay")
    expected = [e.seq for b, e, _ in facts if any(x.write and x.place == place for x in accesses(e, b))]
    assert hits(stop("checkpoint:0"), facts) == expected != []
    assert hits(stop("place checkpoint", req=FIRST), facts) == expected
    # An event kind of the same name wins when the place is not asked for by name.
    assert hits(stop("checkpoint"), facts) == where(lambda e: e.kind == "checkpoint", facts)


def test_reads_and_writes_are_told_apart() -> None:
    spec = PlaceSpec("checkpoint", slot=0)
    read = StopPoint(1, "rwatch", place_location(spec, True, False))
    write = StopPoint(2, "watch", place_location(spec, False, True))
    both = StopPoint(3, "awatch", place_location(spec, True, True))
    replay = record(rollback="replay")
    assert set(hits(read, replay)) & set(hits(write, replay)) <= set(where(lambda e: e.kind == "replay_row", replay))
    assert sorted({*hits(read, replay), *hits(write, replay)}) == hits(both, replay)
    commits = [e.seq for _, e, _ in replay if e.kind == "commit" and e.req == FIRST and e.parts and e.landed]  # type: ignore[attr-defined]
    assert commits and set(commits) <= set(hits(read, replay))


def test_a_queued_copy_is_a_write_only_when_it_lands() -> None:
    queued = [(b, e) for b, e, _ in FACTS if getattr(e, "landed", True) is False]
    assert queued
    for before, event in queued:
        assert touches(event, before, event.dst, reads=True, writes=True) == ""  # type: ignore[attr-defined]
    before, event = next((b, e) for b, e, _ in FACTS if e.kind == "landed")
    assert touches(event, before, event.dst, reads=True, writes=True) == "written"  # type: ignore[attr-defined]
    assert touches(event, before, event.src, reads=True, writes=True) == "read"  # type: ignore[attr-defined]


def test_a_part_of_a_place() -> None:
    facts = record(rounds=0)
    whole = place_location(PlaceSpec("live", slot=0, part="conv"), False, True)
    assert hits(StopPoint(1, "watch", whole), facts) == where(lambda e: e.kind == "zero" and e.req == FIRST, facts)
    _, event, _ = next(f for f in FACTS if f[1].kind == "verify_row" and f[1].step_parts == "conv")  # type: ignore[attr-defined]
    step = Place("step", event.slot, event.row)  # type: ignore[attr-defined]
    assert touches(event, FACTS[0][0], step, "h", reads=False, writes=True) == ""
    assert touches(event, FACTS[0][0], step, "conv", reads=False, writes=True) == "written"


def test_a_condition_is_hit_when_it_becomes_true() -> None:
    found = hits(stop("if dirty"))
    assert found == hits(stop("dirty")) != []
    for seq in found:
        before, event, after = FACTS[seq - 1]
        assert after.live(event.req).dirty and not before.live(event.req).dirty  # type: ignore[union-attr]


def test_conditions_speak_of_the_request_of_the_event() -> None:
    found = hits(stop(f"accept if accepted < k and req == {SECOND}"))
    expected = where(lambda e: e.kind == "accept" and e.req == SECOND and e.accepted < e.k)  # type: ignore[attr-defined]
    assert found == expected != []


@pytest.mark.parametrize("name", FORMS)
def test_every_form_in_the_help_can_be_typed(name: str) -> None:
    for form in name.split(", "):
        example = {"KIND": "verify", "invariant [NAME]": "invariant seal", "if EXPR": "if skew", "EXPR": "skew > 0"}
        stop(example.get(form, form))


@pytest.mark.parametrize(
    "text",
    [
        "verfy",
        "token x",
        "token",
        "invariant nope",
        "@1 2",
        'token ""',
        "accept if",
        "accept if accepted <",
        "pos",
        "ring x",
    ],
)
def test_what_is_no_location(text: str) -> None:
    with pytest.raises(CommandError):
        stop(text)
        if text == "accept if":
            compile_expression("")


# -------------------------------------------------------------------------------------------------------- counting


def test_hits_count_from_the_first_event() -> None:
    emits = where(lambda e: e.kind == "emit")
    assert hits(stop("emit if hits % 3 == 0")) == emits[2::3]
    assert hits(stop("emit if hits == 4 or hits == 6")) == [emits[3], emits[5]]


def test_asking_again_gives_the_same_answer() -> None:
    point = stop("emit if hits % 3 == 0")
    first = hits(point)
    assert hits(point) == first
    assert hits(point, FACTS[::-1]) == first[::-1]


def test_ignored_hits_are_the_next_ones_after_now() -> None:
    table = StopTable()
    location, _ = parse_location("emit", FakeDebugger())  # type: ignore[arg-type]
    point = table.add("break", location)
    everything = hits(point)
    now = everything[4]
    table.ignore(point.number, 2, now)
    assert hits(point) == everything[:5] + everything[7:]
    table.ignore(point.number, 0, now)
    assert hits(point) == everything


def test_a_changed_condition_counts_anew() -> None:
    table = StopTable()
    location, _ = parse_location("emit", FakeDebugger())  # type: ignore[arg-type]
    point = table.add("break", location)
    everything = hits(point)
    table.condition(1, compile_expression("hits == 2"))
    assert hits(point) == [everything[1]]
    table.condition(1, None)
    assert hits(point) == everything


def test_numbers_of_deleted_stops_are_not_used_again() -> None:
    table = StopTable()
    location, _ = parse_location("emit", FakeDebugger())  # type: ignore[arg-type]
    assert table.add("break", location).number == 1
    table.delete(1)
    assert table.add("break", location).number == 2
    with pytest.raises(CommandError, match="no stop 1; stops: 2"):
        table.get(1)


# --------------------------------------------------------------------------------------------------------- watches


def watch(source: str, req: int = FIRST) -> StopPoint:
    return StopPoint(1, "watch", watch_location(compile_expression(source)), req=req)


def test_a_watch_tells_old_and_new() -> None:
    point = watch("cursor")
    texts = [hit.text for before, event, after in FACTS if (hit := point.ask(before, event, after, scopes))]
    cursors = [a.requests[FIRST].cursor for _, _, a in FACTS if FIRST in a.requests]
    changes = [f"cursor: {x} -> {y}" for x, y in itertools.pairwise(cursors) if x != y]
    assert texts[0].startswith("cursor: none -> ") and texts[1:] == changes


def test_a_watch_means_the_same_in_any_order_of_asking() -> None:
    forwards, backwards = hits(watch("cursor")), hits(watch("cursor"), FACTS[::-1])
    assert forwards == backwards[::-1] != []


def test_a_watch_is_bound_to_its_request() -> None:
    assert not set(hits(watch("cursor", FIRST))) & set(where(lambda e: e.kind == "decode" and e.req == SECOND))


def test_the_condition_of_a_watch_sees_old_and_new() -> None:
    point = watch("cursor")
    point.condition = compile_expression("new < old")
    rewinds = where(lambda e: e.kind == "kv_rewind" and e.req == FIRST)
    assert hits(point) == rewinds != []


def test_a_condition_that_cannot_be_decided_stops_and_says_why() -> None:
    point = stop("accept if 1 / (k - k) > 0")
    seq = where(lambda e: e.kind == "accept")[0]
    hit = point.ask(*FACTS[seq - 1], scopes)
    assert hit is not None and "division by zero" in hit.text and hit.halts


def test_a_trace_prints_and_does_not_halt() -> None:
    location, _ = parse_location("accept", FakeDebugger())  # type: ignore[arg-type]
    prints = (compile_expression("accepted"), compile_expression("1 / (k - k)"))
    point = StopPoint(1, "trace", location, None, prints)
    before, event, after = next(f for f in FACTS if f[1].kind == "accept")
    hit = point.ask(before, event, after, scopes)
    assert hit is not None and not hit.halts
    assert hit.lines[0] == f"accepted = {event.accepted}"  # type: ignore[attr-defined]
    assert "division by zero" in hit.lines[1]
