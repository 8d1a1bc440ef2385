"""The prefix cache: which snapshot covers which token prefix. Bookkeeping only, no torch.

A key is a hash of exactly the tokens the snapshot has absorbed. Coverage is true coverage: a state that absorbed 70
tokens is registered under 70, never under 64, because absorbing a token twice does not undo itself.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import xxhash

KINDS = ("chunk", "tail", "leaf", "decode")
DECODE_CHECKPOINT_BLOCKS = 4


@dataclass(frozen=True, slots=True)
class PrefixEntry:
    """A cached snapshot: ``tokens`` absorbed, prefix slot ``index``, KV ``blocks`` it holds (the last one may be
    partly filled). ``kind`` tail is restored by the same non-zero ``session`` only. ``used`` is its recency."""

    key: str
    tokens: int
    index: int
    blocks: tuple[int, ...]
    kind: str
    session: int = 0
    block_keys: tuple[str, ...] = ()
    used: int = 0

    @property
    def is_tail(self) -> bool:
        return self.kind == "tail"


@dataclass(frozen=True, slots=True)
class PrefixLookup:
    """``entry`` to restore, or None with the ``reason``. ``matched`` tokens of the prompt have cached KV."""

    entry: PrefixEntry | None
    matched: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class DecodeCheckpoint:
    """A decode checkpoint is due: at block ``end_block``, covering ``tokens``; ``straddle`` tokens lie past the block
    boundary."""

    end_block: int
    tokens: int
    straddle: int


def decode_checkpoint_due(
    tokens: int,
    block_size: int,
    last_block: int,
    table_blocks: int,
    interval: int = DECODE_CHECKPOINT_BLOCKS,
) -> DecodeCheckpoint | None:
    """Whether the state that absorbed ``tokens`` tokens is to be cached now.

    Due when the number of full blocks is positive, a multiple of ``interval``, not the one checkpointed last and not
    more than the block table has."""
    end_block = tokens // block_size
    if end_block == 0 or end_block % interval or end_block == last_block or end_block > table_blocks:
        return None
    return DecodeCheckpoint(end_block, tokens, tokens - end_block * block_size)


def prefix_key(tokens: Sequence[int]) -> str:
    """xxh3-128 of the token ids as 64-bit little-endian numbers, in hex."""
    return prefix_keys(tokens, (len(tokens),))[len(tokens)]


def prefix_keys(tokens: Sequence[int], lengths: Iterable[int]) -> dict[int, str]:
    """Keys of several prefixes of ``tokens`` in one pass, by length. Lengths past the end are left out."""
    data = memoryview(array("q", tokens)).cast("B")
    state, done, keys = xxhash.xxh3_128(), 0, {}
    for length in sorted(set(lengths)):
        if length > len(tokens):
            break
        state.update(data[done * 8 : length * 8])
        done = length
        keys[length] = str(state.hexdigest())
    return keys


class PrefixCache:
    """At most ``slots`` entries, least recently used first to go. Coverage is what :meth:`insert` is told, as is."""

    def __init__(self, slots: int, block_size: int) -> None:
        self._slots = slots
        self._block_size = block_size
        self._entries: dict[str, PrefixEntry] = {}
        self._clock = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def entries(self) -> tuple[PrefixEntry, ...]:
        """All entries, least recently used first."""
        return tuple(sorted(self._entries.values(), key=lambda entry: entry.used))

    def contains(self, tokens: Sequence[int]) -> bool:
        """Whether exactly ``tokens`` are covered by an entry; recency unchanged."""
        return prefix_key(tokens) in self._entries

    def insert(
        self, tokens: Sequence[int], index: int, blocks: Sequence[int], kind: str, session: int = 0
    ) -> PrefixEntry:
        """Register prefix slot ``index`` for the state that absorbed ``tokens``; it is the most recent entry now.

        ``blocks`` are the KV blocks that hold those tokens; one reference on each is the cache's from now on.
        Raises ValueError: unknown kind, prefix cached already, slot in use, or no room."""
        if kind not in KINDS:
            raise ValueError(f"snapshot kinds are {', '.join(KINDS)}, not {kind!r}")
        if len(self._entries) >= self._slots or any(entry.index == index for entry in self._entries.values()):
            raise ValueError(f"prefix slot {index} is in use, or all {self._slots} are: evict an entry first")
        count = len(tokens)
        boundaries = range(self._block_size, count + 1, self._block_size)
        keys = prefix_keys(tokens, (*boundaries, count))
        key = keys[count]
        if key in self._entries:
            raise ValueError(
                f"a snapshot of these {count} tokens is cached already, in slot {self._entries[key].index}"
            )
        block_keys = tuple(keys[length] for length in boundaries)
        entry = PrefixEntry(key, count, index, tuple(blocks), kind, session, block_keys, self._tick())
        self._entries[key] = entry
        return entry

    def lookup(self, tokens: Sequence[int], session: int = 0, limit: int | None = None) -> PrefixLookup:
        """The deepest usable entry that covers a prefix of ``tokens`` of at most ``limit`` tokens (default: all but
        the last, which must be fed to get logits). Only the winner becomes more recent."""
        most = max(len(tokens) - 1, 0) if limit is None else min(limit, len(tokens))
        lengths = {entry.tokens for entry in self._entries.values()}
        boundaries = range(self._block_size, len(tokens) + 1, self._block_size)
        keys = prefix_keys(tokens, (*lengths, *boundaries))
        fitting = [entry for entry in self._entries.values() if keys.get(entry.tokens) == entry.key]
        matched = self._matched(keys, fitting)
        usable = [e for e in fitting if e.tokens <= most and (not e.is_tail or (session != 0 and e.session == session))]
        if usable:
            winner = max(usable, key=lambda entry: entry.tokens)
            bumped = replace(winner, used=self._tick())
            self._entries[winner.key] = bumped
            return PrefixLookup(bumped, max(matched, bumped.tokens))
        return PrefixLookup(None, matched, self._reason(matched, fitting, most))

    def _matched(self, keys: Mapping[int, str], fitting: Sequence[PrefixEntry]) -> int:
        deepest = max((entry.tokens for entry in fitting), default=0)
        for entry in self._entries.values():
            for number, block_key in enumerate(entry.block_keys, start=1):
                if keys.get(number * self._block_size) != block_key:
                    break
                deepest = max(deepest, number * self._block_size)
        return deepest

    def _reason(self, matched: int, fitting: Sequence[PrefixEntry], most: int) -> str:
        if not self._entries:
            return "the cache is empty"
        if matched == 0:
            return "no cached prefix begins like this prompt"
        tails = [entry.tokens for entry in fitting if entry.is_tail and entry.tokens <= most]
        if tails:
            return f"the snapshot at {max(tails)} tokens is the tail of another session"
        if fitting:
            shallowest = min(entry.tokens for entry in fitting)
            return f"the snapshot at {shallowest} tokens lies past the {most} that may be skipped"
        return f"KV of {matched} tokens is cached, but no snapshot at or before them"

    def oldest(self) -> int | None:
        """Prefix slot of the least recently used entry, None when there is none."""
        entry = min(self._entries.values(), key=lambda entry: entry.used, default=None)
        return None if entry is None else entry.index

    def evict(self, index: int) -> PrefixEntry:
        """Forget the entry in prefix slot ``index``; its slot and block references are the caller's to give back.

        Raises KeyError when no entry is there."""
        for entry in self._entries.values():
            if entry.index == index:
                return self._entries.pop(entry.key)
        raise KeyError(f"prefix slot {index} holds no entry")

    def _tick(self) -> int:
        self._clock += 1
        return self._clock

    def to_plain(self) -> dict[str, Any]:
        """As plain data."""
        return {"clock": self._clock, "entries": [asdict(entry) for entry in self.entries]}

    def load_plain(self, data: Mapping[str, Any]) -> None:
        """Inverse of :meth:`to_plain`."""
        entries = []
        for item in data["entries"]:
            lists = {"blocks": tuple(item["blocks"]), "block_keys": tuple(item["block_keys"])}
            entries.append(PrefixEntry(**{**item, **lists}))
        self._entries = {entry.key: entry for entry in entries}
        self._clock = int(data["clock"])
