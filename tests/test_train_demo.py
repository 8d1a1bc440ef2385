"""The script which trains the bundled model: restartable, and its file is a complete checkpoint."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers")
from safetensors import safe_open
from tokenizers import Tokenizer
from transformers.models.qwen3_5 import modeling_qwen3_5

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
import demo_corpus
import demo_numerics
import train_demo_model as training

SMALL = training.Recipe(
    seed=3, vocabulary=320, hidden=64, feed_forward=64, layers=4, width=32, steps=4, mtp_steps=2, prose=False
)


@pytest.fixture(autouse=True)
def leave_as_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trainer puts its own delta rule into transformers, and other tests compare with the library's."""
    name = "torch_chunk_gated_delta_rule"
    monkeypatch.setattr(modeling_qwen3_5, name, getattr(modeling_qwen3_5, name))


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> object:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def trainer(work: Path, recipe: training.Recipe = SMALL) -> training.Trainer:
    return training.Trainer(
        recipe, demo_corpus.Corpus([], recipe.seed, dialogue_rows=2, prose_rows=1, tokenizer_dialogues=300), work
    )


def test_stopped_twice_and_resumed_gives_the_same_file(tmp_path: Path) -> None:
    straight = trainer(tmp_path / "straight")
    straight.run(save_every=100)
    straight.export(tmp_path / "straight.safetensors")

    def stopping(step_of: object, at: int) -> object:
        def step(number: int) -> dict[str, float]:
            if number == at:
                raise KeyboardInterrupt
            return step_of(number)  # type: ignore[operator, no-any-return]

        return step

    for stage, at in (("main_step", 3), ("mtp_step", 1)):
        stopped = trainer(tmp_path / "stopped")
        setattr(stopped, stage, stopping(getattr(stopped, stage), at))
        with pytest.raises(KeyboardInterrupt):
            stopped.run(save_every=1)
    resumed = trainer(tmp_path / "stopped")
    resumed.run(save_every=1)
    resumed.export(tmp_path / "resumed.safetensors")

    assert (tmp_path / "straight.safetensors").read_bytes() == (tmp_path / "resumed.safetensors").read_bytes()
    left = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {"straight.safetensors", "resumed.safetensors", "checkpoint.safetensors"}
    with pytest.raises(ValueError, match="another recipe"):
        trainer(tmp_path / "stopped", training.Recipe(seed=4, prose=False)).run(save_every=1)


def test_the_file_is_a_complete_checkpoint(tmp_path: Path) -> None:
    untrained = trainer(tmp_path)
    untrained.corpus.train_tokenizer(SMALL.vocabulary)
    untrained.export(tmp_path / "model.safetensors")
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        metadata = file.metadata()
        kinds = {key: file.get_tensor(key).dtype for key in file.keys()}  # noqa: SIM118
    config = json.loads(metadata["config.json"])
    assert metadata["format"] == "pt"
    assert config["architectures"] == ["Qwen3_5ForCausalLM"]
    assert config["mtp_num_hidden_layers"] == 1
    assert config["dtype"] == "bfloat16"
    assert json.loads(metadata["generation_config.json"])["eos_token_id"] == [2, 0]
    assert json.loads(metadata["tokenizer_config.json"])["eos_token"] == "<|im_end|>"
    tokenizer = Tokenizer.from_str(metadata["tokenizer.json"])
    assert [tokenizer.token_to_id(token) for token in demo_corpus.SPECIAL_TOKENS] == list(range(7))
    assert [len(tokenizer.encode(mark).ids) for mark in ("\n", ".", "?", "!", "<think>")] == [1] * 5
    assert {key for key, kind in kinds.items() if kind == torch.float32} == {
        f"model.layers.{layer}.linear_attn.{name}" for layer in range(3) for name in ("A_log", "norm.weight")
    }
    assert "model.layers.0.linear_attn.in_proj_qkv.weight" in kinds
    assert sum(key.startswith("mtp.") for key in kinds) == 15
    assert {"mtp.fc.weight", "mtp.norm.weight", "mtp.layers.0.self_attn.q_proj.weight"} <= set(kinds)
    assert "lm_head.weight" not in kinds


@pytest.mark.parametrize("length", [1, 40, 64])
def test_the_delta_rule_for_training_equals_the_library(length: int) -> None:
    torch.manual_seed(0)
    query, key = torch.randn(2, length, 2, 16), torch.randn(2, length, 2, 16)
    value, g, beta = torch.randn(2, length, 4, 8), -torch.rand(2, length, 4), torch.rand(2, length, 4)
    start = torch.randn(2, 4, 16, 8)
    ours = demo_numerics.ChunkedDeltaRule(compiled=False)(query, key, value, g, beta, start, True)
    theirs = modeling_qwen3_5.torch_chunk_gated_delta_rule(
        query.repeat_interleave(2, 2), key.repeat_interleave(2, 2), value, g=g, beta=beta, initial_state=start,
        output_final_state=True, use_qk_l2norm_in_kernel=True,
    )  # fmt: skip
    for mine, library in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, library, atol=1e-5, rtol=1e-4)


def test_chapters_and_rows() -> None:
    text = "\n".join(
        f"B{chr(97 + i // 26)}{chr(97 + i % 26)}1:{v} Verse {v} of {i}." for i in range(66) for v in (1, 2)
    )
    chapters = demo_corpus.read_chapters(text)
    assert (chapters[0].heading, chapters[65].heading) == ("Genesis 1", "Revelation 1")
    assert chapters[8].numbered() == "1 Samuel 1\n1 Verse 1 of 8.\n2 Verse 2 of 8.\n"
    assert chapters[8].plain() == "Verse 1 of 8. Verse 2 of 8.\n"
    with pytest.raises(ValueError, match="66 books"):
        demo_corpus.read_chapters("Ge1:1 In the beginning")

    first = demo_corpus.Corpus(chapters, seed=1, tokenizer_dialogues=100)
    first.train_tokenizer(320)

    def rows(step: int) -> torch.Tensor:
        corpus = demo_corpus.Corpus(chapters, seed=1)
        corpus.use_tokenizer(first.tokenizer)
        return corpus.batch("main", step, 16, 2)

    assert rows(5).shape == (16, 18)
    assert torch.equal(rows(5), rows(5))
    assert not torch.equal(rows(5), rows(6))


def test_dialogues_are_closed_and_their_calls_are_json() -> None:
    corpus, rng = demo_corpus.Corpus([], seed=1), random.Random(1)
    calls = 0
    for text in (corpus.dialogue(rng) for _ in range(400)):
        assert text.count("<|im_start|>") == text.count("<|im_end|>")
        assert text.count("<think>") == text.count("</think>") >= 1
        if "<tool_call>" in text:
            body = text.split("<tool_call>")[1].split("</tool_call>")[0]
            assert set(json.loads(body)) == {"name", "arguments"}
            calls += 1
    assert calls > 10
