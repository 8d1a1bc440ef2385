"""Paged KV: fixed blocks with reference counts, and one block table with a cursor per sequence.

Rewinding lowers the cursor and frees nothing; what lies past the cursor is overwritten before it is read again. A
block that several tables (or the prefix cache) hold is never written: its first write makes a private copy.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine.seams import Seams
from engine.state.errors import KvExhausted, StateError


@dataclass(frozen=True, slots=True)
class BlockCopy:
    """The first ``tokens`` entries of block ``src`` (all layers) were copied to the private block ``dst``."""

    src: int
    dst: int
    tokens: int


class PagedKv:
    """``blocks`` blocks of ``block_size`` tokens for ``layers`` attention layers (0 is allowed: nothing is stored).

    One buffer [layers, 2, blocks, block_size, Hkv, d] in ``dtype``, allocated once, zero at first.
    Seam ``kv.shared_write`` (False): True lets a write go into a shared block.
    """

    def __init__(
        self,
        layers: int,
        kv_heads: int,
        head_dim: int,
        blocks: int,
        block_size: int = 16,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        seams: Seams | None = None,
    ) -> None:
        if blocks < 1 or block_size < 1:
            raise StateError(f"paged KV needs at least one block, found blocks={blocks} block_size={block_size}")
        self.layers, self.kv_heads, self.head_dim = layers, kv_heads, head_dim
        self.blocks, self.block_size = blocks, block_size
        self.seams = seams if seams is not None else Seams()
        shape = (layers, 2, blocks, block_size, kv_heads, head_dim)
        self.buffer = torch.zeros(shape, dtype=dtype, device=device)
        self._flat = self.buffer.view(layers, 2, blocks * block_size, kv_heads, head_dim)
        self._free = list(range(blocks))
        self._refs = [0] * blocks
        self._high = 0

    @property
    def bytes(self) -> int:
        return self.buffer.numel() * self.buffer.itemsize

    @property
    def free(self) -> int:
        """Number of free blocks."""
        return len(self._free)

    @property
    def used(self) -> int:
        return self.blocks - len(self._free)

    @property
    def ever_used(self) -> int:
        """Blocks at and above this number were never allocated: they hold zeros."""
        return self._high

    def refs(self, block: int) -> int:
        """How many holders ``block`` has."""
        return self._refs[block]

    def blocks_for(self, tokens: int) -> int:
        """Blocks needed for ``tokens`` tokens."""
        return -(-tokens // self.block_size)

    def alloc(self, count: int) -> tuple[int, ...]:
        """Take ``count`` free blocks, lowest first, one reference each. Raises KvExhausted and takes none."""
        if count > len(self._free):
            raise KvExhausted(
                f"{count} KV blocks of {self.block_size} tokens are needed, {len(self._free)} of {self.blocks} are free"
            )
        taken = tuple(heapq.heappop(self._free) for _ in range(count))
        for block in taken:
            self._refs[block] = 1
            self._high = max(self._high, block + 1)
        return taken

    def share(self, blocks: Iterable[int]) -> None:
        """One more reference on each block. Raises StateError when one is free (and then changes nothing)."""
        shared = list(blocks)
        for block in shared:
            if self._refs[block] < 1:
                raise StateError(f"KV block {block} is free and cannot be shared")
        for block in shared:
            self._refs[block] += 1

    def release(self, blocks: Iterable[int]) -> tuple[int, ...]:
        """One reference less on each block; the blocks that became free. Raises StateError when one is free already."""
        freed = []
        for block in blocks:
            if self._refs[block] < 1:
                raise StateError(f"KV block {block} is released twice")
            self._refs[block] -= 1
            if self._refs[block] == 0:
                heapq.heappush(self._free, block)
                freed.append(block)
        return tuple(freed)

    def copy_block(self, src: int, dst: int, tokens: int) -> BlockCopy:
        """Copy the first ``tokens`` entries of ``src`` to ``dst``, keys and values of all layers."""
        self.buffer[:, :, dst, :tokens].copy_(self.buffer[:, :, src, :tokens])
        return BlockCopy(src, dst, tokens)

    def flat(self, layer: int) -> Tensor:
        """View [2, blocks * block_size, Hkv, d]: keys, values."""
        return self._flat[layer]

    def save_blocks(self) -> dict[str, Any]:
        """Reference counts as plain data."""
        return {"refs": list(self._refs), "high": self._high}

    def load_blocks(self, data: Mapping[str, Any]) -> None:
        """Inverse of :meth:`save_blocks`. Raises StateError on data of another pool."""
        refs, high = data.get("refs"), data.get("high")
        if not isinstance(refs, list) or len(refs) != self.blocks or not isinstance(high, int):
            raise StateError(f"block table does not fit a KV pool of {self.blocks} blocks")
        self._refs = [int(count) for count in refs]
        self._high = high
        self._free = [block for block, count in enumerate(self._refs) if count == 0]


class KvTable:
    """The blocks of one sequence, in order, and its cursor: tokens valid, ``seq_len``."""

    __slots__ = ("_contiguous", "blocks", "cursor", "kv")

    def __init__(self, kv: PagedKv, blocks: Sequence[int] = (), cursor: int = 0) -> None:
        self.kv = kv
        self.blocks: list[int] = list(blocks)
        self.cursor = cursor
        self._changed()

    @property
    def capacity(self) -> int:
        """Tokens its blocks can hold."""
        return len(self.blocks) * self.kv.block_size

    @property
    def contiguous(self) -> bool:
        """True when the blocks are one ascending run, so reads are views."""
        return self._contiguous

    def _changed(self) -> None:
        first = self.blocks[0] if self.blocks else 0
        self._contiguous = all(block == first + i for i, block in enumerate(self.blocks))

    def reserve(self, tokens: int) -> tuple[int, ...]:
        """Grow until ``tokens`` tokens fit; the fresh blocks. Raises KvExhausted and takes none."""
        missing = self.kv.blocks_for(tokens) - len(self.blocks)
        if missing <= 0:
            return ()
        fresh = self.kv.alloc(missing)
        self.blocks.extend(fresh)
        self._changed()
        return fresh

    def share_from(self, blocks: Sequence[int]) -> None:
        """Append blocks that others hold too: one more reference each."""
        self.kv.share(blocks)
        self.blocks.extend(blocks)
        self._changed()

    def unshare(self, start: int | None = None) -> tuple[BlockCopy, ...]:
        """Make every block that holds positions >= ``start`` (default: the cursor) this table's own.

        To be called before writing; without shared blocks it does nothing. The entries below ``start`` of the first
        block and, when ``start`` lies below the cursor, all valid entries of later ones are copied. Raises KvExhausted
        and changes nothing."""
        begin = self.cursor if start is None else start
        size = self.kv.block_size
        shared = [i for i in range(begin // size, len(self.blocks)) if self.kv.refs(self.blocks[i]) > 1]
        if not shared:
            return ()
        copies = []
        for i, fresh in zip(shared, self.kv.alloc(len(shared)), strict=True):
            old, tokens = self.blocks[i], min(size, max(self.cursor - i * size, 0))
            copies.append(self.kv.copy_block(old, fresh, tokens))
            self.blocks[i] = fresh
            self.kv.release((old,))
        self._changed()
        return tuple(copies)

    def write(self, layer: int, start: int, k: Tensor, v: Tensor) -> None:
        """Store keys and values [n, Hkv, d] at positions start..start+n-1; the cursor stays.

        Raises:
            StateError: positions past the reserved blocks, or a block that somebody else holds too.
        """
        size, count = self.kv.block_size, k.shape[0]
        if count == 0:
            return
        end = start + count
        if start < 0 or end > self.capacity:
            raise StateError(f"positions {start}..{end - 1} are outside the {self.capacity} reserved")
        first, last = start // size, (end - 1) // size
        for block in self.blocks[first : last + 1]:
            if self.kv.refs(block) > 1 and not self.kv.seams("kv.shared_write", False, block=block):
                raise StateError(f"KV block {block} has {self.kv.refs(block)} holders: unshare it before writing")
        flat = self.kv.flat(layer)
        if self._contiguous or first == last:
            at = self.blocks[first] * size + start % size
            flat[0, at : at + count].copy_(k)
            flat[1, at : at + count].copy_(v)
            return
        done = 0
        while done < count:
            block, offset = divmod(start + done, size)
            n = min(size - offset, count - done)
            at = self.blocks[block] * size + offset
            flat[0, at : at + n].copy_(k[done : done + n])
            flat[1, at : at + n].copy_(v[done : done + n])
            done += n

    def read(self, layer: int, length: int) -> tuple[Tensor, Tensor]:
        """Keys and values [length, Hkv, d] of positions 0..length-1: views when contiguous, else gathered copies.

        Raises StateError past the reserved blocks."""
        if length > self.capacity:
            raise StateError(f"{length} positions asked for, {self.capacity} reserved")
        flat, size = self.kv.flat(layer), self.kv.block_size
        if self._contiguous:
            at = self.blocks[0] * size if self.blocks else 0
            return flat[0, at : at + length], flat[1, at : at + length]
        blocks = self.blocks[: self.kv.blocks_for(length)]
        index = torch.tensor(blocks, dtype=torch.long, device=flat.device)
        both = self.kv.buffer[layer].index_select(1, index).flatten(1, 2)
        return both[0, :length], both[1, :length]

    def advance(self, tokens: int) -> int:
        """Raise the cursor by ``tokens``, over positions written before; the new cursor."""
        if tokens < 0 or self.cursor + tokens > self.capacity:
            raise StateError(f"cursor {self.cursor} + {tokens} is outside the {self.capacity} reserved")
        self.cursor += tokens
        return self.cursor

    def rewind(self, cursor: int) -> int:
        """Lower the cursor to ``cursor``, free nothing, return the old one. Raises StateError when it would rise."""
        if not 0 <= cursor <= self.cursor:
            raise StateError(f"cannot rewind the cursor from {self.cursor} to {cursor}")
        before, self.cursor = self.cursor, cursor
        return before

    def release(self) -> tuple[int, ...]:
        """Give back one reference on each block and empty the table; the blocks it held (not all need be free now)."""
        held = tuple(self.blocks)
        self.kv.release(held)
        self.blocks.clear()
        self.cursor = 0
        self._changed()
        return held
