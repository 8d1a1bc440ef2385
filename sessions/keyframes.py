"""Engine images to start re-execution from: in memory and in the file, spaced exponentially away from the present.

Bounded in bytes. The start, the end and bookmarks are never given up. Cost of one: copying and hashing the image; its
chunks are shared with the other keyframes.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass

from engine.events import TensorData
from sessions.images import ChunkPool, Image, Piece
from sessions.record import Record
from sessions.spacing import crowded
from sessions.store_reader import StoreReader

BYTES = 256 << 20
SPACING = 4  # actions between two keyframes when an image adds little
BYTES_PER_ACTION = 1 << 18  # what an image may add for each action it spares


@dataclass(slots=True)
class Frame:
    """One image in memory."""

    packed: dict[str, Piece]
    pinned: bool


class Keyframes:
    """Images by (line, event)."""

    def __init__(self, limit: int = BYTES, store: StoreReader | None = None) -> None:
        self.limit, self._store = limit, store
        self._pool = ChunkPool()
        self._frames: dict[tuple[int, int], Frame] = {}
        self._index: dict[int, list[int]] = {}
        self.spacing = SPACING
        self._in_file = {(row.branch, row.seq) for row in store.keyframes()} if store is not None else set()
        for branch, seq in self._in_file:
            self._note(branch, seq)

    def __len__(self) -> int:
        return sum(map(len, self._index.values()))

    @property
    def bytes(self) -> int:
        """Bytes held in memory."""
        return self._pool.bytes

    def positions(self, branch: int) -> list[int]:
        """Events of one line that have an image, ascending: for the timeline bar."""
        return list(self._index.get(branch, ()))

    @property
    def keys(self) -> list[tuple[int, int]]:
        """(line, event) of every image."""
        return [(branch, seq) for branch, positions in sorted(self._index.items()) for seq in positions]

    def has(self, branch: int, seq: int) -> bool:
        return (branch, seq) in self._frames or seq in self._index.get(branch, ())

    def add(self, branch: int, seq: int, image: Image, *, pinned: bool = False, present: int | None = None) -> None:
        """Keep ``image``, the engine after event ``seq`` of line ``branch``."""
        known = self._frames.get((branch, seq))
        if known is not None:
            known.pinned |= pinned
            return
        before = self._pool.bytes
        self._frames[branch, seq] = Frame(self._pool.add(image), pinned)
        self._note(branch, seq)
        self.spacing = max(SPACING, (self._pool.bytes - before) // BYTES_PER_ACTION)
        self._thin(seq if present is None else present)

    def pin(self, branch: int, seq: int) -> None:
        """Never give up the image at ``seq``, if there is one in memory."""
        frame = self._frames.get((branch, seq))
        if frame is not None:
            frame.pinned = True

    def nearest(self, record: Record, branch: int, seq: int) -> tuple[int, int] | None:
        """(line, event) of the latest image at or before ``seq`` on the path of ``branch``."""
        while True:
            positions = self._index.get(branch, [])
            at = bisect_right(positions, seq)
            if at:
                return branch, positions[at - 1]
            here = record.branch(branch)
            if here.parent < 0:
                return None
            branch, seq = here.parent, min(seq, here.at)

    def forget(self, key: tuple[int, int]) -> None:
        """``key`` is no longer in the file: it gave way there."""
        self._in_file.discard(key)
        if key not in self._frames and key[1] in self._index.get(key[0], ()):
            self._index[key[0]].remove(key[1])

    def forget_branch(self, branch: int) -> None:
        """The line is gone; its number may come again."""
        for _, seq in [key for key in self._frames if key[0] == branch]:
            self._pool.release(self._frames.pop((branch, seq)).packed)
        self._index.pop(branch, None)

    def image(self, key: tuple[int, int]) -> dict[str, TensorData]:
        """Raises KeyError when there is none, SessionError when the file is damaged."""
        frame = self._frames.get(key)
        if frame is not None:
            return self._pool.image(frame.packed)
        if self._store is None:
            raise KeyError(key)
        return self._store.image(*key)

    def _note(self, branch: int, seq: int) -> None:
        positions = self._index.setdefault(branch, [])
        if seq not in positions:
            insort(positions, seq)

    def _thin(self, present: int) -> None:
        while self._pool.bytes > self.limit:
            loose = sorted((seq, branch) for (branch, seq), frame in self._frames.items() if not frame.pinned)
            if len(loose) < 2:
                return
            seq, branch = loose[crowded([seq for seq, _ in loose], present)]
            self._pool.release(self._frames.pop((branch, seq)).packed)
            if (branch, seq) not in self._in_file:
                self._index[branch].remove(seq)
