"""Which tokens does the conv window really hold?

A column of the first recurrent layer, when that is layer 0, is the projection of one token's embedding: it depends on
nothing else. The nearest row of the projected vocabulary names the token (engines.md C.4: all columns right after 320
bf16 rounds, runner-up about 450 times farther). Read against the committed tokens it says how many tokens the window is
ahead or behind. A column that is near no row holds no token: its channels come from several (torn), or from elsewhere;
where that is so nothing is claimed about the whole window. ``table`` holds the projection of each candidate id; the ids
of the sequence itself and its drafts are enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from inspector.analysis.arrays import Floats, Tensor, TensorError, as_floats
from inspector.analysis.shift import ahead

EMPTY = -1
# What a reading shows for a column that matches no token.
NONE = -2
# Rows of the table compared at a time: 4096 rows of 8192 channels are 128 MiB of float32.
ROWS = 4096
# Nearest rows whose distances are computed again exactly: |a-b|^2 by expansion cancels near zero.
SHORTLIST = 8
# The nearest id is believed only when the runner-up is at least this much farther.
CLEAR_RATIO = 2.0
# A column matches when its distance to the nearest row, relative to its own norm, is at most this. The same projection
# computed in other shapes is 1e-6 away in fp32 and 4e-3 in bf16, through an fp8 cache up to 0.06; two tokens are about
# 1.4 apart: a column half of which comes from another token is 0.7 to 1 away, at 0.1 about a two hundredth is foreign.
MATCH = 0.1


@dataclass(frozen=True, slots=True)
class Column:
    """One column. ``token`` is :data:`EMPTY` for a column of zeros. ``distance`` is relative to the norm of the
    column; ``ratio`` is the runner-up's distance over it (infinite for an exact hit)."""

    token: int
    distance: float
    ratio: float
    runner_up: int

    @property
    def matches(self) -> bool:
        """The column holds this token, or nothing: it is not merely the nearest of many that it is not."""
        return self.token == EMPTY or self.distance <= MATCH

    @property
    def clear(self) -> bool:
        """The reading can be believed: a match, and no other id near."""
        return self.matches and (self.token == EMPTY or self.ratio >= CLEAR_RATIO)


def decode_window(window: Tensor, table: Tensor, ids: Sequence[int] | NDArray[np.int64]) -> tuple[Column, ...]:
    """Nearest token id of every column.

    Args:
        window: conv [channels, kernel] of the first recurrent layer, newest last.
        table: projections [n, channels] of the candidate ids.
        ids: their n token ids; an id may appear twice.

    Raises:
        TensorError: shapes do not fit, the table is empty, or values are not finite.
    """
    columns, rows = as_floats(window), as_floats(table)
    names = np.asarray(ids, dtype=np.int64)
    if columns.ndim != 2 or rows.ndim != 2 or rows.shape[1] != columns.shape[0] or names.shape != (rows.shape[0],):
        raise TensorError(
            f"expected a window [channels, kernel], a table [n, channels] and n ids, found {list(columns.shape)}, "
            f"{list(rows.shape)} and {list(names.shape)}"
        )
    if not len(rows):
        raise TensorError("the table of projections is empty: name at least the committed tokens")
    if not np.isfinite(columns).all():
        raise TensorError("the conv window holds NaN or infinities")
    names, first = np.unique(names, return_index=True)
    near = _shortlist(columns, rows, first)
    return tuple(_column(columns[:, j], rows, names, first, near[:, j]) for j in range(columns.shape[1]))


def _shortlist(columns: Floats, rows: Floats, first: NDArray[np.int64]) -> NDArray[np.int64]:
    """Indices into ``first`` of the nearest rows for each column, unordered: [few, kernel]."""
    scores = np.empty((len(first), columns.shape[1]), np.float64)
    for lo in range(0, len(first), ROWS):
        part = rows[first[lo : lo + ROWS]]
        if not np.isfinite(part).all():
            raise TensorError("the table of projections holds NaN or infinities")
        # |row|^2 - 2 row.column orders like the distance: |column|^2 is the same for all rows.
        scores[lo : lo + ROWS] = np.einsum("nc,nc->n", part, part)[:, None] - 2.0 * (part @ columns)
    few = min(SHORTLIST, len(first))
    return np.argpartition(scores, few - 1, axis=0)[:few]


def _column(
    column: Floats, rows: Floats, names: NDArray[np.int64], first: NDArray[np.int64], near: NDArray[np.int64]
) -> Column:
    norm = float(np.linalg.norm(column.astype(np.float64)))
    if norm == 0.0:
        return Column(EMPTY, 0.0, float("inf"), EMPTY)
    exact = np.linalg.norm(rows[first[near]].astype(np.float64) - column, axis=1) / norm
    order = np.lexsort((names[near], exact))
    best, second = order[0], order[1] if len(order) > 1 else None
    if second is None:
        return Column(int(names[near[best]]), float(exact[best]), float("inf"), EMPTY)
    ratio = float(exact[second] / exact[best]) if exact[best] > 0.0 else (float("inf") if exact[second] > 0.0 else 1.0)
    return Column(int(names[near[best]]), float(exact[best]), ratio, int(names[near[second]]))


