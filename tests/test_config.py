"""config.json in its published forms, and every way it can be wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.config import EngineConfig, ModelConfig
from engine.errors import UserError
from tests.model_helpers import Shape, config_of

# the published 27B dense and 80B-A3B shapes: state bytes of engines.md D.1 follow from them
DENSE_27B = {
    "architectures": ["Qwen3_5ForConditionalGeneration"],
    "model_type": "qwen3_5",
    "tie_word_embeddings": True,
    "text_config": {
        "model_type": "qwen3_5_text",
        "hidden_size": 5120,
        "num_hidden_layers": 64,
        "full_attention_interval": 4,
        "num_attention_heads": 24,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 48,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "intermediate_size": 17408,
        "vocab_size": 248320,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
        "attn_output_gate": True,
        "output_gate_type": "swish",
        "mtp_num_hidden_layers": 1,
        "eos_token_id": 248044,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000000,
            "partial_rotary_factor": 0.25,
            "mrope_interleaved": True,
            "mrope_section": [11, 11, 10],
        },
    },
    "vision_config": {"depth": 27},
}
NEXT_80B = {
    "architectures": ["Qwen3NextForCausalLM"],
    "model_type": "qwen3_next",
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "full_attention_interval": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "intermediate_size": 5120,
    "vocab_size": 151936,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "rope_theta": 10000000,
    "rope_scaling": None,
    "partial_rotary_factor": 0.25,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "eos_token_id": 151645,
}


def edited(base: dict[str, Any], **changes: Any) -> dict[str, Any]:
    data = json.loads(json.dumps(base))
    level = data.get("text_config", data)
    for key, value in changes.items():
        if value is ...:
            level.pop(key)
        else:
            level[key] = value
    return dict(data)


def test_nested_qwen3_5_reads_text_config_first_and_the_top_level_second() -> None:
    config = ModelConfig.from_dict(DENSE_27B)
    assert config.family == "qwen3_5" and config.layers == 64 and config.moe is None
    assert not config.tied
    assert ModelConfig.from_dict(edited(DENSE_27B, tie_word_embeddings=...)).tied
    assert config.recurrent_layers == tuple(i for i in range(64) if i % 4 != 3)
    assert config.attention_layers == tuple(range(3, 64, 4))
    assert (config.rope_theta, config.rotary_dim) == (1e7, 64)
    assert config.eos == (248044,) and config.mtp_layers == 1


def test_geometry_of_the_27b_shape() -> None:
    geometry = ModelConfig.from_dict(DENSE_27B).geometry
    assert geometry.h_shape == (48, 128, 128) and geometry.conv_shape == (10240, 4)
    assert (geometry.h_bytes, geometry.conv_bytes) == (3 << 20, 160 << 10)
    assert geometry.blob_bytes == 158_859_264


def test_flat_qwen3_next_with_old_rope_keys_and_experts() -> None:
    config = ModelConfig.from_dict(NEXT_80B)
    assert config.family == "qwen3_next" and config.rotary_dim == 64 and config.rope_theta == 1e7
    assert config.moe is not None and (config.moe.experts, config.moe.top_k) == (512, 10)
    assert config.sparse == (True,) * 48
    assert config.qkvz_elems == 12288


def test_dense_layers_of_a_sparse_model() -> None:
    config = ModelConfig.from_dict(edited(NEXT_80B, mlp_only_layers=[0, 5], decoder_sparse_step=2))
    assert config.sparse == tuple(i % 2 == 1 and i != 5 for i in range(48))


def test_layer_types_win_over_the_interval() -> None:
    kinds = ["full_attention"] + ["linear_attention"] * 63
    config = ModelConfig.from_dict(edited(DENSE_27B, layer_types=kinds))
    assert config.attention_layers == (0,)


@pytest.mark.parametrize("family", ["qwen3_next", "qwen3_5", "qwen3_5_moe"])
def test_the_reading_agrees_with_the_configuration_class_of_transformers(family: str) -> None:
    import transformers

    raw = config_of(Shape(family=family))
    name = {"qwen3_next": "Qwen3NextConfig", "qwen3_5": "Qwen3_5TextConfig", "qwen3_5_moe": "Qwen3_5MoeTextConfig"}
    theirs = getattr(transformers, name[family])(**raw.get("text_config", raw))
    config = ModelConfig.from_dict(raw)
    kinds = {"linear": "linear_attention", "full": "full_attention"}
    assert [kinds[kind] for kind in config.layer_types] == theirs.layer_types
    assert config.rope_theta == theirs.rope_parameters["rope_theta"]
    assert config.rotary_dim == int(theirs.head_dim * theirs.rope_parameters["partial_rotary_factor"])
    assert (config.hidden, config.vocab, config.ffn) == (
        theirs.hidden_size,
        theirs.vocab_size,
        theirs.intermediate_size,
    )
    # and with what that class writes
    assert ModelConfig.from_dict(json.loads(theirs.to_json_string())).geometry == config.geometry


def test_defaults_agree_with_transformers_when_rope_is_not_mentioned() -> None:
    import transformers

    raw = edited(NEXT_80B, rope_theta=..., partial_rotary_factor=..., head_dim=64)
    theirs = transformers.Qwen3NextConfig(**raw).rope_parameters
    config = ModelConfig.from_dict(raw)
    assert config.rope_theta == theirs["rope_theta"]
    assert config.rotary_dim == int(64 * theirs["partial_rotary_factor"])


def test_generation_config_decides_what_ends_a_text(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(DENSE_27B))
    assert ModelConfig.load(tmp_path / "config.json").eos == (248044,)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [248046, 248044]}')
    assert ModelConfig.load(tmp_path / "config.json").eos == (248046, 248044)


def test_an_unsupported_architecture_says_which_are_supported() -> None:
    with pytest.raises(UserError, match=r"'llama'.*qwen3_next.*qwen3_5.*qwen3_5_moe"):
        ModelConfig.from_dict({"model_type": "llama"})
    with pytest.raises(UserError, match="no model_type"):
        ModelConfig.from_dict({})


@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "linear_num_value_heads", "vocab_size"])
def test_a_missing_key_is_named(key: str) -> None:
    with pytest.raises(UserError, match=f"the key '{key}' is missing"):
        ModelConfig.from_dict(edited(DENSE_27B, **{key: ...}))


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("hidden_size", "5120", "a whole number"),
        ("hidden_size", True, "a whole number"),
        ("vocab_size", -1, "a whole number"),
        ("vocab_size", 1 << 60, "a whole number"),
        ("num_hidden_layers", 10**7, "from 1 to 4096"),
        ("layer_types", ["linear_attention"], "num_hidden_layers = 64"),
        ("layer_types", ["mamba"] * 64, "linear_attention or full_attention"),
        ("linear_num_value_heads", 40, "a multiple of linear_num_key_heads, which is 16"),
        ("num_key_value_heads", 5, "number|multiple"),
        ("attention_bias", True, "false"),
        ("attn_output_gate", False, "true"),
        ("hidden_act", "gelu", "'silu'"),
        ("output_gate_type", "tanh", "'swish' or 'sigmoid'"),
        ("rms_norm_eps", 0, "a positive number"),
        ("rope_parameters", {"rope_type": "yarn", "rope_theta": 1e4}, "'default'"),
        ("rope_parameters", {"rope_theta": "1e4"}, "a positive number"),
        ("rope_parameters", {"rope_theta": 1e4, "partial_rotary_factor": 1.5}, "an even number of dimensions"),
        ("eos_token_id", "x", "a token id"),
        ("tie_word_embeddings", "yes", "true or false"),
    ],
)
def test_a_value_no_model_can_have_is_refused_by_name(key: str, value: object, expected: str) -> None:
    with pytest.raises(UserError, match=expected) as error:
        ModelConfig.from_dict(edited(DENSE_27B, **{key: value}), where="some/config.json")
    assert "some/config.json" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "{", "[1]", "[" * 100_000, '"x"'])
def test_a_config_that_is_no_json_object_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.json"
    file.write_text(text)
    with pytest.raises(UserError, match="expected a JSON object"):
        ModelConfig.load(file)


def test_a_missing_config_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere\.json: there is no such file"):
        ModelConfig.load(tmp_path / "nowhere.json")


def test_k_is_one_more_than_the_drafts() -> None:
    assert EngineConfig().k == 4 and EngineConfig(drafts=0).k == 1


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"drafts": -1}, "--drafts"),
        ({"slots": 0}, "--slots"),
        ({"kv_tokens": 0}, "--kv-tokens"),
        ({"verify": "fast"}, "exact, batched"),
        ({"rollback": "undo"}, "--rollback-mode: .*snapshot, replay"),
        ({"device": "tpu"}, "--device: .*auto, cpu, cuda, cuda:N"),
        ({"device": "cuda:x"}, "--device"),
        ({"dtype": "int8"}, "float32, bfloat16, float16"),
        ({"drafter": "oracle"}, "mtp, lookup, none"),
    ],
)
def test_engine_settings_out_of_range_are_refused_by_flag(changes: dict[str, Any], word: str) -> None:
    with pytest.raises(UserError, match=word):
        EngineConfig(**changes)
