"""The bundled model: a small trained hybrid in the Qwen3.5 layout, with MTP head, config and tokenizer in one file."""

from __future__ import annotations

from pathlib import Path


def demo_path() -> Path:
    """Where the bundled ``model.safetensors`` lies."""
    return Path(__file__).with_name("model.safetensors")
