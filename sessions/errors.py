"""What can go wrong with a record, in words for people."""

from __future__ import annotations


class SessionError(ValueError):
    """A session file that cannot be used. The text names the file, what was found, what was expected and what to do."""

    def __init__(self, path: object, found: str, expected: str, remedy: str) -> None:
        super().__init__(f"{path}: found {found}; expected {expected}. {remedy}")
        self.path, self.found, self.expected, self.remedy = str(path), found, expected, remedy


class DamagedError(SessionError):
    """Content of a session file that is not what was written."""


class NotAvailable(LookupError):
    """A fact or tensor this source cannot show; ``reason`` says why and what would make it visible."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


class DivergedError(RuntimeError):
    """Re-execution gave something else than the record: a finding about the engine, not an internal error.

    ``seq`` is the event, ``layer`` and ``part`` the first tensor whose digest differs (-1 and "": a fact differs)."""

    def __init__(
        self, seq: int, text: str, layer: int = -1, part: str = "", expected: str = "", found: str = ""
    ) -> None:
        super().__init__(text)
        self.seq, self.layer, self.part = seq, layer, part
        self.expected, self.found = expected, found


ENGINE_ERRORS = (
    ArithmeticError, AssertionError, LookupError, MemoryError, OSError, RuntimeError, TypeError, ValueError
)  # fmt: skip
"""What an engine may raise; anything else is a mistake of this program."""


class Cancelled(Exception):
    """The caller's ``cancel`` said yes during a long walk."""
