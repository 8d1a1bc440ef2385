"""Token ids, their texts, and what they mean to the scheduler."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers, trainers

from engine.errors import UserError
from engine.tokenizer import Tokenizer, ends_line_or_sentence
from tests.model_helpers import SPECIAL, byte_tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(byte_tokenizer().to_str(), {"eos_token": {"content": "<|im_end|>"}})


def trained() -> Tokenizer:
    """A byte-level vocabulary with merges, trained on two sentences."""
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(["the lamb saw the lamp.\n", "Grüße über der Straße.\n"] * 9, trainer)
    return Tokenizer(backend.to_str())


@pytest.mark.parametrize("text", ["", "plain", "Grüße 漢字 \U0001f600", "a\tb\r\n\x00\x1b[0m", "<think>x</think>"])
def test_encoding_and_decoding_lose_nothing(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert trained().decode(trained().encode(text)) == text


def test_special_tokens_written_out_become_their_ids_and_none_is_added(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("<|im_start|><think></think>") == [1, 3, 4]
    assert (tokenizer.think_open, tokenizer.think_close) == (3, 4)
    assert (tokenizer.tool_open, tokenizer.tool_close) == (5, 6)
    assert tokenizer.eos == (2,) and tokenizer.size == len(SPECIAL) + 256


def test_a_vocabulary_without_the_markers_has_none() -> None:
    plain = trained()
    assert plain.think_open is None and plain.tool_close is None and plain.eos == ()


def test_texts_of_single_tokens_join_to_the_whole(tokenizer: Tokenizer) -> None:
    for some in (tokenizer, trained()):
        ids = some.encode("the lamp. Der Straße.\n")
        if some is not tokenizer:
            assert "".join(some.text(i) for i in ids) == "the lamp. Der Straße.\n"
        assert some.decode(ids) == "the lamp. Der Straße.\n"


def test_a_token_that_is_half_a_character_shows_its_bytes(tokenizer: Tokenizer) -> None:
    first, second = tokenizer.encode("ß")
    assert (tokenizer.text(first), tokenizer.text(second)) == ("\\xc3", "\\x9f")


def test_a_byte_level_decoder_inside_a_sequence_is_seen() -> None:
    backend = byte_tokenizer()
    backend.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Fuse()])
    some = Tokenizer(backend.to_str())
    assert some.text(some.encode(" ")[0]) == " " and some.text(some.encode("ß")[0]) == "\\xc3"


def test_special_tokens_and_unknown_ids_have_a_text(tokenizer: Tokenizer) -> None:
    assert tokenizer.text(3) == "<think>"
    assert tokenizer.text(99_999) == "<99999>" and tokenizer.text(-1) == "<-1>"


def test_the_mask_marks_exactly_the_line_and_sentence_ends(tokenizer: Tokenizer) -> None:
    mask = tokenizer.boundary_mask()
    assert len(mask) == tokenizer.size
    assert {tokenizer.text(i) for i, is_end in enumerate(mask) if is_end} == {"\n", ".", "!", "?"}
    merged = trained()
    ends = {merged.text(i) for i, is_end in enumerate(merged.boundary_mask()) if is_end}
    assert {".", "\n"} <= ends and all(text.strip("\n").endswith((".", "!", "?")) or "\n" in text for text in ends)


@pytest.mark.parametrize(
    "text", ["\n", "x\n", "\r\n", ".", "end.", 'He said "no." ', "why?')", "ok!]}\t", ".\r", "...", ". \n"]
)
def test_line_and_sentence_ends(text: str) -> None:
    assert ends_line_or_sentence(text)


@pytest.mark.parametrize("text", ["", " ", "\r", ")", '"', ".,", "a.b", "\n ", ";", ":", ".\u00a0", "。", ".>"])
def test_other_texts_are_no_ends(text: str) -> None:
    assert not ends_line_or_sentence(text)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"version": "1.0", "model": {"type": "Nonsense"}}', "\x00"])
def test_a_file_that_is_no_tokenizer_is_named(text: str) -> None:
    with pytest.raises(UserError, match=r"some/tokenizer\.json: no tokenizer"):
        Tokenizer(text, where="some/tokenizer.json")
