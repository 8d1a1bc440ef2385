"""What a person's command can do wrong. The text is one paragraph: what was found, what was expected, what to do."""

from __future__ import annotations


class CommandError(ValueError):
    """A command that cannot be understood or carried out; nothing was changed by it."""


class UsageError(CommandError):
    """An unknown command or a wrong argument: the line itself is at fault."""


class ExpressionError(CommandError):
    """An expression that is not of the language, or whose value cannot be computed.

    ``source`` is the whole expression and ``column`` (from 0) the place in it.
    """

    def __init__(self, what: str, source: str, column: int = 0) -> None:
        self.what, self.source, self.column = what, source, column
        super().__init__(f"{what} (at column {column + 1} of: {_around(source, column)})")


def _around(source: str, column: int, reach: int = 40) -> str:
    from inspector.text import visible

    first = max(0, column - reach)
    last = column + reach
    return ("..." if first else "") + visible(source[first:last]) + ("..." if last < len(source) else "")
