"""One error for all importers."""

from __future__ import annotations


class FormatError(ValueError):
    """A line of an imported file that cannot be read. The text names file, line, what was found, what was expected."""

    def __init__(self, path: object, line: int, found: str, expected: str) -> None:
        where = f"{path}, line {line}" if line else str(path)
        super().__init__(f"{where}: found {found}; expected {expected}")
        self.path, self.line, self.found, self.expected = str(path), line, found, expected
