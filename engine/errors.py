"""The one error people see: something they gave us does not fit."""

from __future__ import annotations


class UserError(ValueError):
    """Input that cannot be used. The text is one paragraph: file or setting, place, found, expected, what to do."""

    @classmethod
    def about(cls, where: object, found: str, expected: str, remedy: str = "") -> UserError:
        """``<where>: found <found>, expected <expected>. <remedy>``."""
        text = f"{where}: found {found}, expected {expected}."
        return cls(f"{text} {remedy}" if remedy else text)
