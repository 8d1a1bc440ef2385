"""Tensors as numpy sees them: decoding of raw bytes, exactly, block by block.

numpy has no bfloat16. Its bits are the upper half of a float32, so decoding is a shift by 16 bits and loses nothing;
encoding rounds to nearest, ties to even, as hardware does. Everything here checks sizes first: bytes may be hostile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from engine.events import TensorData

Floats: TypeAlias = NDArray[np.floating[Any]]
Tensor: TypeAlias = TensorData | NDArray[Any]

# Stored form of each dtype name; bfloat16 travels as its 16 bits.
STORED: dict[str, np.dtype[Any]] = {
    "float64": np.dtype("<f8"),
    "float32": np.dtype("<f4"),
    "float16": np.dtype("<f2"),
    "bfloat16": np.dtype("<u2"),
    "int64": np.dtype("<i8"),
    "int32": np.dtype("<i4"),
    "int16": np.dtype("<i2"),
    "int8": np.dtype("i1"),
    "uint8": np.dtype("u1"),
    "bool": np.dtype("?"),
}
# Bits of significand, the hidden one included: which of two floating dtypes is the lower one.
PRECISION = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}
EXACT_IN_FLOAT32 = ("float32", "float16", "bfloat16", "int16", "int8", "uint8", "bool")


class TensorError(ValueError):
    """A tensor whose bytes, shape or dtype do not fit together, or two that cannot be compared."""


@dataclass(frozen=True, slots=True)
class Flat:
    """A tensor as one row of stored elements: ``values`` is 1-D in C order (bfloat16 as uint16 bits)."""

    dtype: str
    shape: tuple[int, ...]
    values: NDArray[Any]

    @property
    def size(self) -> int:
        return int(self.values.size)

    @property
    def wide(self) -> bool:
        """True when float32 cannot hold every value: then float64 is computed with."""
        return self.dtype not in EXACT_IN_FLOAT32

    def decoded(self, lo: int, hi: int, out: Floats) -> Floats:
        """Elements ``lo`` to ``hi`` as ``out.dtype``: a view, or written to ``out`` if converted."""
        part = self.values[lo:hi]
        if self.dtype == "bfloat16":
            room = out[: hi - lo]
            if out.dtype == np.float32:
                np.left_shift(part, np.uint32(16), out=room.view(np.uint32), dtype=np.uint32, casting="unsafe")
                return room
            room[...] = bf16_to_float32(part)
            return room
        if part.dtype == out.dtype:
            return part
        room = out[: hi - lo]
        np.copyto(room, part, casting="unsafe")
        return room

    def bits(self, lo: int, hi: int) -> NDArray[Any]:
        """The same elements as unsigned integers: compares bit patterns, so NaN equals itself and -0 is not 0."""
        return self.values[lo:hi].view(f"u{self.values.dtype.itemsize}")


def flat(tensor: Tensor) -> Flat:
    """``tensor`` without a copy where its memory allows.

    Raises:
        TensorError: unknown dtype, negative dimension, or a byte count that is not shape times element size.
    """
    if isinstance(tensor, TensorData):
        stored = STORED.get(tensor.dtype)
        if stored is None:
            raise TensorError(f"dtype {tensor.dtype!r:.40}: expected one of {', '.join(STORED)}")
        if any(n < 0 for n in tensor.shape):
            raise TensorError(f"shape {tensor.shape}: dimensions must not be negative")
        expected = prod(tensor.shape) * stored.itemsize
        if len(tensor.raw) != expected:
            raise TensorError(
                f"{tensor.dtype} {list(tensor.shape)} needs {expected} bytes, found {len(tensor.raw)} bytes"
            )
        return Flat(tensor.dtype, tuple(tensor.shape), np.frombuffer(tensor.raw, dtype=stored))
    array = np.asarray(tensor)
    name = array.dtype.name
    if name not in STORED:
        raise TensorError(f"dtype {name!r:.40}: expected one of {', '.join(n for n in STORED if n != 'bfloat16')}")
    return Flat(name, array.shape, np.ascontiguousarray(array).reshape(-1))


def as_floats(tensor: Tensor) -> Floats:
    """The whole tensor as float32 (float64 when float32 cannot hold it), in its own shape."""
    source = flat(tensor)
    room: Floats = np.empty(source.size, np.float64 if source.wide else np.float32)
    return source.decoded(0, source.size, room).reshape(source.shape)


def tensor_data(array: NDArray[Any], dtype: str = "") -> TensorData:
    """``array`` as plain data, rounded to ``dtype`` when one is named ("bfloat16" too)."""
    if dtype == "bfloat16":
        return TensorData(dtype, array.shape, float32_to_bf16(np.asarray(array, np.float32)).tobytes())
    stored = array if not dtype else array.astype(STORED[dtype])
    return TensorData(stored.dtype.name, stored.shape, np.ascontiguousarray(stored).tobytes())


def bf16_to_float32(bits: NDArray[Any]) -> NDArray[np.float32]:
    """bfloat16 bits to the float32 of the same value, exactly."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def float32_to_bf16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Nearest bfloat16 (ties to even) as bits; NaN stays NaN (quiet), infinities stay."""
    flat_values = np.ascontiguousarray(values, np.float32)
    bits = flat_values.view(np.uint32)
    # Half of the discarded unit, one less when the kept part is even; the carry may run into the exponent, rightly.
    rounded = bits >> np.uint32(16)
    rounded &= np.uint32(1)
    rounded += np.uint32(0x7FFF)
    rounded += bits
    rounded >>= np.uint32(16)
    nan = np.isnan(flat_values)
    if nan.any():
        rounded[nan] = (bits[nan] >> np.uint32(16)) | np.uint32(0x40)
    return rounded.astype(np.uint16).reshape(values.shape)


