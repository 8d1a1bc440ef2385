"""``judge``: the state of a request (or a snapshot) against what it should be, as a verdict with its evidence.

Three comparisons, in the order of engines.md C.3: the round that made the state, done again from the bytes it began
from, in the same shapes (must be bitwise) and token by token; then golden, everything from scratch. When the round is
right and golden is not, the error is older: the commit point where it began is looked for and judged instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.events import Golden, Place, Rerun
from inspector.analysis.flips import Flip
from inspector.analysis.kinds import Verdict
from inspector.analysis.profile import Candidate, LayerState
from inspector.analysis.verdict import judge as classify
from inspector.judging.floor import Floors, measure
from inspector.judging.judgement import Comparison, Judgement
from inspector.judging.origin import origin
from inspector.judging.picks import flips
from inspector.judging.rounds import Made, made
from inspector.judging.states import Subject, bitwise, equal, read, snapshot, states_of, subject
from inspector.judging.suspects import CONV_LEFT, H_LEFT, of_rows, other_forwards, other_places, seen_before
from inspector.judging.windows import decode_place
from sessions.errors import DivergedError, NotAvailable
from sessions.finding import Finding

if TYPE_CHECKING:
    from sessions.timeline import Timeline

States = Mapping[int, LayerState]
# Kinds with which the tokens of the conv window say nothing more.
NO_WINDOW = ("zero", "nonfinite", "transposed", "swapped_parts", "dtype_drift")


class Judge:
    """Judges states of one timeline. The noise floors of its model are measured when first needed, and kept."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self._floors: Floors | None = None

    @property
    def floors(self) -> Floors:
        """Measured on the open model. Raises NotAvailable without one."""
        if self._floors is None:
            timeline = self.timeline
            self._floors = measure(lambda asked: timeline.compute(asked), timeline.start)
        return self._floors

    def exact(self, about: Subject) -> bool:
        """Whether golden must be met bit for bit."""
        return bitwise(self.timeline.view_at(about.seq, about.branch))

    def request(self, req: int, seq: int | None = None, prove: bool = False) -> Judgement:
        """Judge the live state of a request at an instant (default now). ``prove``: check that nothing was disturbed.

        Raises:
            NotAvailable: no model is open, or the request has no state there.
        """
        about = subject(self.timeline, req, seq)
        before = self.timeline.image_digest(about.seq, about.branch) if prove else None
        result = self._live(about, deep=True)
        if before is not None:
            after = self.timeline.image_digest(about.seq, about.branch)
            result = replace(result, inert=before == after)
        return result

    def place(self, place: Place, seq: int | None = None) -> Judgement:
        """Judge a ring entry or a cached snapshot by its label, or a live state by its slot's owner.

        Raises:
            NotAvailable: nothing can be said about that place.
        """
        view = self.timeline.view_at(self.timeline.now if seq is None else seq)
        if place.kind == "live":
            owner = view.slot_owner.get(place.slot, -1)
            return self.request(owner, seq)
        if place.kind not in ("ring", "prefix"):
            raise NotAvailable(f"{place} has no label to judge it by; judge live, a ring entry or a cached snapshot")
        about = snapshot(self.timeline, place, seq)
        return self._against_golden(about, self._read(about), None)

    def finding(self, finding: Finding) -> Judgement:
        """Judge what a finding is about, at its event: the place it names or that its event wrote, else its request.

        Raises:
            NotAvailable: no state is concerned, or nothing can be said about it.
        """
        timeline = self.timeline
        event = timeline.event(finding.seq)
        place = _named(finding.where)
        written = getattr(event, "dst", None)
        if isinstance(written, Place) and (place is None or place.kind not in ("live", "ring", "prefix")):
            place = written
        if place is not None and place.kind in ("ring", "prefix"):
            if finding.name != "sealed-immutable":
                return self.place(place, finding.seq)
            # what was sealed there counts, not what it was overwritten with
            about = replace(snapshot(timeline, place, finding.seq - 1), seq=finding.seq)
            return self._against_golden(about, self._read(about), None)
        view = timeline.view_at(finding.seq)
        owner = view.slot_owner.get(place.slot, finding.req) if place is not None else finding.req
        judgement = self.request(owner, finding.seq)
        if judgement.right and event.kind == "commit":
            # replay mode: what came back may be right, and the rows that are run again on it not
            after = timeline.events(finding.seq, finding.seq + 256)
            done = next((e.seq for e in after if e.kind == "emit" and e.req == event.req), 0)
            judgement = self.request(owner, done) if done else judgement
        return judgement

    # ------------------------------------------------------------------------------------------------------- inside

    def _read(self, about: Subject) -> dict[int, LayerState]:
        try:
            return read(self.timeline, about.sources, about.seq, about.branch)
        except DivergedError as error:
            raise NotAvailable(str(error)) from error

    def _live(self, about: Subject, deep: bool) -> Judgement:
        found = self._read(about)
        how = made(self.timeline, about)
        step = self._round_again(about, found, how) if how is not None and how.place is not None else None
        if step is not None and not step.right:
            return step
        whole = self._against_golden(about, found, how)
        both = (*(step.comparisons if step is not None else ()), *whole.comparisons)
        if whole.right:
            best = (
                step
                if step is not None and step.verdict.kind == "bitwise" and whole.verdict.kind != "bitwise"
                else whole
            )
            verdict = whole.verdict if not self.exact(about) else best.verdict
            return replace(whole, verdict=verdict, comparisons=both, flips=step.flips if step is not None else ())
        if deep:
            begun = origin(self.timeline, about, self.floors.states, self.exact(about))
            if begun is not None and begun.wrong < about.seq:
                older = self._live(subject(self.timeline, about.req, begun.wrong, about.branch), deep=False)
                if not older.right:
                    return replace(older, older=True, since=older.since or begun.wrong)
            if begun is not None:
                whole = replace(whole, since=whole.since or begun.wrong)
        return replace(whole, comparisons=both)

    def _round_again(self, about: Subject, found: States, how: Made) -> Judgement | None:
        """The round that made the state, from the bytes it began from."""
        timeline = self.timeline
        assert how.place is not None
        rerun = Rerun(req=about.req, place=how.place, position=how.base, tokens=how.fed, form=how.form)
        try:
            rows = timeline.compute(rerun, how.before, about.branch)
            before = read(timeline, (how.place, how.place), how.before, about.branch)
        except (NotAvailable, DivergedError):
            return None
        if how.form == "prefill":
            right = states_of(rows[-1])
        elif 0 <= how.count <= len(rows):
            right = states_of(rows[how.count - 1]) if how.count else before
        else:
            return None
        name = "its round done again from the state it began with"
        suspects = of_rows(before, rows if how.form != "prefill" else (), how)
        verdict = self._classify(about, found, right, suspects, how)
        comparisons = [Comparison(name, verdict)]
        if how.form == "rows" and how.count:
            singles = timeline.compute(
                replace(rerun, form="steps", tokens=how.fed[: how.count]), how.before, about.branch
            )
            single = classify(found, states_of(singles[-1]), suspects, self.floors.states)
            comparisons.append(Comparison("its round done again token by token", single))
        if timeline.start.rollback_mode == "replay" and how.mode == "verify" and 0 < how.count < len(how.fed):
            comparisons += self._replayed(about, found, rerun, how)
        told = () if how.form == "prefill" else flips(timeline, about, rows, how, self.floors.logits)
        return self._finished(about, verdict, tuple(comparisons), how, told)

    def _replayed(self, about: Subject, found: States, rerun: Rerun, how: Made) -> list[Comparison]:
        """The recorded inputs of the accepted rows run again, while they are still there."""
        again = replace(rerun, form="replay", tokens=how.fed[: how.count])
        ends = [e.seq for e in self.timeline.events(how.before, about.seq, about.branch) if e.kind == "verify"]
        if not ends:
            return []
        try:
            # the records are there after the rows; the state they start from is the checkpoint
            place = Place("checkpoint", about.place.slot)
            states = self.timeline.compute(replace(again, place=place), ends[0], about.branch)
        except NotAvailable:
            return []
        verdict = classify(found, states_of(states[-1]), floor=self.floors.states)
        return [Comparison("the recorded inputs of its rows run again", verdict)]

    def _against_golden(self, about: Subject, found: States, how: Made | None) -> Judgement:
        asked = Golden(tokens=about.tokens, chunks=about.chunks, rows=about.rows)
        (golden,) = self.timeline.compute(asked, about.seq, about.branch)
        right = states_of(golden)
        name = f"golden, its {about.position} tokens from scratch"
        verdict = self._classify(about, found, right, {}, how)
        return self._finished(about, verdict, (Comparison(name, verdict),), how, ())

    def _classify(
        self, about: Subject, found: States, right: States, suspects: Mapping[str, Candidate], how: Made | None
    ) -> Verdict:
        """The verdict, with more suspects each time the ones at hand explain nothing."""
        if equal(found, right):
            return classify(found, right)
        known = dict(suspects)
        floor = self.floors.states
        verdict = classify(found, right, known, floor)
        if _explained(verdict):
            return verdict
        if verdict.kind in ("partial_heads", "torn_conv"):
            known |= other_places(self.timeline, about)
            verdict = classify(found, right, known, floor)
            if _explained(verdict):
                return verdict
        known |= seen_before(self.timeline, about, found)
        verdict = classify(found, right, known, floor)
        if _explained(verdict) or how is None:
            return verdict
        known |= other_forwards(self.timeline, about, how)
        verdict = classify(found, right, known, floor)
        for left, kind in ((H_LEFT, "stale_h"), (CONV_LEFT, "stale_conv")):
            if verdict.match.endswith(left):
                verdict = replace(verdict, kind=kind, parts=kind.removeprefix("stale_"))
        return verdict

    def _finished(
        self,
        about: Subject,
        verdict: Verdict,
        comparisons: tuple[Comparison, ...],
        how: Made | None,
        picks: tuple[Flip, ...],
    ) -> Judgement:
        fact = self.timeline.view_at(about.seq, about.branch).states.get(about.place)
        writer = max(fact.h_writer, fact.conv_writer) if fact is not None else 0
        window = self._window(about, verdict)
        since = 0 if verdict.benign else max(writer, self._accepted_at(about, how))
        return Judgement(about, verdict, comparisons, since, writer, False, window, picks, None, how)

    def _accepted_at(self, about: Subject, how: Made | None) -> int:
        """From here on rejected drafts in live are wrong; 0 when the round rejected none."""
        if how is None or how.mode != "verify" or how.count >= len(how.fed):
            return 0
        events = self.timeline.events(how.seq, about.seq, about.branch)
        return next((e.seq for e in events if e.kind == "accept" and e.req == about.req), 0)

    def _window(self, about: Subject, verdict: Verdict) -> str:
        """What the conv window says, where that has a meaning."""
        if verdict.benign or verdict.channels or verdict.kind in NO_WINDOW:
            return ""
        try:
            reading = decode_place(self.timeline, about).reading
        except (NotAvailable, DivergedError, ValueError):
            return ""
        if verdict.kind == "stale_conv" and reading.tokens != verdict.tokens and not reading.unmatched:
            return f"the window of {about.place} reads as the tokens {list(reading.ids)}"
        return reading.text(str(about.place))


def _named(where: str) -> Place | None:
    """The place in a finding's ``where``; the destination when it names a route."""
    try:
        return Place.from_text(where.rsplit(" to ", 1)[-1].split(" ")[0]) if where else None
    except ValueError:
        return None


def _explained(verdict: Verdict) -> bool:
    """Whether a verdict needs no further suspects: benign by bits, a fact, or a candidate that fits bit for bit."""
    if verdict.kind in ("bitwise", "zero", "transposed", "swapped_parts", "nonfinite"):
        return True
    if verdict.kind == "rounding":
        return bool(verdict.match)
    return verdict.confidence >= 1.0
