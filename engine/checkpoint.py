"""Opening a checkpoint: one ``.safetensors`` file, a folder, a sharded index, or a bare ``config.json`` for planning.

``inspect_checkpoint`` reads headers only and loads neither weights nor torch. ``load_checkpoint`` maps the files and
reads each tensor once. Nothing is ever unpickled.

A single file may carry its config and tokenizer in the safetensors metadata, whole files as text under the keys
``config.json``, ``generation_config.json``, ``tokenizer.json`` and ``tokenizer_config.json``. What it carries wins over
files beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xxhash

from engine.config import DTYPES, ModelConfig
from engine.errors import UserError
from engine.json_input import parse_json, read_json, read_text
from engine.naming import by_canonical_name, has_mtp, used_tensors
from engine.safetensors_header import Header, TensorEntry, read_header
from engine.tokenizer import Tokenizer

if TYPE_CHECKING:
    import torch

    from engine.weights import ModelWeights

INDEX = "model.safetensors.index.json"
STORED = {"F32": "float32", "BF16": "bfloat16", "F16": "float16", "F64": "float32"}
# what a folder with weights has, also in formats that are refused
WEIGHTS = ("*.safetensors", INDEX, "*.bin", "*.pt", "*.pth", "*.gguf")
# fingerprint: this many samples of this many bytes from each file
SAMPLES, SAMPLE_BYTES = 64, 4096

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """What headers and config tell. ``tensors`` are the used ones under canonical names, ``skipped`` counts the others.

    ``total_bytes`` are those of the used tensors; ``dtype`` is the one most of those bytes have; ``side`` holds the
    texts of config and tokenizer files. A bare ``config.json``, also alone in a folder, gives no tensors and no
    fingerprint.
    """

    path: Path
    name: str
    config: ModelConfig
    tensors: Mapping[str, TensorEntry]
    skipped: int
    dtype: str
    total_bytes: int
    has_mtp: bool
    has_tokenizer: bool
    fingerprint: str
    files: tuple[Path, ...] = ()
    side: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model in memory. ``warnings`` name things that are wrong but can be lived with, such as NaN weights."""

    config: ModelConfig
    weights: ModelWeights
    tokenizer: Tokenizer | None
    name: str
    fingerprint: str
    dtype: str
    device: torch.device
    warnings: list[str]


def inspect_checkpoint(path: str | Path) -> CheckpointInfo:
    """Everything about a checkpoint but its weights.

    Raises:
        UserError: naming file, place, what was found and expected.
    """
    root = Path(path).expanduser()
    if root.suffix == ".json" and not root.name.endswith(".index.json"):
        return _config_only(root)
    if (root / "config.json").is_file() and not any(any(root.glob(pattern)) for pattern in WEIGHTS):
        return _config_only(root / "config.json")
    headers = _headers(root)
    side = _side_files(root, headers)
    if "config.json" not in side:
        raise UserError(
            f"{root}: there is no config.json beside the weights or in their metadata; it is needed to know the "
            "architecture. Put the model's config.json into the same folder."
        )
    config = _config(side)
    stored = {name: entry for header in headers for name, entry in header.tensors.items()}
    names = used_tensors(config, by_canonical_name(stored), str(root))
    return CheckpointInfo(
        path=root,
        name=root.resolve().name if root.is_dir() else root.stem,
        config=config,
        tensors=names,
        skipped=len(stored) - len(names),
        dtype=_dtype(names),
        total_bytes=sum(entry.bytes for entry in names.values()),
        has_mtp=has_mtp(names),
        has_tokenizer="tokenizer.json" in side,
        fingerprint=fingerprint(headers),
        files=tuple(header.file for header in headers),
        side={name: text for name, (_, text) in side.items()},
    )


def load_checkpoint(
    path: str | Path, dtype: str | None = None, device: str | torch.device = "cpu", progress: Progress | None = None
) -> LoadedModel:
    """Load a model onto ``device`` in ``dtype`` (None: as stored).

    After each tensor ``progress(bytes_done, bytes_total)`` is called; what it raises ends the loading.

    Raises:
        UserError: as :func:`inspect_checkpoint`; or no weights; or a tokenizer with more ids than embeddings.
    """
    import torch

    from engine.loading import load_weights

    info = inspect_checkpoint(path)
    if not info.files:
        raise UserError.about(info.path, "only a config", "weights too", "Give the folder or the .safetensors file.")
    tokenizer = open_tokenizer(info)
    name = dtype or info.dtype
    if name not in DTYPES:
        raise UserError.about("--dtype", repr(name), f"one of {', '.join(DTYPES)}")
    target = torch.device(device)
    weights, warnings = load_weights(info, getattr(torch, name), target, progress)
    return LoadedModel(info.config, weights, tokenizer, info.name, info.fingerprint, name, target, warnings)


