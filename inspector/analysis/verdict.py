"""What kind of difference is it? Two states that should be equal go in, a verdict with its evidence comes out.

The rules are those of engines.md C.3, thresholds from C.4 (``noise`` has the noise floors):

* rounding starts small at the first recurrent layer and grows with depth; corruption is large there already;
* h and conv are read as a pair: h off alone is a stale h, conv off alone a stale conv, both off a wrong position,
  both unlike in every head a wrong owner, h error exactly 1 a zero state;
* a round trip through bfloat16 costs 1.7e-3, through float16 2.1e-4, flat over the layers;
* a transposed h keeps norm and singular values;
* h and conv can be exchanged, and a state can be right in some heads or channels only: what the others are is judged
  by them alone.

Facts come before patterns: equality with a candidate, with a cast, with a transpose or with a shifted window decides
first. Patterns follow, and the confidence says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import islice

from inspector.analysis.arrays import Tensor, fits, flat
from inspector.analysis.candidates import same_as_candidate
from inspector.analysis.case import Case, largest
from inspector.analysis.exchange import swapped
from inspector.analysis.facts import bitwise, cast, flat_drift, nonfinite, transposed, zero
from inspector.analysis.kinds import BENIGN, KINDS, Verdict, differ, listed
from inspector.analysis.mixture import mixed
from inspector.analysis.noise import NoiseFloor, default_floor
from inspector.analysis.patterns import pattern
from inspector.analysis.profile import Candidate, LayerState, States, measure
from inspector.analysis.rounding import rounding

__all__ = ["BENIGN", "KINDS", "Candidate", "LayerState", "NoiseFloor", "States", "Verdict", "judge"]


def judge(
    found: States,
    expected: States,
    candidates: Mapping[str, Candidate] | None = None,
    floor: NoiseFloor | None = None,
    arithmetic: str = "",
) -> Verdict:
    """Classify the difference between two states claimed equal.

    Args:
        found, expected: by model layer number; parts that are None are left out of the comparison.
        candidates: what found might be instead, by label.
        floor: measured limits for rounding; None takes defaults by ``arithmetic``.
        arithmetic: dtype of the activations; "" reads it off the conv windows (their values are projections).

    Raises:
        TensorError: no common layer, no part that both have, or shapes that cannot be compared.
        ValueError: ``arithmetic`` has no default limits.
    """
    profile = measure(found, expected, candidates or {})
    limits = floor or default_floor((line.layer for line in profile), arithmetic or _arithmetic(found, expected))
    case = Case(profile, limits, candidates or {}, found, expected)
    for rule in RULES:
        verdict = rule(case)
        if verdict is not None:
            return replace(verdict, profile=profile, flags=tuple(dict.fromkeys((*verdict.flags, *case.flags))))
    raise AssertionError("the last rule always answers")


def _arithmetic(found: States, expected: States) -> str:
    """The lowest dtype that holds the conv values of the first layers of one side: they are outputs of projections."""
    names: list[str] = []
    for states in (found, expected):
        windows = [states[layer].conv for layer in islice(sorted(states), 3)]
        told = [window for window in windows if window is not None and _any(window)]
        names.append(next((d for d in ("bfloat16", "float16") if told and all(fits(w, d) for w in told)), "float32"))
    return min(names, key=("bfloat16", "float16", "float32").index)


def _any(tensor: Tensor) -> bool:
    return bool(flat(tensor).values.any())


def _decide(case: Case) -> Verdict:
    """The last rule: the pattern of the touched layers, named partial when others are clearly right."""
    verdict = pattern(case)
    if case.partial and verdict.kind != "dtype_drift":
        rest = max(largest(line) for line in case.profile if line.layer not in case.touched)
        others = f"differ by {rest:.1e} at most" if rest else "are equal"
        where = (
            f"only {listed('layer', case.touched)} of {len(case.profile)} {differ(case.touched)}, the others {others}"
        )
        if len(case.touched) > 1 and case.touched == case.numbers[-len(case.touched) :]:
            where += f"; it starts in layer {case.touched[0]}, deeper layers may inherit it"
        return replace(verdict, kind="partial_layers", inner=verdict.kind, evidence=f"{where}; {verdict.evidence}")
    return verdict


Rule = Callable[[Case], Verdict | None]
RULES: tuple[Rule, ...] = (
    nonfinite,
    bitwise,
    zero,
    transposed,
    cast,
    same_as_candidate,
    swapped,
    lambda case: flat_drift(case, within=True),
    rounding,
    lambda case: mixed(case, judge),
    _decide,
)
