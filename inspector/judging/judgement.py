"""What a judgement says: the verdict, the comparisons behind it, and one sentence."""

from __future__ import annotations

from dataclasses import dataclass

from inspector.analysis.flips import Flip
from inspector.analysis.kinds import Verdict
from inspector.analysis.shift import ahead
from inspector.judging.rounds import Made
from inspector.judging.states import Subject


@dataclass(frozen=True, slots=True)
class Comparison:
    """One comparison: with what, and the verdict."""

    name: str
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Judgement:
    """``verdict`` is the answer; ``comparisons`` all that were made. ``since`` is the event after which the state is
    wrong (0: it is right, or not known), ``writer`` the event that wrote it last. ``older``: judged is the commit point
    where the error began, not the present. ``window`` reads the conv window; ``flips`` picks that another computation
    would not have made; ``inert`` whether the judgement left the engine's bytes alone (None: not looked at)."""

    about: Subject
    verdict: Verdict
    comparisons: tuple[Comparison, ...]
    since: int = 0
    writer: int = 0
    older: bool = False
    window: str = ""
    flips: tuple[Flip, ...] = ()
    inert: bool | None = None
    made: Made | None = None

    @property
    def right(self) -> bool:
        return self.verdict.benign

    def sentence(self) -> str:
        """The answer in one sentence."""
        verdict = self.verdict
        kind = verdict.kind.replace("_", " ")
        if verdict.kind == "bitwise":
            return f"{self.about.place} of r{self.about.req} is right: {verdict.evidence} to {self.comparisons[0].name}"
        if self.right:
            return f"{self.about.place} of r{self.about.req} is right up to rounding: {verdict.evidence}"
        words = [kind]
        if verdict.tokens:
            parts = verdict.parts.replace("+", " and ")
            words.append(f"{parts or 'state'} {ahead(verdict.tokens)}")
        what = "what differs is" if verdict.inner else "it is"
        words += [f"{what} the state of {verdict.owner}" if verdict.owner else "", verdict.dtype]
        since = f", wrong since event {self.since}" if self.since else ""
        shown = "; ".join(word for word in words if word)
        return f"{self.about.place} of r{self.about.req}: {shown}{since}. {verdict.evidence}"
