"""What a second start remembers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tui_pilot import PROMPT, screen

from inspector.tui.settings import HISTORY_LINES, HOME_VARIABLE, Memory, Settings, settings_folder


def test_choices_and_history_survive(tmp_path: Path) -> None:
    first = Memory(tmp_path / "new")
    first.remember(theme="paper", keymap="vim", layout="round")
    first.typed("print now")
    first.typed("print now")
    first.close()
    second = Memory(tmp_path / "new")
    assert second.settings == Settings("paper", "vim", "round")
    assert second.history == ["print now"]


def test_writing_leaves_no_half_file_behind(tmp_path: Path) -> None:
    memory = Memory(tmp_path)
    memory.remember(theme="contrast")
    assert [path.name for path in tmp_path.iterdir()] == ["screen.json"]
    assert json.loads((tmp_path / "screen.json").read_text())["theme"] == "contrast"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"theme": 3}', '{"theme": "no such", "keymap": "emacs"}', "\x00\xff"])
def test_a_file_that_cannot_be_read_is_a_fresh_start(tmp_path: Path, text: str) -> None:
    (tmp_path / "screen.json").write_text(text)
    (tmp_path / "history.json").write_text(text)
    memory = Memory(tmp_path)
    assert memory.settings == Settings() and memory.history == []


def test_history_is_bounded(tmp_path: Path) -> None:
    memory = Memory(tmp_path)
    for number in range(HISTORY_LINES + 50):
        memory.typed(f"goto @{number}")
    assert len(memory.history) == HISTORY_LINES and memory.history[-1] == f"goto @{HISTORY_LINES + 49}"


def test_a_folder_that_cannot_be_made_costs_the_memory_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    memory = Memory(tmp_path / "file" / "below")
    memory.remember(theme="paper")
    memory.typed("next")
    memory.close()
    assert memory.settings.theme == "paper"


def test_the_folder_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    assert settings_folder() == tmp_path


async def test_the_screen_remembers_theme_keymap_layout_and_lines(tmp_path: Path) -> None:
    async with screen(PROMPT, memory=Memory(tmp_path)) as driver:
        await driver.type("theme contrast")
        await driver.type("keymap pudb")
        await driver.type("layout pools")
        await driver.type("print now")
        await driver.pilot.press("q")
    again = Memory(tmp_path)
    assert again.settings == Settings("contrast", "pudb", "pools")
    assert again.history[-1] == "print now"
    async with screen(PROMPT, memory=again) as driver:
        assert driver.app.theme == "contrast" and driver.app.keymap.name == "pudb"
        assert driver.screen.has_class("layout-pools")
