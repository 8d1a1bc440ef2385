"""Small random checkpoints in the published naming, and models made from them.

Names and layouts are written out here, independently of ``engine.naming``; the parity tests read the same files with
transformers, which is what makes them trustworthy. Weights are large enough, and decays slow enough, that a wrong state
shows in the next logits.
"""

from __future__ import annotations

import functools
import json
import math
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

from engine.checkpoint import LoadedModel, load_checkpoint
from engine.model import HybridModel
from engine.state.paged_kv import KvTable, PagedKv
from engine.state.reserve import SsmRollbackMode
from engine.state.state_pool import SsmStatePool

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>")
EOS = 2
VOCAB = 264


@dataclass(frozen=True)
class Shape:
    """A tiny architecture; ``ratio`` is value heads per key head, ``dense_layers`` have no experts (Qwen3-Next only),
    ``extra`` holds more config keys."""

    family: str = "qwen3_5"
    tied: bool = True
    ratio: int = 2
    mtp: bool = True
    layer_types: tuple[str, ...] = ("linear_attention",) * 3 + ("full_attention",)
    hidden: int = 32
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    key_heads: int = 2
    key_dim: int = 8
    value_dim: int = 8
    ffn: int = 48
    experts: int = 4
    top_k: int = 2
    expert_width: int = 16
    shared_width: int = 24
    vocab: int = VOCAB
    dtype: str = "float32"
    tokenizer: bool = True
    seed: int = 0
    dense_layers: tuple[int, ...] = ()
    extra: tuple[tuple[str, Any], ...] = field(default=())

    @property
    def moe(self) -> bool:
        return self.family != "qwen3_5"

    @property
    def prefix(self) -> str:
        return "model." if self.family == "qwen3_next" else "model.language_model."


def make_checkpoint(target: Path, family: str = "qwen3_5", **options: Any) -> Path:
    """A checkpoint folder under ``target`` (made once per process, then copied); ``options`` are fields of Shape."""
    folder = target / f"{family}-{len(list(target.iterdir())) if target.exists() else 0}"
    shutil.copytree(_cached(Shape(family=family, **options)), folder)
    return folder


def make_single_file(target: Path, family: str = "qwen3_5", **options: Any) -> Path:
    """One ``.safetensors`` that carries config and tokenizer in its metadata."""
    shape = Shape(family=family, **options)
    folder = _cached(shape)
    texts = {file.name: file.read_text() for file in folder.iterdir() if file.suffix == ".json"}
    target.mkdir(parents=True, exist_ok=True)
    file = target / "tiny.safetensors"
    save_file(tensors_of(shape), str(file), metadata={"format": "pt", **texts})
    return file


@functools.cache
def load_tiny(family: str = "qwen3_5", **options: Any) -> LoadedModel:
    """The same checkpoint in memory, on the CPU. Shared: do not change its weights."""
    return load_checkpoint(_cached(Shape(family=family, **options)))


@dataclass
class Bed:
    """A model with state pool and paged KV around it."""

    model: HybridModel
    pool: SsmStatePool
    kv: PagedKv

    def table(self, tokens: int = 256) -> KvTable:
        """A fresh block table with room for ``tokens``."""
        table = KvTable(self.kv)
        table.reserve(tokens)
        return table

    def state(self, slot: int = 0) -> list[tuple[Tensor, Tensor]]:
        """Copies of (h, conv) of every recurrent layer in live ``slot``."""
        layers = range(self.model.geometry.layers)
        return [(self.pool.h(i)[slot].clone(), self.pool.conv(i)[slot].clone()) for i in layers]

    def zero(self, slot: int = 0) -> None:
        """Position 0 again."""
        for i in range(self.model.geometry.layers):
            self.pool.h(i)[slot].zero_()
            self.pool.conv(i)[slot].zero_()


def make_bed(
    loaded: LoadedModel, slots: int = 2, k: int = 4, mode: SsmRollbackMode = SsmRollbackMode.SNAPSHOT, **kv: int
) -> Bed:
    """Pools of the right sizes; ``kv`` may give blocks and block_size."""
    model = HybridModel.of(loaded)
    pool = SsmStatePool(model.geometry, slots, k, mode, model.device, model.dtype)
    sizes = {"blocks": 64, "block_size": 16, **kv}
    config = model.config
    paged = PagedKv(model.kv_layers, config.kv_heads, config.head_dim, **sizes, dtype=model.dtype, device=model.device)
    return Bed(model, pool, paged)


