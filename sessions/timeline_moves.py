"""Moving on a timeline: by steps, to a place, until a stop; both ways."""

from __future__ import annotations

from collections.abc import Callable

from engine.events import Event, RunRound
from sessions.edge import Step
from sessions.errors import NotAvailable
from sessions.finding import Finding
from sessions.machine import REPORT_EVERY
from sessions.record import PAGE
from sessions.stop import Cancel, Predicate, Stop
from sessions.timeline_look import TimelineLook
from sessions.units import counted_from, ends, search_back
from sessions.view import LedgerView


class TimelineMoves(TimelineLook):
    """At the live edge a forward step executes, before it a forward step moves."""

    def step(
        self, unit: str, count: int = 1, back: bool = False, req: int | None = None, cancel: Cancel | None = None
    ) -> Stop:
        """``count`` units (event, token, round, chunk, request) forwards or back, of request ``req`` only when given.

        Forwards at the live edge this executes; a broken invariant ends the walk after the unit it happened in. Tokens
        back are counted from the newest token at or before now, so that ``count`` steps leave ``count`` fewer."""
        if unit == "request" and req is None and not back:
            req = next(iter(self.runnable()), None)
        test = ends(unit, req, back)
        self.jumps.leave(stepping=True)
        if back and count > 0:
            self.now = counted_from(self.history.record, self.branch, self.now, unit, test)
        for _ in range(count):
            stop = self._back(test) if back else self._told(lambda: self._forward(test, cancel))
            if stop.reason != "step" or stop.finding is not None:
                return stop
        return stop if count > 0 else Stop("step", self.now)

    def _back(self, test: Callable[[Event], bool]) -> Stop:
        found = search_back(self.history.record, self.branch, self.now, test)
        self.now = found if found is not None else min(self.first, self.last)
        if found is None:
            return Stop("start", self.now, "the beginning of the record")
        return Stop("step", self.now)

    def _forward(self, test: Callable[[Event], bool], cancel: Cancel | None) -> Stop:
        finding: Finding | None = None
        walked = 0
        while True:
            event = self._next_event(cancel)
            if isinstance(event, Stop):
                return event if finding is None else Stop(event.reason, event.seq, event.text, event.hits, finding)
            walked += 1
            finding = finding or self.finding_at(event.seq)
            if test(event):
                self._settle(event)
                return Stop("step", self.now, finding=finding)
            if walked % REPORT_EVERY == 0 and cancel is not None and cancel():
                return Stop("cancelled", self.now, "cancelled", finding=finding)

    def _next_event(self, cancel: Cancel | None) -> Event | Stop:
        """One event further: moving in the past, executing at the edge."""
        if self.now < self.last:
            self.now += 1
            return self.history.event(self.branch, self.now)
        step = self._execute(cancel)
        return step if isinstance(step, Stop) else step.event

    def _execute(self, cancel: Cancel | None) -> Step | Stop:
        """One new event at the edge, beginning the next round when no action is open."""
        edge = self._tensors.edge
        if edge is None or self.branch not in self._executable:
            text = "the record ends here"
            return Stop("edge", self.now, text + ("; an action opens a branch" if self.can_act else ""))
        edge.come_back(cancel)
        step = edge.advance() if edge.open else None
        while step is None:
            if not edge.machine.engine.runnable():
                return Stop("idle", self.now, "no request has work left")
            try:
                step = edge.begin(RunRound())
            except ValueError as error:
                return Stop("refused", self.now, str(error))
        self.now = step.event.seq
        return step

    def _settle(self, event: Event) -> None:
        edge = self._tensors.edge
        if edge is not None and event.kind == "round_end" and self.at_edge:
            edge.settle()

    def seek(self, seq: int, branch: int | None = None) -> Stop:
        """Go to event ``seq`` (of another branch when given). Needs no engine."""
        try:
            self.history.record.branch(self.branch if branch is None else branch)
            self.history.require(self.branch if branch is None else branch, seq)
        except NotAvailable as error:
            return Stop("refused", self.now, str(error))
        self.jumps.leave()
        self._go(self.branch if branch is None else branch, seq)
        return Stop("moved", self.now, finding=self.finding_at(self.now))

    def checkout(self, branch: int) -> Stop:
        """Go to the newest event of another branch."""
        try:
            self.history.record.branch(branch)
        except NotAvailable as error:
            return Stop("refused", self.now, str(error))
        return self.seek(self.history.record.last(branch), branch)

    def run(
        self,
        stops: Predicate | None = None,
        back: bool = False,
        limit: int | None = None,
        cancel: Cancel | None = None,
        findings: bool = True,
    ) -> Stop:
        """Walk until ``stops(before, event, after)`` gives a text, an invariant breaks (``findings``), ``limit`` events
        are walked, or there is nothing more. Backwards: the latest hit before now."""
        self.jumps.leave()
        if back:
            return self._run_back(stops, limit, cancel, findings)
        return self._told(lambda: self._run_forward(stops, limit, cancel, findings))

    def _run_forward(self, stops: Predicate | None, limit: int | None, cancel: Cancel | None, findings: bool) -> Stop:
        walked = 0
        while limit is None or walked < limit:
            if walked % REPORT_EVERY == 0 and cancel is not None and cancel():
                return Stop("cancelled", self.now, "cancelled")
            if self.now < self.last:
                seq = self.now + 1
                before, event = self.history.view(self.branch, self.now), self.history.event(self.branch, seq)
                after = self.history.view(self.branch, seq)
                self.now = seq
            else:
                step = self._execute(cancel)
                if isinstance(step, Stop):
                    return step
                before, event, after = step.before, step.event, step.after
            walked += 1
            stop = self._hit(before, event, after, stops, findings)
            if stop is not None:
                self._settle(event)
                return stop
        return Stop("limit", self.now, f"{walked} events walked")

    def _hit(
        self, before: LedgerView, event: Event, after: LedgerView, stops: Predicate | None, findings: bool
    ) -> Stop | None:
        text = stops(before, event, after) if stops is not None else None
        finding = self.finding_at(event.seq)
        if text is not None:
            return Stop("stop", event.seq, text, (text,), finding)
        if finding is not None and findings:
            return Stop("finding", event.seq, finding.text, (finding.name,), finding)
        return None

    def _run_back(self, stops: Predicate | None, limit: int | None, cancel: Cancel | None, findings: bool) -> Stop:
        lowest = 1 if limit is None else max(1, self.now - limit)
        hi = self.now - 1
        while hi >= lowest:
            if cancel is not None and cancel():
                return Stop("cancelled", self.now, "cancelled")
            lo = max(lowest, hi - hi % PAGE)
            for before, event, after in reversed(list(self.history.steps(self.branch, lo, hi))):
                self.now = event.seq
                stop = self._hit(before, event, after, stops, findings)
                if stop is not None:
                    return stop
            hi = lo - 1
        if limit is not None and self.now > 1:
            return Stop("limit", self.now, f"{limit} events walked")
        self.now = min(self.first, self.last)
        return Stop("start", self.now, "the beginning of the record")
