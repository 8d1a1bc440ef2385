"""What kind of model a ``config.json`` describes, and how the engine is asked to run it. No torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import UserError
from engine.state.geometry import StateGeometry

FAMILIES = {
    "qwen3_next": "qwen3_next",
    "qwen3_5": "qwen3_5",
    "qwen3_5_text": "qwen3_5",
    "qwen3_5_moe": "qwen3_5_moe",
    "qwen3_5_moe_text": "qwen3_5_moe",
}
SUPPORTED = "qwen3_next (Qwen3-Next), qwen3_5 (Qwen3.5 dense), qwen3_5_moe (Qwen3.5 MoE)"
LAYER_KINDS = {"linear_attention": "linear", "full_attention": "full"}
DTYPES = {"float32": 4, "bfloat16": 2, "float16": 2}
# A dimension above this is a damaged file, not a model.
LARGEST = 1 << 24


@dataclass(frozen=True, slots=True)
class MoeConfig:
    """Mixture of experts: ``experts`` of width ``width``, ``top_k`` of them per token, one shared of ``shared_width``.
    ``renormalise`` divides the chosen weights by their sum."""

    experts: int
    top_k: int
    width: int
    shared_width: int
    renormalise: bool


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Architecture of a hybrid model.

    ``layer_types`` holds "linear" or "full" for every layer; ``sparse`` tells which layers have experts. ``key_heads``
    to ``conv_kernel`` describe the gated delta net. ``rotary_dim`` leading dimensions of a head are rotated.
    ``mtp_layers`` is what the config declares; whether the head exists is decided by the tensors.
    """

    family: str
    hidden: int
    layer_types: tuple[str, ...]
    heads: int
    kv_heads: int
    head_dim: int
    rope_theta: float
    rotary_dim: int
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv_kernel: int
    ffn: int
    vocab: int
    tied: bool
    eps: float
    eos: tuple[int, ...]
    moe: MoeConfig | None = None
    sparse: tuple[bool, ...] = ()
    gate_activation: str = "silu"
    mtp_layers: int = 0
    dtype: str = ""
    max_position: int = 0

    @property
    def layers(self) -> int:
        return len(self.layer_types)

    @property
    def recurrent_layers(self) -> tuple[int, ...]:
        """Layer numbers with a gated delta net."""
        return tuple(i for i, kind in enumerate(self.layer_types) if kind == "linear")

    @property
    def attention_layers(self) -> tuple[int, ...]:
        """Layer numbers with full attention."""
        return tuple(i for i, kind in enumerate(self.layer_types) if kind == "full")

    @property
    def channels(self) -> int:
        """Convolution channels: queries, keys and values side by side."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    @property
    def qkvz_elems(self) -> int:
        """Elements of one recorded input row: raw q, k, v and the output gate z."""
        return self.channels + self.value_heads * self.value_dim

    @property
    def geometry(self) -> StateGeometry:
        return StateGeometry(
            recurrent_layers=self.recurrent_layers,
            h_shape=(self.value_heads, self.key_dim, self.value_dim),
            conv_shape=(self.channels, self.conv_kernel),
        )

    @classmethod
    def load(cls, path: str | Path) -> ModelConfig:
        """Read a ``config.json`` (and ``generation_config.json`` beside it). Raises UserError."""
        file = Path(path)
        generation = file.with_name("generation_config.json")
        return cls.from_dict(read_json(file), read_json(generation) if generation.is_file() else None, where=str(file))

    @classmethod
    def from_dict(
        cls, data: Mapping[str, Any], generation: Mapping[str, Any] | None = None, where: str = "config.json"
    ) -> ModelConfig:
        """Flat (Qwen3-Next) or nested in ``text_config`` (Qwen3.5; keys missing there are taken from the top level).

        Raises:
            UserError: unsupported architecture, a needed key missing, or a value that no model can have.
        """
        return _Reader(data, generation, where).model()


def read_json(file: Path) -> Mapping[str, Any]:
    """A JSON object from a file. Raises UserError."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{file}: there is no such file.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: cannot be read as text: {error}.") from None
    return parse_json(text, str(file))


def parse_json(text: str, where: str) -> Mapping[str, Any]:
    """A JSON object from text. Raises UserError."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError.about(where, f"no JSON ({error})", "a JSON object") from None
    if not isinstance(data, dict):
        raise UserError.about(where, f"a JSON {type(data).__name__}", "a JSON object")
    return data


class _Reader:
    """Typed look-ups in an untrusted config."""

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


CHOICES = {
    "verify": ("exact", "batched"),
    "rollback": ("snapshot", "replay"),
    "drafter": ("mtp", "lookup", "none"),
    "dtype": (None, *DTYPES),
}


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How to run a model.

    ``drafts`` per round (verify width K is one more); ``ring`` slots per sequence, None lets the policy choose;
    ``kv_tokens`` is the size of the KV pool for all sequences together; ``dtype`` None keeps the stored one;
    ``device`` is auto, cpu, cuda or cuda:N; ``loop_watchdog``
    arms the repetition detectors, ``prose_budget`` > 0 the one between tool calls, and ``rollback_resteer`` lets them
    roll back; ``threads`` None leaves torch's number alone.

    Raises:
        UserError: a value out of range.
    """

    drafts: int = 3
    ring: int | None = None
    slots: int = 4
    block_size: int = 16
    kv_tokens: int = 4096
    prefix_slots: int = 16
    prefix_caching: bool = True
    prefill_chunk: int = 256
    verify: str = "exact"
    rollback: str = "snapshot"
    dtype: str | None = None
    device: str = "auto"
    digests: bool = True
    drafter: str = "mtp"
    watchdogs: bool = True
    loop_watchdog: bool = False
    prose_budget: int = 0
    rollback_resteer: bool = True
    seed: int = 0
    threads: int | None = None

    def __post_init__(self) -> None:
        limits = {
            "drafts": (0, 64),
            "ring": (0, 65536),
            "slots": (1, 65536),
            "block_size": (1, 4096),
            "kv_tokens": (1, 1 << 31),
            "prefix_slots": (0, 65536),
            "prefill_chunk": (1, 65536),
            "threads": (1, 1024),
        }
        for name, (low, high) in limits.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise UserError.about(f"--{name.replace('_', '-')}", str(value), f"a number from {low} to {high}")
        for name, allowed in CHOICES.items():
            value = getattr(self, name)
            if value not in allowed:
                words = ", ".join(str(choice) for choice in allowed if choice is not None)
                raise UserError.about(f"--{name}", repr(value), f"one of {words}")

    @property
    def k(self) -> int:
        """Verify width: the pending token and the drafts."""
        return self.drafts + 1
