"""Reading the tensors of an inspected checkpoint: mapped files, each tensor touched once, progress, NaN check."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from engine.checkpoint import CheckpointInfo, Progress
from engine.errors import UserError
from engine.weights import ModelWeights, WeightBuilder


def load_weights(
    info: CheckpointInfo, dtype: torch.dtype, device: torch.device, progress: Progress | None
) -> tuple[ModelWeights, list[str]]:
    """Weights in ``dtype`` on ``device``, and warnings (NaN or infinite values).

    Raises:
        UserError: a file that changed under us or no GPU.
    """
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError.about(
            "--device", "no usable CUDA device", "a GPU and a torch built for it", "Use --device cpu."
        )
    warnings: list[str] = []
    done = 0
    with ExitStack() as stack:
        files: dict[Path, Any] = {}
        for file in info.files:
            try:
                files[file] = stack.enter_context(safe_open(file, framework="pt", device="cpu"))
            except (SafetensorError, OSError) as error:
                raise UserError(f"{file}: cannot be opened as safetensors: {error}.") from None

        def fetch(name: str) -> Tensor:
            nonlocal done
            entry = info.tensors[name]
            try:
                tensor: Tensor = files[entry.file].get_tensor(entry.name)
            except SafetensorError as error:
                raise UserError(f"{entry.file}: tensor {entry.name} cannot be read: {error}.") from None
            warning = not_finite(tensor)
            if warning:
                warnings.append(
                    f"{entry.file}: tensor {entry.name} has {warning}; results that use it are not numbers."
                )
            done += entry.bytes
            if progress is not None:
                progress(done, info.total_bytes)
            return tensor

        if progress is not None:
            progress(0, info.total_bytes)
        weights = WeightBuilder(info.config, info.tensors, fetch, dtype, device).build()
    return weights, warnings


def not_finite(tensor: Tensor) -> str:
    """How many values of ``tensor`` are NaN or infinite, as text; empty when none is."""
    # a sum is not finite when any addend is not (or it overflows: then the exact count decides)
    if bool(torch.isfinite(tensor.sum(dtype=torch.float32))):
        return ""
    nan, infinite = int(tensor.isnan().sum()), int(tensor.isinf().sum())
    parts = [f"{count} {kind}" for count, kind in ((nan, "NaN"), (infinite, "infinite")) if count]
    return f"{' and '.join(parts)} of {tensor.numel()} values" if parts else ""
