"""Is found something else that is known: the checkpoint, a step, another request's state?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from inspector.analysis.case import Case
from inspector.analysis.kinds import Verdict, listed
from inspector.analysis.profile import PARTS, Candidate, LayerError, Match
from inspector.analysis.shift import ahead


def same_as_candidate(case: Case) -> Verdict | None:
    """All layers and parts that were compared bit-equal to a candidate of another position or owner."""
    exact = [label for label in case.candidates if matched(case, label, case.numbers, case.parts, exactly=True)]
    for label in sorted(exact, key=lambda name: _preference(case.candidates[name])):
        if case.candidates[label].tokens == 0 and not case.candidates[label].owner:
            continue
        return named(case, label, "+".join(case.parts), case.numbers, 1.0)
    return None


def _preference(candidate: Candidate) -> tuple[bool, int, str]:
    """Own states before foreign ones, near positions before far and unknown ones."""
    return bool(candidate.owner), abs(candidate.tokens) if candidate.tokens is not None else 1 << 30, candidate.owner


def matched(case: Case, label: str, layers: Iterable[int], parts: Sequence[str], exactly: bool) -> bool:
    """Whether found equals the candidate in these parts of these layers: bit for bit, or within the noise floor.

    Parts that found and expected do not both have are no question; a part the candidate lacks is never equal, and where
    nothing is left to compare nothing matches."""
    asked = 0
    for line, part, match in _compared(case, label, layers, parts):
        asked += 1
        if match is None:
            return False
        error, equal = (match.h, match.h_equal) if part == "h" else (match.conv, match.conv_equal)
        if not equal and (exactly or error > case.floor.limit(line.layer, part)):
            return False
    return asked > 0


def _compared(
    case: Case, label: str, layers: Iterable[int], parts: Sequence[str]
) -> Iterator[tuple[LayerError, str, Match | None]]:
    """The compared parts of these layers, each with what the candidate is against found there."""
    for line in case.lines(layers):
        for part in parts:
            if line.part(part).compared:
                yield line, part, line.matches.get(label)


def explained(case: Case, layers: tuple[int, ...], parts: Sequence[str]) -> tuple[str, bool] | None:
    """The best candidate that explains these parts of these layers, and whether it does so bit for bit.

    Within the noise floor several may match; the nearest in value wins then."""
    for exactly in (True, False):
        fit = [label for label in case.candidates if matched(case, label, layers, parts, exactly)]
        if fit:
            return min(
                fit, key=lambda label: (_distance(case, label, layers, parts), *_preference(case.candidates[label]))
            ), exactly
    return None


def _distance(case: Case, label: str, layers: tuple[int, ...], parts: Sequence[str]) -> float:
    found = _compared(case, label, layers, parts)
    return sum(match.h if part == "h" else match.conv for _, part, match in found if match is not None)


def named(case: Case, label: str, parts: str, layers: tuple[int, ...], confidence: float) -> Verdict:
    """A verdict from the candidate that found equals in ``parts``, the other part being right, or not given."""
    candidate = case.candidates[label]
    how = "bit for bit" if confidence == 1.0 else "within the noise floor"
    text = f"{parts} of {listed('layer', layers)} equals {label} {how}"
    if candidate.tokens:
        text += f": {ahead(candidate.tokens)}"
    if candidate.owner:
        kind = "wrong_owner"
        text += f"; it belongs to {candidate.owner}"
    else:
        other = next((part for part in PARTS if part not in parts.split("+")), "")
        paired = bool(other) and case.given(other, layers)
        kind = f"stale_{parts}" if paired else "wrong_position"
        if other and not paired:
            text += f"; no {other} was given to pair it with"
    return Verdict(
        kind,
        text,
        parts=parts,
        layers=layers,
        tokens=candidate.tokens,
        owner=candidate.owner,
        match=label,
        confidence=confidence,
    )


def split_candidates(case: Case, layers: tuple[int, ...]) -> Verdict | None:
    """h from one candidate, conv from another."""
    ones = [explained(case, layers, (part,)) for part in ("h", "conv")]
    if ones[0] is None or ones[1] is None:
        return None
    (h, h_exact), (conv, conv_exact) = ones[0], ones[1]
    mine, other = case.candidates[h], case.candidates[conv]
    owner = mine.owner or other.owner
    return Verdict(
        "wrong_owner" if owner else "wrong_position",
        f"h of {listed('layer', layers)} equals {h} and conv equals {conv}",
        "h+conv",
        layers,
        tokens=mine.tokens if mine.tokens == other.tokens else None,
        owner=owner,
        match=f"{h} (h), {conv} (conv)",
        confidence=0.95 if h_exact and conv_exact else 0.85,
    )
