"""Frames out of a debugger: everything the panes need of one instant, gathered in the worker."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from inspector.describe import Texts, body
from inspector.judging.why import in_order
from inspector.tui.frame import EventRow, Frame, Key, Marks, PoolSample, StopRow, difference
from inspector.tui.ports import DebuggerPort
from inspector.tui.verifyrows import verify_rows
from sessions.finding import Finding
from sessions.view import LedgerView

AROUND = 120
SCAN = 4000
KEPT_SAMPLES = 400
FINDINGS_SHOWN = 50


def newest_first(findings: list[Finding]) -> tuple[Finding, ...]:
    """Findings by event, the last event first; those of one event in the order they were made, invariants before what
    oracles and comparisons found: the first says most directly what is wrong."""
    return tuple(sorted(in_order(findings[-4 * FINDINGS_SHOWN :]), key=lambda finding: -finding.seq))[:FINDINGS_SHOWN]


def found_elsewhere(timeline: Any) -> tuple[tuple[int, int], ...]:
    """(branch, findings) of every other branch that has some where the path of this one does not lead."""
    branches = timeline.branches
    begins = {branch.id: branch.at for branch in branches}
    parents = {branch.id: branch.parent for branch in branches}
    here = timeline.branch
    while here > 0 and here in parents:
        # the path leaves its parent here: what the parent found before is on the path
        begins[parents[here]] = max(begins[parents[here]], begins[here])
        here = parents[here]
    counts = ((number, len(timeline.findings(at + 1, None, number))) for number, at in begins.items())
    return tuple((number, count) for number, count in counts if count and number != timeline.branch)


class Framer:
    """Makes frames. Remembers what is dear to work out again (event rows, the marks of the bar, pool history) by event
    number; forgets it when the branch changes. Belongs to the worker thread."""

    def __init__(self, debugger: DebuggerPort) -> None:
        self.debugger = debugger
        self.before: LedgerView = debugger.timeline.view
        self.changed: frozenset[Key] = frozenset()
        self.stop = ""
        self.stop_kind = ""
        self.running = False
        self.speed = 0.0
        self._rows: dict[int, EventRow] = {}
        self._branch: int | None = None
        self._scanned = 0
        self._rollbacks: list[int] = []
        self._rounds: list[int] = []
        self._samples: deque[PoolSample] = deque(maxlen=KEPT_SAMPLES)
        self._values: dict[str, str] = {}
        self._told: tuple[int, Mapping[int, str]] = (0, {})
        self._elsewhere: tuple[tuple[int, int], ...] = ()

    def moved(self) -> None:
        """A step is over: what differs from the view before it is what changed."""
        view = self.debugger.timeline.view
        self.changed = difference(self.before, view)
        self.before = view

    def frame(self) -> Frame:
        """The present instant."""
        debugger, timeline = self.debugger, self.debugger.timeline
        view: LedgerView = timeline.view
        self._check_branch()
        self._sample(view)
        focus = debugger.focus
        findings = timeline.findings(None, view.seq)
        changed = difference(self.before, view) if self.running else self.changed
        invariants = debugger.invariants
        return Frame(
            view=view,
            mode=timeline.mode,
            source=timeline.source,
            title=debugger.name,
            branch=timeline.branch,
            branches=len(timeline.branches) or 1,
            first=timeline.first,
            last=timeline.last,
            req=debugger.request,
            layer=-1 if focus.layer is None else focus.layer,
            head=-1 if focus.head is None else focus.head,
            findings=newest_first(findings),
            known_findings=len(findings),
            elsewhere=self._found_elsewhere(),
            invariants=len(invariants),
            stop=self.stop,
            stop_kind=self.stop_kind,
            waiting=timeline.waiting,
            running=self.running,
            speed=self.speed,
            stops=self._stops(),
            events=self.rows(view.seq - AROUND, view.seq + AROUND),
            marks=self._marks(),
            history=tuple(sample for sample in self._samples if sample.seq <= view.seq),
            changed=changed,
            recording=self._recording(),
            verify=None if self.running else verify_rows(timeline, view, debugger.request, self._text),
        )

    def _found_elsewhere(self) -> tuple[tuple[int, int], ...]:
        """Other branches with findings that are not on the path of this one, and how many."""
        if not self.running:
            self._elsewhere = found_elsewhere(self.debugger.timeline)
        return self._elsewhere

    def _text(self, token: int) -> str:
        known = self._known(token)
        return f"#{token}" if known is None else known

    def _known(self, token: int) -> str | None:
        """The text of a token: as the run told it, here or later, else as the open model's vocabulary has it."""
        timeline = self.debugger.timeline
        view: LedgerView = timeline.view
        if view.seq >= self._told[0]:
            self._told = (view.seq, view.texts)
        known = view.texts.get(token) or self._told[1].get(token)
        return timeline.text(token) if known is None else str(known)

    def _recording(self) -> str:
        """``rec`` and the file's name while one is written, what is wrong when it no longer is."""
        timeline = self.debugger.timeline
        if timeline.trouble:
            return f"rec stopped: {timeline.trouble}"
        if timeline.path is None or timeline.source != "live":
            return ""
        return f"rec {Path(timeline.path).name}"

    # ------------------------------------------------------------------------------------------------------ events

    def rows(self, low: int, high: int) -> tuple[EventRow, ...]:
        """Described events ``low`` to ``high``, those that exist."""
        timeline = self.debugger.timeline
        low, high = max(low, timeline.first, 1), min(high, timeline.last)
        known = self._rows
        missing = [seq for seq in range(low, high + 1) if seq not in known]
        if missing:
            if len(known) > 20 * AROUND:
                known.clear()
                missing = list(range(low, high + 1))
            # picks that were not emitted have texts too, though the run never told them
            view = replace(timeline.view, texts=Texts(self._known))
            for event in timeline.events(missing[0], missing[-1]):
                known[event.seq] = EventRow(event.seq, event.kind, event.req, body(event, view))
        return tuple(known[seq] for seq in range(low, high + 1) if seq in known)

    def event_of_token(self, index: int) -> int | None:
        """The event at which token ``index`` of the focused request was written; the request itself for its prompt."""
        timeline = self.debugger.timeline
        req = self.debugger.request
        request = timeline.view.requests.get(req)
        if request is None or not 0 <= index < len(request.tokens):
            return None
        kind = "emit" if index >= request.prompt_len else "request"
        high = timeline.view.seq
        while high >= timeline.first:
            low = max(timeline.first, high - SCAN)
            for event in reversed(timeline.events(low, high)):
                if (
                    event.kind == kind
                    and event.req == req
                    and (kind == "request" or event.index == index - request.prompt_len)
                ):
                    return int(event.seq)
            high = low - 1
        return None

    # ------------------------------------------------------------------------------------------------------- marks

    def _check_branch(self) -> None:
        branch = self.debugger.timeline.branch
        if branch != self._branch:
            self._branch = branch
            self._rows.clear()
            self._scanned, self._rollbacks, self._rounds = 0, [], []
            self._samples.clear()

    def scan(self) -> bool:
        """Look at some more events for the timeline bar. True while there are more: a long recording is read a piece
        at a time, when nobody waits."""
        timeline = self.debugger.timeline
        self._check_branch()
        if self._scanned >= timeline.last:
            return False
        low = max(self._scanned + 1, timeline.first)
        high = min(timeline.last, low + SCAN - 1)
        for event in timeline.events(low, high):
            if event.kind == "rollback":
                self._rollbacks.append(event.seq)
            elif event.kind == "round":
                self._rounds.append(event.seq)
        self._scanned = high
        return bool(high < timeline.last)

    def _marks(self) -> Marks:
        timeline = self.debugger.timeline
        if timeline.last - self._scanned <= SCAN:
            self.scan()
        bookmarks = tuple(sorted((seq, name) for name, seq in timeline.bookmarks.items()))
        lines = (timeline.branch, 0)
        keyframes = tuple(sorted({seq for branch, seq in timeline.keyframes.keys if branch in lines}))
        return Marks(
            keyframes=keyframes,
            bookmarks=bookmarks,
            rollbacks=tuple(self._rollbacks),
            findings=tuple(finding.seq for finding in timeline.findings()),
            rounds=(),
        )

    def _sample(self, view: LedgerView) -> None:
        pools = tuple((name, pool.used, pool.total) for name, pool in view.pools.items())
        samples = self._samples
        if samples and samples[-1].seq >= view.seq:
            return
        if pools:
            samples.append(PoolSample(view.seq, pools))

    # ------------------------------------------------------------------------------------------------------- stops

    def _stops(self) -> tuple[StopRow, ...]:
        debugger = self.debugger
        out: list[StopRow] = []
        now = debugger.timeline.now
        for point in debugger.stops:
            letter = "w" if "watch" in point.kind else "t" if point.kind == "trace" else "b"
            hit = bool(point.hits) and point.hits[-1] == now
            out.append(
                StopRow(f"{letter}{point.number}", f"{point.kind} {point.text}", len(point.hits), hit=hit,
                        enabled=point.enabled)
            )  # fmt: skip
        if not self.running:
            self._evaluate()
        for number, expression in debugger.displays.items():
            value, before = self._shown.get(number, ("", ""))
            out.append(StopRow(f"d{number}", expression.source, value=value, before=before))
        return tuple(out)

    @property
    def _shown(self) -> dict[int, tuple[str, str]]:
        return {int(name): tuple(text.split("\0"))[:2] for name, text in self._values.items()}  # type: ignore[misc]

    def _evaluate(self) -> None:
        """Values of the displays now, and what they were at the last stop."""
        lines = self.debugger.display_lines()
        fresh: dict[str, str] = {}
        for line in lines:
            number, _, rest = line.partition(": ")
            value = rest.rpartition(" = ")[2]
            old = self._values.get(number, "\0").split("\0")
            fresh[number] = f"{value}\0{old[0] if old[0] != value else ''}"
        self._values = fresh
