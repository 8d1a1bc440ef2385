"""What a session file holds beside events, as plain data."""

from __future__ import annotations

from dataclasses import dataclass

from engine.events import Action

Answer = tuple[int, str, int | tuple[int, ...]]
DEEPEST = 200
"""How many branches may leave each other in a row."""
OPEN, DONE, CANCELLED = "open", "done", "cancelled"


@dataclass(frozen=True, slots=True)
class Branch:
    """A line of history that leaves ``parent`` after event ``at``. Branch 0 is the main line (parent -1, at 0)."""

    id: int
    parent: int = -1
    at: int = 0
    reason: str = ""
    last: int = 0


@dataclass(frozen=True, slots=True)
class ActionRow:
    """An action and the events ``first``..``last`` it gave. ``asked`` is what was asked, ``taken`` has every decision
    in it, ``answers`` are those a person gave: (Decision event, what, value). ``status``: done, open (left half done)
    or cancelled after ``last``."""

    branch: int
    first: int
    last: int
    status: str
    asked: Action
    taken: Action
    answers: tuple[Answer, ...] = ()


@dataclass(frozen=True, slots=True)
class Note:
    """A bookmark (kind "mark"), or a remark (kind "note") about event ``seq``."""

    branch: int
    seq: int
    kind: str
    name: str
    text: str = ""
    author: str = ""


@dataclass(frozen=True, slots=True)
class KeyframeRow:
    """An engine image after event ``seq``; ``kind`` is start, spaced, mark or end; ``bytes`` its size."""

    branch: int
    seq: int
    kind: str
    bytes: int


@dataclass(frozen=True, slots=True)
class TensorRow:
    """Where a stored tensor is: written at ``seq``, content under ``hash``."""

    seq: int
    dtype: str
    shape: tuple[int, ...]
    hash: bytes
