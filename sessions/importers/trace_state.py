"""Calls that move states, slots and blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.events import (
    Boundary,
    Checkpoint,
    Commit,
    Compact,
    Finish,
    PrefixEvict,
    PrefixHit,
    PrefixSave,
    Release,
    RingEvict,
    RingRecord,
    RingRestore,
    RingSave,
    RingTruncate,
    Rollback,
    StateRollback,
)
from sessions.importers.trace_builder import Builder, Sequence, place_of
from sessions.importers.trace_lines import Call, TraceSyntax

Handler = Callable[[Builder, Call], None]


# --------------------------------------------------------------------------------------------------------- verify


def commit(b: Builder, call: Call) -> None:
    """The printed ``na`` counts rows here."""
    sequence, rows, k = b.at_length(call.note()), call.number("na"), call.number("k")
    live = place_of(sequence, "live")
    if rows >= k or rows < 1:
        b.put(Commit, sequence.req, src=live, dst=live, parts="", accepted=rows, k=k)
        return
    step = place_of(sequence, "step", rows - 1)
    b.copy(Commit, sequence, step, live, queued=True, accepted=rows, k=k)


def _checkpoint(b: Builder, sequence: Sequence, queued: bool) -> None:
    b.copy(Checkpoint, sequence, place_of(sequence, "live"), place_of(sequence, "checkpoint"), queued=queued)


def _rollback(b: Builder, sequence: Sequence, rows: int, queued: bool) -> None:
    source = place_of(sequence, "step", rows - 1) if rows > 0 else place_of(sequence, "checkpoint")
    b.copy(StateRollback, sequence, source, place_of(sequence, "live"), queued=queued, accepted=rows)


def start_rollback_and_checkpoint(b: Builder, call: Call) -> None:
    sequence = b.at_length(call.note())
    _rollback(b, sequence, call.number("na"), queued=True)
    _checkpoint(b, sequence, queued=True)


def start_checkpoint(b: Builder, call: Call) -> None:
    _checkpoint(b, b.at_length(call.note()), queued=True)


def checkpoint(b: Builder, call: Call) -> None:
    _checkpoint(b, b.at_length(call.note()), queued=False)


def rollback(b: Builder, call: Call) -> None:
    _rollback(b, b.at_length(call.note()), call.number("n"), queued=False)


def rewound(b: Builder, call: Call) -> None:
    """Calls that only tell a length."""
    b.at_length(call.note())


def sync_secondary(b: Builder, call: Call) -> None:
    b.sync()


def synchronize(b: Builder, call: Call) -> None:
    """The host waits for a whole stream; 1 is the secondary one."""
    if call.number("stream") == 1:
        b.sync()


# ----------------------------------------------------------------------------------------------------------- ring


def ring_save(b: Builder, call: Call) -> None:
    sequence, index = b.at_length(call.note()), call.number("ring")
    position = len(sequence.outputs)
    b.put(Boundary, sequence.req, token=sequence.outputs[-1] if sequence.outputs else -1, output_len=position)
    for entry in [e for e in sequence.ring if e[1] == index or e[0] == position]:
        sequence.ring.remove(entry)
        b.put(RingEvict, sequence.req, slot=sequence.slot, ring_slot=entry[1], token_position=entry[0])
    sequence.ring.append((position, index))
    at: dict[str, Any] = {"token_position": position}
    b.put(RingRecord, sequence.req, slot=sequence.slot, ring_slot=index, next_slot=-1, **at)
    b.copy(RingSave, sequence, place_of(sequence, "live"), place_of(sequence, "ring", index), queued=False, **at)


def ring_restore(b: Builder, call: Call) -> None:
    """The note still tells the length before the rollback; the label of the entry tells the one after it."""
    sequence, index = b.at_length(call.note()), call.number("ring")
    keep = next((position for position, slot in sequence.ring if slot == index), 0)
    ring, live = place_of(sequence, "ring", index), place_of(sequence, "live")
    b.copy(RingRestore, sequence, ring, live, queued=False, token_position=keep)
    if not keep:
        b.trouble(f"s{sequence.req} restores ring slot {index}, which no entry of this trace owns")
        return
    dropped = tuple(position for position, _ in sequence.ring if position > keep)
    sequence.ring = [entry for entry in sequence.ring if entry[0] <= keep]
    b.put(
        RingTruncate,
        sequence.req,
        slot=sequence.slot,
        keep_len=keep,
        dropped=dropped,
        next_slot=-1,
    )
    gone = len(sequence.outputs) - keep
    b.rewind(sequence, sequence.prompt_len + keep - 1)
    del sequence.outputs[keep:]
    sequence.rollbacks += 1
    b.put(
        Rollback,
        sequence.req,
        outcome="rolled_back",
        keep_len=keep,
        dropped=gone,
        cursor=sequence.length,
        pending=sequence.outputs[-1],
        count=sequence.rollbacks,
    )


# ---------------------------------------------------------------------------------------------------------- slots


def alloc(b: Builder, call: Call) -> None:
    """A slot is handed out; later lines say to whom."""
    slot = call.result
    if isinstance(slot, bool) or not isinstance(slot, int):
        raise TraceSyntax(f"{call.text!r:.80}", "-> slot NUMBER")
    id_ = b.index.who(b.at, slot)
    if id_ is None:
        return
    if id_ == 0 and b.swapped:
        b.claim(b.sequences[b.swapped[0][0]], slot)
        return
    known = b.sequences.get(id_)
    if known is None:
        known = b.admit(id_, slot, b.index.prompt_length(b.at, id_, slot))
    else:
        b.claim(known, slot)
    known.prefilling, known.chunk = True, 0
    b.zero(known)


def free_sequence(b: Builder, call: Call) -> None:
    sequence, blocks = b.at_length(call.note()), call.number("blocks")
    if b.total:
        b.reserve(sequence, blocks - len(sequence.blocks))
    if b.releasing != "finish":
        b.end(sequence)
    else:
        told = b.index.served.get(sequence.req)
        b.put(Finish, sequence.req, reason=told.reason if told else "", guard=told.guard if told else "")
    b.releasing = "finish"
    b.release(sequence)


def compact(b: Builder, call: Call) -> None:
    sequence, target = b.at_length(call.note()), call.number("new_slot")
    if target == sequence.slot:
        return
    b.touch(sequence.slot)
    b.touch(target)
    b.put(Compact, sequence.req, src=sequence.slot, dst=target, bytes=-1)
    b.slots.pop(sequence.slot, None)
    sequence.slot = target
    b.slots[target] = sequence.req


def detach(b: Builder, call: Call) -> None:
    note = call.note()
    sequence = b.find(note)
    if sequence.slot >= 0:
        b.slots.pop(sequence.slot, None)
        b.put(Release, sequence.req, slot=sequence.slot)
        sequence.slot = -1


def swap_out(b: Builder, call: Call) -> None:
    """A swapped state is shown as a cached snapshot of origin ``swap``."""
    sequence = b.at_length(call.note())
    used = {index for _, index, _ in b.swapped}
    index = next(i for i in range(len(used) + 1) if i not in used)
    swap, live = place_of(sequence, "prefix", index), place_of(sequence, "live")
    b.copy(
        PrefixSave,
        sequence,
        live,
        type(live)("prefix", -1, swap.index),
        queued=False,
        tokens=sequence.length,
        key=f"swap-{sequence.req}",
        origin="swap",
    )
    b.swapped.append((sequence.req, index, sequence.length))


def swap_in(b: Builder, call: Call) -> None:
    note = call.note()
    sequence = b.find(note)
    held = next((entry for entry in b.swapped if entry[0] == sequence.req), None)
    if held is None:
        b.trouble(f"s{note.id} is swapped in, but this trace does not swap it out")
        return
    b.swapped.remove(held)
    _, index, length = held
    live, key = place_of(sequence, "live"), f"swap-{sequence.req}"
    if b.total:
        b.reserve(sequence, call.number("blocks"))
    swap = type(live)("prefix", -1, index)
    b.copy(PrefixHit, sequence, swap, live, queued=False, tokens=length, matched=length, key=key)
    b.put(PrefixEvict, index=index, key=key, tokens=length, reason="swapped in")
    sequence.length, sequence.prefilling = length, False


def free_blocks(b: Builder, call: Call) -> None:
    if b.total:
        b.count_blocks(call.results()[0])


HANDLERS: dict[str, Handler] = {
    "commit_accepted_prefix": commit,
    "start_rollback_and_checkpoint_async": start_rollback_and_checkpoint,
    "start_checkpoint_async": start_checkpoint,
    "checkpoint_ssm_states": checkpoint,
    "rollback_ssm_states": rollback,
    "sync_secondary": sync_secondary,
    "synchronize": synchronize,
    "trim_proposer_state": rewound,
    "commit_ctx": rewound,
    "cache_sequence": rewound,
    "save_decode_ssm_snapshot": ring_save,
    "restore_decode_ssm_snapshot": ring_restore,
    "alloc_sequence": alloc,
    "alloc_sequence_for": alloc,
    "free_sequence": free_sequence,
    "compact_sequence": compact,
    "detach_slot_for_reuse": detach,
    "save_sequence_state": swap_out,
    "restore_sequence_state": swap_in,
    "num_free_blocks": free_blocks,
}