# ----------------------------------------------------------------------------------------------------- writing


@functools.cache
def _cached(shape: Shape) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="metrale-tiny-"))
    write_checkpoint(folder, shape)
    return folder


def write_checkpoint(folder: Path, shape: Shape) -> None:
    """config.json, generation_config.json, tokenizer files and model.safetensors."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config_of(shape), indent=1))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [EOS]}))
    save_file(tensors_of(shape), str(folder / "model.safetensors"), metadata={"format": "pt"})
    if shape.tokenizer:
        (folder / "tokenizer.json").write_text(byte_tokenizer().to_str())
        settings = {"eos_token": SPECIAL[EOS], "tokenizer_class": "PreTrainedTokenizerFast"}
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def byte_tokenizer() -> Tokenizer:
    """Byte-level, no merges: the special tokens are ids 0..6, then one id per byte."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate((*SPECIAL, *alphabet))}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL))
    return tokenizer


def config_of(shape: Shape) -> dict[str, Any]:
    """config.json as published: flat for Qwen3-Next, nested for Qwen3.5."""
    text = {
        "hidden_size": shape.hidden,
        "num_hidden_layers": len(shape.layer_types),
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "attention_bias": False,
        "intermediate_size": shape.ffn,
        "vocab_size": shape.vocab,
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 4096,
        "linear_conv_kernel_dim": 4,
        "linear_num_key_heads": shape.key_heads,
        "linear_num_value_heads": shape.key_heads * shape.ratio,
        "linear_key_head_dim": shape.key_dim,
        "linear_value_head_dim": shape.value_dim,
        "tie_word_embeddings": shape.tied,
        "eos_token_id": 0,
    }
    if shape.moe:
        text |= {
            "num_experts": shape.experts,
            "num_experts_per_tok": shape.top_k,
            "moe_intermediate_size": shape.expert_width,
            "shared_expert_intermediate_size": shape.shared_width,
        }
    text |= dict(shape.extra)
    if shape.family == "qwen3_next":
        flat = {"rope_theta": 10000.0, "partial_rotary_factor": 0.25, "full_attention_interval": 4}
        if shape.layer_types != _interval(len(shape.layer_types)):
            flat["layer_types"] = list(shape.layer_types)
        sparse = {"decoder_sparse_step": 1, "mlp_only_layers": list(shape.dense_layers), "norm_topk_prob": True}
        head = {"architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "dtype": shape.dtype}
        return {**head, **sparse, **flat, **text}
    kind = "Qwen3_5Moe" if shape.moe else "Qwen3_5"
    text |= {
        "model_type": f"{shape.family}_text",
        "layer_types": list(shape.layer_types),
        "dtype": shape.dtype,
        "mamba_ssm_dtype": "float32",
        "mtp_num_hidden_layers": int(shape.mtp),
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.25,
            "mrope_interleaved": True,
            "mrope_section": [1, 1, 0],
        },
    }
    return {
        "architectures": [f"{kind}ForConditionalGeneration"],
        "model_type": shape.family,
        "tie_word_embeddings": shape.tied,
        "text_config": text,
        "vision_config": {
            "depth": 1,
            "hidden_size": 16,
            "num_heads": 2,
            "intermediate_size": 16,
            "out_hidden_size": 32,
        },
    }


def _interval(count: int) -> tuple[str, ...]:
    return tuple("full_attention" if (i + 1) % 4 == 0 else "linear_attention" for i in range(count))


class _Draw:
    """Seeded random tensors collected under their names."""

    def __init__(self, seed: int, dtype: torch.dtype) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._dtype = dtype
        self.tensors: dict[str, Tensor] = {}

    def normal(self, name: str, *shape: int, std: float = 0.0, mean: float = 0.0, fp32: bool = False) -> None:
        scale = std or 1.0 / math.sqrt(shape[-1])
        tensor = mean + scale * torch.randn(*shape, generator=self._generator)
        self.tensors[name] = tensor if fp32 else tensor.to(self._dtype)

    def uniform(self, low: float, high: float, size: int) -> Tensor:
        return low + (high - low) * torch.rand(size, generator=self._generator)


