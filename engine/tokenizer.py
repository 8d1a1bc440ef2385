"""Text to token ids and back, with the Hugging Face ``tokenizers`` library; what ids mean to the scheduler."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from tokenizers import Tokenizer as Backend

from engine.errors import UserError

THINK = ("<think>", "</think>")
TOOL = ("<tool_call>", "</tool_call>")
CLOSERS = " \t\r\"')]}"
ENDS = (".", "!", "?")


class Tokenizer:
    """A vocabulary with its special ids.

    ``think_open`` .. ``tool_close`` are ids or None; ``eos`` are the ids that end a text, from ``tokenizer_config``.
    ``size`` is one more than the largest id.
    """

    def __init__(self, text: str, settings: Mapping[str, Any] | None = None, where: str = "tokenizer.json") -> None:
        """``text`` is a whole ``tokenizer.json``, ``settings`` a parsed ``tokenizer_config.json``.

        Raises:
            UserError: the library cannot read it.
        """
        try:
            self._backend = Backend.from_str(text)
        except Exception as error:  # noqa: BLE001  the library raises plain Exception
            raise UserError(f"{where}: no tokenizer that the tokenizers library can read: {error}.") from None
        vocabulary = self._backend.get_vocab(with_added_tokens=True)
        self._token: dict[int, str] = {number: token for token, number in vocabulary.items()}
        self._special = {number: token.content for number, token in self._backend.get_added_tokens_decoder().items()}
        self._bytes = _byte_alphabet() if _is_byte_level(json.loads(text).get("decoder")) else {}
        self.size = max(self._token, default=-1) + 1
        self.think_open, self.think_close = (vocabulary.get(token) for token in THINK)
        self.tool_open, self.tool_close = (vocabulary.get(token) for token in TOOL)
        self.eos = self._eos(vocabulary, settings or {})

    @staticmethod
    def _eos(vocabulary: Mapping[str, int], settings: Mapping[str, Any]) -> tuple[int, ...]:
        raw = settings.get("eos_token")
        token = raw.get("content") if isinstance(raw, Mapping) else raw
        number = vocabulary.get(token) if isinstance(token, str) else None
        return () if number is None else (number,)

    def encode(self, text: str) -> list[int]:
        """Token ids of ``text``; special tokens written out in it become their ids, none are added.

        Raises UserError for text that is no Unicode, such as an argument with bytes that are not UTF-8."""
        if any("\ud800" <= char <= "\udfff" for char in text):
            raise UserError("the text holds bytes that are not UTF-8; it has to be text in that encoding.")
        return list(self._backend.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Iterable[int]) -> str:
        """Text of ``ids``, special tokens included."""
        return str(self._backend.decode(list(ids), skip_special_tokens=False))

    def text(self, token: int) -> str:
        """Text of one token, without loss where it is valid UTF-8: bytes that are not become ``\\xNN``. An id outside
        the vocabulary reads ``<id>``."""
        if token in self._special:
            return self._special[token]
        piece = self._token.get(token)
        if piece is None:
            return f"<{token}>"
        if self._bytes and all(char in self._bytes for char in piece):
            return bytes(self._bytes[char] for char in piece).decode("utf-8", errors="backslashreplace")
        return str(self._backend.decode([token], skip_special_tokens=False))

    def boundary_mask(self) -> list[bool]:
        """For each id below ``size``: does its text end a line or a sentence?"""
        return list(self._boundaries)

    @cached_property
    def _boundaries(self) -> Sequence[bool]:
        return tuple(token in self._token and ends_line_or_sentence(self.text(token)) for token in range(self.size))


def ends_line_or_sentence(text: str) -> bool:
    """True when ``text`` ends in a newline or, before trailing blanks, quotes and brackets, in ``. ! ?``."""
    return text.endswith("\n") or text.rstrip(CLOSERS).endswith(ENDS)


def _is_byte_level(decoder: Any) -> bool:
    """Whether a decoder of tokenizer.json, or one of a sequence of them, is the byte-level one."""
    if not isinstance(decoder, Mapping):
        return False
    return decoder.get("type") == "ByteLevel" or any(map(_is_byte_level, decoder.get("decoders", ())))


def _byte_alphabet() -> dict[str, int]:
    """The printable character that stands for each byte in byte-level vocabularies, inverted: printable Latin-1 bytes
    stand for themselves, the others take the characters from U+0100 on, in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(b): b for b in printable} | {chr(0x100 + n): b for n, b in enumerate(others)}
