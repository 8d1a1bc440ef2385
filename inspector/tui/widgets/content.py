"""What a pane is filled with: rows, lines that stay, and helpers that make them. Plain data, no widget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import overload

from inspector.tui.text import Line, Span, fit

Target = tuple[str, object]


@dataclass(frozen=True, slots=True)
class Row:
    """One selectable line; ``target`` says what choosing it means: ("event", 12), ("place", Place), ..."""

    spans: Line
    target: Target | None = None


class LazyRows(Sequence[Row]):
    """Rows made when they are looked at: a list of a hundred thousand costs what is in sight."""

    def __init__(self, count: int, make: Callable[[int], Row]) -> None:
        self._count = count
        self._make = make

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> Row: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Row]: ...
    def __getitem__(self, place: int | slice) -> Row | Sequence[Row]:
        if isinstance(place, slice):
            return [self._make(number) for number in range(*place.indices(self._count))]
        if not -self._count <= place < self._count:
            raise IndexError(place)
        return self._make(place % self._count)


@dataclass(frozen=True, slots=True)
class Content:
    """What a pane shows: lines that stay (``head``, ``foot``), rows that scroll, and what stands in its border.

    ``anchor`` is the row to keep in sight while nobody moved the cursor, ``present`` another one that must not leave it
    (None: only the anchor counts); ``wide`` the cells of the widest row when the pane may be moved sideways."""

    title: Line = ()
    note: Line = ()
    head: tuple[Line, ...] = ()
    rows: Sequence[Row] = ()
    foot: tuple[Line, ...] = ()
    anchor: int = 0
    wide: int = 0
    present: int | None = None


def highlight(spans: Line, word: str) -> Line:
    """``spans`` with every occurrence of ``word`` inside a span shown as found."""
    out: list[Span] = []
    low = word.lower()
    for text, role in spans:
        rest, folded = text, text.lower()
        while low and len(folded) == len(rest) and low in folded:
            at = folded.index(low)
            out += [(rest[:at], role), (rest[at : at + len(low)], "found")]
            rest, folded = rest[at + len(low) :], folded[at + len(low) :]
        out.append((rest, role))
    return tuple(out)


def columns(cells: Sequence[Span], widths: Sequence[int], aligns: str, gap: str = " ") -> Line:
    """One line of a grid: each cell cut or filled to its width; ``aligns`` has one of ``< > ^`` per column."""
    out: list[Span] = []
    for number, ((text, role), size) in enumerate(zip(cells, widths, strict=True)):
        if size <= 0:
            continue
        if out:
            out.append((gap, ""))
        out.append((fit(text, size, aligns[number]), role))
    return tuple(out)
