"""States recomputed from token ids, beside the session: golden, the layer-0 oracle, conv columns, reruns of a round.

Everything runs on pools of the oracle's own, so the session's bytes are never touched. Results of golden and of the
layer-0 oracle are kept at intervals, so that asking again after one more token costs one more token.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from engine.events import Absorbing, Columns, Computation, FirstLayer, Golden, HeadRow, Rerun, Residuals, StateData
from engine.head_oracle import head_row
from engine.model import HybridModel
from engine.runtime import EngineRefusal, Runtime
from engine.state.paged_kv import KvTable, PagedKv
from engine.state.places import to_plain
from engine.state.state_pool import SsmStatePool

Spans = tuple[tuple[int, ...], ...]

KEEP_EVERY = 32
KEPT = 64
NEAR = 8  # a kept layer-0 state this near is near enough; no better one is looked for


class Oracle:
    """Recomputes on ``model``; the runtime is read (for reruns), never written."""

    def __init__(self, rt: Runtime) -> None:
        self._rt = rt
        self._model: HybridModel = rt.model
        self._scratch: _Scratch | None = None
        self._golden = _Trail()
        self._first: OrderedDict[_Key, tuple[tuple[Tensor, Tensor], ...]] = OrderedDict()

    def compute(self, computation: Computation) -> tuple[StateData, ...]:
        """Dispatch by kind. Raises EngineRefusal."""
        work = _WORK.get(type(computation))
        if work is None:
            raise EngineRefusal(f"this engine cannot compute {computation.kind!r}")
        with torch.inference_mode():
            return work(self, computation)

    def golden(self, asked: Golden) -> tuple[StateData, ...]:
        """States after ``asked.tokens``; ``steps`` goes on from the longest kept prefix."""
        tokens = self._checked(asked.tokens)
        scratch = self._room(len(tokens) + self._rt.config.k)
        if asked.form == "prefill":
            self._golden.forget()
            scratch.reset()
            logits = None
            for start in range(0, len(tokens), asked.chunk):
                chunk = tokens[start : start + asked.chunk]
                logits = self._model.prefill(chunk, scratch.pool, 0, scratch.table, start).logits[-1]
            return (self._states(scratch.pool, len(tokens), logits),)
        if asked.form != "steps":
            raise EngineRefusal(f"golden is computed by steps or prefill, not {asked.form!r}")
        done, blob, logits = self._golden.longest(asked)
        scratch.load(blob)
        for start, end, form, rejected in _spans(done, asked):
            logits = scratch.absorb(self._model, tokens[start:end], start, form, rejected)
            if end // KEEP_EVERY != start // KEEP_EVERY or end == len(tokens):
                self._golden.keep(_within(asked, end), scratch.blob().clone(), logits)
        return (self._states(scratch.pool, len(tokens), logits),)

    def first_layer(self, asked: FirstLayer) -> tuple[StateData, ...]:
        """Layer 0, or the first ``asked.layers``. Raises EngineRefusal when they are not all recurrent."""
        tokens, layers = tuple(self._checked(asked.tokens)), asked.layers
        leading = self._model.leading.count
        if not leading:
            raise EngineRefusal("layer 0 of this model is not recurrent: the layer-0 oracle does not apply")
        if not 1 <= layers <= leading:
            raise EngineRefusal(f"{leading} recurrent layers come before the first attention layer, not {layers}")
        done = self._known(asked)
        state = self._first.get((layers, *_within(asked, done)), ())
        advance = self._model.leading.states
        steps = done
        for start, end, form, rejected in _spans(done, asked):
            if form == "step" and end < len(tokens) and not self._kept_here(end, len(tokens)):
                continue  # absorbed together with what follows
            if form != "step" and steps < start:
                state = advance(tokens[steps:start], "step", state, layers)
                steps = start
            state, steps = advance(tokens[steps:end], form, state, layers, rejected), end
            if end > len(tokens) - NEAR:
                self._keep_first((layers, *_within(asked, end)), state)
        state = state or advance((), "step", (), layers)
        h, conv = (tuple(to_plain(parts[i]) for parts in state) for i in (0, 1))
        return (StateData(self._model.geometry.recurrent_layers[:layers], h, conv, None, len(tokens)),)

    def _kept_here(self, end: int, count: int) -> bool:
        """In replay mode all rows of a verify are asked about, and then the accepted ones: each of the last is kept."""
        return self._rt.config.rollback == "replay" and end > count - self._rt.config.k

    def _keep_first(self, key: _Key, state: tuple[tuple[Tensor, Tensor], ...]) -> None:
        self._first[key] = state
        self._first.move_to_end(key)
        while len(self._first) > KEPT:
            self._first.popitem(last=False)

    def _known(self, asked: FirstLayer) -> int:
        """Length of the longest kept prefix that was absorbed in the same spans; the newest are looked at first."""
        best, tokens = 0, asked.tokens
        for layers, kept, chunks, rows in reversed(self._first):
            count = len(kept)
            if layers != asked.layers or not best < count <= len(tokens) or kept != tokens[:count]:
                continue
            if (kept, chunks, rows) != _within(asked, count):
                continue
            best = count
            if count >= len(tokens) - NEAR:
                break
        return best

    def columns(self, asked: Columns) -> tuple[StateData, ...]:
        """Raw conv inputs of layer 0 for token ids: ``conv[0]`` is [n, channels] fp32."""
        if 0 not in self._model.geometry.recurrent_layers:
            raise EngineRefusal("layer 0 of this model is not recurrent: its window cannot be decoded from token ids")
        table = self._model.leading.columns(self._checked(asked.tokens))
        return (StateData((0,), (), (to_plain(table),), None, len(asked.tokens)),)

    def rerun(self, asked: Rerun) -> tuple[StateData, ...]:
        """Tokens again from a place's bytes, on a copy of the request's KV."""
        tokens = self._checked(asked.tokens)
        scratch = self._copied(asked)
        end = asked.position + len(tokens)
        if asked.twice and tokens:
            self._model.step(tokens[0], scratch.pool, 0, scratch.table, asked.position)
        if asked.form == "rows":
            return tuple(self._rows(asked, scratch, tokens))
        if asked.form == "prefill":
            rows = self._model.prefill(tokens, scratch.pool, 0, scratch.table, asked.position)
            return (self._states(scratch.pool, end, rows.logits[-1]),)
        if asked.form == "replay":
            return tuple(self._replayed(asked, scratch, len(tokens)))
        if asked.form != "steps":
            raise EngineRefusal(f"a rerun goes by steps, rows, prefill or replay, not {asked.form!r}")
        out = []
        for offset, token in enumerate(tokens):
            position = asked.position + offset
            logits = self._model.step(token, scratch.pool, 0, scratch.table, position).logits[-1]
            out.append(self._states(scratch.pool, position + 1, logits))
        return tuple(out)

    def residuals(self, asked: Residuals) -> tuple[StateData, ...]:
        """Streams of :meth:`HybridModel.residuals`, from a place or from scratch."""
        tokens, start = self._checked(asked.tokens), asked.position
        if asked.form not in ("steps", "rows", "prefill") or not tokens:
            raise EngineRefusal(
                f"residuals of {len(tokens)} tokens by {asked.form!r}: give tokens; steps, rows, prefill"
            )
        if asked.history:
            start = len(asked.history)
            scratch = self._room(start + len(tokens))
            self.golden(Golden(tokens=asked.history, chunks=asked.chunks, rows=asked.rows))
            self._golden.forget()
        else:
            scratch = self._copied(asked)
        streams = self._model.residuals(tokens, scratch.pool, 0, scratch.table, start, asked.form)
        layers = tuple(n // 2 for n in range(len(streams) - 1))
        return (StateData(layers, tuple(to_plain(stream) for stream in streams), (), None, start + len(tokens)),)

    def _copied(self, asked: Rerun) -> _Scratch:
        """A scratch with the state at ``asked.place`` and the KV of its request below ``asked.position``."""
        rt = self._rt
        source = rt.memory.places.view(asked.place)
        if source.h is None and not asked.empty:
            raise EngineRefusal(f"{asked.place} keeps no h: a rerun needs a whole state")
        request = rt.find(asked.req)
        if asked.position > request.seq.table.capacity:
            raise EngineRefusal(f"r{asked.req} has KV for {request.seq.table.capacity} tokens, not {asked.position}")
        self._golden.forget()
        scratch = self._room(asked.position + len(asked.tokens))
        view = scratch.pool.state("live", 0)
        assert view.h is not None
        if asked.empty or source.h is None:
            scratch.reset()
        else:
            view.h.copy_(source.h)
            other = source if asked.conv_from is None else rt.memory.places.view(asked.conv_from)
            view.conv.copy_(other.conv)
        for layer in range(rt.kv.layers):
            if asked.position:
                k, v = request.seq.table.read(layer, asked.position)
                scratch.table.write(layer, 0, k, v)
        return scratch

    def _rows(self, asked: Rerun, scratch: _Scratch, tokens: list[int]) -> Iterator[StateData]:
        if not 0 < len(tokens) <= self._rt.config.k:
            raise EngineRefusal(f"1 to {self._rt.config.k} rows can be verified at once, not {len(tokens)}")
        rows = self._model.verify(tokens, scratch.pool, 0, scratch.table, asked.position, steps=len(tokens) > 1)
        layers, ordinals = self._model.geometry.recurrent_layers, range(self._model.geometry.layers)
        for row in range(len(tokens) - 1):
            yield StateData(
                layers,
                tuple(to_plain(scratch.pool.step_h(i)[0, row]) for i in ordinals),
                tuple(to_plain(scratch.pool.step_conv(i)[0, row]) for i in ordinals),
                to_plain(rows.logits[row]),
                asked.position + row + 1,
            )
        yield self._states(scratch.pool, asked.position + len(tokens), rows.logits[-1])

    def _replayed(self, asked: Rerun, scratch: _Scratch, count: int) -> Iterator[StateData]:
        rt = self._rt
        if rt.config.rollback != "replay":
            raise EngineRefusal("no inputs are recorded in snapshot mode: start with --rollback-mode replay")
        if count >= rt.config.k:
            raise EngineRefusal(f"the inputs of {rt.config.k - 1} rows are recorded, not of {count}")
        for row in range(count):
            self._model.replay_row(scratch.pool, 0, row, records=(rt.memory.pool, asked.place.slot))
            yield self._states(scratch.pool, asked.position + row + 1, None)

    def _checked(self, tokens: Sequence[int]) -> list[int]:
        vocab = self._model.vocab
        if tokens and (min(tokens) < 0 or max(tokens) >= vocab):
            bad = next(token for token in tokens if not 0 <= token < vocab)
            raise EngineRefusal(f"token id {bad} is outside the vocabulary of {vocab} ids")
        return list(tokens)

    def _room(self, tokens: int) -> _Scratch:
        if self._scratch is None or self._scratch.capacity < tokens:
            self._golden.forget()
            self._scratch = _Scratch(self._rt, max(256, 2 * tokens))
        return self._scratch

    def _states(self, pool: SsmStatePool, tokens: int, logits: Tensor | None) -> StateData:
        layers = self._model.geometry.layers
        return StateData(
            self._model.geometry.recurrent_layers,
            tuple(to_plain(pool.h(i)[0]) for i in range(layers)),
            tuple(to_plain(pool.conv(i)[0]) for i in range(layers)),
            None if logits is None else to_plain(logits),
            tokens,
        )


class _Scratch:
    """One slot and its KV, as wide as needed."""

    def __init__(self, rt: Runtime, tokens: int) -> None:
        model = rt.model
        self.pool = SsmStatePool(model.geometry, 1, rt.config.k, device=model.device, act_dtype=model.dtype)
        blocks = -(-tokens // rt.kv.block_size)
        kv = PagedKv(
            model.kv_layers, rt.kv.kv_heads, rt.kv.head_dim, blocks, rt.kv.block_size, rt.kv.buffer.dtype, model.device
        )
        self.table = KvTable(kv)
        self.table.reserve(tokens)
        self.capacity = self.table.capacity

    def blob(self) -> Tensor:
        blob = self.pool.state("live", 0).blob
        assert blob is not None
        return blob

    def reset(self) -> None:
        self.blob().zero_()

    def absorb(
        self, model: HybridModel, tokens: Sequence[int], start: int, form: str, rejected: Sequence[int]
    ) -> Tensor:
        """Absorb ``tokens`` at ``start``; the logits [V] of the last one."""
        if form == "prefill":
            return model.prefill(tokens, self.pool, 0, self.table, start).logits[-1]
        if form == "step":
            return model.step(tokens[0], self.pool, 0, self.table, start).logits[-1]
        count = len(tokens)
        rows = model.verify([*tokens, *rejected], self.pool, 0, self.table, start)
        if rejected:
            live, kept = self.pool.state("live", 0), self.pool.state("step", 0, count - 1)
            assert live.h is not None and kept.h is not None
            live.h.copy_(kept.h)
            live.conv.copy_(kept.conv)
        return rows.logits[count - 1]

    def load(self, blob: Tensor | None) -> None:
        if blob is None:
            self.reset()
        else:
            self.blob().copy_(blob)


Absorbed = tuple[tuple[int, ...], Spans, Spans]
"""Tokens, and the chunks and rows of them."""
_Key = tuple[int, tuple[int, ...], Spans, Spans]


def _within(asked: Absorbing, count: int) -> Absorbed:
    """The first ``count`` tokens and their spans. One that goes on past them stays as it is, so that nothing which is
    kept, and ends with its last token, is taken for its beginning."""
    tokens, chunks, rows = asked.tokens, asked.chunks, asked.rows
    if count < len(tokens):
        chunks = tuple([span for span in chunks if span[0] < count])
        rows = tuple([span for span in rows if span[0] < count]) if rows and rows[-1][0] >= count else rows
    return tokens[:count], chunks, rows


def _spans(done: int, asked: Absorbing) -> Iterator[tuple[int, int, str, tuple[int, ...]]]:
    """How the tokens from ``done`` on are absorbed: (start, end, form, ids that were rejected with them)."""
    total, starts = len(asked.tokens), dict[int, tuple[int, str, tuple[int, ...]]]()
    for start, end, *rejected in asked.rows:
        if start >= done:
            starts[start] = end, "rows", tuple(rejected)
    for start, end in asked.chunks:
        starts[start] = end, "prefill", ()
    position = done
    while position < total:
        end, form, others = starts.get(position, (0, "step", ()))
        if not position < end <= total:
            end, form, others = position + 1, "step", ()
        yield position, end, form, others
        position = end


class _Trail:
    """States kept along one token sequence; their KV is still in the scratch, because the tokens are the same."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Absorbed, tuple[Tensor, Tensor | None]] = OrderedDict()

    def longest(self, asked: Golden) -> tuple[int, Tensor | None, Tensor | None]:
        """Length, state and logits of the longest kept prefix of what is asked; states of other sequences, or absorbed
        in other spans, are dropped with the KV they relied on."""
        for key in [key for key in self._kept if key != _within(asked, len(key[0]))]:
            del self._kept[key]
        best = max(self._kept, key=lambda key: len(key[0]), default=None)
        return (len(best[0]), *self._kept[best]) if best is not None else (0, None, None)

    def keep(self, key: Absorbed, blob: Tensor, logits: Tensor | None) -> None:
        self._kept[key] = (blob, None if logits is None else logits.clone())
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)

    def forget(self) -> None:
        self._kept.clear()


_WORK: dict[type[Computation], Callable[[Oracle, Any], tuple[StateData, ...]]] = {
    Golden: Oracle.golden,
    FirstLayer: Oracle.first_layer,
    Columns: Oracle.columns,
    Rerun: Oracle.rerun,
    Residuals: Oracle.residuals,
    HeadRow: lambda oracle, asked: head_row(oracle._rt, asked),
}
