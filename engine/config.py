"""What kind of model a ``config.json`` describes, and how the engine is asked to run it. No torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import UserError
from engine.json_input import read_json
from engine.state.geometry import StateGeometry

DTYPES = {"float32": 4, "bfloat16": 2, "float16": 2}


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
        from engine.config_reader import ConfigReader

        return ConfigReader(data, generation, where).model()


CHOICES = {
    "verify": ("exact", "batched"),
    "rollback": ("snapshot", "replay"),
    "drafter": ("mtp", "lookup", "none"),
    "dtype": (None, *DTYPES),
}
FLAGS = {"rollback": "--rollback-mode"}  # where the flag is called differently
DEVICE = re.compile(r"auto|cpu|cuda(:\d{1,3})?", re.ASCII)


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
                raise UserError.about(FLAGS.get(name, f"--{name}"), f"{value!r:.60}", f"one of {words}")
        if not isinstance(self.device, str) or not DEVICE.fullmatch(self.device):
            raise UserError.about("--device", f"{self.device!r:.60}", "one of auto, cpu, cuda, cuda:N")

    @property
    def k(self) -> int:
        """Verify width: the pending token and the drafts."""
        return self.drafts + 1
