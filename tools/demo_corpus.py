"""The demo model's corpus: King James chapters (public domain) and dialogues of our own generator, as training rows.

The dialogues are drawn afresh for every training step, so none is repeated by design; what a row contains depends on
the seed and the step alone, which is what makes a training run restartable without keeping any random state.
"""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import demo_dialogues
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
)
END_OF_TEXT, END_OF_TURN = 0, 2  # ids of the first and third special token: the trainer numbers them in order

BOOKS = (
    "Genesis Exodus Leviticus Numbers Deuteronomy Joshua Judges Ruth 1_Samuel 2_Samuel 1_Kings 2_Kings 1_Chronicles "
    "2_Chronicles Ezra Nehemiah Esther Job Psalms Proverbs Ecclesiastes Song_of_Solomon Isaiah Jeremiah "
    "Lamentations Ezekiel Daniel Hosea Joel Amos Obadiah Jonah Micah Nahum Habakkuk Zephaniah Haggai Zechariah "
    "Malachi Matthew Mark Luke John Acts Romans 1_Corinthians 2_Corinthians Galatians Ephesians Philippians "
    "Colossians 1_Thessalonians 2_Thessalonians 1_Timothy 2_Timothy Titus Philemon Hebrews James 1_Peter 2_Peter "
    "1_John 2_John 3_John Jude Revelation"
)


@dataclass(frozen=True)
class Chapter:
    """One chapter: its heading and its verses without their numbers."""

    heading: str
    verses: tuple[str, ...]

    def numbered(self) -> str:
        lines = [f"{number} {verse}" for number, verse in enumerate(self.verses, 1)]
        return "\n".join([self.heading, *lines]) + "\n"

    def plain(self) -> str:
        """Paragraphs of four verses without heading or numbers, so that a bare beginning can be continued too."""
        return "".join(" ".join(self.verses[start : start + 4]) + "\n" for start in range(0, len(self.verses), 4))


def read_chapters(text: str) -> list[Chapter]:
    """Chapters from the output of the `bible` program (`Ge1:1 In the beginning ...`), in the order of the books."""
    verses: dict[tuple[str, str], list[str]] = {}
    for line in text.splitlines():
        if match := re.match(r"(\d?[A-Za-z]+)(\d+):\d+ (.*)", line.strip()):
            verses.setdefault((match[1], match[2]), []).append(match[3])
    short_names = list(dict.fromkeys(book for book, _ in verses))
    titles = [title.replace("_", " ") for title in BOOKS.split()]
    if len(short_names) != len(titles):
        raise ValueError(f"expected {len(titles)} books in the King James text, found {len(short_names)}")
    title_of = dict(zip(short_names, titles, strict=True))
    return [Chapter(f"{title_of[book]} {number}", tuple(lines)) for (book, number), lines in verses.items()]


def king_james(path: Path | None) -> list[Chapter]:
    """The chapters from a file, or from the `bible` program of the Debian package bible-kjv."""
    if path is not None:
        return read_chapters(path.read_text(encoding="latin-1"))
    program = shutil.which("bible")
    if program is None:
        raise FileNotFoundError("the program `bible` is not here: install the Debian package bible-kjv, or pass --kjv")
    printed = subprocess.run([program, "-f", "gen1:1-rev22:21"], check=True, capture_output=True)
    return read_chapters(printed.stdout.decode("latin-1"))


