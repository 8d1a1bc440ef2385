"""Is found something else that is known: the checkpoint, a step, another request's state?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from inspector.analysis.case import Case
from inspector.analysis.kinds import Verdict, numbers
from inspector.analysis.profile import Candidate
from inspector.analysis.shift import ahead


def same_as_candidate(case: Case) -> Verdict | None:
    """All layers and parts bit-equal to a candidate of another position or owner."""
    exact = [label for label in case.candidates if matched(case, label, case.numbers, ("h", "conv"), exactly=True)]
    for label in sorted(exact, key=lambda name: _preference(case.candidates[name])):
        if case.candidates[label].tokens == 0 and not case.candidates[label].owner:
            continue
        return named(case, label, "h+conv", case.numbers, 1.0)
    return None


def _preference(candidate: Candidate) -> tuple[bool, int, str]:
    """Own states before foreign ones, near positions before far and unknown ones."""
    return bool(candidate.owner), abs(candidate.tokens) if candidate.tokens is not None else 1 << 30, candidate.owner


def matched(case: Case, label: str, layers: Iterable[int], parts: Sequence[str], exactly: bool) -> bool:
    """Whether found equals the candidate in these parts of these layers: bit for bit, or within the noise floor."""
    for line in case.lines(layers):
        match = line.matches.get(label)
        if match is None:
            return False
        for part in parts:
            error, equal = (match.h, match.h_equal) if part == "h" else (match.conv, match.conv_equal)
            if not equal and (exactly or error > case.floor.limit(line.layer, part)):
                return False
    return True


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
    matches = [line.matches[label] for line in case.lines(layers)]
    return sum(match.h if part == "h" else match.conv for match in matches for part in parts)


def named(case: Case, label: str, parts: str, layers: tuple[int, ...], confidence: float) -> Verdict:
    """A verdict from the candidate that found equals in ``parts``, the other part being right."""
    candidate = case.candidates[label]
    how = "bit for bit" if confidence == 1.0 else "within the noise floor"
    text = f"{parts} of layers {numbers(layers)} equals {label} {how}"
    if candidate.tokens:
        text += f": {ahead(candidate.tokens)}"
    if candidate.owner:
        kind = "wrong_owner"
        text += f"; it belongs to {candidate.owner}"
    else:
        kind = {"h": "stale_h", "conv": "stale_conv"}.get(parts, "wrong_position")
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
        f"h of layers {numbers(layers)} equals {h} and conv equals {conv}",
        "h+conv",
        layers,
        tokens=mine.tokens if mine.tokens == other.tokens else None,
        owner=owner,
        match=f"{h} (h), {conv} (conv)",
        confidence=0.95 if h_exact and conv_exact else 0.85,
    )
