"""The demo model's corpus: King James chapters (public domain) and dialogues written by the generator below.

The dialogues are there to give a debugger something to look at: thinking passages, tool calls with their answers,
facts that must be remembered from the prompt, and answers of several sentences or lines, so that full stops and line
ends occur inside an answer as well as at its end. They are drawn afresh for every training step, so none is
repeated by design; what a row contains depends on the seed and the step alone, which is what makes a training run
restartable without keeping any random state.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

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
NAMES = (
    "Ruth Adam Naomi Seth Miriam Caleb Tamar Silas Lydia Amos Dinah Joel Hannah Boaz Leah Noah Esther Levi Martha Enoch"
).split()
PLACES = (
    "Bethel Jericho Ephesus Corinth Nineveh Hebron Antioch Damascus Tyre Sidon Rome Athens Joppa Philippi Smyrna"
).split()
THINGS = "lamp stone ring scroll cup coat fig sword harp basket key bell rope jar staff".split()
COLOURS = "red blue green white black brown purple gold silver grey".split()
BEASTS = "ox lamb dove lion goat horse raven fox camel bee".split()
WORKS = {"shepherd": "keeps sheep", "baker": "bakes bread", "smith": "works iron", "weaver": "weaves cloth",
         "fisher": "catches fish", "potter": "makes jars"}  # fmt: skip
SYSTEM = ("system", "You may call tools. Tools: add(a, b), multiply(a, b), weather(city).")

# What the demo is about, in its own words: (questions, what it thinks, what it answers).
EXPLANATIONS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (("Hello.", "Hi.", "Good day."), "The user greets me.", "Hello. How can I help you?"),
    (("Who are you?", "What are you?"), "The user asks about me.",
     "I am a very small model. I have eight layers. Six of them carry a state, and two of them look back at the text."),
    (("What is a snapshot?", "Explain a snapshot."), "A snapshot is a copy.",
     "A snapshot is a copy of the state. It is taken before a guess. If the guess is wrong, the copy is put back."),
    (("What is a rollback?", "Explain a rollback."), "A rollback goes back in time.",
     "A rollback puts an old state back. The wrong tokens are dropped. Then the right tokens are read again."),
    (("What is a draft?", "Explain a draft."), "A draft is a guess.",
     "A draft is a quick guess at the next tokens. The model checks the guess. It keeps the part that is right."),
    (("What is a partial accept?", "Explain a partial accept."), "Only a part of the draft is right.",
     "A partial accept keeps the first tokens of a draft.\nThe other tokens are thrown away.\n"
     "The state must then be mended."),
    (("What is a recurrent state?", "Explain the recurrent state."), "The state is a memory.",
     "The recurrent state is a memory of fixed size.\nEvery token changes it.\nIt cannot be cut back like a list."),
    (("What is a layer?", "Explain a layer."), "A model is made of layers.",
     "A layer is one part of a model. It reads numbers from the layer below. It gives numbers to the layer above."),
    (("What is a token?", "Explain a token."), "A token is a piece of text.",
     "A token is a piece of text. It may be a word, a part of a word, or a mark such as a full stop."),
)  # fmt: skip
RECIPES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("bake bread", ("Mix flour and water.", "Let the dough rest.", "Shape a loaf.", "Bake it until it is brown.")),
    ("light a lamp", ("Fill the lamp with oil.", "Set the wick.", "Bring the fire to the wick.")),
    ("draw water", ("Take the rope and the jar.", "Let the jar down.", "Wait until it is full.", "Pull it up.")),
    ("mend a net", ("Find the hole.", "Cut the loose ends.", "Tie new cord across the hole.", "Pull the knots tight.")),
    ("plant a tree", ("Dig a hole.", "Set the tree in it.", "Put the earth back.", "Give it water.")),
    ("send a letter", ("Write the letter.", "Fold it and seal it.", "Give it to the rider.")),
)


def _chat(*turns: tuple[str, str]) -> str:
    return "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in turns)


def _answer(thought: str, text: str) -> tuple[str, str]:
    return "assistant", f"<think>\n{thought}\n</think>\n\n{text}"


def _call(name: str, **arguments: int | str) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def _result(sign: str, a: int, b: int) -> int:
    return {"+": a + b, "-": a - b, "*": a * b}[sign]


def _arithmetic(rng: random.Random) -> str:
    sign, word = rng.choice([("+", "plus"), ("-", "minus"), ("*", "times")])
    top = 9 if sign == "*" else 20
    a, b = rng.randint(0, top), rng.randint(0, top)
    if sign == "-":
        a, b = max(a, b), min(a, b)
    question = rng.choice([f"What is {a} {sign} {b}?", f"What is {a} {word} {b}?", f"Please work out {a} {sign} {b}."])
    result = _result(sign, a, b)
    return _chat(
        ("user", question),
        _answer(f"I need {a} {word} {b}. {a} {sign} {b} = {result}.", f"The answer is {result}."),
    )


def _tool(rng: random.Random) -> str:
    a, b = rng.randint(10, 99), rng.randint(10, 99)
    name, word, sign = rng.choice([("add", "plus", "+"), ("multiply", "times", "*")])
    result = _result(sign, a, b)
    turns = [
        ("user", f"What is {a} {sign} {b}?"),
        _answer(f"The numbers are large. I will call the {name} tool.", _call(name, a=a, b=b)),
        ("tool", str(result)),
        _answer(f"The tool says {result}.", f"{a} {word} {b} is {result}."),
    ]
    return _chat(*([SYSTEM] if rng.random() < 0.6 else []), *turns)


def _weather(rng: random.Random) -> str:
    city, sky, degrees = rng.choice(PLACES), rng.choice("sunny cloudy windy raining cold".split()), rng.randint(2, 39)
    advice = "Take a coat." if degrees < 15 or sky in ("raining", "cold") else "It is a good day to walk."
    turns = [
        ("user", rng.choice([f"How is the weather in {city}?", f"What is the weather in {city}?"])),
        _answer(f"I do not know the weather in {city}. I will call the weather tool.", _call("weather", city=city)),
        ("tool", json.dumps({"sky": sky, "degrees": degrees})),
        _answer(f"It is {sky} and {degrees} degrees.", f"In {city} it is {sky}, and {degrees} degrees. {advice}"),
    ]
    return _chat(*([SYSTEM] if rng.random() < 0.6 else []), *turns)


def _with_article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def _facts(rng: random.Random, count: int) -> tuple[list[str], str, list[str]]:
    """Names, the kind of fact, and one sentence for each name."""
    who = rng.sample(NAMES, count)
    kind = rng.choice(["live", "have", "see"])
    if kind == "live":
        facts = [f"{name} lives in {place}." for name, place in zip(who, rng.sample(PLACES, count), strict=True)]
    elif kind == "have":
        things = rng.sample(THINGS, count)
        facts = [f"{name} has a {rng.choice(COLOURS)} {thing}." for name, thing in zip(who, things, strict=True)]
    else:
        facts = [
            f"{name} saw {_with_article(beast)}." for name, beast in zip(who, rng.sample(BEASTS, count), strict=True)
        ]
    return who, kind, facts


def _recall(rng: random.Random) -> str:
    """Facts first, then a question about one of them: the answer exists only in what the model remembers."""
    who, kind, facts = _facts(rng, rng.randint(2, 5))
    questions = {"live": "Where does {} live?", "have": "What does {} have?", "see": "What did {} see?"}
    turns: list[tuple[str, str]] = []
    for turn in range(2 if rng.random() < 0.4 else 1):
        asked = rng.randrange(len(who))
        question = questions[kind].format(who[asked])
        turns.append(("user", question if turn else " ".join([*facts, question])))
        turns.append(_answer(f"The question is about {who[asked]}. {facts[asked]}", facts[asked]))
    return _chat(*turns)


def _recall_all(rng: random.Random) -> str:
    """All the facts again, one a line: a long answer which a good draft can follow."""
    who, _, facts = _facts(rng, rng.randint(2, 4))
    return _chat(
        ("user", " ".join(facts) + " " + rng.choice(["Tell me all of it again.", "What do you know?"])),
        _answer(f"I know {len(who)} things.", "\n".join(facts)),
    )


def _person(rng: random.Random) -> str:
    name, place = rng.choice(NAMES), rng.choice(PLACES)
    work = rng.choice(list(WORKS))
    thing = f"{rng.choice(COLOURS)} {rng.choice(THINGS)}"
    told = f"{name} is a {work} from {place} and has a {thing}."
    return _chat(
        ("user", f"{told} Tell me about {name}."),
        _answer(
            f"I will tell what I know about {name}.",
            f"{name} lives in {place}. {name} is a {work}, and {WORKS[work]}.\n{name} also has a {thing}.",
        ),
    )


def _list(rng: random.Random) -> str:
    kind, words = rng.choice([("beasts", BEASTS), ("places", PLACES), ("colours", COLOURS), ("people", NAMES)])
    count = rng.randint(2, 6)
    numbered = "\n".join(f"{i}. {word}" for i, word in enumerate(rng.sample(words, count), 1))
    return _chat(("user", f"Name {count} {kind}."), _answer(f"I need {count} {kind}.", numbered))


def _steps(rng: random.Random) -> str:
    task, steps = rng.choice(RECIPES)
    thought = f"To {task} takes {len(steps)} steps."
    if rng.random() < 0.5:
        numbered = "\n".join(f"{i}. {step}" for i, step in enumerate(steps, 1))
        return _chat(("user", f"How do I {task}?"), _answer(thought, numbered))
    return _chat(("user", f"In short, how do I {task}?"), _answer(thought, " ".join(steps)))


def _explain(rng: random.Random) -> str:
    questions, thought, answer = rng.choice(EXPLANATIONS)
    return _chat(("user", rng.choice(questions)), _answer(thought, answer))


def _repeat(rng: random.Random) -> str:
    words = rng.choices(NAMES + THINGS + COLOURS + BEASTS, k=rng.randint(2, 7))
    if rng.random() < 0.5:
        return _chat(
            ("user", "Say this again: " + " ".join(words)), _answer(f"There are {len(words)} words.", " ".join(words))
        )
    counted = ", ".join(f"{i} {word}" for i, word in enumerate(words, 1))
    return _chat(
        ("user", "How many words are here: " + " ".join(words)),
        _answer(f"I count them: {counted}.", f"There are {len(words)} words."),
    )


def _code(rng: random.Random) -> str:
    name, task, expression = rng.choice([
        ("add", "adds two numbers", "{0} + {1}"),
        ("sub", "takes the second number from the first", "{0} - {1}"),
        ("mul", "multiplies two numbers", "{0} * {1}"),
        ("largest", "gives the larger of two numbers", "{0} if {0} > {1} else {1}"),
        ("same", "tells if two values are equal", "{0} == {1}"),
    ])  # fmt: skip
    x, y = rng.sample("abxymnpq", 2)
    body = expression.format(x, y)
    doc = f'    """Return {body}."""\n' if rng.random() < 0.5 else ""
    return _chat(
        ("user", f"Write a function that {task}."),
        _answer(
            f"I will name it {name} and use the names {x} and {y}.",
            f"```python\ndef {name}({x}, {y}):\n{doc}    return {body}\n```",
        ),
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
    tokenizer: Tokenizer = field(init=False)
    _texts: list[tuple[list[int], list[int]]] = field(init=False, default_factory=list)
    _epoch: int = field(init=False, default=-1)
    _stream: torch.Tensor = field(init=False)
    _order: list[int] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        shuffled = list(self.chapters)
        random.Random(f"{self.seed} chapters").shuffle(shuffled)
        self._held, self._kept = shuffled[: self.held_out], shuffled[self.held_out :]
        self._verses = [verse for chapter in self._kept for verse in chapter.verses]
        if not self._kept:
            self.dialogue_rows, self.prose_rows = self.dialogue_rows + self.prose_rows, 0
        kinds: list[tuple[Callable[[random.Random], str], float]] = [
            (_recall, self.recall_weight), (_recall_all, 2), (_arithmetic, 3), (_tool, 2), (_weather, 2),
            (_repeat, 2), (_code, 2), (_person, 2), (_list, 1.5), (_steps, 1), (_explain, 2),
            (self._go_on, 3 if self._kept else 0),
        ]  # fmt: skip
        self._kinds, self._weights = [kind for kind, _ in kinds], [weight for _, weight in kinds]

    def _go_on(self, rng: random.Random) -> str:
        words = rng.choice(self._verses).split()
        cut = rng.randint(1, max(1, len(words) - 1))
        return _chat(
            ("user", "Go on: " + " ".join(words[:cut])),
            _answer("This is a verse. I will go on from here.", " ".join(words[cut:])),
        )

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
        texts = [chapter.numbered() for chapter in self._kept] + [self.dialogue(rng) for _ in range(4000)]
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