def open_tokenizer(info: CheckpointInfo) -> Tokenizer | None:
    """The checkpoint's tokenizer, None when it has none. Raises UserError when it does not fit the embeddings."""
    if "tokenizer.json" not in info.side:
        return None
    where = f"{info.path}: tokenizer.json"
    settings = parse_json(info.side.get("tokenizer_config.json", "{}"), f"{info.path}: tokenizer_config.json")
    tokenizer = Tokenizer(info.side["tokenizer.json"], settings, where)
    if tokenizer.size > info.config.vocab:
        raise UserError.about(
            where,
            f"token ids up to {tokenizer.size - 1}",
            f"ids below {info.config.vocab}, the number of embeddings",
            "Tokenizer and weights do not belong together.",
        )
    return tokenizer


def fingerprint(headers: list[Header]) -> str:
    """xxh3-128 (hex) over each file's name order, header, size and 64 evenly spaced samples of 4096 data bytes.

    Enough to tell models and fine-tunes apart, at a cost that does not grow with the file; it is no proof that all
    bytes are equal.
    """
    state = xxhash.xxh3_128()
    for header in headers:
        state.update(header.raw)
        state.update(header.file_size.to_bytes(8, "little"))
        span = header.file_size - header.data_start
        with header.file.open("rb") as stream:
            for number in range(min(SAMPLES, -(-span // SAMPLE_BYTES))):
                stream.seek(header.data_start + max(0, span - SAMPLE_BYTES) * number // max(1, SAMPLES - 1))
                state.update(stream.read(SAMPLE_BYTES))
    return str(state.hexdigest())


def _config_only(file: Path) -> CheckpointInfo:
    config = ModelConfig.load(file)
    name = file.resolve().parent.name if file.name == "config.json" else file.stem
    return CheckpointInfo(file, name, config, {}, 0, config.dtype or "bfloat16", 0, config.mtp_layers > 0, False, "")


def _headers(root: Path) -> list[Header]:
    if root.is_dir():
        if (root / INDEX).is_file():
            return _sharded(root / INDEX)
        files = sorted(root.glob("*.safetensors"))
        if not files:
            raise UserError(f"{root}: there is no .safetensors file and no {INDEX} in this folder.")
        if len(files) > 1:
            single = root / "model.safetensors"
            if single not in files:
                raise UserError.about(root, f"{len(files)} .safetensors files without {INDEX}", "one, or an index")
            files = [single]
        return [read_header(files[0])]
    return _sharded(root) if root.name.endswith(".index.json") else [read_header(root)]


def _sharded(index: Path) -> list[Header]:
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(file, str) for file in weight_map.values()):
        raise UserError.about(f"{index}: weight_map", "something else", "an object of tensor name to file name")
    headers = {}
    for shard in sorted(set(weight_map.values())):
        file = index.parent / shard
        if Path(shard).name != shard:
            raise UserError.about(f"{index}: weight_map", f"the path {shard!r:.100}", "a file name in the same folder")
        if not file.is_file():
            raise UserError.about(f"{index}: weight_map", f"no file {shard}", "every shard beside the index")
        headers[shard] = read_header(file)
    for name, shard in weight_map.items():
        if name not in headers[shard].tensors:
            raise UserError.about(f"{index}: weight_map", f"no tensor {name!r:.200} in {shard}", "it there")
    return list(headers.values())


SIDE_FILES = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")


def _side_files(root: Path, headers: list[Header]) -> dict[str, tuple[str, str]]:
    """File name -> (where it was found, text): in the metadata of a single file, else beside the weights."""
    folder = root if root.is_dir() else root.parent
    metadata = headers[0].metadata if len(headers) == 1 else {}
    side = {}
    for name in SIDE_FILES:
        file = folder / name
        if name in metadata:
            side[name] = (f"{headers[0].file}: metadata {name}", metadata[name])
        elif file.is_file():
            side[name] = (str(file), read_text(file))
    return side


def _config(side: Mapping[str, tuple[str, str]]) -> ModelConfig:
    parsed: dict[str, Mapping[str, Any]] = {
        name: parse_json(side[name][1], side[name][0]) for name in SIDE_FILES[:2] if name in side
    }
    return ModelConfig.from_dict(parsed["config.json"], parsed.get("generation_config.json"), side["config.json"][0])


def _dtype(names: Mapping[str, TensorEntry]) -> str:
    """The dtype that most bytes have."""
    sizes: dict[str, int] = {}
    for entry in names.values():
        sizes[entry.dtype] = sizes.get(entry.dtype, 0) + entry.bytes
    return STORED.get(max(sizes, key=sizes.__getitem__), "float32")
