"""Typed look-ups in an untrusted ``config.json``: what a key must look like, and where it may be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.config import DTYPES, ModelConfig, MoeConfig
from engine.errors import UserError

FAMILIES = {
    "qwen3_next": "qwen3_next",
    "qwen3_5": "qwen3_5",
    "qwen3_5_text": "qwen3_5",
    "qwen3_5_moe": "qwen3_5_moe",
    "qwen3_5_moe_text": "qwen3_5_moe",
}
SUPPORTED = "qwen3_next (Qwen3-Next), qwen3_5 (Qwen3.5 dense), qwen3_5_moe (Qwen3.5 MoE)"
LAYER_KINDS = {"linear_attention": "linear", "full_attention": "full"}
# A dimension above this is a damaged file, not a model.
LARGEST = 1 << 24


class ConfigReader:
    """Reads one config; ``where`` names it in errors."""

    def __init__(self, data: Mapping[str, Any], generation: Mapping[str, Any] | None, where: str) -> None:
        text = data.get("text_config")
        self._levels = [level for level in (text, data) if isinstance(level, Mapping)]
        self._generation = generation or {}
        self._where = where

    def model(self) -> ModelConfig:
        family = self._family()
        layer_types = self._layer_types()
        moe, sparse = self._moe(family, len(layer_types))
        heads, kv_heads = self._size("num_attention_heads"), self._size("num_key_value_heads")
        key_heads, value_heads = self._size("linear_num_key_heads"), self._size("linear_num_value_heads")
        self._divides("num_key_value_heads", kv_heads, "num_attention_heads", heads)
        self._divides("linear_num_key_heads", key_heads, "linear_num_value_heads", value_heads)
        hidden = self._size("hidden_size")
        head_dim = self._size("head_dim", hidden // heads)
        theta, factor = self._rope()
        rotary_dim = int(head_dim * factor)
        if rotary_dim % 2 or rotary_dim > head_dim:
            self._refuse("partial_rotary_factor", f"{factor:g} of head_dim {head_dim}", "an even number of dimensions")
        self._check_variants()
        return ModelConfig(
            family=family,
            hidden=hidden,
            layer_types=layer_types,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            rope_theta=theta,
            rotary_dim=rotary_dim,
            key_heads=key_heads,
            value_heads=value_heads,
            key_dim=self._size("linear_key_head_dim"),
            value_dim=self._size("linear_value_head_dim"),
            conv_kernel=self._size("linear_conv_kernel_dim", low=2, high=64),
            ffn=self._size("intermediate_size") if not all(sparse) else self._size("intermediate_size", 1),
            vocab=self._size("vocab_size"),
            tied=self._flag("tie_word_embeddings", False),
            eps=self._number("rms_norm_eps", 1e-6),
            eos=self._eos(),
            moe=moe,
            sparse=sparse,
            gate_activation=self._gate_activation(),
            mtp_layers=self._declared_mtp(),
            dtype=self._dtype(),
            max_position=self._size("max_position_embeddings", 32768),
        )

    def _get(self, key: str, default: Any = None) -> Any:
        for level in self._levels:
            if level.get(key) is not None:
                return level[key]
        return default

    def _refuse(self, key: str, found: str, expected: str) -> None:
        raise UserError.about(f"{self._where}: {key}", found, expected)

    def _size(self, key: str, default: int | None = None, low: int = 1, high: int = LARGEST) -> int:
        value = self._get(key, default)
        if value is None:
            raise UserError(f"{self._where}: the key '{key}' is missing; it is needed to know the shape of the model.")
        if type(value) is not int or not low <= value <= high:
            self._refuse(key, f"{value!r:.60}", f"a whole number from {low} to {high}")
        return int(value)

    def _number(self, key: str, default: float) -> float:
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e12:
            self._refuse(key, f"{value!r:.60}", "a positive number")
        return float(value)

    def _flag(self, key: str, default: bool) -> bool:
        value = self._get(key, default)
        if not isinstance(value, bool):
            self._refuse(key, f"{value!r:.60}", "true or false")
        return bool(value)

    def _divides(self, small_key: str, small: int, large_key: str, large: int) -> None:
        if large % small:
            self._refuse(large_key, str(large), f"a multiple of {small_key}, which is {small}")

    def _family(self) -> str:
        names = [level.get("model_type") for level in self._levels]
        for name in names:
            if isinstance(name, str) and name in FAMILIES:
                return FAMILIES[name]
        found = next((repr(name)[:60] for name in names if name), "no model_type")
        raise UserError.about(
            f"{self._where}: model_type", f"the architecture {found}", f"one of the supported ones: {SUPPORTED}"
        )

    def _layer_types(self) -> tuple[str, ...]:
        count = self._size("num_hidden_layers", high=4096)
        names = self._get("layer_types")
        if names is None:
            interval = self._size("full_attention_interval", 4)
            return tuple("linear" if (i + 1) % interval else "full" for i in range(count))
        if not isinstance(names, list) or len(names) != count:
            size = len(names) if isinstance(names, list) else type(names).__name__
            self._refuse("layer_types", f"{size} entries", f"num_hidden_layers = {count}")
        for name in names:
            if not isinstance(name, str) or name not in LAYER_KINDS:
                self._refuse("layer_types", f"{name!r:.60}", " or ".join(LAYER_KINDS))
        return tuple(LAYER_KINDS[name] for name in names)

    def _moe(self, family: str, layers: int) -> tuple[MoeConfig | None, tuple[bool, ...]]:
        experts = self._size("num_experts", 0, low=0) if family != "qwen3_5" else 0
        if not experts:
            return None, (False,) * layers
        step, dense = 1, []
        if family == "qwen3_next":
            step = self._size("decoder_sparse_step", 1)
            dense = self._get("mlp_only_layers", [])
            if not isinstance(dense, list) or not all(type(i) is int for i in dense):
                self._refuse("mlp_only_layers", f"{dense!r:.60}", "a list of layer numbers")
        moe = MoeConfig(
            experts=experts,
            top_k=self._size("num_experts_per_tok", high=experts),
            width=self._size("moe_intermediate_size"),
            shared_width=self._size("shared_expert_intermediate_size"),
            renormalise=self._flag("norm_topk_prob", True) if family == "qwen3_next" else True,
        )
        return moe, tuple(i not in dense and (i + 1) % step == 0 for i in range(layers))

    def _rope(self) -> tuple[float, float]:
        rope = self._get("rope_parameters") or self._get("rope_scaling") or {}
        if not isinstance(rope, Mapping):
            self._refuse("rope_parameters", f"{rope!r:.60}", "an object")
        kind = rope.get("rope_type", rope.get("type", "default"))
        if kind not in ("default", "mrope"):
            self._refuse("rope_parameters.rope_type", f"{kind!r:.60}", "'default'")
        values = []
        for key, default in (("rope_theta", 1e4), ("partial_rotary_factor", 0.25)):
            value = rope.get(key)
            values.append(self._number(key, default) if value is None else value)
            if isinstance(value, bool) or not isinstance(values[-1], (int, float)) or not 0 < values[-1] < 1e12:
                self._refuse(f"rope_parameters.{key}", f"{value!r:.60}", "a positive number")
        return float(values[0]), float(values[1])

    def _check_variants(self) -> None:
        if self._flag("attention_bias", False):
            self._refuse("attention_bias", "true", "false: no published model of these families has biases")
        if not self._flag("attn_output_gate", True):
            self._refuse("attn_output_gate", "false", "true: these families gate the attention output")
        activation = self._get("hidden_act", "silu")
        if activation not in ("silu", "swish"):
            self._refuse("hidden_act", f"{activation!r:.60}", "'silu'")

    def _gate_activation(self) -> str:
        kind = self._get("output_gate_type", "swish")
        if kind not in ("swish", "silu", "sigmoid"):
            self._refuse("output_gate_type", f"{kind!r:.60}", "'swish' or 'sigmoid'")
        return "sigmoid" if kind == "sigmoid" else "silu"

    def _declared_mtp(self) -> int:
        for key in ("mtp_num_hidden_layers", "num_nextn_predict_layers", "num_mtp_layers"):
            if self._get(key) is not None:
                return self._size(key, low=0, high=64)
        return 0

    def _dtype(self) -> str:
        name = self._get("dtype", self._get("torch_dtype", ""))
        return name if isinstance(name, str) and name in DTYPES else ""

    def _eos(self) -> tuple[int, ...]:
        raw = self._generation.get("eos_token_id")
        if raw is None:
            raw = self._get("eos_token_id", [])
        ids = raw if isinstance(raw, list) else [raw]
        if not all(type(i) is int and 0 <= i < LARGEST for i in ids):
            self._refuse("eos_token_id", f"{raw!r:.60}", "a token id or a list of them")
        return tuple(dict.fromkeys(ids))
