#!/usr/bin/env python3
"""Figures of the bundled demo model: losses, draft acceptance, answers, boundary tokens and samples.

    python tools/check_demo_model.py engine/demo/model.safetensors

The reference implementation of transformers computes all of it, so that the figures do not depend on this project's
own engine. A few minutes on one thread.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import os
import random
import re
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
import torch.nn.functional as F
from safetensors import safe_open
from tokenizers import Tokenizer
from torch import Tensor
from transformers import Qwen3_5ForCausalLM
from transformers.cache_utils import DynamicCache, MtpCache
from transformers.modeling_layers import MtpModel

sys.path.insert(0, str(Path(__file__).parent))
from demo_corpus import END_OF_TEXT, END_OF_TURN, Corpus, king_james
from demo_dialogues import BEASTS, NAMES, PLACES, with_article

DRAFTS = 4
ASSISTANT = "<|im_start|>assistant\n"


class Checked:
    """The model of one self-contained file, opened by transformers in fp32."""

    def __init__(self, path: Path) -> None:
        with tempfile.TemporaryDirectory() as name, safe_open(path, "pt") as file:
            folder = Path(name)
            for key, text in file.metadata().items():
                if key.endswith(".json"):
                    (folder / key).write_text(text, encoding="utf-8")
            (folder / "model.safetensors").symlink_to(path.resolve())
            self.model: Any = Qwen3_5ForCausalLM.from_pretrained(folder, dtype=torch.float32)
            self.mtp: Any = MtpModel.from_pretrained(self.model)
            self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def ids(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text).ids)

    def text(self, ids: Iterable[int]) -> str:
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False))

    def write(self, prompt: str, length: int, temperature: float = 0.0, seed: int = 0) -> list[int]:
        """What the model writes after the prompt, up to the end of a turn or of the text."""
        torch.manual_seed(seed)
        cache, ids, written = DynamicCache(config=self.model.config), self.ids(prompt), list[int]()
        while len(written) < length:
            logits = self.model(input_ids=torch.tensor([ids]), cache=cache, use_cache=True).logits[0, -1]
            if temperature:
                token = int(torch.multinomial((logits / temperature).softmax(-1), 1))
            else:
                token = int(logits.argmax())
            if token in (END_OF_TURN, END_OF_TEXT):
                break
            written.append(token)
            ids = [token]
        return written

    def losses(self, rows: Tensor) -> tuple[float, float]:
        """Mean next-token and one-step MTP loss, in nats."""
        width = rows.shape[1] - 2
        sums = torch.zeros(2)
        for row in torch.split(rows, 4):
            hidden = self.model.model(input_ids=row[:, :width], use_cache=False).last_hidden_state
            positions = torch.arange(1, width + 1)[None].expand(len(row), width)
            drafted = self.mtp.forward_layer(0, hidden, positions, None, input_ids=row[:, 1 : width + 1])
            for i, (state, ahead) in enumerate(((hidden, 1), (drafted, 2))):
                logits = self.model.lm_head(state)
                sums[i] += F.cross_entropy(logits.flatten(0, 1), row[:, ahead : ahead + width].flatten()) * len(row)
        return float(sums[0]) / len(rows), float(sums[1]) / len(rows)

    def accepted(self, ids: list[int], first: int) -> list[int]:
        """How many of the drafts are right after each position from `first` on: 0 to DRAFTS.

        Right means equal to the model's own greedy continuation of the text up to there.
        """
        cache, mtp_cache = DynamicCache(config=self.model.config), MtpCache(config=self.model.config.get_mtp_config())
        counts = []
        for at, token in enumerate(ids[:-1]):
            state, greedy = self._main_step(token, at, cache)
            if at >= first:
                trial, targets = copy.deepcopy(cache), [greedy]
                for ahead in range(1, DRAFTS + 1):
                    targets.append(self._main_step(targets[-1], at + ahead, trial)[1])
                drafted, draft_state = [greedy], state
                for ahead in range(1, DRAFTS + 1):
                    draft_state = self._mtp_step(draft_state, drafted[-1], at + ahead, mtp_cache)
                    drafted.append(int(self.model.lm_head(draft_state)[0, -1].argmax()))
                mtp_cache.crop(-DRAFTS)
                right = (ours == theirs for ours, theirs in zip(drafted[1:], targets[1:], strict=True))
                counts.append(next((i for i, same in enumerate(right) if not same), DRAFTS))
            self._mtp_step(state, ids[at + 1], at + 1, mtp_cache)
        return counts

    def _main_step(self, token: int, position: int, cache: Any) -> tuple[Tensor, int]:
        output = self.model.model(
            input_ids=torch.tensor([[token]]), position_ids=torch.tensor([[position]]), cache=cache, use_cache=True
        )
        state: Tensor = output.last_hidden_state
        return state, int(self.model.lm_head(state)[0, -1].argmax())

    def _mtp_step(self, state: Tensor, token: int, position: int, cache: Any) -> Tensor:
        output: Tensor = self.mtp.forward_layer(
            0, state, torch.tensor([[position]]), cache, input_ids=torch.tensor([[token]])
        )
        return output


def user(text: str) -> str:
    return f"<|im_start|>user\n{text}<|im_end|>\n{ASSISTANT}"


def show_losses(checked: Checked, corpus: Corpus) -> None:
    print("## Held-out losses (nats a token)\n")
    for name, rows in corpus.held_out_rows(258, 24).items():
        token_loss, mtp_loss = checked.losses(rows)
        length = sum(len(checked.text(row).encode()) for row in rows.tolist()) / rows.numel()
        bits = token_loss / math.log(2) / length
        print(f"{name}: next token {token_loss:.3f} ({bits:.2f} bits a byte), MTP {mtp_loss:.3f}")


def show_acceptance(checked: Checked, corpus: Corpus, chapters: int, dialogues: int) -> None:
    print("\n## Drafts accepted (share of positions at which the first k drafts are all right)\n")
    texts = {
        "prose": [checked.ids(chapter.numbered())[:72] for chapter in corpus.held_out_chapters()[:chapters]],
        "dialogue": [checked.ids(text)[:120] for text in corpus.held_out_dialogues(dialogues)],
    }
    for name, documents in texts.items():
        counts = [count for ids in documents for count in checked.accepted(ids, 12)]
        if not counts:
            continue
        shares = [sum(count >= k for count in counts) / len(counts) for k in range(1, DRAFTS + 1)]
        tokens = [1 + sum(shares[:k]) for k in range(1, DRAFTS + 1)]
        print(
            f"{name}, {len(counts)} positions: "
            + ", ".join(f"k={k} {share:.2f}" for k, share in enumerate(shares, 1))
            + "; tokens a step "
            + ", ".join(f"{value:.2f}" for value in tokens)
        )


def show_answers(checked: Checked, rng: random.Random) -> None:
    print("\n## Answers (greedy)\n")
    well_formed = right = 0
    for _ in range(20):
        a, b = rng.randint(10, 99), rng.randint(10, 99)
        name, sign = rng.choice([("add", "+"), ("multiply", "*")])
        text = checked.text(checked.write(user(f"What is {a} {sign} {b}?"), 100))
        if match := re.search(r"<tool_call>\n(.*)\n</tool_call>$", text):
            try:
                called = json.loads(match[1])
            except json.JSONDecodeError:
                continue
            well_formed += 1
            right += called == {"name": name, "arguments": {"a": a, "b": b}}
    print(f"tool calls: {well_formed} of 20 well formed, {right} of 20 with the right tool and numbers")
    for count in (2, 3, 5):
        named = 0
        for _ in range(40):
            who = rng.sample(NAMES, count)
            kind = rng.randrange(2)
            what = rng.sample((PLACES, BEASTS)[kind], count)
            facts = [
                f"{name} lives in {value}." if kind == 0 else f"{name} saw {with_article(value)}."
                for name, value in zip(who, what, strict=True)
            ]
            asked = rng.randrange(count)
            question = f"Where does {who[asked]} live?" if kind == 0 else f"What did {who[asked]} see?"
            text = checked.text(checked.write(user(" ".join([*facts, question])), 80))
            named += text.endswith(facts[asked])
        print(f"recall of one of {count} facts: {named} of 40 (chance {40 / count:.0f})")
    sums = 0
    for _ in range(40):
        a, b = rng.randint(0, 20), rng.randint(0, 20)
        sums += checked.text(checked.write(user(f"What is {a} + {b}?"), 80)).endswith(f"The answer is {a + b}.")
    print(f"sums of two numbers up to 20: {sums} of 40")


def show_samples(checked: Checked) -> None:
    prompts = {
        "Genesis 51\n": 130, "In the beginning": 70, "Psalms 151\n": 110,
        user("What is 38 + 57?"): 90, user("How is the weather in Corinth?"): 90, user("What is a rollback?"): 90,
        user("Name 4 beasts."): 60, user("How do I light a lamp?"): 80,
        user("Write a function that adds two numbers."): 90,
        user("Ruth lives in Tyre. Joel lives in Rome. Leah lives in Sidon. Where does Joel live?"): 80,
        user("Lydia is a weaver from Athens and has a red harp. Tell me about Lydia."): 90,
    }  # fmt: skip
    marks = {
        "newline": "\n",
        "full stop": ".",
        "<think>": "<think>",
        "</think>": "</think>",
        "tool call": "<tool_call>",
    }
    ids = {name: checked.ids(mark)[0] for name, mark in marks.items()}
    written: list[int] = []
    shown = []
    for prompt, length in prompts.items():
        for label, temperature in (("greedy", 0.0), ("temperature 0.7", 0.7)):
            out = checked.write(prompt, length, temperature)
            written += out
            shown.append(f"[{label}]\n{prompt}{checked.text(out)}\n")
    counts = ", ".join(f"{name} {written.count(token)}" for name, token in ids.items())
    print(f"\n## Boundary tokens in the {len(written)} tokens of the samples below\n\n{counts}\n\n## Samples\n")
    print("\n".join(shown))


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description="Print the figures of the bundled demo model.")
    parser.add_argument("model", type=Path)
    parser.add_argument(
        "--kjv", type=Path, help="printed output of `bible -f gen1:1-rev22:21`, in place of the program"
    )
    parser.add_argument("--seed", type=int, default=0, help="the seed of the training, which decides what was held out")
    parser.add_argument("--chapters", type=int, default=8)
    parser.add_argument("--dialogues", type=int, default=24)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    checked = Checked(chosen.model)
    corpus = Corpus(king_james(chosen.kjv), chosen.seed)
    corpus.use_tokenizer(checked.tokenizer)
    print(f"{chosen.model.name}: {chosen.model.stat().st_size} bytes\n")
    show_losses(checked, corpus)
    show_acceptance(checked, corpus, chosen.chapters, chosen.dialogues)
    show_answers(checked, random.Random(f"{chosen.seed} questions"))
    show_samples(checked)


if __name__ == "__main__":
    main()
