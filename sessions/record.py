"""The record: every branch with its events and actions, in memory or paged in from a session file.

A *line* is what was written on one branch itself; its *path* is the parent's path up to where it left, then the line.
Numbers (``seq``) are unique on a path, not between branches.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from dataclasses import dataclass, field, replace

from engine.events import Event, Start
from sessions.errors import NotAvailable
from sessions.rows import DONE, OPEN, ActionRow, Branch
from sessions.store_reader import StoreReader

PAGE = 256
PAGES_KEPT = 64


@dataclass(slots=True)
class Line:
    """What one branch added: stored events up to ``stored`` (paged), then ``fresh`` ones."""

    branch: Branch
    stored: int
    fresh: list[Event] = field(default_factory=list)
    actions: list[ActionRow] = field(default_factory=list)
    firsts: list[int] = field(default_factory=list)

    @property
    def last(self) -> int:
        return self.stored + len(self.fresh)


class Record:
    """``store`` None: all in memory. Otherwise the stored events stay in the file and are paged in when looked at."""

    def __init__(self, store: StoreReader | None = None) -> None:
        self._store = store
        self._pages: OrderedDict[tuple[int, int], list[Event]] = OrderedDict()
        self._lines: list[Line] = []
        if store is not None:
            self._lines = [Line(branch, branch.last) for branch in store.branches()]
            for row in store.actions():
                self.put_action(row)

    # ------------------------------------------------------------------------------------------------- branches

    @property
    def branches(self) -> list[Branch]:
        """All branches, each with its last event; number 0 is the main line."""
        return [replace(line.branch, last=line.last) for line in self._lines]

    def add_branch(self, parent: int = -1, at: int = 0, reason: str = "") -> int:
        """A new line that leaves ``parent`` after event ``at``; its number."""
        number = len(self._lines)
        self._lines.append(Line(Branch(number, parent, at, reason), at))
        return number

    def drop_branch(self, number: int) -> None:
        """Take back the newest line and what is on it."""
        assert number == len(self._lines) - 1 and self._lines[number].stored == self._lines[number].branch.at
        self._lines.pop()

    def branch(self, number: int) -> Branch:
        """Raises NotAvailable when there is no such branch."""
        if not 0 <= number < len(self._lines):
            raise NotAvailable(f"no branch {number}; there are {len(self._lines)} (0 is the main line)")
        return self._lines[number].branch

    def depth(self, branch: int) -> int:
        """How many branches were left on the way to ``branch``."""
        depth = 0
        while branch:
            branch, depth = self._lines[branch].branch.parent, depth + 1
        return depth

    def last(self, branch: int) -> int:
        """The newest event on the path of ``branch``."""
        return self._lines[branch].last

    def owner(self, branch: int, seq: int) -> int:
        """The line on the path of ``branch`` that event ``seq`` was written on."""
        while branch and seq <= self._lines[branch].branch.at:
            branch = self._lines[branch].branch.parent
        return branch

    # --------------------------------------------------------------------------------------------------- events

    def append(self, branch: int, event: Event) -> None:
        """The next event of ``branch``. Raises ValueError when its number does not follow."""
        line = self._lines[branch]
        if event.seq != line.last + 1:
            raise ValueError(f"event {event.seq} of branch {branch}: expected number {line.last + 1}")
        line.fresh.append(event)

    def event(self, branch: int, seq: int) -> Event:
        """Raises NotAvailable outside ``1..last``."""
        line = self._lines[self.owner(branch, seq)]
        if seq > line.stored and seq <= line.last:
            return line.fresh[seq - line.stored - 1]
        if not 1 <= seq <= line.last:
            raise NotAvailable(f"no event {seq}; the record holds 1 to {self.last(branch)}")
        page = self._page(line, seq)
        return page[seq - page[0].seq]

    def events(self, branch: int, lo: int, hi: int) -> list[Event]:
        """Events ``lo``..``hi``, both included, cut to what there is."""
        found: list[Event] = []
        seq, hi = max(1, lo), min(hi, self.last(branch))
        while seq <= hi:
            line = self._lines[self.owner(branch, seq)]
            end = min(hi, self._line_end(branch, seq))
            if seq > line.stored:
                found += line.fresh[seq - line.stored - 1 : end - line.stored]
                seq = end + 1
                continue
            end = min(end, line.stored, seq // PAGE * PAGE + PAGE - 1)
            page = self._page(line, end)
            found += page[seq - page[0].seq : end - page[0].seq + 1]
            seq = end + 1
        return found

    def _line_end(self, branch: int, seq: int) -> int:
        """Last event of the path of ``branch`` that is on the same line as ``seq``."""
        end = self.last(branch)
        while branch and seq <= self._lines[branch].branch.at:
            end = self._lines[branch].branch.at
            branch = self._lines[branch].branch.parent
        return end

    def _page(self, line: Line, seq: int) -> list[Event]:
        """Stored events of the page of ``seq``: up to it when the page is looked at first, all of it afterwards."""
        key = (line.branch.id, seq // PAGE)
        lo, hi = max(line.branch.at + 1, seq // PAGE * PAGE), min(line.stored, seq // PAGE * PAGE + PAGE - 1)
        page = self._pages.get(key)
        if page is None:
            page = self._pages[key] = self._read(line.branch.id, lo, seq)
            if len(self._pages) > PAGES_KEPT:
                self._pages.popitem(last=False)
            return page
        self._pages.move_to_end(key)
        if lo + len(page) <= seq:
            page += self._read(line.branch.id, lo + len(page), hi)
        return page

    def _read(self, branch: int, lo: int, hi: int) -> list[Event]:
        assert self._store is not None
        found = self._store.events(lo, hi, branch)
        if len(found) != hi - lo + 1:
            raise self._store.damaged(f"events {lo} to {hi} of branch {branch}: {len(found)} found")
        return found

    @property
    def start(self) -> Start:
        """The first event, or an empty one for a trace that has none."""
        first = self.event(0, 1) if self._lines and self.last(0) else None
        return first if isinstance(first, Start) else Start()

    # -------------------------------------------------------------------------------------------------- actions

    def put_action(self, row: ActionRow) -> None:
        """Add an action, or replace the one that begins at the same event of the same branch."""
        line = self._lines[row.branch]
        at = bisect_right(line.firsts, row.first)
        if at and line.firsts[at - 1] == row.first:
            line.actions[at - 1] = row
        else:
            line.actions.insert(at, row)
            line.firsts.insert(at, row.first)

    def action(self, branch: int, seq: int) -> ActionRow | None:
        """The action that gave event ``seq`` on the path of ``branch``; None for ``Start`` and for traces."""
        while True:
            line = self._lines[branch]
            at = bisect_right(line.firsts, seq)
            if at:
                row = line.actions[at - 1]
                return row if seq <= (line.last if row.status == OPEN else row.last) else None
            if not branch or seq > line.branch.at:
                return None
            branch = line.branch.parent

    def actions(self, branch: int) -> list[ActionRow]:
        """Actions on the path of ``branch`` in order; the first of a branch may begin before it left its parent."""
        line = self._lines[branch]
        if not branch:
            return list(line.actions)
        limit = line.firsts[0] if line.firsts else line.branch.at + 1
        return [
            row for row in self.actions(line.branch.parent) if row.first < limit and row.first <= line.branch.at
        ] + (line.actions)

    def own_actions(self, branch: int, skip: int = 0) -> list[ActionRow]:
        """Actions written on ``branch`` itself, without the first ``skip``."""
        return self._lines[branch].actions[skip:]

    def boundary(self, branch: int, seq: int) -> bool:
        """Whether the engine was between two actions after event ``seq``."""
        row = self.action(branch, seq)
        return row is None or (seq == row.last and row.status == DONE)
