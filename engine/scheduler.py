"""One round as a generator: prefill chunk, plain decode, or draft - verify - accept - commit.

Every fact is yielded right after it happened, and the generator can be left paused between any two of them. At a
``Decision`` the answer is looked up when the generator is resumed, so a person may decide in between.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace
from typing import Any

from torch import Tensor

from engine import emission, lifecycle, rollback
from engine.blocks import reserve
from engine.drafters import digest
from engine.events import (
    Accept,
    Checkpoint,
    Decision,
    Decode,
    Draft,
    Event,
    KvRewind,
    Place,
    Prefill,
    Rollback,
    RoundBegin,
    RoundEnd,
    RunRound,
    StateCopy,
    Trouble,
    Verify,
    VerifyRow,
    Watchdog,
)
from engine.prefixes import checkpoint_if_due, save_prefix
from engine.request import ActiveRequest
from engine.runtime import EngineRefusal, Runtime
from engine.sampler import Pick, pick
from engine.state.errors import KvExhausted
from engine.verify import VerifyOutput, commit, replay_into_checkpoint, run_rows
from engine.watchdogs import Alarm


class Scheduler:
    """Runs rounds on a runtime. ``taken`` is the running action with every decision made so far written into it."""

    def __init__(self, rt: Runtime) -> None:
        self._rt = rt
        self.taken = RunRound()

    def runnable(self) -> tuple[int, ...]:
        """Requests with work left, the one whose turn it is first."""
        ids = sorted(self._rt.requests)
        turn = self._rt.counters.turn
        return tuple([r for r in ids if r > turn] + [r for r in ids if r <= turn])

    def check(self, action: RunRound) -> ActiveRequest:
        """The request ``action`` is about. Raises EngineRefusal when the round cannot be run."""
        rt = self._rt
        if action.req < 0 and not rt.requests:
            raise EngineRefusal('no running request. Start one with: new "..."')
        request = rt.find(action.req if action.req >= 0 else self.runnable()[0])
        drafts = action.drafts or ()
        if len(drafts) > rt.config.drafts:
            raise EngineRefusal(
                f"{len(drafts)} drafts given, the pools hold at most {rt.config.drafts}; "
                f"start with --drafts {len(drafts)}"
            )
        bad = [token for token in drafts if not 0 <= token < rt.vocabulary.size]
        if bad or action.token >= rt.vocabulary.size:
            found = (bad or [action.token])[0]
            raise EngineRefusal(f"token id {found} is outside the vocabulary of {rt.vocabulary.size}")
        return request

    def round(self, action: RunRound) -> Iterator[Event]:
        """One round; call :meth:`check` first. A round that runs out of KV blocks finishes its request."""
        rt, request = self._rt, self.check(action)
        self.taken = replace(action, req=request.req)
        rt.counters.round += 1
        rt.round = rt.counters.round
        rt.counters.turn = request.req
        try:
            if request.prefilling:
                yield from self._prefill(request)
            else:
                yield from self._generate(request)
        except KvExhausted as error:
            yield rt.event(Trouble, request.req, text=str(error), place="kv")
            yield from lifecycle.finish(rt, request, "length", "kv_exhausted")
        yield rt.event(RoundEnd, request.req, **self._head(request))
        rt.round = 0

    # ------------------------------------------------------------------------------------------------- prefill

    def _prefill(self, request: ActiveRequest) -> Iterator[Event]:
        rt, seq = self._rt, request.seq
        start, end = seq.cursor, _chunk_end(rt, request)
        yield rt.event(RoundBegin, request.req, mode="prefill")
        if rt.memory.pending:  # a checkpoint queued by hand still reads what this chunk overwrites
            yield from rt.sync_secondary(request.req)
        yield from reserve(rt, request, end - start)
        tokens = seq.tokens[start:end]
        rt.seams("prefill.before", None, request=request, tokens=tokens)
        forward = rt.seams("prefill.forward", rt.model.prefill, request=request, tokens=tokens)
        rows = forward(tokens, rt.memory.pool, seq.slot, seq.table, start)
        seq.table.advance(end - start)
        last = end == seq.prompt_len
        yield rt.event(
            Prefill,
            request.req,
            slot=seq.slot,
            start=start,
            count=len(tokens),
            tokens=tuple(tokens),
            chunk=request.chunk,
            last=last,
            cursor=seq.cursor,
            position=seq.cursor,
            digests=rt.digests(Place("live", seq.slot)),
        )
        request.chunk += 1
        if not last:
            self._observe(request, rows.hidden, seq.tokens[start + 1 : end + 1], start)
            if end % rt.kv.block_size == 0:
                yield from save_prefix(rt, request, "chunk")
            return
        chosen = self._pick(request, rows.logits[-1], 0)
        alarm = yield from self._emit(request, [(self._forced(chosen.token), "plain")], [Place("live", seq.slot)])
        self._observe(request, rows.hidden, seq.tokens[start + 1 : end + 1], start)
        yield from save_prefix(rt, request, "leaf")
        yield from self._after(request, alarm)

    # ---------------------------------------------------------------------------------------- decode and verify

    def _generate(self, request: ActiveRequest) -> Iterator[Event]:
        rt, action = self._rt, self.taken
        limit = min(rt.drafts, request.remaining - 1)
        drafting = action.drafts is not None or (request.drafter != "none" and limit > 0)
        yield rt.event(RoundBegin, request.req, mode="verify" if drafting else "decode")
        yield from rt.sync_secondary(request.req)
        drafts: tuple[int, ...] = ()
        if drafting:
            # always the whole verify width, so that a recorded round reserves the same blocks whoever drafts
            yield from reserve(rt, request, rt.config.k)
            drafts = yield from self._draft(request, limit)
        if drafts:
            yield from self._verify(request, drafts)
        else:
            yield from self._decode(request)

    def _decode(self, request: ActiveRequest) -> Iterator[Event]:
        rt, seq = self._rt, request.seq
        yield from reserve(rt, request, 1)
        token, start = seq.tokens[-1], seq.cursor
        token = rt.seams("decode.token", token, req=request.req)
        rt.seams("decode.before", None, request=request, token=token)
        step = rt.seams("decode.step", rt.model.step)
        rows = step(token, rt.memory.pool, seq.slot, seq.table, start)
        seq.table.advance(1)
        chosen = self._pick(request, rows.logits[-1], 0)
        yield rt.event(
            Decode,
            request.req,
            slot=seq.slot,
            token=token,
            pick=chosen.token,
            margin=chosen.margin,
            cursor=seq.cursor,
            position=seq.cursor,
            digests=rt.digests(Place("live", seq.slot)),
        )
        alarm = yield from self._emit(request, [(self._forced(chosen.token), "plain")], [Place("live", seq.slot)])
        self._observe(request, rows.hidden, seq.tokens[start + 1 : start + 2], start)
        yield from self._after(request, alarm)

    def _draft(self, request: ActiveRequest, limit: int) -> Generator[Event, None, tuple[int, ...]]:
        rt, action = self._rt, self.taken
        written = request.draft.written
        if action.drafts is not None:
            drafts, source = action.drafts, action.source or "hand"
            if source == "mtp" and rt.seams.active:  # done again: a fault may read the rows that drafting left behind
                rt.drafters[source].propose(request.seq.tokens, request.draft, request.seq.table, len(drafts))
        else:
            drafter = rt.drafters[request.drafter]
            drafts = drafter.propose(request.seq.tokens, request.draft, request.seq.table, limit)
            source = request.drafter if drafts else "none"
        yield from rt.tell_texts(drafts)
        yield rt.event(
            Decision, request.req, what="drafts", default=len(drafts), low=0, high=rt.config.drafts, tokens=drafts
        )
        answer = rt.take_answer("drafts", drafts)
        if answer != drafts:
            drafts, source = _as_drafts(answer, drafts), "hand"
            request.draft.written = written  # rows of drafts that nobody took do not count
            yield from rt.tell_texts(drafts)
        self.taken = replace(self.taken, drafts=drafts, source=source)
        fed = request.draft.fed_digest if source == "mtp" and rt.digests_on else ""
        hidden = request.hidden if fed else ""
        yield rt.event(Draft, request.req, tokens=drafts, source=source, fed=fed, hidden=hidden)
        return drafts

    def _verify(self, request: ActiveRequest, drafts: tuple[int, ...]) -> Iterator[Event]:
        rt, seq = self._rt, request.seq
        tokens, start = [seq.tokens[-1], *drafts], seq.cursor
        k = len(tokens)
        moved = rt.memory.checkpoint_ssm_states(seq)
        yield rt.copied(Checkpoint, request.req, moved, start)
        rt.seams("verify.before", None, request=request, tokens=tokens)
        padding = rt.memory.write_padding(seq) if k < rt.config.k else None
        if padding is not None:
            yield rt.copied(StateCopy, request.req, padding, start)
        rows = VerifyOutput()
        picks: list[int] = []
        for event in run_rows(rt, request, tokens, rows, lambda logits, row: self._pick(request, logits, row)):
            if isinstance(event, VerifyRow):
                picks.append(event.pick)
            yield event
        yield rt.event(
            Verify,
            request.req,
            slot=seq.slot,
            k=k,
            tokens=tuple(tokens),
            picks=tuple(picks),
            mode=rt.verify_mode,
            cursor=seq.cursor,
            position=seq.cursor,
        )
        natural = _clip(rt, request, drafts, picks, _natural(drafts, picks))
        default = natural if self.taken.accept is None else self.taken.accept
        yield rt.event(Decision, request.req, what="accept", default=default, low=1, high=k, tokens=tuple(picks))
        wanted = int(rt.take_answer("accept", default))
        accepted = _clip(rt, request, drafts, picks, max(1, min(k, wanted)))
        self.taken = replace(self.taken, accept=accepted)
        emitted = [*drafts[: accepted - 1], self._forced(picks[accepted - 1])]
        yield rt.event(
            Accept,
            request.req,
            slot=seq.slot,
            accepted=accepted,
            k=k,
            natural=natural,
            forced=accepted != natural,
            emitted=tuple(emitted),
        )
        if accepted < k:
            seq.table.rewind(rt.seams("kv.rewind", start + accepted, start=start, accepted=accepted, k=k))
            yield rt.event(KvRewind, request.req, before=start + k, cursor=seq.cursor)
        yield from commit(rt, request, start, accepted, k)
        marks = ["accepted"] * (accepted - 1) + ["bonus"]
        places = [Place("step", seq.slot, row) if row < k - 1 else Place("live", seq.slot) for row in range(accepted)]
        alarm = yield from self._emit(request, list(zip(emitted, marks, strict=True)), places, start, k)
        hidden = rows.hidden()[:accepted]
        self._observe(request, hidden, seq.tokens[start + 1 : start + 1 + accepted], start)
        yield from self._after(request, alarm)

    # -------------------------------------------------------------------------------------------------- helpers

    def _emit(
        self,
        request: ActiveRequest,
        emitted: list[tuple[int, str]],
        places: list[Place],
        start: int = -1,
        k: int = 1,
    ) -> Generator[Event, None, Alarm | None]:
        """Push outputs; the state before output i is absorbed is at ``places[i]``. Returns the first alarm."""
        rt, alarm = self._rt, None
        scratch = 0
        for row, ((token, mark), place) in enumerate(zip(emitted, places, strict=True)):
            yield from emission.emit(rt, request, token, mark)
            if emission.at_boundary(rt, request) and request.seq.ring.is_enabled:
                source = place
                if place.kind == "step" and rt.config.rollback == "replay":
                    if row == len(emitted) - 1:
                        source = Place("live", request.seq.slot)
                    else:
                        yield from replay_into_checkpoint(rt, request, start, scratch, row + 1)
                        scratch, source = row + 1, Place("checkpoint", request.seq.slot)
                yield from emission.snapshot_boundary(rt, request, source)
            alarm = alarm or emission.detect(rt, request)
        return alarm

    def _after(self, request: ActiveRequest, alarm: Alarm | None) -> Iterator[Event]:
        """End of a round with outputs: decode-time prefix checkpoint, loop detectors, end of the request."""
        rt = self._rt
        yield from checkpoint_if_due(rt, request)
        reason = lifecycle.finish_reason(rt, request)
        if reason:
            yield from lifecycle.finish(rt, request, reason, "")
        elif alarm is not None:
            yield from self._alarm(request, alarm)

    def _alarm(self, request: ActiveRequest, alarm: Alarm) -> Iterator[Event]:
        rt = self._rt
        yield rt.event(Watchdog, request.req, name=alarm.name, min_keep=alarm.min_keep, detail=alarm.detail)
        if self.taken.boundary >= 0:
            rt.answers.setdefault("boundary", self.taken.boundary)
        outcome = ""
        for event in rollback.rollback_to_boundary(rt, request, alarm.min_keep):
            if isinstance(event, Rollback):
                outcome = event.outcome
                if outcome == rollback.ROLLED_BACK:
                    self.taken = replace(self.taken, boundary=event.keep_len)
            yield event
        if outcome != rollback.ROLLED_BACK:
            yield from lifecycle.finish(rt, request, "length", alarm.name)

    def _observe(self, request: ActiveRequest, hidden: Tensor, following: list[int], start: int) -> None:
        if request.finished or request.drafter != "mtp" or not following:
            return
        if self._rt.digests_on:
            request.hidden = digest(hidden[len(following) - 1])
        self._rt.drafters["mtp"].observe(request.draft, hidden, following, request.seq.table, start)

    def _head(self, request: ActiveRequest) -> dict[str, Any]:
        """What the end of a round tells of the MTP head of ``request``."""
        if request.finished or request.drafter != "mtp":
            return {}
        return request.draft.told(request.hidden if self._rt.digests_on else "")

    def _pick(self, request: ActiveRequest, logits: Tensor, row: int) -> Pick:
        chosen = pick(logits, request.sampling, request.output_len + row)
        closing = self._rt.vocabulary.think_close
        if row == 0 and closing is not None and emission.thinks_in_circles(self._rt, request):
            return Pick(closing, chosen.margin)
        return chosen

    def _forced(self, token: int) -> int:
        """The token that was chosen, unless the action names another one."""
        return self.taken.token if self.taken.token >= 0 else token


def _natural(drafts: tuple[int, ...], picks: list[int]) -> int:
    """Accept rule: confirmed rows = longest prefix of drafts that equal the picks before them, plus the pending row."""
    count = 0
    while count < len(drafts) and drafts[count] == picks[count]:
        count += 1
    return count + 1


def _clip(rt: Runtime, request: ActiveRequest, drafts: tuple[int, ...], picks: list[int], accepted: int) -> int:
    """Nothing is emitted past the end of the request: stop at EOS and at the token budget."""
    accepted = min(accepted, max(1, request.remaining))
    if not request.ignore_eos:
        for row in range(accepted - 1):
            if drafts[row] in rt.vocabulary.eos:
                return row + 1
    return accepted


def _as_drafts(answer: object, proposed: tuple[int, ...]) -> tuple[int, ...]:
    """A person's answer to the drafts decision: token ids, or how many of the proposed ones to keep."""
    return proposed[:answer] if isinstance(answer, int) else tuple(answer)  # type: ignore[arg-type]


def _chunk_end(rt: Runtime, request: ActiveRequest) -> int:
    """End of the next prefill chunk; the last whole block of the prompt ends one too, so that it can be cached."""
    seq, size = request.seq, rt.kv.block_size
    end = min(seq.cursor + rt.config.prefill_chunk, seq.prompt_len)
    tail = (seq.prompt_len - 1) // size * size
    return tail if rt.prefix is not None and seq.cursor < tail < end else end
