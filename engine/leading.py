"""The recurrent layers before the first attention layer, by themselves.

Their states follow from the token ids alone, so they can be computed beside a session without its KV, and one more
token costs one more step of a layer: this is what the layer-0 oracle and the conv decoder ask.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.config import ModelConfig
from engine.layers.decoder import DecoderLayer, Stream
from engine.layers.gated_delta_net import GatedDeltaNet, RowState

State = tuple[Tensor, Tensor]


class LeadingLayers:
    """Shares layers, embedding [V, D] and the one-token ``stream`` with its model. ``count`` of them there are."""

    def __init__(self, config: ModelConfig, layers: Sequence[DecoderLayer], embed: Tensor, stream: Stream) -> None:
        self._config, self._embed, self._stream = config, embed, stream
        self._layers: list[tuple[DecoderLayer, GatedDeltaNet]] = []
        for layer in layers:
            if not isinstance(layer.mixer, GatedDeltaNet):
                break
            self._layers.append((layer, layer.mixer))

    @property
    def count(self) -> int:
        return len(self._layers)

    def states(
        self,
        tokens: Sequence[int],
        form: str = "prefill",
        start: Sequence[State] = (),
        layers: int = 1,
        rejected: Sequence[int] = (),
    ) -> tuple[State, ...]:
        """(h, conv) of the first ``layers`` layers after ``tokens`` from nothing (or from ``start``, which is left
        alone), by ``form`` "prefill", "step", or "rows": as a batched verify, of which ``rejected`` were rejected.

        Raises:
            ValueError: one of these layers is not recurrent, or another form.
        """
        if not 1 <= layers <= self.count:
            raise ValueError(f"{self.count} recurrent layers come before the first attention layer, not {layers}")
        if form not in ("prefill", "step", "rows"):
            raise ValueError(f"form is prefill, step or rows, not {form!r}")
        states = [RowState.of(h.clone(), conv.clone()) for h, conv in start or [self._empty()] * layers]
        with torch.inference_mode():
            if form == "step":
                for token in tokens:
                    self._step(token, states)
            elif tokens:
                self._rows([*tokens, *rejected], len(tokens) if form == "rows" else 0, states)
        return tuple((state.h, state.conv) for state in states)

    def columns(self, tokens: Sequence[int] | None = None) -> Tensor:
        """What the window of layer 0 would store for each of ``tokens`` (None: every id): raw q | k | v [n, C] fp32.

        Raises:
            ValueError: layer 0 is not recurrent.
        """
        if not self._layers:
            raise ValueError("layer 0 of this model is not recurrent")
        layer, mixer = self._layers[0]
        ids = range(self._config.vocab) if tokens is None else tokens
        with torch.inference_mode():
            parts = [
                mixer.raw_inputs(layer.normed(self._embeddings(ids[i : i + 1024]))) for i in range(0, len(ids), 1024)
            ]
            return torch.cat(parts) if parts else torch.empty(0, self._config.channels)

    def _step(self, token: int, states: list[RowState]) -> None:
        stream = self._stream
        stream.x.copy_(self._embed[token])
        *before, ((layer, mixer), state) = zip(self._layers[: len(states)], states, strict=True)
        for (above, mixing), rest in before:
            above.mix_step(stream, mixing.step(above.enter(stream), rest, stream.part))
        mixer.absorb(layer.enter(stream), state)

    def _rows(self, tokens: Sequence[int], accepted: int, states: list[RowState]) -> None:
        """As a prefill chunk, or as a verify of which the first ``accepted`` > 0 rows count."""
        x = self._embeddings(tokens)
        for number, (layer, mixer) in enumerate(self._layers[: len(states)]):
            normed, last = layer.normed(x), number == len(states) - 1
            if accepted and last:
                mixer.absorb_rows(normed, states[number], accepted)
            elif accepted:
                mixed, states[number] = mixer.verify_upto(normed, states[number], accepted)
                x = layer.mix_rows(x, mixed)
            else:
                mixed = mixer.prefill(normed, states[number])
                x = x if last else layer.mix_rows(x, mixed)

    def _embeddings(self, tokens: Sequence[int]) -> Tensor:
        return self._embed[torch.tensor(list(tokens), dtype=torch.long, device=self._embed.device)]

    def _empty(self) -> State:
        geometry, device = self._config.geometry, self._embed.device
        return torch.zeros(geometry.h_shape, device=device), torch.zeros(geometry.conv_shape, device=device)
