"""Pane 7: breakpoints, watches, displays, and the invariants that are broken now."""

from __future__ import annotations

from inspector.text import plural
from inspector.tui.frame import Frame, StopRow
from inspector.tui.panes.facts import consequence
from inspector.tui.text import Line, Span, between, visible, wrap
from inspector.tui.widgets.pane import Content, Pane, Row


class StopsPane(Pane):
    """What makes the debugger stop, and what it found."""

    NUMBER = "7"
    NAME = "stops and watches"
    SUMMARY = "breakpoints, watched values, and what is broken now"
    HELP_TEXT = """\
!     an invariant that does not hold now: what it means, what was expected, what was found; :why explains it
      Below: findings on other branches; Enter there goes to that branch
b1    a breakpoint: what it stops on, its condition, how often it was hit
w1    a watch: stops when the value changes; the value before stands in brackets
d1    a display: shown, never stops
▸     the stop that was hit last
b stops at what the cursor is on in any pane; w watches it. :break, :watch, :display take expressions.
Enter on a finding goes to the event where it broke."""

    def build(self, frame: Frame, width: int, height: int) -> Content:
        rows: list[Row] = []
        for finding in frame.findings:
            where = f" {finding.where}" if finding.where else ""
            head: Line = ((" ! ", "bad"), (visible(finding.name), "bad"), (visible(where), "dim"))
            rows.append(Row(between(head, ((f"@{finding.seq} ", "accent"),), width), ("event", finding.seq)))
            told = consequence(frame, finding)
            if finding.text or not (finding.expected or finding.found):
                sentence: Line = (("   ", ""), (visible(told), "text"))
                rows += [Row(line, ("event", finding.seq)) for line in wrap(sentence, width, 3)]
            if finding.expected or finding.found:
                expected: Line = (("   expected ", "faint"), (visible(finding.expected), "good"))
                found: Line = (("   found    ", "faint"), (visible(finding.found), "bad"))
                rows += [Row(expected, ("event", finding.seq)), Row(found, ("event", finding.seq))]
        for number, count in frame.elsewhere:
            told = f"on branch {number}: {plural(count, 'finding')}"
            rows.append(Row(((" ! ", "bad"), (told, "branch")), ("branch", number)))
        rows += [Row(self._stop(row, width), ("stop", row.name)) for row in frame.stops]
        if not rows:
            rows = [Row(((" nothing broken, no stops set", "faint"),)), Row(((" b on a row sets one", "faint"),))]
        enabled = sum(row.enabled for row in frame.stops)
        title: Line = ((f"{enabled}", "dim"),) if frame.stops else ()
        note: Line = ((f"{len(frame.findings)} broken !", "bad"),) if frame.findings else ()
        return Content(title, note, rows=tuple(rows))

    def _stop(self, row: StopRow, width: int) -> Line:
        role = "faint" if not row.enabled else "strong" if row.hit else "text"
        left: list[Span] = [("▸" if row.hit else " ", "key"), (f"{row.name} ", "accent" if row.enabled else "faint")]
        left.append((visible(row.text), role))
        right: list[Span] = []
        if row.value:
            changed = row.before != "" and row.before != row.value
            right.append((visible(row.value), "changed" if changed else "strong"))
            if changed:
                right.append((f" (was {visible(row.before)}) *", "dim"))
        if row.hits:
            right.append((f"  {row.hits} hit{'s' if row.hits > 1 else ''}", "warn" if row.hit else "dim"))
        if not row.enabled:
            right.append(("  off", "faint"))
        return between(left, (*right, (" ", "")), width)
