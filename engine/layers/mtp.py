"""The multi-token-prediction head: guesses the token after the next one from a hidden state and the next token.

x = fc([norm(embedding of the next token), norm(hidden)]), one full-attention layer with its own keys and values, then
``mtp.norm``. ``hidden`` is the trunk's output after its final norm, or this head's own output when it is run again to
guess further (engines.md E.6). Embedding and output matrix are the trunk's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.config import ModelConfig
from engine.layers.attention import AttentionRow, GatedAttention
from engine.layers.decoder import DecoderLayer, Stream
from engine.layers.linear import projection
from engine.layers.norms import VectorNorm, rms_norm, zero_centred
from engine.layers.rotary import Rotary
from engine.weights import AttentionWeights, MtpWeights

if TYPE_CHECKING:
    from engine.state.paged_kv import KvTable


class MtpHead:
    """``kv_layer`` is its own layer in the paged KV. Positions are those of the hidden states; rotary embedding is
    relative, so only their differences matter."""

    def __init__(
        self,
        config: ModelConfig,
        weights: MtpWeights,
        kv_layer: int,
        rotary: Rotary,
        row: AttentionRow,
        stream: Stream,
    ) -> None:
        if not isinstance(weights.layer.mixer, AttentionWeights):
            raise ValueError("the MTP layer is an attention layer")
        self._eps = config.eps
        self._fc = projection(weights.fc)
        self._mixer = GatedAttention(config, weights.layer.mixer, kv_layer, rotary, row)
        self._layer = DecoderLayer(config, weights.layer, self._mixer)
        self._embedding_norm = zero_centred(weights.embedding_norm)
        self._hidden_norm = zero_centred(weights.hidden_norm)
        self._norm = zero_centred(weights.norm)
        self._stream = stream
        d = config.hidden
        self._embedding = VectorNorm(torch.empty_like(stream.x), config.eps)
        self._previous = VectorNorm(torch.empty_like(stream.x), config.eps)
        self._pair = torch.empty(2 * d, dtype=stream.x.dtype, device=stream.x.device)

    def step(self, embedding: Tensor, hidden: Tensor, kv: KvTable, position: int, swapped: bool = False) -> Tensor:
        """One pair: embedding [D] of the next token and hidden [D] to the head's hidden [D] (a buffer, used again).
        ``swapped`` concatenates them the wrong way round."""
        d = embedding.shape[0]
        first, second = (self._pair[d:], self._pair[:d]) if swapped else (self._pair[:d], self._pair[d:])
        first.copy_(self._embedding.of(embedding, self._embedding_norm))
        second.copy_(self._previous.of(hidden, self._hidden_norm))
        self._fc.row(self._pair, self._stream.x)
        stream, layer = self._stream, self._layer
        layer.mix_step(stream, self._mixer.step(layer.enter(stream), kv, position, stream.part))
        return stream.norm(self._norm)

    def rows(self, embeddings: Tensor, hidden: Tensor, kv: KvTable, start: int, swapped: bool = False) -> Tensor:
        """n pairs at positions ``start``..: both [n, D], to the head's hidden [n, D]; ``swapped`` as for a step."""
        pair = (
            rms_norm(embeddings, self._embedding_norm, self._eps),
            rms_norm(hidden, self._hidden_norm, self._eps),
        )
        x = self._fc.rows(torch.cat(pair[::-1] if swapped else pair, -1))
        x = self._layer.mix_rows(x, self._mixer.rows(self._layer.normed(x), kv, start))
        return rms_norm(x, self._norm, self._eps)
