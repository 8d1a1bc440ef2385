"""The header of a ``.safetensors`` file, read with distrust and without torch.

Layout of the format: eight bytes with the header length (little endian), the header as JSON, then the data. The header
maps names to dtype, shape and the half-open byte range inside the data; ``__metadata__`` maps strings to strings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any, TypeGuard

from engine.errors import UserError
from engine.json_input import parse_json

# Bits of every dtype the format knows.
DTYPE_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64, "C64": 64,
}  # fmt: skip
# The same limit as the reference implementation of the format.
MAX_HEADER = 100_000_000
MAX_RANK = 8
DAMAGED = "Get the file again."


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One tensor of a file: ``begin`` and ``end`` are byte offsets inside the data part."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int
    file: Path

    @property
    def bytes(self) -> int:
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class Header:
    """A checked header: every tensor lies inside the file, none overlap, each has the bytes its shape needs."""

    file: Path
    tensors: Mapping[str, TensorEntry]
    metadata: Mapping[str, str] = field(default_factory=dict)
    data_start: int = 0
    file_size: int = 0
    raw: bytes = b""


def read_header(file: Path) -> Header:
    """Read and check the header of ``file``; reads nothing else.

    Raises:
        UserError: missing, empty or truncated file, not safetensors, or a header that contradicts itself or the file.
    """
    try:
        with file.open("rb") as stream:
            size = file.stat().st_size
            prefix = stream.read(8)
            length = int.from_bytes(prefix, "little")
            _check_length(file, prefix, length, size)
            raw = stream.read(length)
    except FileNotFoundError:
        raise UserError(f"{file}: there is no such file. Check the path.") from None
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror or error}.") from None
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise UserError.about(f"{file}: header", "bytes that are no text", "a safetensors header", DAMAGED) from None
    data = dict(parse_json(text, f"{file}: header"))
    metadata = _metadata(file, data.pop("__metadata__", {}))
    tensors = {name: _entry(file, name, value) for name, value in data.items()}
    _check_ranges(file, tensors, 8 + length, size)
    return Header(file, tensors, metadata, 8 + length, size, raw)


def _check_length(file: Path, prefix: bytes, length: int, size: int) -> None:
    if len(prefix) < 8:
        raise UserError.about(file, f"{size} bytes", "a safetensors file (at least 8 bytes of header length)", DAMAGED)
    if length > size - 8:
        if prefix[:4] in (b"PK\x03\x04", b"GGUF") or prefix[:1] == b"\x80" or length > MAX_HEADER:
            kind = {b"PK\x03\x04": "a zip archive (a PyTorch file?)", b"GGUF": "a GGUF file"}.get(prefix[:4])
            raise UserError.about(
                file,
                kind or f"a file that begins with {prefix!r}",
                "a safetensors file",
                "Convert the model to safetensors; pickled files are never opened.",
            )
        raise UserError.about(
            f"{file}: header", f"a header of {length} bytes in a file of {size}", "a header inside the file", DAMAGED
        )
    if length > MAX_HEADER:
        raise UserError.about(f"{file}: header", f"a header of {length} bytes", f"at most {MAX_HEADER}", DAMAGED)


def _metadata(file: Path, raw: Any) -> Mapping[str, str]:
    if not isinstance(raw, dict) or not all(isinstance(value, str) for value in raw.values()):
        raise UserError.about(f"{file}: __metadata__", "something else", "an object of strings", DAMAGED)
    return raw


def _entry(file: Path, name: str, raw: Any) -> TensorEntry:
    where = f"{file}: tensor {name!r:.200}"
    if not isinstance(raw, dict):
        raise UserError.about(where, f"{raw!r:.60}", "an object with dtype, shape and data_offsets", DAMAGED)
    dtype, shape, offsets = raw.get("dtype"), raw.get("shape"), raw.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        raise UserError.about(where, f"dtype {dtype!r:.40}", f"one of {', '.join(DTYPE_BITS)}", DAMAGED)
    if not _whole_numbers(shape) or len(shape) > MAX_RANK:
        raise UserError.about(where, f"shape {shape!r:.80}", "a list of sizes", DAMAGED)
    if not _whole_numbers(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise UserError.about(where, f"data_offsets {offsets!r:.80}", "begin and end", DAMAGED)
    need, have = prod(shape) * DTYPE_BITS[dtype] // 8, offsets[1] - offsets[0]
    if need != have:
        raise UserError.about(where, f"{have} bytes", f"{need} for {dtype} {shape}", DAMAGED)
    return TensorEntry(name, dtype, tuple(shape), offsets[0], offsets[1], file)


def _whole_numbers(raw: object) -> TypeGuard[list[int]]:
    return isinstance(raw, list) and all(type(n) is int and 0 <= n < 1 << 48 for n in raw)


def _check_ranges(file: Path, tensors: Mapping[str, TensorEntry], data_start: int, size: int) -> None:
    ordered = sorted(tensors.values(), key=lambda entry: (entry.begin, entry.end))
    for left, right in pairwise(ordered):
        if right.begin < left.end:
            raise UserError.about(
                f"{file}: tensor {right.name!r:.200}", f"bytes shared with {left.name!r:.200}", "no overlap", DAMAGED
            )
        if right.begin > left.end:
            gap = f"{right.begin - left.end} bytes that belong to no tensor"
            raise UserError.about(f"{file}: tensor {right.name!r:.200}", f"{gap} before it", "no gap", DAMAGED)
    needed = data_start + max((entry.end for entry in ordered), default=0)
    if needed > size:
        last = ordered[-1].name
        raise UserError.about(
            f"{file}: tensor {last!r:.200}",
            f"a file of {size} bytes (truncated)",
            f"{needed} bytes, as the header says",
            DAMAGED,
        )
    if needed < size:
        raise UserError.about(file, f"{size - needed} bytes after the last tensor", "the file to end there", DAMAGED)
