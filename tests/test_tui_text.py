"""Text for cells: nothing a model writes can break a line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from inspector.tui.text import (
    between,
    crop,
    cut,
    fit,
    line_width,
    pad,
    plain,
    shift,
    size_text,
    token_text,
    visible,
    width,
    wrap,
)


@given(st.text(max_size=30))
def test_visible_text_has_no_control_or_format_character(text: str) -> None:
    import unicodedata

    shown = visible(text).replace("\u200e", "")
    assert not [char for char in shown if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")]


@given(st.text(max_size=30))
def test_plain_ascii_is_shown_as_it_is(text: str) -> None:
    if text.isascii() and text.isprintable():
        assert visible(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [("\n", "↵"), ("\t", "⇥"), ("\x1b[31m", "␛[31m"), ("\x00", "␀"), ("\u202e", "\\u202e"), ("\u0301", "◌\u0301")],
)
def test_characters_without_a_shape_become_signs(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_right_to_left_text_is_closed_by_a_mark_of_no_width() -> None:
    assert visible("שלום").endswith("\u200e")
    assert width(visible("שלום")) == 4


def test_leading_spaces_of_a_token_can_be_counted() -> None:
    assert token_text("  ring") == "··ring"
    assert token_text("\n\n") == "↵↵"


@given(st.text(max_size=20), st.integers(0, 24), st.sampled_from("<>^"))
def test_fit_takes_exactly_the_cells_it_was_given(text: str, cells: int, align: str) -> None:
    assert cell_len(fit(visible(text), cells, align)) == cells


SPANS = st.lists(st.tuples(st.text(max_size=8).map(visible), st.sampled_from(["", "bad", "dim"])), max_size=6)


@given(SPANS, st.integers(0, 30))
def test_pad_makes_lines_of_one_width(spans: list[tuple[str, str]], cells: int) -> None:
    assert line_width(pad(spans, cells)) == cells


@given(SPANS, st.integers(0, 30))
def test_crop_keeps_a_prefix(spans: list[tuple[str, str]], cells: int) -> None:
    cut = crop(spans, cells)
    assert line_width(cut) <= cells
    assert plain(spans).startswith(plain(cut).rstrip(" ")) or any(ord(char) > 0x2000 for char in plain(spans))


def test_shift_drops_cells_and_fills_a_halved_wide_character() -> None:
    assert plain(shift((("abc", ""), ("def", "")), 2)) == "cdef"
    assert plain(shift((("漢字", ""),), 1)) == " 字"


def test_between_keeps_the_right_end_and_lets_the_left_give_way() -> None:
    assert plain(between((("left side", ""),), (("right", ""),), 10)) == "left…right"
    assert line_width(between((("left", ""),), (("right", ""),), 20)) == 20


def test_sizes_are_written_for_people() -> None:
    assert [size_text(count) for count in (0, 1023, 1536, 5 << 20, 3 << 30)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "5.0 MiB",
        "3.0 GiB",
    ]


def test_a_cut_line_ends_with_an_ellipsis_and_a_fitting_one_does_not() -> None:
    line = (("left ", "a"), ("side", "b"))
    assert plain(cut(line, 9)) == "left side" and plain(cut(line, 8)) == "left si…" and plain(cut(line, 5)) == "left…"
    assert plain(cut((("left   ", ""),), 5)) == "left "
    assert plain(cut((("漢字漢字", ""),), 4)) == "漢 …" and cut(line, 0) == ()


def test_wrapped_lines_are_indented_lose_nothing_and_break_long_words() -> None:
    lines = [plain(line) for line in wrap((("  ", ""), ("one two three four five", "a")), 12, 4)]
    assert lines == ["  one two", "    three", "    four", "    five"]
    long = [plain(line) for line in wrap((("x" * 25, ""),), 10, 2)]
    assert "".join(text.strip() for text in long) == "x" * 25 and all(len(text) <= 10 for text in long)