@dataclass(frozen=True, slots=True)
class Reading:
    """The window against the committed tokens.

    ``ids`` has :data:`EMPTY` for a column of zeros and :data:`NONE` for one that matches no token.
    ``tokens``: how far the window is ahead (+) or behind (-); None when no shift explains it, or when a column matches
    no token. ``rest`` is what the other columns say then. ``others`` are further
    shifts that explain it as well (repeated tokens). ``strange`` are ids at the new end that are not committed there,
    ``foreign`` those of them that the request never had at all, committed or drafted: padding, say.
    ``certain`` is False when a column could not be told from its runner-up."""

    ids: tuple[int, ...]
    tokens: int | None
    others: tuple[int, ...]
    strange: tuple[int, ...]
    certain: bool
    foreign: tuple[int, ...] = ()
    rest: int | None = None

    @property
    def unmatched(self) -> int:
        """How many columns match no token."""
        return self.ids.count(NONE)

    @property
    def right(self) -> bool:
        """The window holds exactly the last committed tokens."""
        return self.tokens == 0

    def text(self, place: str = "live") -> str:
        """One sentence, with token ids."""
        shown = " ".join({EMPTY: "-", NONE: "?"}.get(token, str(token)) for token in self.ids)
        if self.unmatched:
            return self._unmatched_text(place, shown)
        if self.tokens is None:
            return f"{place} holds the tokens [{shown}], which no position of this request explains"
        if self.tokens == 0:
            return f"{place} holds the last committed tokens [{shown}]"
        more = f", ending with {list(self.strange)}" if self.strange else ""
        if self.foreign:
            some = sorted(set(self.foreign)) if set(self.strange) - set(self.foreign) else []
            more += f", of which this request never had {some}" if some else ", which this request never had"
        doubt = f" (or {', '.join(ahead(n) if n else 'right' for n in self.others)})" if self.others else ""
        return f"{place} is {ahead(self.tokens)}: it holds [{shown}]{more}{doubt}"

    def _unmatched_text(self, place: str, shown: str) -> str:
        total, count = len(self.ids), self.unmatched
        text = (
            f"{count} of {total} columns of {place} match{'es' if count == 1 else ''} no token searched "
            "(torn, or none of the vocabulary)"
        )
        if count == total:
            return text
        words = "is" if total - count == 1 else "are"
        if self.rest is None:
            where = f"{words} explained by no position of this request"
        else:
            where = f"{words} {ahead(self.rest)}" if self.rest else f"{words} as committed"
        return f"{text}: it holds [{shown}]; the other{'' if words == 'is' else 's'} {where}"


def read_window(
    columns: Sequence[Column], tokens: Sequence[int], position: int, future: Sequence[int] = (), reach: int = 512
) -> Reading:
    """Where in the sequence is the window?

    Args:
        columns: decoded window, oldest first.
        tokens: the committed tokens; the state should have absorbed the first ``position`` of them.
        future: tokens that may have been absorbed beyond ``tokens``, in order (the drafts of the round).
        reach: how many tokens back to look.

    A window that is behind holds older committed tokens. One that is ahead by n overlaps the committed ones in its
    first K - n columns; the last n are whatever was absorbed too many: up to K - 1 can be recognised, more with
    ``future``. Columns that match no token have no say.
    """
    ids = tuple(column.token if column.matches else NONE for column in columns)
    known = [int(token) for token in tokens[:position]]
    later = [int(token) for token in (*tokens[position:], *future)]
    width = len(ids)
    fits = [n for n in range(-min(len(known), reach), max(width - 1, len(later)) + 1) if _fits(ids, known, later, n)]
    # Prefer the right place, then the fewest unexplained ids, then the nearest.
    fits.sort(key=lambda n: (n != 0, _unexplained(n, len(later)), abs(n), n))
    best = fits[0] if fits else None
    certain = all(column.clear for column in columns)
    if NONE in ids:
        return Reading(ids, None, (), (), certain, rest=best)
    strange: tuple[int, ...] = ()
    if best is not None and best > 0:
        strange = ids[max(0, width - best) :]
    rivals = tuple(
        n for n in fits[1:] if best is not None and _unexplained(n, len(later)) == _unexplained(best, len(later))
    )
    return Reading(ids, best, () if best == 0 else rivals[:4], strange, certain)


def _unexplained(shift: int, later: int) -> int:
    return max(0, shift - later)


def _fits(ids: tuple[int, ...], known: list[int], later: list[int], shift: int) -> bool:
    """Whether a window ``shift`` tokens ahead would read as ``ids``; tokens beyond ``later`` may be anything."""
    end = len(known) + shift
    line = known + later
    agreed = 0
    for back, token in enumerate(reversed(ids)):
        at = end - 1 - back
        if token == NONE:
            continue
        if at < 0:
            if token != EMPTY:
                return False
        elif at >= len(line):
            if token == EMPTY:
                return False
            continue
        elif line[at] != token:
            return False
        agreed += 1
    return agreed > 0
