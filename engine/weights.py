"""Weights of a hybrid model in the one form the layers compute with, made from any published layout.

Per linear layer the input projections become one matrix whose rows are q | k | v | z | b | a, heads in order; the
interleaved Qwen3-Next rows are permuted here, once. Per attention layer the rows are q | k | v | gate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.config import ModelConfig, MoeConfig
from engine.errors import UserError
from engine.naming import Names, has_mtp, linear_layout, mtp_is_sparse

# name -> tensor as stored
Fetch = Callable[[str], Tensor]


@dataclass(frozen=True, slots=True)
class LinearWeights:
    """Gated delta net. in_proj [C + Hv dv + 2 Hv, D]; conv [C, kernel]; a_log, dt_bias [Hv]; norm [dv];
    out [D, Hv dv]."""

    in_proj: Tensor
    conv: Tensor
    a_log: Tensor
    dt_bias: Tensor
    norm: Tensor
    out: Tensor


@dataclass(frozen=True, slots=True)
class AttentionWeights:
    """Gated attention. qkv_gate [(2 H + 2 Hkv) d, D] with rows q | k | v | gate; q_norm, k_norm [d]; out [D, H d]."""

    qkv_gate: Tensor
    q_norm: Tensor
    k_norm: Tensor
    out: Tensor


@dataclass(frozen=True, slots=True)
class MlpWeights:
    """gate_up [2 F, D] with gate rows first; down [D, F]."""

    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True, slots=True)
class MoeWeights:
    """router [E, D]; gate_up [E, 2 I, D]; down [E, D, I]; the shared expert and its gate [1, D]."""

    router: Tensor
    gate_up: Tensor
    down: Tensor
    shared: MlpWeights
    shared_gate: Tensor


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One decoder layer; both norms are zero-centred [D]."""

    input_norm: Tensor
    mixer: LinearWeights | AttentionWeights
    post_norm: Tensor
    mlp: MlpWeights | MoeWeights


@dataclass(frozen=True, slots=True)
class MtpWeights:
    """Multi-token-prediction head: fc [D, 2 D] on [embedding | hidden], one full-attention layer, three norms."""

    fc: Tensor
    embedding_norm: Tensor
    hidden_norm: Tensor
    layer: LayerWeights
    norm: Tensor


