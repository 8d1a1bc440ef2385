"""Engine images in pieces: a tensor is cut into chunks and each chunk is stored once, by content.

Most of an image does not change from one keyframe to the next (ring entries, cached snapshots, older KV blocks), so
sharing chunks beats compression; fp32 state hardly compresses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod

import xxhash

from engine.events import TensorData

CHUNK = 1 << 16
HASH = 16
Image = Mapping[str, TensorData]

ITEM_BYTES = {
    "float64": 8, "int64": 8, "uint64": 8, "float32": 4, "int32": 4, "uint32": 4, "float16": 2, "bfloat16": 2,
    "int16": 2, "uint16": 2, "int8": 1, "uint8": 1, "bool": 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Piece:
    """One tensor of an image: dtype name, shape, and the hashes of its chunks one after the other."""

    dtype: str
    shape: tuple[int, ...]
    hashes: bytes

    def __iter__(self) -> Iterator[bytes]:
        return (self.hashes[at : at + HASH] for at in range(0, len(self.hashes), HASH))


PackedImage = Mapping[str, Piece]


def byte_count(dtype: str, shape: tuple[int, ...]) -> int:
    """Bytes of a tensor. Raises ValueError for an unknown dtype or a negative size."""
    if dtype not in ITEM_BYTES:
        raise ValueError(f"unknown dtype {dtype!r:.40}")
    if any(size < 0 for size in shape):
        raise ValueError(f"negative size in shape {shape}")
    return ITEM_BYTES[dtype] * prod(shape)


def pack(image: Image, keep: Callable[[bytes, memoryview], None]) -> dict[str, Piece]:
    """Cut ``image``; ``keep(hash, chunk)`` is called for every chunk, known or not."""
    packed = {}
    for name, tensor in image.items():
        view, hashes = memoryview(tensor.raw), []
        for at in range(0, len(view), CHUNK):
            chunk = view[at : at + CHUNK]
            digest = xxhash.xxh3_128_digest(chunk)
            hashes.append(digest)
            keep(digest, chunk)
        packed[name] = Piece(tensor.dtype, tensor.shape, b"".join(hashes))
    return packed


def unpack(packed: PackedImage, fetch: Callable[[bytes], bytes]) -> dict[str, TensorData]:
    """Inverse of :func:`pack`. Raises ValueError when the chunks do not add up to the shape."""
    image = {}
    for name, piece in packed.items():
        size = byte_count(piece.dtype, piece.shape)
        chunks = -(-size // CHUNK)
        if len(piece.hashes) != chunks * HASH:
            raise ValueError(f"tensor {name}: {len(piece.hashes) // HASH} chunks for {size} bytes, expected {chunks}")
        raw = b"".join(fetch(digest) for digest in piece)
        if len(raw) != size:
            raise ValueError(f"tensor {name}: {len(raw)} bytes, expected {size} for {piece.dtype} {piece.shape}")
        image[name] = TensorData(piece.dtype, piece.shape, raw)
    return image


class ChunkPool:
    """Chunks in memory, each held once and counted. ``bytes`` is what they occupy."""

    def __init__(self) -> None:
        self._chunks: dict[bytes, list[object]] = {}
        self.bytes = 0

    def add(self, image: Image) -> dict[str, Piece]:
        return pack(image, self._keep)

    def _keep(self, digest: bytes, chunk: memoryview) -> None:
        held = self._chunks.get(digest)
        if held is None:
            self._chunks[digest] = [bytes(chunk), 1]
            self.bytes += len(chunk)
        else:
            held[1] += 1  # type: ignore[operator]

    def image(self, packed: PackedImage) -> dict[str, TensorData]:
        return unpack(packed, lambda digest: self._chunks[digest][0])  # type: ignore[return-value, arg-type]

    def release(self, packed: PackedImage) -> None:
        for piece in packed.values():
            for digest in piece:
                held = self._chunks[digest]
                held[1] -= 1  # type: ignore[operator]
                if not held[1]:
                    self.bytes -= len(self._chunks.pop(digest)[0])  # type: ignore[arg-type]
