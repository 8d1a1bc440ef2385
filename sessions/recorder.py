"""Keeps a session file in step with the history. Trouble never stops the debugger.

One transaction per action (a round). After trouble, such as a full disk, the file holds a whole prefix of the run and
nothing more is written until :meth:`Recorder.retry`, which catches up from memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from engine.events import (
    Compact,
    Decode,
    Event,
    Landed,
    Place,
    Prefill,
    ReplayRow,
    StateCopy,
    TensorData,
    TensorRef,
    VerifyRow,
    Zero,
)
from sessions.errors import SessionError
from sessions.finding import Finding
from sessions.history import History
from sessions.record import PAGE
from sessions.rows import OPEN, ActionRow, Note
from sessions.store import Store
from sessions.view_codec import LAYOUT, to_sections
from sessions.views import LAYOUT_KEY

VIEW_EVERY = PAGE  # a stored ledger view at the end of each page of events
CHUNK = 1024  # events without an action that are written at once
KEYFRAME_EVERY = 48  # actions between two keyframes in the file
T = TypeVar("T")


class Recorder:
    """``trouble`` is None, or the sentence that tells why recording stopped."""

    def __init__(self, store: Store, history: History) -> None:
        self.store, self._history = store, history
        self.trouble: str | None = None
        self._written = {branch.id: branch.last for branch in store.branches()}
        counts = "SELECT branch, sum(status != 'open') FROM action GROUP BY branch"
        self._actions = dict.fromkeys(self._written, 0) | dict(store.rows("ii", counts))
        # Of events that are not in the file yet, by branch: a half-done round waits while another branch goes on.
        self._tensors: dict[int, list[tuple[int, TensorRef, TensorData]]] = {}
        self._moved: dict[int, list[tuple[int, int, int]]] = {}
        self._since_keyframe = 0
        self.fill: Callable[[int, int], None] | None = None  # brings an engine along, to capture what was not

    def begin(self) -> None:
        """Switch the file to recording."""

        def start() -> None:
            self.store.begin_recording()
            self.store.set_meta(LAYOUT_KEY, LAYOUT)

        self._guarded(start)

    # -------------------------------------------------------------------------------------------------- events

    def written(self, branch: int) -> int:
        """The last acknowledged event of ``branch``."""
        return self._written.get(branch, 0)

    def capture(self, branch: int, event: Event, read: Callable[[TensorRef], TensorData]) -> None:
        """At level ``full``: the tensors that ``event`` has just written, while the engine still holds them."""
        if self.store.level != "full" or self.trouble is not None:
            return
        if isinstance(event, Compact):
            self._moved.setdefault(branch, []).append((event.seq, event.src, event.dst))
        for place, parts in written_places(event):
            for layer in self._history.record.start.recurrent_layers:
                for part in filter(None, parts.split("+")):
                    ref = TensorRef(place, layer, part)
                    self._tensors.setdefault(branch, []).append((event.seq, ref, read(ref)))

    def write(self, branch: int) -> None:
        """Write what ``branch`` has up to the end of its last action: acknowledged when no trouble came."""
        self._guarded(lambda: self._write(branch))

    def _write(self, branch: int) -> None:
        record = self._history.record
        for number in range(len(self._written), branch + 1):
            fresh = record.branch(number)
            if fresh.parent >= 0 and self._written[fresh.parent] < fresh.at:
                self._write(fresh.parent)  # it was left inside a round that is not in the file yet
            self.store.add_branch(fresh)
            self._written[number], self._actions[number] = fresh.at, 0
        rows = record.own_actions(branch, self._actions[branch])
        end = rows[0].first - 1 if rows else record.last(branch) if not self._actions[branch] else 0
        for hi in range(self._written[branch] + CHUNK, end + CHUNK, CHUNK):  # the start, or a trace without actions
            self._round(branch, min(hi, end), None)
        for row in rows:
            self._round(branch, row.last, row)
            if row.status != OPEN:  # an open one is written again when more of it is done
                self._actions[branch] += 1

    def _round(self, branch: int, hi: int, action: ActionRow | None) -> None:
        lo = self._written[branch] + 1
        if self.fill is not None:
            self.fill(branch, hi)
        tensors, moved = self._tensors.get(branch, []), self._moved.get(branch, [])
        self.store.append_round(
            branch,
            self._history.record.events(branch, lo, hi),
            action,
            findings=[finding for finding in self._history.findings(branch, lo, hi) if finding.seq >= lo],
            tensors=[entry for entry in tensors if entry[0] <= hi],
            moved=[entry for entry in moved if entry[0] <= hi],
        )
        self._tensors[branch] = [entry for entry in tensors if entry[0] > hi]
        self._moved[branch] = [entry for entry in moved if entry[0] > hi]
        self._written[branch] = max(hi, lo - 1)
        self._since_keyframe += 1
        for seq in range(lo + (VIEW_EVERY - 1 - lo) % VIEW_EVERY, hi + 1, VIEW_EVERY):
            self.store.add_view(branch, seq, to_sections(self._history.view(branch, seq)))

    def retry(self) -> None:
        """Write what is still missing, after trouble was removed. ``trouble`` tells whether it worked."""
        self.trouble = None
        for branch in self._history.record.branches:
            self.write(branch.id)

    # --------------------------------------------------------------------------------------------------- others

    @property
    def wants_keyframe(self) -> bool:
        return self.trouble is None and self._since_keyframe >= KEYFRAME_EVERY

    def keyframe(self, branch: int, seq: int, kind: str, image: Mapping[str, TensorData]) -> None:
        """An engine image for the file; it must be at an acknowledged event."""

        def add() -> None:
            self.store.add_keyframe(branch, seq, kind, image, cost=self._since_keyframe)
            self._since_keyframe = 0

        if seq <= self.written(branch):
            self._guarded(add)

    def note(self, note: Note) -> None:
        self._guarded(lambda: self.store.add_note(note))

    def finding(self, branch: int, finding: Finding) -> None:
        """A finding about an event that may already be in the file."""
        if finding.seq <= self.written(branch):
            self._guarded(lambda: self.store.add_finding(branch, finding))

    def command(self, branch: int, seq: int, text: str) -> None:
        self._guarded(lambda: self.store.add_command(branch, seq, text))

    def meta(self, key: str, value: str) -> None:
        self._guarded(lambda: self.store.set_meta(key, value))

    def _guarded(self, write: Callable[[], T]) -> T | None:
        if self.trouble is not None:
            return None
        try:
            return write()
        except SessionError as error:
            self.trouble = f"recording stopped: {error}"
            return None


def written_places(event: Event) -> list[tuple[Place, str]]:
    """Places (and parts) whose bytes ``event`` has just written. A compaction is not among them: it moves."""
    if isinstance(event, (Prefill, Decode)):
        return [(Place("live", event.slot), "h+conv")]
    if isinstance(event, VerifyRow):
        live = (Place("live", event.slot), "h+conv")
        return [live, (Place("step", event.slot, event.row), event.step_parts)] if event.step_parts else [live]
    if isinstance(event, ReplayRow):
        return [(event.place, "h+conv")]
    if isinstance(event, Zero):
        return [(event.place, event.parts)]
    if isinstance(event, Landed) or (isinstance(event, StateCopy) and event.landed):
        return [(event.dst, event.parts)]
    return []