@dataclass(frozen=True, slots=True)
class ModelWeights:
    """All of a model. ``head`` is ``embed`` itself when the embeddings are tied."""

    embed: Tensor
    layers: tuple[LayerWeights, ...]
    norm: Tensor
    head: Tensor
    mtp: MtpWeights | None

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor with a dotted name of its place here."""
        yield from _walk("", self)


def _walk(prefix: str, node: object) -> Iterator[tuple[str, Tensor]]:
    for name in getattr(type(node), "__dataclass_fields__", {}):
        value = getattr(node, name)
        for place, item in (
            ((f"{prefix}{name}.{i}", v) for i, v in enumerate(value))
            if isinstance(value, tuple)
            else ((f"{prefix}{name}", value),)
        ):
            if isinstance(item, Tensor):
                yield place, item
            elif item is not None:
                yield from _walk(f"{place}.", item)


class WeightBuilder:
    """Makes the weights layer by layer, so that never more than one layer exists twice."""

    def __init__(self, config: ModelConfig, names: Names, fetch: Fetch, dtype: torch.dtype, device: torch.device):
        self._config, self._names, self._fetch = config, names, fetch
        self._dtype, self._device = dtype, device

    def build(self) -> ModelWeights:
        """Raises whatever ``fetch`` raises; names and shapes were checked before."""
        config = self._config
        embed = self._take("embed_tokens.weight")
        head = embed if config.tied else self._take("lm_head.weight")
        layers = tuple(self._layer(f"layers.{i}.", kind, config.sparse[i]) for i, kind in enumerate(config.layer_types))
        return ModelWeights(embed, layers, self._take("norm.weight"), head, self._mtp())

    def _take(self, name: str, keep_fp32: bool = False) -> Tensor:
        raw = self._fetch(name)
        dtype = torch.float32 if keep_fp32 and raw.dtype in (torch.float32, torch.float64) else self._dtype
        return raw.to(device=self._device, dtype=dtype)

    def _layer(self, prefix: str, kind: str, sparse: bool) -> LayerWeights:
        mixer = self._linear(f"{prefix}linear_attn.") if kind == "linear" else self._attention(f"{prefix}self_attn.")
        return LayerWeights(
            input_norm=self._take(f"{prefix}input_layernorm.weight"),
            mixer=mixer,
            post_norm=self._take(f"{prefix}post_attention_layernorm.weight"),
            mlp=self._moe(f"{prefix}mlp.") if sparse else self._mlp(f"{prefix}mlp."),
        )

    def _linear(self, prefix: str) -> LinearWeights:
        config = self._config
        parts = {name: self._take(prefix + name) for name in linear_layout(self._names, prefix)}
        if "in_proj_qkvz.weight" in parts:
            qkvz = deinterleave_qkvz(parts["in_proj_qkvz.weight"], config)
            in_proj = torch.cat((qkvz, deinterleave_ba(parts["in_proj_ba.weight"], config)))
        else:
            in_proj = torch.cat(tuple(parts.values()))
        conv = self._take(f"{prefix}conv1d.weight")
        return LinearWeights(
            in_proj=in_proj,
            # published [C, 1, kernel], MLX [C, kernel, 1]
            conv=conv.reshape(config.channels, config.conv_kernel),
            a_log=self._take(f"{prefix}A_log", keep_fp32=True),
            dt_bias=self._take(f"{prefix}dt_bias", keep_fp32=True),
            norm=self._take(f"{prefix}norm.weight", keep_fp32=True),
            out=self._take(f"{prefix}out_proj.weight"),
        )

    def _attention(self, prefix: str) -> AttentionWeights:
        config = self._config
        query_gate = self._take(f"{prefix}q_proj.weight").view(config.heads, 2, config.head_dim, config.hidden)
        query, gate = (query_gate[:, i].reshape(-1, config.hidden) for i in (0, 1))
        key, value = self._take(f"{prefix}k_proj.weight"), self._take(f"{prefix}v_proj.weight")
        return AttentionWeights(
            qkv_gate=torch.cat((query, key, value, gate)),
            q_norm=self._take(f"{prefix}q_norm.weight"),
            k_norm=self._take(f"{prefix}k_norm.weight"),
            out=self._take(f"{prefix}o_proj.weight"),
        )

    def _mlp(self, prefix: str) -> MlpWeights:
        gate_up = torch.cat((self._take(f"{prefix}gate_proj.weight"), self._take(f"{prefix}up_proj.weight")))
        return MlpWeights(gate_up, self._take(f"{prefix}down_proj.weight"))

    def _moe(self, prefix: str) -> MoeWeights:
        moe = _moe_of(self._config)
        if f"{prefix}experts.gate_up_proj" in self._names:
            gate_up, down = self._take(f"{prefix}experts.gate_up_proj"), self._take(f"{prefix}experts.down_proj")
        else:
            experts = [self._mlp(f"{prefix}experts.{e}.") for e in range(moe.experts)]
            gate_up, down = torch.stack([e.gate_up for e in experts]), torch.stack([e.down for e in experts])
        return MoeWeights(
            router=self._take(f"{prefix}gate.weight"),
            gate_up=gate_up,
            down=down,
            shared=self._mlp(f"{prefix}shared_expert."),
            shared_gate=self._take(f"{prefix}shared_expert_gate.weight"),
        )

    def _mtp(self) -> MtpWeights | None:
        if not has_mtp(self._names):
            return None
        return MtpWeights(
            fc=self._take("mtp.fc.weight"),
            embedding_norm=self._take("mtp.pre_fc_norm_embedding.weight"),
            hidden_norm=self._take("mtp.pre_fc_norm_hidden.weight"),
            layer=self._layer("mtp.layers.0.", "full", mtp_is_sparse(self._config, self._names)),
            norm=self._take("mtp.norm.weight"),
        )


def _moe_of(config: ModelConfig) -> MoeConfig:
    if config.moe is None:
        raise UserError("the checkpoint has expert tensors, but its config.json names no experts (num_experts).")
    return config.moe


def deinterleave_qkvz(weight: Tensor, config: ModelConfig) -> Tensor:
    """Rows grouped by key head, each q (dk), k (dk), v (r dv), z (r dv), to q | k | v | z."""
    dk, width = config.key_dim, config.value_heads // config.key_heads * config.value_dim
    grouped = weight.view(config.key_heads, 2 * dk + 2 * width, -1)
    return torch.cat([part.reshape(-1, weight.shape[1]) for part in torch.split(grouped, [dk, dk, width, width], 1)])


def deinterleave_ba(weight: Tensor, config: ModelConfig) -> Tensor:
    """Rows grouped by key head, each b (r), a (r), to b | a."""
    ratio = config.value_heads // config.key_heads
    grouped = weight.view(config.key_heads, 2 * ratio, -1)
    return torch.cat([part.reshape(-1, weight.shape[1]) for part in torch.split(grouped, ratio, 1)])
