"""One decoder layer: norm, mixer, residual, norm, feed-forward, residual."""

from __future__ import annotations

from torch import Tensor

from engine.config import ModelConfig
from engine.layers.attention import GatedAttention
from engine.layers.gated_delta_net import GatedDeltaNet
from engine.layers.mlp import Mlp
from engine.layers.moe import Moe
from engine.layers.norms import VectorNorm, rms_norm, zero_centred
from engine.weights import LayerWeights, MoeWeights


class Stream:
    """The residual stream of one token: ``x`` [D], a buffer for what is added to it, and its norm."""

    def __init__(self, x: Tensor, part: Tensor, eps: float) -> None:
        self.x = x
        self.part = part
        self.norm = VectorNorm(x, eps)


class DecoderLayer:
    """A layer around its mixer."""

    def __init__(self, config: ModelConfig, weights: LayerWeights, mixer: GatedDeltaNet | GatedAttention) -> None:
        self.mixer = mixer
        self._eps = config.eps
        self._input_norm = zero_centred(weights.input_norm)
        self._post_norm = zero_centred(weights.post_norm)
        self.mlp: Mlp | Moe
        if isinstance(weights.mlp, MoeWeights):
            if config.moe is None:
                raise ValueError("expert weights without an expert config")
            self.mlp = Moe(config.moe, weights.mlp)
        else:
            self.mlp = Mlp(weights.mlp)

    def enter(self, stream: Stream) -> Tensor:
        """The mixer's input for the token on ``stream``."""
        return stream.norm(self._input_norm)

    def mix_step(self, stream: Stream, mixed: Tensor) -> None:
        """Add the mixer's result [D] and the feed-forward block, in place on ``stream``."""
        x = stream.x
        x.add_(mixed)
        x.add_(self.mlp.step(stream.norm(self._post_norm), stream.part))

    def normed(self, x: Tensor) -> Tensor:
        """The mixer's input for rows x [n, D]."""
        return rms_norm(x, self._input_norm, self._eps)

    def mix_rows(self, x: Tensor, mixed: Tensor) -> Tensor:
        """The layer's output [n, D] for rows ``x`` and the mixer's result."""
        x = x + mixed
        return x + self.mlp.rows(rms_norm(x, self._post_norm, self._eps))
