"""Random weights of any shape, made where they are needed: for measuring speed, where only sizes matter."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.config import ModelConfig
from engine.weights import AttentionWeights, LayerWeights, LinearWeights, MlpWeights, ModelWeights


def wide_config(hidden: int = 1024, layers: int = 24, vocab: int = 32768) -> ModelConfig:
    """A dense Qwen3.5 shape with 16 value heads of 128x128 and tied embeddings."""
    return ModelConfig.from_dict(
        {
            "model_type": "qwen3_5_text",
            "hidden_size": hidden,
            "num_hidden_layers": layers,
            "num_attention_heads": 8,
            "num_key_value_heads": 2,
            "head_dim": 256,
            "intermediate_size": hidden * 7 // 2,
            "vocab_size": vocab,
            "linear_num_key_heads": 16,
            "linear_num_value_heads": 16,
            "linear_key_head_dim": 128,
            "linear_value_head_dim": 128,
            "linear_conv_kernel_dim": 4,
            "tie_word_embeddings": True,
        }
    )


def random_model(config: ModelConfig, dtype: torch.dtype, device: str, seed: int = 0) -> ModelWeights:
    """Weights of ``config`` (dense layers, tied embeddings, no MTP head), normal with deviation 0.02, decays slow."""
    generator = torch.Generator(device).manual_seed(seed)

    def matrix(*shape: int) -> Tensor:
        values = torch.randn(*shape, generator=generator, device=device, dtype=torch.float32)
        return values.mul_(0.02).to(dtype)

    def zeros(size: int) -> Tensor:
        return torch.zeros(size, device=device, dtype=dtype)

    def mixer(kind: str) -> LinearWeights | AttentionWeights:
        heads, d = config.value_heads, config.hidden
        if kind == "linear":
            return LinearWeights(
                in_proj=matrix(config.qkvz_elems + 2 * heads, d),
                conv=matrix(config.channels, config.conv_kernel),
                a_log=torch.zeros(heads, device=device),
                dt_bias=torch.full((heads,), -3.0, device=device),
                norm=torch.ones(config.value_dim, device=device),
                out=matrix(d, heads * config.value_dim),
            )
        rows = (2 * config.heads + 2 * config.kv_heads) * config.head_dim
        return AttentionWeights(
            matrix(rows, d), zeros(config.head_dim), zeros(config.head_dim), matrix(d, config.heads * config.head_dim)
        )

    layers = tuple(
        LayerWeights(
            zeros(config.hidden),
            mixer(kind),
            zeros(config.hidden),
            MlpWeights(matrix(2 * config.ffn, config.hidden), matrix(config.hidden, config.ffn)),
        )
        for kind in config.layer_types
    )
    embed = matrix(config.vocab, config.hidden)
    return ModelWeights(embed, layers, zeros(config.hidden), embed, None)


def weight_bytes(weights: ModelWeights) -> int:
    """Bytes one decode step reads: every tensor once, a tied embedding once."""
    distinct = {tensor.data_ptr(): tensor.numel() * tensor.itemsize for _, tensor in weights.tensors()}
    return sum(distinct.values())
