"""HybridModel: rows of tokens in, logits and hidden states out, recurrent states and KV changed in place.

Four ways to absorb tokens:

    step      one token through single-row arithmetic. Depends on nothing but the token, its state, its KV and its
              position: the same bits in any slot, in any blocks, after any other work.
    verify    K tokens with shared matrix products; the recurrence still goes token by token through the same update.
    prefill   many tokens in chunks.
    replay    the state change of a recorded token again, bit for bit.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.config import ModelConfig
from engine.layers.attention import AttentionRow, GatedAttention
from engine.layers.decoder import DecoderLayer, Stream
from engine.layers.gated_delta_net import DeltaRow, GatedDeltaNet, RowState
from engine.layers.linear import projection
from engine.layers.mtp import MtpHead
from engine.layers.norms import rms_norm, zero_centred
from engine.layers.rotary import Rotary
from engine.leading import LeadingLayers
from engine.state.geometry import StateGeometry
from engine.weights import LinearWeights, ModelWeights

if TYPE_CHECKING:
    from engine.checkpoint import LoadedModel
    from engine.state.paged_kv import KvTable
    from engine.state.state_pool import SsmStatePool


@dataclass(frozen=True, slots=True)
class Rows:
    """``logits`` [r, V] fp32; ``hidden`` [n, D] after the final norm, activation dtype. Both belong to the caller."""

    logits: Tensor
    hidden: Tensor


class HybridModel:
    """A model ready to run. One token stream at a time: buffers are shared by all calls."""

    def __init__(self, config: ModelConfig, weights: ModelWeights, device: torch.device | str = "cpu") -> None:
        self.config = config
        self.device = torch.device(device)
        self.dtype = weights.embed.dtype
        self._embed = weights.embed
        self._head = projection(weights.head, tied=weights.head is weights.embed)
        self._norm = zero_centred(weights.norm)
        rotary = Rotary(config.rotary_dim, config.rope_theta, self.dtype, self.device)
        delta_row = DeltaRow(config, self.dtype, self.device)
        attention_row = AttentionRow(config, rotary, self.dtype, self.device)
        self._stream = self._new_stream()
        self._layers: list[DecoderLayer] = []
        self._ordinals: list[int] = []
        recurrent = attention = 0
        for layer in weights.layers:
            mixer: GatedDeltaNet | GatedAttention
            if isinstance(layer.mixer, LinearWeights):
                mixer = GatedDeltaNet(config, layer.mixer, delta_row)
                self._ordinals.append(recurrent)
                recurrent += 1
            else:
                mixer = GatedAttention(config, layer.mixer, attention, rotary, attention_row)
                self._ordinals.append(attention)
                attention += 1
            self._layers.append(DecoderLayer(config, layer, mixer))
        self.leading = LeadingLayers(config, self._layers, self._embed, self._stream)
        self.has_mtp = weights.mtp is not None
        self.kv_layers = attention + int(self.has_mtp)
        self._mtp: MtpHead | None = None
        if weights.mtp is not None:
            self._mtp = MtpHead(config, weights.mtp, attention, rotary, attention_row, self._new_stream())
        self._views: weakref.WeakKeyDictionary[SsmStatePool, dict[tuple[str, int], list[RowState]]]
        self._views = weakref.WeakKeyDictionary()

    @classmethod
    def of(cls, loaded: LoadedModel) -> HybridModel:
        """From :func:`engine.checkpoint.load_checkpoint`."""
        return cls(loaded.config, loaded.weights, loaded.device)

    @property
    def geometry(self) -> StateGeometry:
        return self.config.geometry

    def final_norm_weight(self) -> Tensor:
        """Effective weight [D] of the final norm, fp32: 1 + the stored one."""
        return self._norm

    @property
    def vocab(self) -> int:
        return self.config.vocab

    def step(self, token: int, pool: SsmStatePool, slot: int, kv: KvTable, start: int, record_row: int = -1) -> Rows:
        """Absorb one token at position ``start`` into live ``slot`` and ``kv``; logits [1, V], hidden [1, D].

        ``record_row`` >= 0 also writes the token's recurrent inputs to that replay row of the pool.
        """
        rows = self._rows(1, 1)
        with torch.inference_mode():
            stream = self._stream
            stream.x.copy_(self._embed[token])
            states = self._states(pool, slot)
            for layer, ordinal in zip(self._layers, self._ordinals, strict=True):
                mixer = layer.mixer
                if isinstance(mixer, GatedDeltaNet):
                    record = self._record(pool, ordinal, slot, record_row) if record_row >= 0 else None
                    layer.mix_step(stream, mixer.step(layer.enter(stream), states[ordinal], stream.part, record))
                else:
                    layer.mix_step(stream, mixer.step(layer.enter(stream), kv, start, stream.part))
            rows.hidden[0].copy_(stream.norm(self._norm))
            self._logits_row(rows)
        return rows

    def prefill(self, tokens: Sequence[int], pool: SsmStatePool, slot: int, kv: KvTable, start: int) -> Rows:
        """Absorb n >= 1 tokens at positions ``start``..; logits [1, V] of the last, hidden [n, D] of all."""
        states = self._states(pool, slot)
        rows = self._rows(1, len(tokens))
        with torch.inference_mode():
            x = self._embeddings(tokens)
            for layer, ordinal in zip(self._layers, self._ordinals, strict=True):
                mixer = layer.mixer
                normed = layer.normed(x)
                if isinstance(mixer, GatedDeltaNet):
                    x = layer.mix_rows(x, mixer.prefill(normed, states[ordinal]))
                else:
                    x = layer.mix_rows(x, mixer.rows(normed, kv, start))
            rows.hidden.copy_(rms_norm(x, self._norm, self.config.eps))
            rows.logits.copy_(self._head.rows(rows.hidden[-1:]))
        return rows

    def verify(
        self,
        tokens: Sequence[int],
        pool: SsmStatePool,
        slot: int,
        kv: KvTable,
        start: int,
        steps: bool = True,
        record: bool = False,
    ) -> Rows:
        """Absorb K tokens with shared matrix products; logits [K, V], hidden [K, D].

        ``steps`` writes the state after each row to the pool's step planes (h after rows 0..K-2, conv after all),
        ``record`` the recurrent inputs of rows 0..K-2 to its replay rows.
        """
        states = self._states(pool, slot)
        rows = self._rows(len(tokens), len(tokens))
        with torch.inference_mode():
            x = self._embeddings(tokens)
            for layer, ordinal in zip(self._layers, self._ordinals, strict=True):
                mixer = layer.mixer
                normed = layer.normed(x)
                if isinstance(mixer, GatedDeltaNet):
                    after = (pool.step_h(ordinal)[slot], pool.step_conv(ordinal)[slot]) if steps else None
                    inputs = (pool.replay_qkvz(ordinal)[slot], pool.replay_gates(ordinal)[slot]) if record else None
                    x = layer.mix_rows(x, mixer.verify(normed, states[ordinal], after, inputs))
                else:
                    x = layer.mix_rows(x, mixer.rows(normed, kv, start))
            rows.hidden.copy_(rms_norm(x, self._norm, self.config.eps))
            rows.logits.copy_(self._head.rows(rows.hidden))
        return rows

    def replay_row(
        self,
        pool: SsmStatePool,
        slot: int,
        row: int,
        place: str = "live",
        records: tuple[SsmStatePool, int] | None = None,
    ) -> None:
        """Run the recorded inputs of verify row ``row`` again on ``place`` ("live" or "checkpoint") of ``slot``.

        Leaves the bits that the row left in live. ``records``: another (pool, slot) to take the inputs from."""
        states = self._states(pool, slot, place)
        source, source_slot = records or (pool, slot)
        with torch.inference_mode():
            for layer, ordinal in zip(self._layers, self._ordinals, strict=True):
                if isinstance(layer.mixer, GatedDeltaNet):
                    layer.mixer.replay(states[ordinal], self._record(source, ordinal, source_slot, row))

    def residuals(
        self, tokens: Sequence[int], pool: SsmStatePool, slot: int, kv: KvTable, start: int, form: str
    ) -> list[Tensor]:
        """Absorb ``tokens`` like :meth:`step` one by one, :meth:`verify` or :meth:`prefill` (``form`` steps, rows,
        prefill), and give the residual stream [n, D] before the first block and after each mixer and each feed-forward.

        Raises:
            ValueError: another form.
        """
        if form not in ("steps", "rows", "prefill"):
            raise ValueError(f"residuals are taken by steps, rows or prefill, not {form!r}")
        states = self._states(pool, slot)
        with torch.inference_mode():
            if form == "steps":
                rows = [self._residuals_step(token, states, kv, start + i) for i, token in enumerate(tokens)]
                return [torch.stack(parts) for parts in zip(*rows, strict=True)]
            x = self._embeddings(tokens)
            streams = [x]
            for layer, ordinal in zip(self._layers, self._ordinals, strict=True):
                mixer, normed = layer.mixer, layer.normed(x)
                if not isinstance(mixer, GatedDeltaNet):
                    mixed = mixer.rows(normed, kv, start)
                elif form == "rows":
                    mixed = mixer.verify(normed, states[ordinal], None, None)
                else:
                    mixed = mixer.prefill(normed, states[ordinal])
                streams.append(x + mixed)
                x = layer.mix_rows(x, mixed)
                streams.append(x)
        return streams

    def _residuals_step(self, token: int, states: list[RowState], kv: KvTable, start: int) -> list[Tensor]:
        stream = self._stream
        stream.x.copy_(self._embed[token])
        parts = [stream.x.clone()]
        for layer, ordinal in zip(self._layers, self._ordinals, strict=True):
            mixer = layer.mixer
            if isinstance(mixer, GatedDeltaNet):
                mixed = mixer.step(layer.enter(stream), states[ordinal], stream.part)
            else:
                mixed = mixer.step(layer.enter(stream), kv, start, stream.part)
            parts.append(stream.x + mixed)
            layer.mix_step(stream, mixed)
            parts.append(stream.x.clone())
        return parts

    def mtp_rows(
        self, hidden: Tensor, next_tokens: Sequence[int], kv: KvTable, start: int, swapped: bool = False
    ) -> Rows:
        """Feed n pairs (hidden [n, D] of position p, token at p + 1) for p = ``start``.. to the MTP head; logits and
        hidden (after ``mtp.norm``) of all rows. ``swapped``: the halves of each pair the wrong way round.

        Raises:
            ValueError: this model has no MTP head, or the lengths differ.
        """
        count = len(next_tokens)
        rows = self._rows(count, count)
        with torch.inference_mode():
            rows.hidden.copy_(self.mtp_hidden(hidden, next_tokens, kv, start, swapped))
            if count == 1:
                self._logits_row(rows)
            else:
                rows.logits.copy_(self._head.rows(rows.hidden))
        return rows

    def mtp_hidden(
        self, hidden: Tensor, next_tokens: Sequence[int], kv: KvTable, start: int, swapped: bool = False
    ) -> Tensor:
        """The hidden states [n, D] of :meth:`mtp_rows` without its logits; a buffer that the next call uses again.

        Raises:
            ValueError: this model has no MTP head, or the lengths differ.
        """
        if self._mtp is None:
            raise ValueError("this checkpoint has no MTP head")
        count = len(next_tokens)
        if hidden.shape[0] != count:
            raise ValueError(f"{hidden.shape[0]} hidden states for {count} next tokens")
        with torch.inference_mode():
            if count == 1:
                return self._mtp.step(self._embed[next_tokens[0]], hidden[0], kv, start, swapped)[None]
            return self._mtp.rows(self._embeddings(next_tokens), hidden, kv, start, swapped)

    # ------------------------------------------------------------------------------------------------ inside

    def _new_stream(self) -> Stream:
        empty = torch.empty(self.config.hidden, dtype=self.dtype, device=self.device)
        return Stream(empty, torch.empty_like(empty), self.config.eps)

    def _rows(self, logits: int, hidden: int) -> Rows:
        # made outside inference mode, so that callers may change them in place
        return Rows(
            torch.empty(logits, self.config.vocab, dtype=torch.float32, device=self.device),
            torch.empty(hidden, self.config.hidden, dtype=self.dtype, device=self.device),
        )

    def _logits_row(self, rows: Rows) -> None:
        if self.dtype == torch.float32:
            self._head.row(rows.hidden[0], rows.logits[0])
        else:
            out = torch.empty(self.config.vocab, dtype=self.dtype, device=self.device)
            rows.logits[0].copy_(self._head.row(rows.hidden[0], out))

    def _embeddings(self, tokens: Sequence[int]) -> Tensor:
        return self._embed[torch.tensor(list(tokens), dtype=torch.long, device=self.device)]

    def _states(self, pool: SsmStatePool, slot: int, place: str = "live") -> list[RowState]:
        """Views of one row of the pool, made once: pool tensors never move."""
        rows = self._views.setdefault(pool, {})
        found = rows.get((place, slot))
        if found is None:
            h, conv = (pool.h, pool.conv) if place == "live" else (pool.checkpoint_h, pool.checkpoint_conv)
            found = [RowState.of(h(i)[slot], conv(i)[slot]) for i in range(self.geometry.layers)]
            rows[place, slot] = found
        return found

    @staticmethod
    def _record(pool: SsmStatePool, ordinal: int, slot: int, row: int) -> tuple[Tensor, Tensor]:
        return pool.replay_qkvz(ordinal)[slot, row], pool.replay_gates(ordinal)[slot, row]
