"""Keymaps are data: what they bind exists, nothing is bound twice, sequences and counts are understood."""

from __future__ import annotations

import pytest

from inspector.commands.groups import build_registry
from inspector.tui.frame import Frame
from inspector.tui.keymaps import GDB, KEYMAPS, PUDB, VIM, WORDS, Keymap, footer_groups, keys_for
from inspector.tui.keys import Keys, Outcome, spell
from inspector.tui.screens.actions import MOVES, Actions
from inspector.tui.text import plain
from inspector.tui.widgets.bars import KeysBar


@pytest.mark.parametrize("keymap", KEYMAPS.values(), ids=list(KEYMAPS))
def test_every_binding_means_something(keymap: Keymap) -> None:
    registry = build_registry()
    for keys, action in keymap.bindings.items():
        if action.startswith("@"):
            word = action[1:].split()[0]
            assert word in MOVES or hasattr(Actions, "do_" + word.replace("-", "_")), (keys, action)
        else:
            name = action.removeprefix("rev ")
            command, _ = registry.resolve(name)
            assert command.name == name and (command.reversible or not action.startswith("rev "))


@pytest.mark.parametrize("keymap", KEYMAPS.values(), ids=list(KEYMAPS))
def test_no_binding_hides_behind_the_beginning_of_another(keymap: Keymap) -> None:
    keys = list(keymap.bindings)
    assert not [(a, b) for a in keys for b in keys if b.startswith(a + " ")]


def test_keys_that_terminals_cannot_tell_apart_are_not_used() -> None:
    for keymap in KEYMAPS.values():
        used = {key for keys in keymap.bindings for key in keys.split()}
        assert not used & {"ctrl+i", "ctrl+m", "ctrl+h", "ctrl+s", "ctrl+q", "ctrl+c"}


def test_the_gdb_keymap_goes_back_with_shift() -> None:
    for key, command in {"s": "step", "i": "event", "n": "next", "o": "chunk", "f": "finish", "c": "continue"}.items():
        assert GDB.bindings[key] == command
        assert GDB.bindings[key.upper()] == f"rev {command}"


def test_the_keys_of_the_plan_are_all_bound() -> None:
    plan = "sSiInNoOfFcCtudrvaRbBwWpxDL<>[]{}gGhjkl/,.12345678z:yE?q"
    assert not [key for key in plan if key not in GDB.bindings]
    for key in ("space", "m *", "' *", "ctrl+o", "ctrl+d", "ctrl+u", "tab", "escape", "enter", "ctrl+p", "f1"):
        assert key in GDB.bindings


def test_every_word_of_the_screen_can_be_reached_by_a_key() -> None:
    unbound = [word for word in WORDS if not any(keys_for(keymap, word) for keymap in KEYMAPS.values())]
    assert unbound == ["@save"]


def test_a_sequence_waits_for_its_last_key() -> None:
    keys = Keys(GDB)
    assert keys.feed("m") == Outcome(awaiting="m")
    assert keys.feed("a") == Outcome("@mark a")
    keys.feed("'")
    assert keys.feed("x") == Outcome("@goto-mark x")


def test_escape_drops_a_sequence_and_means_itself_otherwise() -> None:
    keys = Keys(GDB)
    keys.feed("m")
    assert keys.feed("escape") == Outcome()
    assert keys.feed("escape") == Outcome("@escape")


def test_an_unknown_key_is_told() -> None:
    assert Keys(GDB).feed("Q") == Outcome(unknown="Q")


def test_vim_digits_are_counts() -> None:
    keys = Keys(VIM)
    assert keys.feed("1").awaiting == "1"
    assert keys.feed("0").awaiting == "10"
    assert keys.feed("s") == Outcome("step", 10)
    assert keys.feed("s") == Outcome("step", 1)


def test_vim_panes_and_top_are_sequences() -> None:
    keys = Keys(VIM)
    keys.feed("ctrl+w")
    assert keys.feed("3") == Outcome("@pane 3")
    keys.feed("g")
    assert keys.feed("g") == Outcome("@top")


def test_pudb_goes_back_with_a_prefix_and_focuses_with_capitals() -> None:
    keys = Keys(PUDB)
    assert keys.feed("-").awaiting == "-"
    assert keys.feed("s") == Outcome("rev step")
    assert keys.feed("V") == Outcome("@pane 5")
    assert "S" in PUDB.bindings and PUDB.bindings["S"] == "@pane 3"


def test_footers_follow_the_keymap() -> None:
    assert footer_groups(GDB, 200)[0][0] == ("s/S", "token")
    assert footer_groups(PUDB, 120)[0][0] == ("s/-s", "token")


@pytest.mark.parametrize("width", [80, 120, 200])
def test_footers_fit_and_always_tell_help_and_quit(width: int) -> None:
    bar = KeysBar()
    bar.groups = footer_groups(GDB, width)
    text = plain(bar.line(Frame(), width))
    assert "? help" in text and "q quit" in text and len(text) <= width


def test_key_events_are_spelled_as_keymaps_write_them() -> None:
    assert spell("upper_s", "S") == "S"
    assert spell("question_mark", "?") == "?"
    assert spell("space", " ") == "space"
    assert spell("ctrl+d", "\x04") == "ctrl+d"
    assert spell("enter", "\r") == "enter"
