"""Events of bookkeeping: KV blocks and cursor, ring index, prefix cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from engine.events.base import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class KvAlloc(Event):
    """Fresh blocks were appended to the block table of ``req``."""

    kind: ClassVar[str] = "kv_alloc"
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KvShare(Event):
    """Blocks that others hold too were appended to the block table of ``req``: one more reference each."""

    kind: ClassVar[str] = "kv_share"
    blocks: tuple[int, ...] = ()
    tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCopy(Event):
    """The first ``tokens`` entries of block ``src`` were copied to the fresh block ``dst``, which takes its place in
    the block table of ``req`` (one reference less on ``src``)."""

    kind: ClassVar[str] = "kv_copy"
    src: int = -1
    dst: int = -1
    tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KvHold(Event):
    """The prefix cache took a reference on blocks, for prefix slot ``index``."""

    kind: ClassVar[str] = "kv_hold"
    index: int = -1
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KvDrop(Event):
    """The prefix cache gave its references back."""

    kind: ClassVar[str] = "kv_drop"
    index: int = -1
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KvRewind(Event):
    """The cursor was lowered. Frees nothing."""

    kind: ClassVar[str] = "kv_rewind"
    before: int = 0
    cursor: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KvFree(Event):
    """``req`` gave back one reference on each of its blocks; its table is empty."""

    kind: ClassVar[str] = "kv_free"
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RingRecord(Event):
    """Ring slot ``ring_slot`` is reserved for the snapshot after ``token_position`` outputs; ``next_slot`` is the
    cursor afterwards."""

    kind: ClassVar[str] = "ring_record"
    slot: int = -1
    ring_slot: int = -1
    token_position: int = 0
    next_slot: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RingEvict(Event):
    """The entry that held ``ring_slot`` is gone."""

    kind: ClassVar[str] = "ring_evict"
    slot: int = -1
    ring_slot: int = -1
    token_position: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RingTruncate(Event):
    """Entries past ``keep_len`` were dropped (their positions in ``dropped``); the cursor is ``next_slot``."""

    kind: ClassVar[str] = "ring_truncate"
    slot: int = -1
    keep_len: int = 0
    dropped: tuple[int, ...] = ()
    next_slot: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixMiss(Event):
    """No snapshot could be used for a prompt; ``reason`` says why, ``matched`` how many tokens of KV were known."""

    kind: ClassVar[str] = "prefix_miss"
    matched: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixEvict(Event):
    """Prefix slot ``index`` is free again."""

    kind: ClassVar[str] = "prefix_evict"
    index: int = -1
    key: str = ""
    tokens: int = 0
    reason: str = ""