def tensors_of(shape: Shape) -> dict[str, Tensor]:
    """Every tensor under its published name."""
    draw, d = _Draw(shape.seed, getattr(torch, shape.dtype)), shape.hidden
    draw.normal(f"{shape.prefix}embed_tokens.weight", shape.vocab, d, std=1.0)
    for i, kind in enumerate(shape.layer_types):
        _layer(draw, shape, f"{shape.prefix}layers.{i}.", kind, shape.moe and i not in shape.dense_layers)
    draw.normal(f"{shape.prefix}norm.weight", d, std=0.1)
    if not shape.tied:
        draw.normal("lm_head.weight", shape.vocab, d, std=0.5)
    if shape.mtp:
        draw.normal("mtp.fc.weight", d, 2 * d)
        for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
            draw.normal(f"mtp.{name}.weight", d, std=0.1)
        _layer(draw, shape, "mtp.layers.0.", "full_attention", shape.moe)
    if shape.family != "qwen3_next":
        draw.normal("model.visual.patch_embed.proj.bias", 16)
    return draw.tensors


def _layer(draw: _Draw, shape: Shape, prefix: str, kind: str, sparse: bool) -> None:
    d = shape.hidden
    draw.normal(f"{prefix}input_layernorm.weight", d, std=0.1)
    draw.normal(f"{prefix}post_attention_layernorm.weight", d, std=0.1)
    if kind == "full_attention":
        q, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        for name, rows, cols in (("q", 2 * q, d), ("k", kv, d), ("v", kv, d), ("o", d, q)):
            draw.normal(f"{prefix}self_attn.{name}_proj.weight", rows, cols)
        for name in "qk":
            draw.normal(f"{prefix}self_attn.{name}_norm.weight", shape.head_dim, std=0.1)
    else:
        _linear(draw, shape, f"{prefix}linear_attn.")
    if not sparse:
        _mlp(draw, f"{prefix}mlp.", d, shape.ffn)
        return
    draw.normal(f"{prefix}mlp.gate.weight", shape.experts, d, std=0.5)
    if shape.family == "qwen3_next":
        for expert in range(shape.experts):
            _mlp(draw, f"{prefix}mlp.experts.{expert}.", d, shape.expert_width)
    else:
        draw.normal(f"{prefix}mlp.experts.gate_up_proj", shape.experts, 2 * shape.expert_width, d)
        draw.normal(f"{prefix}mlp.experts.down_proj", shape.experts, d, shape.expert_width)
    _mlp(draw, f"{prefix}mlp.shared_expert.", d, shape.shared_width)
    draw.normal(f"{prefix}mlp.shared_expert_gate.weight", 1, d)


def _linear(draw: _Draw, shape: Shape, prefix: str) -> None:
    d, heads = shape.hidden, shape.key_heads * shape.ratio
    keys, values = shape.key_heads * shape.key_dim, heads * shape.value_dim
    if shape.family == "qwen3_next":
        draw.normal(f"{prefix}in_proj_qkvz.weight", 2 * keys + 2 * values, d)
        draw.normal(f"{prefix}in_proj_ba.weight", 2 * heads, d)
    else:
        draw.normal(f"{prefix}in_proj_qkv.weight", 2 * keys + values, d)
        draw.normal(f"{prefix}in_proj_z.weight", values, d)
        draw.normal(f"{prefix}in_proj_b.weight", heads, d)
        draw.normal(f"{prefix}in_proj_a.weight", heads, d)
    draw.normal(f"{prefix}conv1d.weight", 2 * keys + values, 1, 4, std=0.4)
    # slow decays: with the library's defaults nearly nothing of a state survives one token
    fp32 = shape.family != "qwen3_next"
    a_log = draw.uniform(0.02, 4.0, heads).log()
    step = draw.uniform(math.log(0.01), math.log(0.3), heads).exp()
    dtype = getattr(torch, shape.dtype)
    draw.tensors[f"{prefix}A_log"] = a_log if fp32 else a_log.to(dtype)
    draw.tensors[f"{prefix}dt_bias"] = (step + (-(-step).expm1()).log()).to(dtype)
    draw.normal(f"{prefix}norm.weight", shape.value_dim, std=0.1, mean=1.0, fp32=fp32)
    draw.normal(f"{prefix}out_proj.weight", d, values, std=0.5 / math.sqrt(values))


def _mlp(draw: _Draw, prefix: str, d: int, width: int) -> None:
    draw.normal(f"{prefix}gate_proj.weight", width, d)
    draw.normal(f"{prefix}up_proj.weight", width, d)
    draw.normal(f"{prefix}down_proj.weight", d, width, std=0.5 / math.sqrt(width))
