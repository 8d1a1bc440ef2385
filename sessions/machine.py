"""An engine with a position on the record: it executes new actions, or recorded ones again.

Doing recorded actions again must give the recorded events, digests included; the first difference is raised as
DivergedError, which is a finding. Lifetime: one per engine. Cost of ``goto``: loading one image and executing from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

from engine.events import Action, EnginePort, Event, TensorData, TensorRef
from sessions.divergence import Comparison
from sessions.errors import ENGINE_ERRORS, Cancelled, DivergedError, NotAvailable
from sessions.keyframes import Keyframes
from sessions.record import Record
from sessions.rows import CANCELLED, DONE, OPEN, ActionRow
from sessions.script import scripted
from sessions.stop import Cancel, Progress

T = TypeVar("T")
REPORT_EVERY = 64  # events between two calls of cancel and progress


class Machine:
    """``branch`` and ``seq`` say where the engine is; ``running`` is the action it is paused in, if any."""

    def __init__(
        self, engine: EnginePort, record: Record, keyframes: Keyframes, comparison: Comparison | None = None
    ) -> None:
        self.engine, self.record, self.keyframes = engine, record, keyframes
        self.comparison = comparison or Comparison()
        self.branch, self.seq = -1, -1  # unknown: an image has to be loaded first
        self.running: ActionRow | None = None
        self._events: Iterator[Event] | None = None
        self.progress: Progress | None = None
        self.watch: Callable[[int, Event], None] | None = None  # sees (branch, event) after each that was met again
        self.executed = 0

    # ------------------------------------------------------------------------------------------------ new actions

    def adopt(self, branch: int, seq: int) -> None:
        """The engine is between two actions, after event ``seq``: a fresh engine is after its start."""
        self.branch, self.seq, self.running, self._events = branch, seq, None, None

    def begin(self, action: Action, asked: Action | None = None) -> Event | None:
        """Start ``action`` at the end of the branch; its first event, None when it gives none.

        Raises:
            ValueError: the engine refuses; nothing happened.
        """
        events = iter(self.engine.perform(action))
        first = next(events, None)
        if first is not None:
            self.running = ActionRow(self.branch, self.seq + 1, self.seq + 1, OPEN, asked or action, action)
            self._events = events
            self.seq += 1
        return first

    def advance(self) -> Event | ActionRow:
        """The next event of the running action; when it is over, the action with what it took."""
        assert self._events is not None
        event = next(self._events, None)
        if event is None:
            done = self.row(DONE)
            self.running = self._events = None
            return done
        self.seq += 1
        return event

    def answer(self, what: str, value: int | tuple[int, ...]) -> None:
        """Answer the decision just passed, instead of the policy. Raises ValueError when that cannot be."""
        assert self.running is not None
        self.engine.answer(what, value)
        kept = tuple(answer for answer in self.running.answers if answer[0] != self.seq)
        self.running = replace(self.running, answers=(*kept, (self.seq, what, value)))

    def row(self, status: str) -> ActionRow:
        """The running action as far as it went."""
        assert self.running is not None
        return replace(self.running, last=self.seq, status=status, taken=self.engine.taken())

    def move_to(self, branch: int) -> None:
        """The running action belongs to a new branch that leaves here."""
        if self.running is not None:
            self.running = replace(self.running, branch=branch, status=OPEN)
        self.branch = branch

    def cancel(self) -> None:
        """Drop the running action; the state is as its events so far say."""
        self.engine.cancel()
        self.running = self._events = None

    def lose(self) -> None:
        """The engine's state is not trusted any more: the next ``goto`` loads an image."""
        self.engine.cancel()
        self.branch, self.seq, self.running, self._events = -1, -1, None, None

    def read(self, ref: TensorRef) -> TensorData:
        return self.engine.read(ref)

    def keep(self, *, pinned: bool = False) -> None:
        """Take a keyframe here, between two actions."""
        owner = self.record.owner(self.branch, self.seq)
        self.keyframes.add(owner, self.seq, self.engine.save(), pinned=pinned)

    # --------------------------------------------------------------------------------------------------- the past

    def goto(self, branch: int, seq: int, cancel: Cancel | None = None, free: bool = False) -> None:
        """Bring the engine to the instant after event ``seq`` of ``branch``. Inside an action the recorded decisions
        are to follow; with ``free`` those at ``seq`` and after are open again, for a branch that leaves here.

        Raises:
            DivergedError: doing the recorded actions again gave something else.
            NotAvailable: there is no image to start from.
            Cancelled: ``cancel`` said yes; the engine is somewhere on the way.
        """
        if free and self.running is not None:
            self.lose()
        if (self.branch, self.seq) == (branch, seq):
            return
        self._come_near(branch, seq)
        self.branch = branch  # (branch, seq) names the same instant as (line, seq)
        begun, total = self.seq, seq - self.seq
        keep = self._worth_keeping(branch, seq)
        while self.seq < seq:
            row = self.record.action(branch, self.seq + 1)
            if row is None:
                raise NotAvailable(f"no action is recorded for event {self.seq + 1}: it cannot be executed again")
            if self.running is None and self.seq in keep:
                owner = self.record.owner(branch, self.seq)
                if not self.keyframes.has(owner, self.seq):
                    self.keyframes.add(owner, self.seq, self.engine.save(), present=seq)
            self._again(branch, row, seq, free, cancel, (begun, total))
        if self.progress is not None and total > REPORT_EVERY:
            self.progress("executing again", total, total)

    def _worth_keeping(self, branch: int, seq: int) -> set[int]:
        """Events on the way to ``seq`` after which an image is worth having: every few actions, and closer and closer
        to ``seq``, as the next look will be just before it."""
        ends, at = list[int](), self.seq
        while at < seq:
            row = self.record.action(branch, at + 1)
            if row is None or row.last <= at:
                break
            at = row.last
            ends.append(at)
        inner = [end for end in ends if end < seq]
        near = {inner[-distance] for distance in (1, 2, 4) if distance < len(inner)}
        return near | set(inner[self.keyframes.spacing - 1 :: self.keyframes.spacing])

    def _come_near(self, branch: int, seq: int) -> None:
        """Load the nearest image, unless the engine is on the path already and nearer."""
        key = self.keyframes.nearest(self.record, branch, seq)
        if 0 <= self.seq <= seq and self._on_path(branch) and (key is None or key[1] <= self.seq):
            return
        while key is not None:
            try:
                image = self.keyframes.image(key)
            except KeyError:
                self.keyframes.forget(key)
                key = self.keyframes.nearest(self.record, branch, seq)
                continue
            self.lose()
            try:
                self.engine.load(image)
            except ENGINE_ERRORS as error:
                raise NotAvailable(f"the keyframe of event {key[1]} does not fit this engine: {error}") from error
            self.adopt(*key)
            return
        raise NotAvailable(f"no keyframe before event {seq}: the engine cannot be brought there")

    def _on_path(self, branch: int) -> bool:
        if self.running is not None:
            row = self.record.action(branch, self.seq + 1) or self.record.action(branch, self.seq)
            return row is not None and (row.branch, row.first) == (self.running.branch, self.running.first)
        on_line = self.record.owner(self.branch, self.seq) == self.record.owner(branch, self.seq)
        return on_line and self._between(branch)

    def _between(self, branch: int) -> bool:
        """Whether the path of ``branch`` has a boundary between actions where the engine is."""
        following = self.record.action(branch, self.seq + 1)
        return following is None or following.first == self.seq + 1

    def _again(
        self, branch: int, row: ActionRow, seq: int, free: bool, cancel: Cancel | None, walk: tuple[int, int]
    ) -> None:
        """Execute ``row`` up to event ``seq`` or to its end, comparing each event with the record."""
        if self.running is None:
            action = scripted(self.record, branch, row, seq if free else row.last + 1)
            self._events = self._caught(row.first, lambda: iter(self.engine.perform(action)))
            self.running = row if not free else replace(row, answers=tuple(a for a in row.answers if a[0] < seq))
        answers = {at: (what, value) for at, what, value in self.running.answers}
        end = min(row.last if row.status != OPEN else self.record.last(row.branch), seq)
        layers = self.record.start.recurrent_layers
        while self.seq < end:
            event, recorded = self._next(self.seq + 1), self.record.event(branch, self.seq + 1)
            self.executed += 1
            if event is None:
                self.lose()
                text = f"diverged at event {recorded.seq}: recorded {recorded.kind}, now the action is over"
                raise DivergedError(recorded.seq, text, expected=recorded.kind, found="nothing")
            if not self.comparison.equal(recorded, event):
                self.lose()
                raise self.comparison.describe(recorded, event, layers)
            self.seq += 1
            if self.watch is not None:
                self.watch(branch, event)
            if self.seq in answers:
                self._caught(self.seq, lambda: self.engine.answer(*answers[self.seq]))
            if self.executed % REPORT_EVERY == 0:
                if cancel is not None and cancel():
                    raise Cancelled
                if self.progress is not None:
                    self.progress("executing again", self.seq - walk[0], walk[1])
        if self.seq == row.last and row.status == DONE:
            extra = self._next(row.last + 1)
            if extra is not None:
                self.lose()
                text = f"diverged at event {row.last + 1}: recorded the end of the action, now {extra.kind}"
                raise DivergedError(row.last + 1, text, expected="the end of the action", found=extra.kind)
            self.running = self._events = None
        elif self.seq == row.last and row.status == CANCELLED:
            self.cancel()

    def _next(self, seq: int) -> Event | None:
        assert self._events is not None
        events = self._events
        return self._caught(seq, lambda: next(events, None))

    def _caught(self, seq: int, do: Callable[[], T]) -> T:
        """An engine that raises where the record goes on does something else than recorded."""
        try:
            return do()
        except ENGINE_ERRORS as error:
            self.lose()
            text = f"diverged at event {seq}: the engine raised {type(error).__name__}: {error}"
            raise DivergedError(seq, text, expected="an event", found=type(error).__name__) from error