def through(values: Floats, dtype: str) -> NDArray[np.float32]:
    """float32 ``values`` after one round trip through ``dtype`` (bfloat16, float16 or float32)."""
    single = np.asarray(values, np.float32)
    if dtype == "bfloat16":
        return bf16_to_float32(float32_to_bf16(single))
    if dtype == "float16":
        with np.errstate(over="ignore"):
            return single.astype(np.float16).astype(np.float32)
    return single


def fits(tensor: Tensor, dtype: str) -> bool:
    """True when every value is one of ``dtype`` (bfloat16 or float16) already; looks at a few first."""
    source = flat(tensor)
    if source.dtype == dtype:
        return True
    if source.wide:
        return False
    room: Floats = np.empty(min(source.size, BLOCK), np.float32)
    for lo, hi in spans(source.size, first=256):
        part = source.decoded(lo, hi, room)
        if dtype == "bfloat16":
            if np.any(part.view(np.uint32) & np.uint32(0xFFFF)):
                return False
        elif not np.array_equal(through(part, dtype), part, equal_nan=True):
            return False
    return True


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Bitwise equality, dtype and shape included."""
    if isinstance(a, TensorData) and isinstance(b, TensorData):
        return a.dtype == b.dtype and a.shape == b.shape and a.raw == b.raw
    left, right = flat(a), flat(b)
    if (left.dtype, left.shape) != (right.dtype, right.shape):
        return False
    return all(np.array_equal(left.bits(lo, hi), right.bits(lo, hi)) for lo, hi in spans(left.size, first=4096))


def same_shape(a: Tensor, b: Tensor) -> tuple[Flat, Flat]:
    """Both flattened. Raises TensorError, with both shapes, when they differ."""
    left, right = flat(a), flat(b)
    if left.shape != right.shape:
        raise TensorError(
            f"shapes differ: {list(left.shape)} against {list(right.shape)}; compare tensors of one shape"
        )
    return left, right


def lower(a: str, b: str) -> str:
    """The floating dtype with fewer bits of significand; two of one kind give the next lower kind."""
    known = [name for name in (a, b) if name in PRECISION]
    if not known:
        return "float32"
    name = min(known, key=PRECISION.__getitem__)
    if a == b:
        return {"float64": "float32", "float32": "bfloat16"}.get(name, name)
    return name


# Elements per block: 384 KiB of float32. Two operands and two scratch rows stay in a second-level cache of 2 MiB, and
# the cost of a numpy call (under 1 us) is small against the work it does.
BLOCK = 98304


def spans(size: int, block: int = BLOCK, first: int = 0) -> Iterator[tuple[int, int]]:
    """(lo, hi) pairs that cover ``size`` elements; an optional short ``first`` one allows an early exit."""
    lo = 0
    if 0 < first < size:
        yield 0, first
        lo = first
    while lo < size:
        hi = min(size, lo + block)
        yield lo, hi
        lo = hi


def coordinate(index: int, shape: Sequence[int]) -> tuple[int, ...]:
    """Index into the flattened tensor as a coordinate."""
    return tuple(int(i) for i in np.unravel_index(index, tuple(shape))) if shape else ()
