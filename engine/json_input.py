"""JSON objects from files and texts that somebody else wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.errors import UserError


def read_text(file: Path) -> str:
    """A whole UTF-8 file. Raises UserError."""
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{file}: there is no such file. Check the path.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: cannot be read as text: {error}.") from None


def read_json(file: Path) -> Mapping[str, Any]:
    """A JSON object from a file. Raises UserError."""
    return parse_json(read_text(file), str(file))


def parse_json(text: str, where: str) -> Mapping[str, Any]:
    """A JSON object from text. Raises UserError."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError.about(where, f"no JSON ({error})", "a JSON object") from None
    if not isinstance(data, dict):
        raise UserError.about(where, f"a JSON {type(data).__name__}", "a JSON object")
    return data
