"""One timeline over a live engine, a recording or an imported trace.

Going back changes nothing. Acting in the past opens a branch; the parent stays as it is. At the live edge a forward
step executes, before it a forward step moves. Reverse-run reports the latest hit before the present. Invariants are
looked at on every event. Executing again must give the recorded digests: a difference stops with reason "diverged" and
is a finding. One thread owns a timeline; ``cancel`` may be called from another.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from engine.events import Action, Decision, EnginePort, Event
from sessions.edge import Edge, Step
from sessions.errors import Cancelled, DivergedError, NotAvailable, SessionError
from sessions.finding import Finding
from sessions.history import History
from sessions.invariants import Checker
from sessions.jumps import JUMPS_KEY
from sessions.keyframes import BYTES
from sessions.machine import Machine
from sessions.opening import Opened, open_source
from sessions.recorder import Recorder
from sessions.stop import Cancel, Stop
from sessions.store import Store
from sessions.tensors import EngineFactory
from sessions.timeline_moves import TimelineMoves
from sessions.units import UNITS

__all__ = ["UNITS", "Cancelled", "DivergedError", "NotAvailable", "SessionError", "Stop", "Timeline"]

PauseAt = Callable[[Event], object]


class Timeline(TimelineMoves):
    """See the module; make one with :meth:`live` or :meth:`open`."""

    # -------------------------------------------------------------------------------------------------- opening

    @classmethod
    def live(
        cls,
        engine: EnginePort,
        store: Store | None = None,
        checker: Checker | None = None,
        *,
        factory: EngineFactory | None = None,
        keyframe_bytes: int = BYTES,
        check: bool = True,
    ) -> Timeline:
        """A fresh engine, recorded into ``store`` when given. ``factory`` makes a second engine, in which the past is
        executed again; without it the live one is moved and brought back. ``check`` False: no invariants at all."""
        history = History()
        recorder = Recorder(store, history) if store is not None else None
        opened = Opened("live", history, store, recorder, store.all_meta() if store is not None else {}, [])
        checker = (checker or Checker()) if check else None
        timeline = cls(opened, checker=checker, factory=factory, keyframe_bytes=keyframe_bytes)
        if recorder is not None:
            recorder.begin()
        timeline._attach(engine)
        return timeline

    @classmethod
    def open(
        cls,
        path: str | Path,
        engine_factory: EngineFactory | None = None,
        *,
        checker: Checker | None = None,
        write: bool = True,
        keyframe_bytes: int = BYTES,
    ) -> Timeline:
        """A session file, JSON lines or a scheduler trace, told apart by content. With ``engine_factory`` tensors of
        any instant can be seen and branches opened. ``write`` False: bookmarks, notes and branches are not stored.

        Raises:
            SessionError: it cannot be read; the text says why and what to do.
        """
        checker = checker or Checker()
        timeline = cls(
            open_source(Path(path), checker, write),
            checker=checker,
            factory=engine_factory,
            keyframe_bytes=keyframe_bytes,
        )
        timeline.now = timeline.last
        return timeline

    def _attach(self, engine: EnginePort) -> None:
        """The live engine."""
        machine = Machine(engine, self.history.record, self.keyframes)
        self._tensors.edge = Edge(self.history, machine, self.checker, self._recorder)
        self._tensors.edge.oracle = self._oracle
        self._tensors.edge.start(engine.start())
        self._executable.add(0)
        self.now = self.last

    # ------------------------------------------------------------------------------------------------------ act

    def perform(self, action: Action, pause_at: PauseAt | None = None, cancel: Cancel | None = None) -> Stop:
        """Do ``action`` to its end, or until ``pause_at(event)`` is true. In the past, and at the end of a recording,
        it opens a branch first. An action left half done at the edge is finished before."""
        return self._told(lambda: self._perform(action, pause_at, cancel))

    def _perform(self, action: Action, pause_at: PauseAt | None, cancel: Cancel | None) -> Stop:
        here = (self.branch, self.now)
        self.jumps.leave()
        opened = self._branch_here(action.kind, cancel)
        edge = self._edge()
        edge.quiet = opened
        if edge.open:
            while (step := edge.advance()) is not None:
                self.now = step.event.seq
        try:
            first = edge.begin(action)
        except ValueError as error:
            if opened:
                self._take_branch_back(here)
            return Stop("refused", self.now, str(error))
        edge.quiet = False
        if first is None:
            return Stop("done", self.now, f"{action.kind}: nothing to do")
        return self._until_end(edge, first, pause_at, cancel)

    def resume(self, pause_at: PauseAt | None = None, cancel: Cancel | None = None) -> Stop:
        """Go on with the action that was left half done, to its end or to ``pause_at``."""

        def go() -> Stop:
            edge = self._tensors.edge
            if edge is None or not self.paused:
                return Stop("refused", self.now, "no action is half done here")
            step = edge.advance()
            return self._until_end(edge, step, pause_at, cancel) if step is not None else Stop("done", self.now)

        return self._told(go)

    def _until_end(self, edge: Edge, step: Step | None, pause_at: PauseAt | None, cancel: Cancel | None) -> Stop:
        finding: Finding | None = None
        while step is not None:
            self.now = step.event.seq
            finding = finding or next(iter(step.findings), None)
            if pause_at is not None and pause_at(step.event):
                reason = "decision" if isinstance(step.event, Decision) else "pause"
                return Stop(reason, self.now, finding=finding)
            if cancel is not None and cancel():
                return Stop("cancelled", self.now, "left half done", finding=finding)
            step = edge.advance()
        return Stop("done", self.now, finding=finding)

    def answer(self, what: str, value: int | tuple[int, ...]) -> Stop:
        """Answer the decision at ``now`` (drafts: token ids or their number; accept: rows; boundary: outputs kept). The
        engine stays paused there: ``resume``, ``step`` or ``run`` go on. In the past this opens a branch."""

        def go() -> Stop:
            waiting = self.waiting
            if waiting is None or waiting.what != what:
                found = "no decision" if waiting is None else f"a decision about {waiting.what}"
                return Stop("refused", self.now, f"answer {what}: {found} is waiting at event {self.now}")
            here = (self.branch, self.now)
            opened = self._branch_here(f"{what} answered", None)
            try:
                self._edge().answer(what, value)
            except ValueError as error:
                if opened:
                    self._take_branch_back(here)
                return Stop("refused", self.now, str(error))
            return Stop("decision", self.now, f"{what}: {value}")

        return self._told(go)

    def abandon(self) -> Stop:
        """Cancel the half-done action at the edge; the state is as its events so far say."""

        def go() -> Stop:
            if not self.paused:
                return Stop("refused", self.now, "no action is half done here")
            self._edge().abandon()
            return Stop("done", self.now, "cancelled")

        return self._told(go)

    def open_branch(self, reason: str = "") -> Stop:
        """Open a branch here without acting yet; at the live edge there is nothing to open."""

        def go() -> Stop:
            opened = self._branch_here(reason, None)
            return Stop("done", self.now, f"branch {self.branch}" if opened else "this is the live edge")

        return self._told(go)

    def _edge(self) -> Edge:
        edge = self._tensors.edge
        assert edge is not None
        return edge

    def _branch_here(self, reason: str, cancel: Cancel | None) -> bool:
        """Make ``now`` a live edge. Raises NotAvailable without an engine."""
        if self.at_edge:
            self._edge().come_back(cancel)
            return False
        if not self.can_act:
            raise NotAvailable("no model is open: a record can be looked at, not acted on")
        if self._tensors.edge is None:
            if self._recorder is not None:
                self._recorder.begin()
            machine = self._tensors.fresh_machine()
            self._tensors.edge = Edge(self.history, machine, self.checker, self._recorder)
            self._tensors.edge.oracle = self._oracle
        self._tensors.edge.machine.progress = self.progress
        number = self._tensors.edge.open_branch(self.branch, self.now, reason, cancel)
        self._executable.add(number)
        self.branch = number
        return True

    def _take_branch_back(self, here: tuple[int, int]) -> None:
        self._executable.discard(self.branch)
        self._edge().drop_branch(here[0])
        self._go(*here)

    def save_as(self, path: str | Path, level: str = "digests") -> None:
        """Write the whole session into a new file.

        Raises:
            SessionError: it cannot be written.
            NotAvailable, DivergedError: level ``full`` without an engine, or the engine does something else now.
        """
        self._leave()
        target = Path(path)
        if target.exists():
            raise SessionError(target, "a file", "a new name", "Choose another name or remove the file.")
        part = target.with_name(target.name + ".part")
        part.unlink(missing_ok=True)
        try:
            with Store(part, "x", level=level, meta=self.meta) as store:
                self._write_all(store)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)

    def _write_all(self, store: Store) -> None:
        recorder = Recorder(store, self.history)
        recorder.begin()
        if store.level == "full":
            self._fill(recorder)
        recorder.retry()
        for note in self._notebook.notes:
            recorder.note(note)
        for branch, seq, text in self._notebook.commands:
            recorder.command(branch, seq, text)
        for branch, seq in self.keyframes.keys:
            recorder.keyframe(branch, seq, "spaced" if seq > 1 else "start", self.keyframes.image((branch, seq)))
        if recorder.trouble is not None:
            raise SessionError(store.path, recorder.trouble, "to write the whole session", "Choose another place.")

    def _fill(self, recorder: Recorder) -> None:
        """Let an engine do everything again while it is written, to get at the tensors."""
        machine = self._tensors.at(0, 1)

        def capture(branch: int, event: Event) -> None:
            if event.seq > recorder.written(branch):
                recorder.capture(branch, event, machine.read)

        def fill(branch: int, hi: int) -> None:
            machine.watch = capture
            try:
                machine.goto(branch, hi)
            finally:
                machine.watch = None

        recorder.fill = fill

    def flush(self) -> None:
        """Acknowledge what is half done too, so that another program may read the file now."""
        if self._recorder is not None and self._tensors.edge is not None:
            self._leave()
            self._recorder.write(self._tensors.edge.branch)

    def pack(self, path: str | Path) -> None:
        """One clean session file with all of this. Raises SessionError."""
        self.flush()
        if self._store is not None and self.trouble is None:
            self._store.pack(path)
        else:
            self.save_as(path)

    def retry_recording(self) -> str | None:
        """Write what is missing after recording stopped; the new trouble, or None."""
        if self._recorder is not None:
            self._leave()
            self._recorder.retry()
        return self.trouble

    def _leave(self) -> None:
        if self._tensors.edge is not None:
            self._tensors.edge.leave()

    def close(self) -> None:
        """Write what is left, a last keyframe and the jump list; close the file. Safe to call twice."""
        store, self._store = self._store, None
        if store is None:
            return
        edge, recorder = self._tensors.edge, self._recorder
        if edge is not None and recorder is not None:
            edge.leave()
            recorder.retry()
            edge.keep("end")
        if recorder is not None and self.jumps.to_text() != (store.meta(JUMPS_KEY) or "[]"):
            recorder.meta(JUMPS_KEY, self.jumps.to_text())
        if recorder is not None and recorder.trouble is not None:
            store.abandon()
            return
        try:
            store.close()
        except SessionError as error:  # every acknowledged round is in the file, only its mark is missing
            self.remarks.append(str(error))
            store.abandon()