@dataclass
class Corpus:
    """Training rows and held-out rows; both are functions of the seed (and, for training, of the step)."""

    chapters: Sequence[Chapter]
    seed: int
    dialogue_rows: int = 10
    prose_rows: int = 6
    recall_weight: float = 16.0
    held_out: int = 24
    tokenizer_dialogues: int = 4000
    tokenizer: Tokenizer = field(init=False)
    _texts: list[tuple[list[int], list[int]]] = field(init=False, default_factory=list)
    _epoch: int = field(init=False, default=-1)
    _stream: torch.Tensor = field(init=False)
    _order: list[int] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        shuffled = list(self.chapters)
        random.Random(f"{self.seed} chapters").shuffle(shuffled)
        self._held, self._kept = shuffled[: self.held_out], shuffled[self.held_out :]
        if not self._kept:
            self.dialogue_rows, self.prose_rows = self.dialogue_rows + self.prose_rows, 0
        kinds = [(demo_dialogues.recall, self.recall_weight), *demo_dialogues.KINDS]
        if self._kept:
            verses = [verse for chapter in self._kept for verse in chapter.verses]
            kinds.append((lambda rng: demo_dialogues.go_on(rng, verses), 3))
        self._kinds, self._weights = [kind for kind, _ in kinds], [weight for _, weight in kinds]

    def dialogue(self, rng: random.Random) -> str:
        return rng.choices(self._kinds, self._weights)[0](rng)

    def train_tokenizer(self, vocabulary: int) -> None:
        """A byte-level BPE with digits apart; the pre-tokenizer never joins a full stop to a line end."""
        rng = random.Random(f"{self.seed} tokenizer")
        bpe = Tokenizer(models.BPE())
        bpe.decoder = decoders.ByteLevel()
        bpe.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False),
        ])  # fmt: skip
        trainer = trainers.BpeTrainer(
            vocab_size=vocabulary,
            special_tokens=list(SPECIAL_TOKENS),
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
        texts = [chapter.numbered() for chapter in self._kept] + [
            self.dialogue(rng) for _ in range(self.tokenizer_dialogues)
        ]
        bpe.train_from_iterator(texts, trainer)
        self.use_tokenizer(bpe)

    def use_tokenizer(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        numbered = self._encode([chapter.numbered() for chapter in self._kept])
        plain = self._encode([chapter.plain() for chapter in self._kept])
        self._texts = list(zip(numbered, plain, strict=True))

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [[*encoding.ids, END_OF_TEXT] for encoding in self.tokenizer.encode_batch(list(texts))]

    def _fill(self, length: int, draw: Callable[[], list[int]]) -> torch.Tensor:
        ids: list[int] = []
        while len(ids) < length:
            ids += draw()
        return torch.tensor(ids[:length])

    def _chapter_ids(self, rng: random.Random) -> list[int]:
        numbered, plain = rng.choice(self._texts)
        return numbered if rng.random() < 0.75 else plain

    def _window(self, number: int, width: int, length: int) -> torch.Tensor:
        """Window `number` of an endless reading of the chapters, in another order and form at every pass."""
        windows = (sum(len(numbered) for numbered, _ in self._texts) - length) * 9 // (10 * width)
        epoch, place = divmod(number, windows)
        if epoch != self._epoch:
            rng = random.Random(f"{self.seed} pass {epoch}")
            order = rng.sample(self._texts, len(self._texts))
            ids = [token for pair in order for token in (pair[0] if rng.random() < 0.75 else pair[1])]
            self._epoch, self._stream = epoch, torch.tensor(ids)
            self._order = rng.sample(range((len(ids) - length) // width), windows)
        start = self._order[place] * width
        return self._stream[start : start + length]

    def batch(self, stage: str, step: int, width: int, extra: int) -> torch.Tensor:
        """Rows of `width` + `extra` tokens for one step: dialogues first, then prose.

        Dialogue rows begin with a dialogue, and one prose row with a chapter, because that is how a session begins.
        """
        rng, length = random.Random(f"{self.seed} {stage} {step}"), width + extra
        rows = [self._fill(length, lambda: self._encode([self.dialogue(rng)])[0]) for _ in range(self.dialogue_rows)]
        if self.prose_rows:
            rows.append(self._fill(length, lambda: self._chapter_ids(rng)))
            running = self.prose_rows - 1
            rows += [self._window(step * running + row, width, length) for row in range(running)]
        return torch.stack(rows)

    def held_out_dialogues(self, count: int) -> list[str]:
        rng = random.Random(f"{self.seed} held out")
        return [self.dialogue(rng) for _ in range(count)]

    def held_out_chapters(self) -> list[Chapter]:
        return list(self._held)

    def held_out_rows(self, length: int, count: int) -> dict[str, torch.Tensor]:
        """Rows which training does not see: chapters kept apart, and dialogues of another random stream."""
        texts = {"dialogue": self.held_out_dialogues(count * 6)}
        if self._held:
            texts["prose"] = [chapter.numbered() for chapter in self._held]
        rows: dict[str, torch.Tensor] = {}
        for name, documents in texts.items():
            stream = torch.tensor([token for ids in self._encode(documents) for token in ids])
            rows[name] = stream[: len(stream) // length * length].view(-1, length)[:count]
        return rows
