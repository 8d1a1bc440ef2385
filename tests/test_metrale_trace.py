"""The scheduler trace as events: two real traces, and lines of every form the grammar has."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from engine import events as ev
from engine.events import Event, Place
from sessions.importers import FormatError, load, metrale_trace, name_of
from sessions.importers.metrale_trace import read
from sessions.importers.trace_lines import Note, TraceSyntax, call, served, value
from sessions.invariants import check_all
from sessions.ledger import Ledger, fold
from sessions.view import LedgerView

DATA = Path(__file__).parent / "data"
BEGIN = ["# scenario test", "num_free_blocks() -> 100", "-- tick 1"]
ONE = [
    *BEGIN,
    "alloc_sequence() -> slot 0",
    "prefill(n=4, s7@0:len=4, stream=0)",
    "copy_logits_to_host(row=0, off=0, bytes=64)",
    "sync_secondary()",
    "decode(token=20, s7@0:len=5, stream=0)",
    "argmax_on_device(row=0, stream=0) -> 21",
]


def kinds(events: Sequence[Event], *names: str) -> list[Event]:
    return [event for event in events if event.kind in names]


def outputs(view: LedgerView, req: int) -> tuple[int, ...]:
    request = view.requests[req]
    return request.tokens[request.prompt_len :]


# -------------------------------------------------------------------------------------------------- the real traces


def test_ngram_breaks_one_invariant_at_tick_6() -> None:
    events = load(DATA / "ngram.trace")
    (finding,) = check_all(events)
    assert finding.name == "read-after-sync"
    broken = events[finding.seq - 1]
    assert isinstance(broken, ev.Decode) and broken.round == 6 and broken.token == 6
    assert "step:0.0 to live:0" in finding.text


def test_verify_k4_breaks_nothing() -> None:
    assert check_all(load(DATA / "verify_k4.trace")) == []


def test_verify_k4_outputs_accepts_and_positions() -> None:
    events = load(DATA / "verify_k4.trace")
    view = fold(events)
    assert outputs(view, 1) == (*range(10, 24), 63)
    request = view.requests[1]
    assert (request.status, request.finish, request.accepted_rows) == ("finished", "stop", 3 + 4 + 4 + 4)
    accepts = [event for event in events if isinstance(event, ev.Accept)]
    assert [(a.accepted, a.k, a.natural, a.forced) for a in accepts] == [(3, 4, 3, False)] + [(4, 4, 4, False)] * 3
    commits = [event for event in events if isinstance(event, ev.Commit)]
    assert [(c.accepted, c.parts, c.landed) for c in commits] == [(3, "h+conv", False), (4, "", True), (4, "", True)]
    assert commits[0].src == Place("step", 0, 2)


def test_verify_k4_positions_at_each_tick() -> None:
    events = load(DATA / "verify_k4.trace")
    ledger, at_end = Ledger(), {}
    for event in events:
        view = ledger.apply(event)
        if isinstance(event, ev.RoundEnd) and view.requests[1].slot >= 0:
            at_end[event.round] = (view.requests[1].cursor, view.states[Place("live", 0)].position)
    # The commit of tick 2 is still queued when its round ends.
    assert at_end == {1: (6, 6), 2: (9, 10), 3: (13, 13), 4: (17, 17)}


def test_blocks_and_slots_add_up() -> None:
    for name in ("ngram", "verify_k4"):
        events = load(DATA / f"{name}.trace")
        view = fold(events)
        assert (view.pools["blocks"].used, view.pools["blocks"].peak, view.pools["blocks"].total) == (0, 2, 1000)
        assert (view.pools["slots"].used, view.pools["slots"].peak) == (0, 1)
    ledger = Ledger()
    used = [ledger.apply(event).pools["blocks"].used for event in load(DATA / "verify_k4.trace")]
    assert max(used[: used.index(2)]) == 1


@pytest.mark.parametrize("name", ["ngram", "verify_k4"])
def test_every_line_is_an_event_or_kept(name: str) -> None:
    lines = (DATA / f"{name}.trace").read_text().splitlines()
    kept = {event.line: event.text for event in load(DATA / f"{name}.trace") if isinstance(event, ev.Unknown)}
    assert all(lines[number - 1] == text for number, text in kept.items())
    meaningless = ("bind_gpu", "adapter_id", "ep_broadcast", "acquire", "fx ", "out ", "save_hidden", "teardown")
    for number, line in enumerate(lines, start=1):
        assert number in kept or not line.startswith(meaningless), line
    assert {event.text for event in load(DATA / f"{name}.trace") if isinstance(event, ev.Unknown)} >= {"-- tick 3"}


def test_numbers_and_kinds_survive_the_wire() -> None:
    for event in load(DATA / "ngram.trace"):
        assert ev.event_from_dict(ev.to_dict(event)) == event


# ------------------------------------------------------------------------------------------------------ the grammar


def test_values() -> None:
    assert value("12") == 12 and value("-1") == -1 and value("0xf") == 15 and value("0xfffffff0") == 0xFFFFFFF0
    assert value("true") is True and value("Unified") == "Unified"
    assert value("[1, [2, 3], (0, 0)]") == (1, (2, 3), "(0, 0)")
    assert value("s1@0:len=15") == Note(1, 0, 15)
    assert value('"s2@1:len=16 start=8 len=8 last=false"') == Note(2, 1, 16, 8, 8, False)
    assert value("s1@18446744073709551615:len=3") == Note(1, -1, 3)


def test_calls() -> None:
    got = call('decode_batch(tokens=[1, 2], seqs=["s1@0:len=5", "s2@1:len=6"], stream=0) -> ERR KV cache exhausted')
    assert got.numbers("tokens") == (1, 2) and got.notes("seqs") == (Note(1, 0, 5), Note(2, 1, 6))
    assert got.error == "KV cache exhausted" and got.number("stream") == 0
    assert call("alloc_sequence() -> slot 3").result == 3
    assert call("argmax_batch(row=0, n=2, stream=0) -> [5, 6]").results() == (5, 6)
    mixed = call("mixed_forward(decode=[12], prefill=s2@1:len=16 start=8 len=8 last=false, stream=1)")
    assert mixed.all_notes() == (Note(2, 1, 16, 8, 8, False),)
    with pytest.raises(TraceSyntax, match="matching brackets"):
        call("decode(tokens=[1, s1@0:len=2)")


def test_out_lines() -> None:
    done = served('out s1: T10 TL11:2 T12 Done(timeout, n=3, think=0, cached=0, acc=1, guard=Some("request_timeout"))')
    assert done is not None
    assert (done.id, done.tokens, done.reason, done.total, done.guard, done.streaming) == (
        1,
        (10, 11, 12),
        "timeout",
        3,
        "request_timeout",
        True,
    )
    whole = served("out s4: Response(tokens=[30, 31], length, think=0, cached=0, acc=0, logprobs=0)")
    assert whole is not None and (whole.tokens, whole.total, whole.streaming) == ((30, 31), 2, False)
    assert served("fx teardown") is None


def test_a_plain_request() -> None:
    events = read([*ONE, "num_free_blocks() -> 99", "-- tick 2"])
    view = fold(events)
    assert check_all(events) == []
    assert outputs(view, 7) == (20, 21) and view.requests[7].prompt_len == 4
    assert view.requests[7].cursor == view.states[Place("live", 0)].position == 5
    assert [event.kind for event in events if event.req == 7][:4] == ["request", "claim", "zero", "round"]
    assert [type(e) for e in kinds(events, "round", "round_end")] == [ev.RoundBegin, ev.RoundEnd] * 2


def test_unknown_calls_are_kept_with_their_line() -> None:
    strange = "brand_new_call(x=[1, , ((, s1@0:len=a) -> ?"
    events = read([*ONE, strange, "", "rotation ack: Done"])
    kept = {event.text: event.line for event in events if isinstance(event, ev.Unknown)}
    assert kept[strange] == len(ONE) + 1 and kept["rotation ack: Done"] == len(ONE) + 3
    assert check_all(events) == []


BATCH = [
    *BEGIN,
    *(
        line
        for req, slot in ((1, 0), (2, 1), (3, 2))
        for line in (
            f"alloc_sequence() -> slot {slot}",
            f"prefill(n={4 + slot}, s{req}@{slot}:len={4 + slot}, stream=0)",
        )
    ),
    'decode_batch(tokens=[40, 50, 60], seqs=["s1@0:len=4", "s2@1:len=5", "s3@2:len=6"], stream=0)',
    "commit_ctx(s1@0:len=5, n=1, base=4, row=0)",
    "argmax_batch(row=0, n=3, stream=0) -> [41, 51, 61]",
    "num_free_blocks() -> 97",
    "-- tick 2",
    "sync_secondary()",
    "decode_verify_batched(tokens=[41, 42, 43, 51, 52, 53, 61, 62], ks=[3, 3, 2], "
    'seqs=["s1@0:len=8", "s2@1:len=9", "s3@2:len=9"], stream=0, woa=true) -> [42, 43, 44, 52, 99, 1, 62, 63]',
    "gdn_fold_accepted(slots=[0, 1, 2], accepted=[3, 2, 2], k=3) -> true",
    "commit_accepted_prefix(s1@0:len=8, na=3, k=3)",
    "trim_proposer_state(s2@1:len=8, na=1, stream=0)",
    "commit_accepted_prefix(s2@1:len=8, na=2, k=3)",
    "commit_accepted_prefix(s3@2:len=9, na=2, k=2)",
    "num_free_blocks() -> 97",
]


def test_a_batched_verify_is_told_for_each_sequence() -> None:
    events = read([*BATCH, "-- tick 3", "sync_secondary()"])
    view = fold(events)
    assert check_all(events) == []
    assert [outputs(view, req) for req in (1, 2, 3)] == [(40, 41, 42, 43, 44), (50, 51, 52, 99), (60, 61, 62, 63)]
    assert [view.states[Place("live", slot)].position for slot in (0, 1, 2)] == [8, 8, 9]
    accepts = [event for event in events if isinstance(event, ev.Accept)]
    assert [(a.req, a.accepted, a.k) for a in accepts] == [(1, 3, 3), (2, 2, 3), (3, 2, 2)]
    assert any(isinstance(e, ev.Unknown) and e.text.startswith("gdn_fold_accepted") for e in events)
    assert view.pools["blocks"].used == 3


def test_a_survivor_moves_to_the_freed_slot() -> None:
    more = [
        "-- tick 3",
        "sync_secondary()",
        "fx apply ReleaseSeq{cache=true, finish_sequence}",
        "cache_sequence(s1@0:len=8)",
        "free_sequence(s1@0:len=8, blocks=1)",
        "fx apply CompactSlot{target=0}",
        "compact_sequence(s3@2:len=9, new_slot=0)",
        "compact_sequence(s2@1:len=8, new_slot=1)",
        'decode_batch(tokens=[99, 63], seqs=["s2@1:len=8", "s3@0:len=9"], stream=0)',
        "argmax_batch(row=0, n=2, stream=0) -> [54, 64]",
        "num_free_blocks() -> 98",
    ]
    events = read([*BATCH, *more])
    view = fold(events)
    assert check_all(events) == []
    assert (view.requests[3].slot, view.states[Place("live", 0)].position) == (0, 10)
    assert view.requests[1].status == "finished" and view.slot_owner.get(2) is None
    assert view.states[Place("live", 0)].epoch == 2


def test_a_commit_that_nobody_waits_for_is_found_in_a_batch() -> None:
    more = ["-- tick 3", 'decode_batch(tokens=[99, 63], seqs=["s2@1:len=8", "s3@2:len=9"], stream=0)']
    (finding,) = check_all(read([*BATCH, *more]))
    assert (finding.name, finding.req, finding.where) == ("read-after-sync", 2, "live:1")


def test_a_rejected_draft_with_the_older_pair_of_calls() -> None:
    """``start_rollback_and_checkpoint_async`` prints rows: 1 after a reject."""
    more = [
        "start_checkpoint_async(s7@0:len=5)",
        "-- tick 2",
        "sync_secondary()",
        "decode_verify_graphed(tokens=[21, 22], s7@0:len=7) -> [30, 1]",
        "start_rollback_and_checkpoint_async(s7@0:len=6, na=1)",
        "-- tick 3",
        "sync_secondary()",
    ]
    events = read([*ONE, *more])
    rollback = next(event for event in events if isinstance(event, ev.StateRollback))
    assert (rollback.src, rollback.accepted, rollback.landed) == (Place("step", 0, 0), 1, False)
    view = fold(events)
    assert check_all(events) == []
    assert view.states[Place("live", 0)].position == view.states[Place("checkpoint", 0)].position == 6
    assert outputs(view, 7) == (20, 21, 30)


def test_rollback_on_the_default_stream_and_drafts_by_skipping_layers() -> None:
    more = [
        "decode_draft(token=21, s7@0:len=6, stream=0)",
        "argmax_on_device(row=0, stream=0) -> 22",
        "checkpoint_ssm_states(s7@0:len=5)",
        "decode_verify(tokens=[21, 22, 23], s7@0:len=8) -> [22, 30, 1]",
        "rollback_ssm_states(s7@0:len=7, n=2)",
        "-- tick 2",
        "decode(token=30, s7@0:len=8, stream=0)",
        "rollback_ssm_states(s7@0:len=8, n=0)",
    ]
    events = read([*ONE, *more])
    assert [e.source for e in events if isinstance(e, ev.Draft)] == ["self"]
    first, second = (e for e in events if isinstance(e, ev.StateRollback))
    assert (first.src, second.src) == (Place("step", 0, 1), Place("checkpoint", 0))
    assert fold(events).states[Place("live", 0)].position == 5
    assert [f.name for f in check_all(events[:-2])] == []


def test_chunks_and_mixed_batches() -> None:
    more = [
        "-- tick 2",
        "alloc_sequence_for(budget=24) -> slot 1",
        "prefill_chunk(start=0, len=8, last=false, s9@1:len=8, stream=1)",
        "mixed_forward(decode=[21], prefill=s9@1:len=12 start=8 len=4 last=false, stream=1)",
        "argmax_batch(row=0, n=1, stream=0) -> [22]",
        "-- tick 3",
        'mixed_forward_batch(decode=[22], prefills=["s9@1:len=14 start=12 len=2 last=true"], stream=1)',
        "argmax_batch(row=0, n=1, stream=0) -> [23]",
        "-- tick 4",
        'decode_batch(tokens=[23, 90], seqs=["s7@0:len=7", "s9@1:len=14"], stream=0)',
        "argmax_batch(row=0, n=2, stream=0) -> [24, 91]",
    ]
    events = read([*ONE, *more])
    view = fold(events)
    assert check_all(events) == []
    assert outputs(view, 7) == (20, 21, 22, 23, 24) and outputs(view, 9) == (90, 91)
    assert view.requests[9].prompt_len == 14
    chunks = [event for event in events if isinstance(event, ev.Prefill) and event.req == 9]
    assert [(c.start, c.count, c.chunk, c.last) for c in chunks] == [
        (0, 8, 0, False),
        (8, 4, 1, False),
        (12, 2, 2, True),
    ]


def test_a_batch_of_chunks() -> None:
    more = [
        "alloc_sequence() -> slot 1",
        'prefill_batch_chunk(streams=["s8@1:len=3 start=0 len=3 last=true"], stream=1)',
        'prefill_batch_chunk_rows(streams=["s8@1:len=3"], stream=1, row_base=1)',
    ]
    with pytest.raises(FormatError, match=f"line {len(ONE) + 3}: .*start=N len=N"):
        read([*ONE, *more])
    assert fold(read([*ONE, *more[:2]])).requests[8].cursor == 3


def test_tokens_chosen_on_the_host_are_those_that_are_fed_next() -> None:
    more = [
        "-- tick 2",
        "decode(token=21, s7@0:len=6, stream=0)",
        "copy_logits_to_host(row=0, off=0, bytes=64)",
        "-- tick 3",
        "decode(token=22, s7@0:len=7, stream=0)",
        "copy_logits_to_host(row=0, off=0, bytes=64)",
        "free_sequence(s7@0:len=7, blocks=1)",
        "out s7: T20 T21 T22 T23 Done(length, n=5, think=0, cached=0, acc=0, guard=None)",
    ]
    events = read([*ONE, *more])
    assert outputs(fold(events), 7) == (20, 21, 22, 23) and check_all(events) == []


def test_a_failed_call_has_no_effect() -> None:
    more = ['decode_batch(tokens=[21], seqs=["s7@0:len=5"], stream=0) -> ERR KV cache exhausted']
    events = read([*ONE, *more])
    trouble = next(event for event in events if isinstance(event, ev.Trouble))
    assert (trouble.text, trouble.place) == ("decode_batch failed: KV cache exhausted", f"line {len(ONE) + 1}")
    assert fold(events).requests[7].cursor == 5 and check_all(events) == []


def test_a_preempted_request_is_prefilled_again() -> None:
    more = [
        "fx apply ReleaseSeq{cache=true, preempt_requeue}",
        "cache_sequence(s7@0:len=5)",
        "free_sequence(s7@0:len=5, blocks=1)",
        "num_free_blocks() -> 100",
        "alloc_sequence() -> slot 2",
        "prefill(n=5, s7@2:len=5, stream=0)",
        "-- tick 2",
        "decode(token=21, s7@2:len=6, stream=0)",
        "argmax_on_device(row=0, stream=0) -> 22",
        "num_free_blocks() -> 99",
    ]
    events = read([*ONE, *more])
    view = fold(events)
    assert check_all(events) == [] and not kinds(events, "finish")
    assert outputs(view, 7) == (20, 21, 22) and view.requests[7].slot == 2 and view.requests[7].prompt_len == 4


def test_a_swapped_request_comes_back_without_its_name() -> None:
    more = [
        "fx apply SaveSequenceState",
        "save_sequence_state(s7@0:len=5, blocks=1)",
        "fx apply ReleaseSeq{cache=false, spill_out_sequence}",
        "free_sequence(s7@0:len=5, blocks=1)",
        "alloc_sequence() -> slot 0",
        "prefill(n=3, s8@0:len=3, stream=0)",
        "fx apply ReleaseSeq{cache=true, finish_sequence}",
        "free_sequence(s8@0:len=3, blocks=1)",
        "alloc_sequence() -> slot 0",
        "restore_sequence_state(s0@0:len=0, blocks=1)",
        "-- tick 2",
        'decode_batch(tokens=[21], seqs=["s0@0:len=5"], stream=0)',
        "argmax_batch(row=0, n=1, stream=0) -> [22]",
        "free_sequence(s0@0:len=6, blocks=1)",
        "num_free_blocks() -> 100",
    ]
    events = read([*ONE, *more])
    view = fold(events)
    assert check_all(events) == []
    assert set(view.requests) == {7, 8} and outputs(view, 7) == (20, 21, 22)
    saved = next(event for event in events if isinstance(event, ev.PrefixSave))
    assert (saved.origin, saved.tokens) == ("swap", 5) and not view.prefixes


def test_a_request_that_ran_no_step() -> None:
    more = [
        "alloc_sequence() -> slot 1",
        "generate_beam_batch(n=1) -> [[10, 11, 12, 63]]",
        "cache_sequence(s9@1:len=0)",
        "free_sequence(s9@1:len=0, blocks=0)",
        "out s9: Response(tokens=[10, 11, 12, 63], stop, think=0, cached=0, acc=0, logprobs=0)",
    ]
    events = read([*ONE, *more])
    view = fold(events)
    assert (view.requests[9].status, view.requests[9].finish, view.requests[9].prompt_len) == ("finished", "stop", 0)
    assert check_all(events) == []


def test_a_slot_detached_before_the_free() -> None:
    more = ["detach_slot_for_reuse(s7@0:len=5)", "free_sequence(s7@18446744073709551615:len=5, blocks=1)"]
    events = read([*ONE, *more])
    assert not fold(events).slot_owner and check_all(events) == []


def looping() -> list[str]:
    """A boundary token 9 after two outputs; later the ring entry taken there comes back."""
    lines, length = [*ONE], 5
    for tick, (token, pick) in enumerate([(21, 9), (9, 30), (30, 31), (31, 32)], start=2):
        lines += [f"-- tick {tick}", f'decode_batch(tokens=[{token}], seqs=["s7@0:len={length}"], stream=0)']
        length += 1
        lines += [f"commit_ctx(s7@0:len={length}, n=1, base={length - 1}, row=0)"]
        lines += [f"argmax_batch(row=0, n=1, stream=0) -> [{pick}]"]
        if pick == 9:
            lines += ["fx apply SsmSnapshotSave{slot=0}", f"save_decode_ssm_snapshot(s7@0:len={length}, ring=0)"]
        lines += ["fx apply MarconiCheckpoint", f"decode_marconi_checkpoint(s7@0:len={length})"]
    lines += ["fx apply SsmSnapshotRestore{slot=0}", f"restore_decode_ssm_snapshot(s7@0:len={length}, ring=0)"]
    return lines


def test_ring_saves_and_rollbacks() -> None:
    lines = looping()
    again = ["-- tick 6", 'decode_batch(tokens=[9], seqs=["s7@0:len=6"], stream=0)', "argmax_batch(row=0, n=1) -> [30]"]
    events = read([*lines, *again])
    view = fold(events)
    assert check_all(events) == []
    saved = next(event for event in events if isinstance(event, ev.RingSave))
    rolled = next(event for event in events if isinstance(event, ev.Rollback))
    assert (saved.token_position, rolled.keep_len, rolled.dropped, rolled.cursor, rolled.pending) == (3, 3, 3, 6, 9)
    assert outputs(view, 7) == (20, 21, 9, 30) and view.states[Place("live", 0)].position == 7
    assert [(e.token_position, e.ring_slot) for e in view.requests[7].ring.entries] == [(3, 0)]
    assert view.requests[7].rollbacks == 1


def watchdog_run() -> list[str]:
    """A published run: prompt of 5, a boundary (12) as output 51, then a cycle of 20 tokens; two rollbacks."""
    script = [*range(100, 150), 12, *range(151, 160), *[*range(20, 39), 12] * 4]
    lines = ["# scenario watchdog", "num_free_blocks() -> 1000", "-- tick 1", "alloc_sequence() -> slot 0"]
    lines += ["prefill(n=5, s1@0:len=5, stream=0)"]
    length, count, ring, used, rollbacks, tick = 5, 1, 0, 0, 0, 1
    while True:
        lines += [f'decode_batch(tokens=[{script[count - 1]}], seqs=["s1@0:len={length}"], stream=0)']
        length, pick, count = length + 1, script[count], count + 1
        lines += [f"commit_ctx(s1@0:len={length}, n=1, base={length - 1}, row=0)"]
        lines += [f"argmax_batch(row=0, n=1, stream=0) -> [{pick}]"]
        if pick == 12:
            lines += [
                f"fx apply SsmSnapshotSave{{slot={ring}}}",
                f"save_decode_ssm_snapshot(s1@0:len={length}, ring={ring})",
            ]
            ring += 1
        used = max(used, length // 16 + 1)
        if count == 119 and rollbacks == 2:
            return [*lines, f"free_sequence(s1@0:len={length}, blocks={used})", "num_free_blocks() -> 1000"]
        if count == 119:
            lines += ["fx apply SsmSnapshotRestore{slot=0}", f"restore_decode_ssm_snapshot(s1@0:len={length}, ring=0)"]
            length, count, ring, rollbacks = 55, 51, 1, rollbacks + 1
        tick += 1
        lines += [f"num_free_blocks() -> {1000 - used}", f"-- tick {tick}"]


def test_the_published_watchdog_run_is_followed_to_its_end() -> None:
    events = read(watchdog_run())
    assert check_all(events) == []
    saves = [(e.round, e.dst.index, e.token_position) for e in events if isinstance(e, ev.RingSave)]
    assert saves[:3] == [(50, 0, 51), (79, 1, 80), (99, 2, 100)]
    assert [tick for tick, _, _ in saves[3:]] == [147, 167, 215, 235]
    rollbacks = [(e.round, e.keep_len, e.dropped, e.cursor, e.pending) for e in events if isinstance(e, ev.Rollback)]
    assert rollbacks == [(118, 51, 68, 55, 12), (186, 51, 68, 55, 12)]
    ledger, positions, blocks = Ledger(), {}, {}
    for event in events:
        view = ledger.apply(event)
        live = view.states.get(Place("live", 0))
        if isinstance(event, ev.RingSave):
            positions[event.round] = view.states[event.dst].position
        if isinstance(event, ev.Rollback):
            assert live is not None and live.position == 55
            blocks[event.round] = view.pools["blocks"].used
    assert positions[50] == 55 and positions[79] == 84 and positions[99] == 104
    assert blocks == {118: 8, 186: 8}
    assert view.pools["blocks"].used == 0 and outputs(view, 1)[-1] == 38 and len(outputs(view, 1)) == 119
    assert view.counters["rollback.rolled_back"] == 2 and events[-1].round == 254


def test_a_ring_slot_nobody_saved() -> None:
    events = read([*ONE, "restore_decode_ssm_snapshot(s7@0:len=5, ring=4)"])
    assert any(isinstance(event, ev.Trouble) and "ring slot 4" in event.text for event in events)
    assert "written-before-read" in {finding.name for finding in check_all(events)}


def test_a_verdict_that_differs_from_the_accept_rule_is_shown_as_forced() -> None:
    more = [
        "-- tick 2",
        "decode_verify_graphed_k3(tokens=[21, 22, 23], s7@0:len=8) -> [22, 23, 24]",
        "commit_accepted_prefix(s7@0:len=7, na=2, k=3)",
    ]
    accept = next(event for event in read([*ONE, *more]) if isinstance(event, ev.Accept))
    assert (accept.accepted, accept.natural, accept.forced, accept.emitted) == (2, 3, True, (22, 23))


def test_a_trace_that_begins_in_the_middle() -> None:
    events = read(["-- tick 40", 'decode_batch(tokens=[5], seqs=["s3@1:len=90"], stream=0)'])
    view = fold(events)
    assert view.requests[3].cursor == 91 and view.states[Place("live", 1)].position is None
    assert any("without an allocation" in event.text for event in events if isinstance(event, ev.Trouble))


def test_a_length_that_jumps_is_reported() -> None:
    events = read([*ONE, "commit_ctx(s7@0:len=9, n=1, base=4, row=0)"])
    assert any("grown from 5 to 9" in event.text for event in events if isinstance(event, ev.Trouble))


# --------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("decode(token=x8, s7@0:len=6, stream=0)", "token=NUMBER in decode"),
        ("decode(token=8)", "a sequence note such as s1@0:len=15"),
        ("decode(token=8, s7@0:len=, stream=0)", "a sequence note"),
        ("decode_verify_graphed(tokens=[1, a], s7@0:len=7) -> [2, 3]", "tokens=[NUMBER, ...]"),
        ("decode_verify_graphed(tokens=[1, 2], s7@0:len=7) -> [2]", "one result for each token"),
        ("decode_verify_graphed(tokens=[1, 2], s7@0:len=7)", "-> NUMBER or -> [NUMBER, ...]"),
        ('decode_batch(tokens=[1], seqs=["s7@0:len=5", "s8@1:len=5"], stream=0)', "as many of both"),
        ('decode_batch(tokens=[1], seqs=["seven"], stream=0)', 'seqs=["s1@0:len=15", ...]'),
        ('decode_verify_batched(tokens=[1, 2], ks=[3], seqs=["s7@0:len=7"]) -> [1, 2]', "one width per seq"),
        ("commit_accepted_prefix(s7@0:len=5, k=4)", "na=NUMBER"),
        ("num_free_blocks() -> many", "-> NUMBER"),
        ("alloc_sequence() -> 1.5", "-> slot NUMBER"),
        ("-- tick two", "-- tick NUMBER"),
        ("prefill(n=4, s7@0:len=4", "name(args)"),
        ("prefill(n=[4, s7@0:len=4)", "matching brackets"),
        ("argmax_on_device(row=0) -> best", "-> NUMBER"),
    ],
)
def test_a_wrong_argument_names_line_found_and_expected(line: str, expected: str) -> None:
    with pytest.raises(FormatError) as caught:
        read([*ONE, line, "-- tick 2"], "some.trace")
    assert caught.value.line == len(ONE) + 1 and caught.value.path == "some.trace"
    assert expected in str(caught.value) and "found" in str(caught.value)


@pytest.mark.parametrize("cut", ["decode(token=21, s7@0:l", "-- tick 1", "num_free_blocks() -> 9", "decode("])
def test_a_cut_off_last_line_is_reported_and_the_rest_is_used(cut: str, tmp_path: Path) -> None:
    path = tmp_path / "cut.trace"
    path.write_text("\n".join([*ONE, cut]))
    events = load(path)
    assert isinstance(events[-1], ev.Trouble) and f"line {len(ONE) + 1}" in events[-1].text
    assert outputs(fold(events), 7) == (20, 21)
    assert load_whole(tmp_path, ONE) == events[:-1]


def load_whole(tmp_path: Path, lines: list[str]) -> list[Event]:
    path = tmp_path / "whole.trace"
    path.write_text("\n".join(lines) + "\n")
    return load(path)


def test_a_last_line_without_an_end_that_is_complete_is_used(tmp_path: Path) -> None:
    path = tmp_path / "end.trace"
    path.write_text("\n".join([*ONE, "free_sequence(s7@0:len=5, blocks=1)"]))
    events = load(path)
    assert not kinds(events, "trouble") and kinds(events, "finish")


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.trace"
    path.write_bytes(b"hello\nworld\n")
    with pytest.raises(FormatError, match=r"other.trace, line 1: found b'hello.*expected .*# scenario"):
        load(path)
    with pytest.raises(FormatError, match="# scenario NAME"):
        metrale_trace.load(path)
    path.write_bytes(b"# scenario x\n\xff\xfe\n")
    with pytest.raises(FormatError, match="line 2: found byte 0xff"):
        load(path)
    assert name_of(DATA / "ngram.trace") == "metrale-trace"


def test_every_cut_of_a_real_trace_is_read_or_reported(tmp_path: Path) -> None:
    data = (DATA / "ngram.trace").read_bytes()
    path = tmp_path / "cut.trace"
    for size in range(20, len(data), 37):
        path.write_bytes(data[:size])
        events = load(path)
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        fold(events)
