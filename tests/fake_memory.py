"""State memory and vocabulary of the fake engine: integer-valued fp32 arrays small enough to read by eye."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import numpy as np
import xxhash

from engine.events import Digests, Place, TensorData

LAYERS = (0, 1, 2)
H_SHAPE = (2, 2, 2)
CONV_SHAPE = (3, 4)
END, THINK, UNTHINK, NEWLINE, STOP, BANG = range(6)
WORDS = (
    "the ring holds four entries and a cursor moves on while every slot keeps its owner state verify reads draft rows "
    "accept commit one two three of pool block table prefix live step queue stream sync copy lands late early after "
    "before round token boundary line ends here then goes back to where it was we see what changed in each place"
).split()
TEXTS = (
    "<end>", "<think>", "</think>", "\n", ".", "!", "[/b]", "\t", "\x1b[31m", " caf\N{LATIN SMALL LETTER E WITH ACUTE}",
    *(" " + word for word in dict.fromkeys(WORDS)),
)  # fmt: skip
BOUNDARY = tuple(text in ("\n", ".", "!") for text in TEXTS)
FIRST_WORD = 10


def encode(text: str) -> tuple[int, ...]:
    """One id per word or sign; unknown words get a word id of their own spelling, so any text can be a prompt."""
    ids: list[int] = []
    for sign in ("<think>", "</think>", "\n", ".", "!"):
        text = text.replace(sign, f" {sign} ") if sign != "\n" else text.replace("\n", " \\n ")
    for word in text.split():
        word = "\n" if word == "\\n" else word
        if word in TEXTS:
            ids.append(TEXTS.index(word))
        elif " " + word in TEXTS:
            ids.append(TEXTS.index(" " + word))
        else:
            ids.append(FIRST_WORD + zlib.crc32(word.encode()) % (len(TEXTS) - FIRST_WORD))
    return tuple(ids)


class FakeMemory:
    """Every place of every slot, all layers: h [3,2,2,2] and conv [3,3,4] fp32 holding whole numbers."""

    def __init__(self, slots: int, k: int, ring_depth: int, prefix_slots: int, noise: float = 0.0) -> None:
        self.noise = noise
        places = [Place(kind, slot) for slot in range(slots) for kind in ("live", "checkpoint")]
        places += [Place("step", slot, row) for slot in range(slots) for row in range(k)]
        places += [Place("ring", slot, index) for slot in range(slots) for index in range(ring_depth)]
        places += [Place("prefix", -1, index) for index in range(prefix_slots)]
        self.h = {place: np.zeros((len(LAYERS), *H_SHAPE), np.float32) for place in places}
        self.conv = {place: np.zeros((len(LAYERS), *CONV_SHAPE), np.float32) for place in places}

    def absorb(self, place: Place, token: int) -> None:
        """One token: the conv window moves by one, then h = 3 h + f(window) mod 251, each layer its own way."""
        h, conv = self.h[place], self.conv[place]
        conv[:, :, :-1] = conv[:, :, 1:]
        layer = np.arange(len(LAYERS), dtype=np.float32)[:, None]
        channel = np.arange(CONV_SHAPE[0], dtype=np.float32)[None, :]
        conv[:, :, -1] = (token * (channel + 2) + 7 * layer + 1) % 97
        mixed = (conv * np.arange(1, CONV_SHAPE[1] + 1, dtype=np.float32)).sum(axis=(1, 2))
        whole = np.rint(h)
        spread = np.arange(whole[0].size, dtype=np.float32).reshape(H_SHAPE)
        h[:] = (3 * whole + mixed[:, None, None, None] + 5 * spread) % 251 + self.noise

    def pick(self, place: Place) -> tuple[int, float]:
        """(next token, margin): a function of all of h and of the last conv column."""
        whole = np.rint(self.h[place])
        mixed = int((whole.reshape(-1) * np.arange(1, whole.size + 1)).sum() + self.conv[place][:, :, -1].sum())
        value = mixed * 2654435761 % 2**32 >> 8
        margin = value % 97 / 8
        if value % 211 == 0:
            return END, margin
        if value % 13 == 0:
            return (NEWLINE, STOP, BANG)[value % 3], margin
        if value % 29 == 0:
            return UNTHINK, margin
        return 6 + value % (len(TEXTS) - 6), margin

    def move(self, src: Place, dst: Place, parts: str = "h+conv") -> int:
        """Copy ``parts`` and return the bytes moved."""
        moved = 0
        for part, store in (("h", self.h), ("conv", self.conv)):
            if part in parts.split("+"):
                store[dst][:] = store[src]
                moved += store[dst].nbytes
        return moved

    def zero(self, place: Place) -> int:
        self.h[place][:] = 0
        self.conv[place][:] = 0
        return self.h[place].nbytes + self.conv[place].nbytes

    def digests(self, place: Place) -> Digests:
        h, conv = self.h[place], self.conv[place]
        hashed = xxhash.xxh3_64_hexdigest
        return tuple((hashed(h[i].tobytes()), hashed(conv[i].tobytes())) for i in range(len(LAYERS)))

    def save(self) -> dict[str, TensorData]:
        out = {}
        for name, store in (("h", self.h), ("conv", self.conv)):
            whole = np.stack([store[place] for place in sorted(store)])
            out[name] = TensorData("float32", whole.shape, whole.tobytes())
        return out

    def load(self, image: dict[str, TensorData]) -> None:
        for name, store in (("h", self.h), ("conv", self.conv)):
            whole = np.frombuffer(image[name].raw, np.float32).reshape(image[name].shape)
            for place, values in zip(sorted(store), whole, strict=True):
                store[place][:] = values


class FakeBlocks:
    """Paged-KV bookkeeping without bytes: reference counts, lowest free block first."""

    def __init__(self, count: int) -> None:
        self.refs = [0] * count

    def alloc(self, count: int) -> tuple[int, ...]:
        found = tuple(index for index, refs in enumerate(self.refs) if not refs)[:count]
        if len(found) < count:
            raise MemoryError(f"{count} KV blocks wanted, {len(found)} free")
        self.hold(found)
        return found

    def hold(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            self.refs[block] += 1

    def drop(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            self.refs[block] -= 1
