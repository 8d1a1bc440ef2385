"""The rows of a verify, and committing the accepted ones.

``exact``: each row goes through the single-token path, so K rows equal K decodes bit for bit. ``batched``: K rows at
once, as fast engines do it; equal up to rounding. In snapshot mode the state after each row is kept in step planes; in
replay mode the recurrent inputs of each row are kept instead and run again from the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from engine.events import Commit, Event, Place, ReplayRow, VerifyRow
from engine.request import ActiveRequest
from engine.runtime import Runtime
from engine.sampler import Pick

Chooser = Callable[[Tensor, int], Pick]


@dataclass(slots=True)
class VerifyOutput:
    """Post-final-norm hidden states of the rows, collected while they run."""

    parts: list[Tensor] = field(default_factory=list)

    def hidden(self) -> Tensor:
        """[K, D]"""
        return torch.cat(self.parts) if len(self.parts) > 1 else self.parts[0]


def run_rows(
    rt: Runtime, request: ActiveRequest, tokens: list[int], output: VerifyOutput, choose: Chooser
) -> Iterator[Event]:
    """Absorb ``tokens`` into live; one ``VerifyRow`` each."""
    return (_exact if rt.verify_mode == "exact" else _batched)(rt, request, tokens, output, choose)


def _exact(
    rt: Runtime, request: ActiveRequest, tokens: list[int], output: VerifyOutput, choose: Chooser
) -> Iterator[Event]:
    seq, k = request.seq, len(tokens)
    replay = rt.config.rollback == "replay"
    for row, token in enumerate(tokens):
        record = row if replay and row < k - 1 else -1
        rows = rt.model.step(token, rt.memory.pool, seq.slot, seq.table, seq.cursor, record_row=record)
        seq.table.advance(1)
        output.parts.append(rows.hidden.clone())
        parts = "" if replay else rt.memory.save_step(seq, row, k).parts
        yield _row(rt, request, row, token, choose(rows.logits[-1], row), parts, rt.digests(Place("live", seq.slot)))


def _batched(
    rt: Runtime, request: ActiveRequest, tokens: list[int], output: VerifyOutput, choose: Chooser
) -> Iterator[Event]:
    seq, k = request.seq, len(tokens)
    replay = rt.config.rollback == "replay"
    rows = rt.model.verify(tokens, rt.memory.pool, seq.slot, seq.table, seq.cursor, steps=not replay, record=replay)
    output.parts.append(rows.hidden)
    for row, token in enumerate(tokens):
        seq.table.advance(1)
        parts = "" if replay else ("h+conv" if row < k - 1 else "conv")
        place = Place("live", seq.slot) if row == k - 1 else Place("step", seq.slot, row)
        digests = rt.digests(place) if row == k - 1 or parts else ()
        yield _row(rt, request, row, token, choose(rows.logits[row], row), parts, digests, k)


def _row(
    rt: Runtime,
    request: ActiveRequest,
    row: int,
    token: int,
    chosen: Pick,
    parts: str,
    digests: tuple[tuple[str, str], ...],
    batch: int = 0,
) -> VerifyRow:
    return rt.event(
        VerifyRow,
        request.req,
        slot=request.seq.slot,
        row=row,
        token=token,
        pick=chosen.token,
        margin=chosen.margin,
        step_parts=parts,
        position=request.seq.cursor,
        batch=batch,
        digests=digests,
    )


def commit(rt: Runtime, request: ActiveRequest, start: int, accepted: int, k: int) -> Iterator[Event]:
    """Make the state after ``accepted`` rows live. ``start`` is the position before the verify.

    Snapshot mode queues the copy on the secondary stream; every later reader waits for it. Replay mode brings the
    checkpoint back on the default stream and runs the rows again.
    """
    seq = request.seq
    rows = rt.seams("commit.accepted", accepted, req=request.req, k=k)
    if rt.seams("commit.omitted", False, req=request.req, accepted=rows, k=k):
        return
    moved = rt.memory.commit_accepted_prefix(seq, rows, k)
    position = start + (accepted if not moved.replay else 0)
    yield rt.copied(Commit, request.req, moved, position, accepted=accepted, k=k, replayed=moved.replay)
    for row in range(moved.replay):
        yield from _replay(rt, request, row, start, "live")


def replay_into_checkpoint(rt: Runtime, request: ActiveRequest, start: int, done: int, upto: int) -> Iterator[Event]:
    """Advance the checkpoint through rows ``done`` .. ``upto - 1``: the state at a boundary inside an accepted round,
    which replay mode has nowhere else. The checkpoint is not needed any more after the commit."""
    for row in range(done, upto):
        yield from _replay(rt, request, row, start, "checkpoint")


def _replay(rt: Runtime, request: ActiveRequest, row: int, start: int, kind: str) -> Iterator[Event]:
    seq, place = request.seq, Place(kind, request.seq.slot)
    rt.model.replay_row(rt.memory.pool, seq.slot, row, kind)
    yield rt.event(
        ReplayRow,
        request.req,
        slot=seq.slot,
        place=place,
        row=row,
        token=seq.tokens[start + row] if start + row < len(seq.tokens) else -1,
        position=start + row + 1,
        digests=rt.digests(place),
    )
