"""Untrusted text made safe, and every event said in one line."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.events import EVENTS
from inspector.commands.parser import unescape
from inspector.commands.render import table, width
from inspector.describe import describe, token_list, token_text
from inspector.text import byte_size, plural, quoted, shorten, suggest, visible
from sessions.view import LedgerView


@given(st.text())
def test_visible_text_has_no_character_without_a_shape(text: str) -> None:
    assert all(unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") for char in visible(text))


@given(st.text(st.characters(codec="utf-8")))
def test_a_quoted_text_can_be_read_back(text: str) -> None:
    shown = quoted(text)
    assert shown[0] == shown[-1] == '"'
    assert unescape(shown[1:-1]) == text


def test_escapes() -> None:
    assert visible("a\x1b[0m\n\t\u202e\U000e0001\x7f") == "a\\e[0m\\n\\t\\u202e\\U000e0001\\x7f"
    assert visible("plain é 中 [bold]") == "plain é 中 [bold]"
    assert quoted("abcdef", 3) == '"abc"...'


@pytest.mark.parametrize("kind", EVENTS)
def test_every_event_is_one_line_that_begins_with_its_number(kind: str) -> None:
    line = describe(EVENTS[kind](seq=7, req=2), LedgerView())
    assert line.startswith(f"7 {kind} r2") and "\n" not in line and "  " in line + "  "


def test_tokens_without_a_known_text_are_shown_by_id() -> None:
    view = LedgerView()
    assert token_text(view, 5) == "<5>" and token_text(view, -1) == "?"
    assert token_list(view, tuple(range(12)), 3) == "<0> <1> <2> and 9 more"


def test_numbers_and_words() -> None:
    assert plural(1, "copy", "copies") == "1 copy" and plural(2000, "copy", "copies") == "2,000 copies"
    assert byte_size(1536) == "1,536 B" and byte_size(3 << 20) == "3.00 MiB" and byte_size(5 << 40) == "5,120.00 GiB"
    assert shorten("abcdef", 5) == "ab..." and shorten("abc", 5) == "abc"
    assert suggest("cursr", ["cursor", "k"]) == ' Did you mean "cursor"?' and suggest("zzz", ["cursor"]) == ""


def test_tables_align_wide_and_combining_characters() -> None:
    rows = [("中中", 1), ("e\u0301", 22), ("plain", 333)]
    lines = table(("name", "n"), rows, right=("n",))
    assert {width(line) for line in lines} == {width(lines[0])} == {10}
    assert table(("a",), [("x\ny",)])[1] == "x\\ny"
