"""What a second start remembers: layout, theme, keymap, and the history of the command line. Written whole or not at
all; a file that cannot be read is a fresh start, never an error."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from inspector.tui.keymaps import DEFAULT_KEYMAP, KEYMAPS
from inspector.tui.themes import DEFAULT_THEME, PALETTES

HISTORY_LINES = 500
HOME_VARIABLE = "METRALE_INSPECT_HOME"


@dataclass(frozen=True, slots=True)
class Settings:
    """Choices of a person, by name."""

    theme: str = DEFAULT_THEME
    keymap: str = DEFAULT_KEYMAP
    layout: str = "overview"

    def checked(self) -> Settings:
        """Unknown names replaced by the defaults."""
        known = Settings()
        return Settings(
            self.theme if self.theme in PALETTES else known.theme,
            self.keymap if self.keymap in KEYMAPS else known.keymap,
            self.layout if self.layout in ("overview", "round", "tensors", "pools") else known.layout,
        )


def settings_folder() -> Path:
    """Where settings live; the environment variable METRALE_INSPECT_HOME overrides the platform's folder."""
    given = os.environ.get(HOME_VARIABLE)
    if given:
        return Path(given)
    from platformdirs import user_config_path

    return user_config_path("metrale-inspect", appauthor=False)


class Memory:
    """Settings and history in a folder; a folder that cannot be written is remembered nothing in, quietly."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.settings = Settings()
        self.history: list[str] = []
        if folder is not None:
            self._read(folder)

    def _read(self, folder: Path) -> None:
        data = _json(folder / "screen.json")
        if isinstance(data, dict):
            names = {
                name: value for name, value in data.items() if name in asdict(Settings()) and isinstance(value, str)
            }
            self.settings = replace(Settings(), **names).checked()
        lines = _json(folder / "history.json")
        if isinstance(lines, list):
            self.history = [line for line in lines if isinstance(line, str)][-HISTORY_LINES:]

    def remember(self, **choices: str) -> None:
        """Change settings and write them."""
        self.settings = replace(self.settings, **choices).checked()
        self._write("screen.json", asdict(self.settings))

    def typed(self, line: str) -> None:
        """A command line was entered; kept once when repeated at once."""
        if line and (not self.history or self.history[-1] != line):
            self.history.append(line)
            del self.history[:-HISTORY_LINES]

    def close(self) -> None:
        """Write the history."""
        if self.history:
            self._write("history.json", self.history)

    def _write(self, name: str, data: Any) -> None:
        if self.folder is None:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            handle, path = tempfile.mkstemp(dir=self.folder, prefix=name)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(data, file, indent=1)
            os.replace(path, self.folder / name)
        except OSError:
            # a home that cannot be written (read-only container) costs the memory, not the session
            self.folder = None


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
