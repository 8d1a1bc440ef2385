"""Calls that absorb tokens: prefill, decode, verify, and both in one batch."""

from __future__ import annotations

from collections.abc import Callable

from engine.events import Accept, Decode, Draft, Prefill, Verify, VerifyRow
from sessions.importers.trace_builder import Builder, Sequence
from sessions.importers.trace_index import MIXED, PREFILLS, VERIFIES, batch_rows
from sessions.importers.trace_lines import Call, Note, TraceSyntax

Handler = Callable[[Builder, Call], None]


def absorb_prompt(b: Builder, note: Note, start: int, count: int, last: bool) -> None:
    """A prefill chunk; ``note`` tells the length after it."""
    sequence = b.find(note)
    b.touch(sequence.slot)
    b.begin(sequence, "prefill")
    if sequence.length != start:
        b.rewind(sequence, start)
    sequence.length = start + count
    sequence.prefilling = not last
    b.cover(sequence)
    b.put(
        Prefill,
        sequence.req,
        slot=sequence.slot,
        start=start,
        count=count,
        chunk=sequence.chunk,
        last=last,
        cursor=note.length,
    )
    sequence.chunk = 0 if last else sequence.chunk + 1
    b.settle(sequence)


def prefill(b: Builder, call: Call) -> None:
    absorb_prompt(b, call.note(), 0, call.number("n"), True)


def prefill_chunk(b: Builder, call: Call) -> None:
    absorb_prompt(b, call.note(), call.number("start"), call.number("len"), call.named.get("last") is True)


def prefill_batch(b: Builder, call: Call) -> None:
    for note in call.notes("streams"):
        absorb_prompt(b, note, note.start, _count(note), note.last)


def _count(note: Note) -> int:
    if note.count < 0:
        raise TraceSyntax("a sequence note without a chunk", "sID@SLOT:len=N start=N len=N last=true|false")
    return note.count


def absorb_token(b: Builder, sequence: Sequence, token: int, length: int, pick: int) -> None:
    """One decode step; ``length`` is told for after it."""
    if sequence.length >= length:
        b.rewind(sequence, length - 1)
    b.touch(sequence.slot)
    b.begin(sequence, "decode")
    if sequence.length == sequence.prompt_len + len(sequence.outputs):
        b.emit(sequence, token, "plain")
    sequence.length += 1
    b.cover(sequence)
    b.put(Decode, sequence.req, slot=sequence.slot, token=token, pick=pick, cursor=length)
    sequence.prefilling = False
    b.settle(sequence, pick)


def decode(b: Builder, call: Call) -> None:
    note = call.note()
    absorb_token(b, b.find(note), call.number("token"), note.length, b.index.picks(b.at).get(0, -1))


def decode_batch(b: Builder, call: Call) -> None:
    """Here the notes tell the lengths before the step."""
    tokens = call.numbers("tokens" if "tokens" in call.named else "inputs")
    picks = b.index.picks(b.at)
    for row, (note, token) in enumerate(zip(call.notes("seqs"), tokens, strict=True)):
        absorb_token(b, b.find(note), token, note.length + 1, picks.get(row, -1))


def mixed(b: Builder, call: Call) -> None:
    """Decode rows and prefill chunks in one batch. The decode rows name tokens only: they are the running sequences,
    in slot order, whose pending token that is."""
    picks = b.index.picks(b.at)
    waiting = [b.sequences[b.slots[slot]] for slot in sorted(b.slots)]
    waiting = [sequence for sequence in waiting if not sequence.prefilling and sequence.outputs]
    for row, token in enumerate(call.numbers("decode")):
        found = next((s for s in waiting if s.outputs[-1] in (token, -1)), None)
        if found is None:
            b.trouble(f"no running sequence has token {token} pending, row {row} of {call.name} is not followed")
            continue
        waiting.remove(found)
        absorb_token(b, found, token, found.length + 1, picks.get(row, -1))
    chunks = call.notes("prefills") if "prefills" in call.named else call.all_notes()
    for note in chunks:
        absorb_prompt(b, note, note.start, _count(note), note.last)


# --------------------------------------------------------------------------------------------------------- verify


def absorb_rows(b: Builder, note: Note, tokens: tuple[int, ...], picks: tuple[int, ...], mode: str) -> None:
    """A verify: ``note`` tells the length with all rows. Accepted rows are told by a later line, or follow from the
    accept rule: the longest run of drafts that equal the picks before them."""
    sequence, k = b.find(note), len(tokens)
    if sequence.length != note.length - k:
        b.rewind(sequence, note.length - k)
    b.touch(sequence.slot)
    b.begin(sequence, "verify")
    if sequence.length == sequence.prompt_len + len(sequence.outputs):
        b.emit(sequence, tokens[0], "plain")
    b.put(Draft, sequence.req, tokens=tokens[1:], source=sequence.proposed or "lookup")
    sequence.proposed, sequence.prefilling = "", False
    sequence.length += k
    b.cover(sequence)
    for row, (token, pick) in enumerate(zip(tokens, picks, strict=True)):
        parts = "h+conv" if row < k - 1 else "conv"
        b.put(VerifyRow, sequence.req, slot=sequence.slot, row=row, token=token, pick=pick, step_parts=parts)
    b.put(Verify, sequence.req, slot=sequence.slot, k=k, tokens=tokens, picks=picks, mode=mode, cursor=note.length)
    natural = 1
    while natural < k and tokens[natural] == picks[natural - 1]:
        natural += 1
    accepted = b.index.verdict(b.at, sequence.req, sequence.slot) or natural
    told = b.index.served.get(sequence.req)
    room = told.total - len(sequence.outputs) if told is not None and told.total >= 0 else k
    outputs = (*tokens[1:accepted], *picks[accepted - 1 : accepted])[: max(0, room)]
    b.put(
        Accept,
        sequence.req,
        slot=sequence.slot,
        accepted=accepted,
        k=k,
        natural=natural,
        forced=accepted != natural,
        emitted=outputs,
    )
    for index, token in enumerate(outputs):
        b.emit(sequence, token, "bonus" if index == accepted - 1 else "accepted")


def verify(b: Builder, call: Call) -> None:
    mode = "exact" if call.name == "decode_verify" else "batched"
    absorb_rows(b, call.note(), call.numbers("tokens"), call.results(), mode)


def verify_batched(b: Builder, call: Call) -> None:
    for note, tokens, picks in batch_rows(call):
        absorb_rows(b, note, tokens, picks, "batched")


def decode_draft(b: Builder, call: Call) -> None:
    """A draft made by skipping recurrent layers: no state is touched, the length is taken back later."""
    b.find(call.note()).proposed = "self"


def propose(b: Builder, call: Call) -> None:
    b.find(call.note()).proposed = "mtp"


HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(VERIFIES, verify),
    **dict.fromkeys(PREFILLS, prefill_batch),
    **dict.fromkeys(MIXED, mixed),
    "prefill": prefill,
    "prefill_twophase": prefill,
    "prefill_chunk": prefill_chunk,
    "decode": decode,
    "decode_batch": decode_batch,
    "decode_batch_fed": decode_batch,
    "decode_verify_batched": verify_batched,
    "decode_draft": decode_draft,
    "run_mtp_propose": propose,
    "run_mtp_propose_multi": propose,
}
