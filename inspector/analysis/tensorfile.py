"""Tensors of a safetensors file as plain data, one at a time, bfloat16 included.

The header is checked in full before any tensor is read (``engine.safetensors_header``); only it is held in memory.
Our own exports are written by numpy, which has no bfloat16: such tensors are stored as 16-bit words and the metadata
names them under ``bfloat16``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from engine.errors import UserError
from engine.events import TensorData
from engine.safetensors_header import read_header

# Names of the format and ours. Others (float8 kinds, unsigned, complex) may be in a file but cannot be compared.
DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
}


class TensorFile:
    """Names of a safetensors file; :meth:`read` gets one tensor.

    Raises:
        UserError: unreadable, or not a valid safetensors file.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._header = read_header(self.path)
        words = json_metadata(self.metadata, "bfloat16")
        self._words = (
            frozenset(name for name in words if isinstance(name, str)) if isinstance(words, list) else frozenset()
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._header.tensors)

    def __len__(self) -> int:
        return len(self._header.tensors)

    @property
    def metadata(self) -> dict[str, str]:
        return dict(self._header.metadata)

    def read(self, name: str) -> TensorData:
        """The tensor ``name``.

        Raises:
            UserError: no such tensor, a dtype that cannot be decoded, or the file shrank meanwhile.
        """
        where = f"{self.path}: tensor {name!r:.200}"
        entry = self._header.tensors.get(name)
        if entry is None:
            raise UserError.about(where, "no such tensor", f"one of {some_names(self)}")
        dtype = "bfloat16" if entry.dtype == "U16" and name in self._words else DTYPES.get(entry.dtype)
        if dtype is None:
            raise UserError.about(where, f"dtype {entry.dtype}", f"one of {', '.join(DTYPES)}")
        try:
            with self.path.open("rb") as file:
                file.seek(self._header.data_start + entry.begin)
                raw = file.read(entry.bytes)
        except OSError as error:
            raise UserError(f"{self.path}: cannot be read: {error.strerror or error}.") from None
        if len(raw) != entry.bytes:
            raise UserError.about(
                where, f"{len(raw)} bytes", f"{entry.bytes} bytes; the file changed while it was read"
            )
        return TensorData(dtype, entry.shape, raw)


def json_metadata(metadata: Mapping[str, str], key: str) -> Any:
    """The value of a metadata entry that holds JSON; None when it is not there or holds something else."""
    try:
        return json.loads(metadata.get(key, "null"))
    except (ValueError, RecursionError):
        return None


def some_names(file: TensorFile, count: int = 6) -> str:
    """The first names of a file, for messages."""
    shown = ", ".join(repr(name)[:60] for _, name in zip(range(count), file, strict=False))
    return f"{shown}, ... ({len(file)} in all)" if len(file) > count else shown or "nothing"
