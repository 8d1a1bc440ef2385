"""Untrusted text made safe to print: token texts, prompts, names out of files."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

# Cc control, Cf format (bidi marks, zero width), Cs surrogates, Co private, Cn unassigned, Zl/Zp line separators.
_HIDDEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\x1b": "\\e"}


def _escape(char: str) -> str:
    short = _SHORT.get(char)
    if short is not None:
        return short
    code = ord(char)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def visible(text: str) -> str:
    """``text`` with every character that has no shape of its own (control, bidi, zero width) written as an escape."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape(char) if unicodedata.category(char) in _HIDDEN else char for char in text)


def quoted(text: str, limit: int = 0) -> str:
    """``text`` between double quotes, unambiguous: quotes and backslashes are escaped too. ``limit`` > 0 cuts the
    text to that many characters and says so with ``...``."""
    cut = text[:limit] if limit and len(text) > limit else text
    body = visible(cut.replace("\\", "\\\\").replace('"', '\\"'))
    return f'"{body}"' + ("..." if cut is not text and len(cut) < len(text) else "")


def shorten(text: str, width: int) -> str:
    """At most ``width`` characters; a cut is marked by ``...``."""
    return text if len(text) <= width else text[: max(0, width - 3)] + "..."


def plural(count: int, word: str, many: str = "") -> str:
    """``1 event``, ``2,000 events``."""
    return f"{count:,} {word if count == 1 else many or word + 's'}"


def byte_size(count: int) -> str:
    """``1,536 B`` up to 10 KiB, then KiB, MiB, GiB with two digits."""
    if abs(count) < 10 * 1024:
        return f"{count:,} B"
    size = float(count)
    for unit in ("KiB", "MiB", "GiB"):
        size /= 1024
        if abs(size) < 1024 or unit == "GiB":
            return f"{size:,.2f} {unit}"
    return f"{count:,} B"


def chat(text: str) -> str:
    """``text`` as a user's turn in the chat form of the supported model families (ChatML)."""
    return f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"


def suggest(word: str, known: Iterable[str]) -> str:
    """`` Did you mean "x"?`` for the nearest known name, or nothing."""
    import difflib

    names = sorted(set(known))
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.6) or difflib.get_close_matches(
        word.lower(), names, n=1, cutoff=0.6
    )
    return f' Did you mean "{near[0]}"?' if near else ""
