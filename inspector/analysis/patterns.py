"""What the touched layers look like: the h/conv pair, shifts of the window, likeness of the heads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from inspector.analysis.candidates import explained, named, split_candidates
from inspector.analysis.case import Case
from inspector.analysis.facts import flat_drift
from inspector.analysis.kinds import Verdict, listed
from inspector.analysis.profile import LayerError

# A head that forgets slowly keeps a trace of the text it has read. Mean of 1 - cosine over the most alike eighth of all
# heads: states of one sequence 4 to 12 tokens apart scored 0.02 to 0.56 (median 0.14), of two sequences 0.18 to 0.9
# (median 0.69); this line is right in 96 of 100 (1,084 pairs of a small trained Qwen3.5 model). Never more than a hint.
UNRELATED = 0.41
SURE = 0.12
# A conv column of another token is off by about 1.4, inherited errors stay below this.
GROSS = 0.7


def pattern(case: Case) -> Verdict:
    """The touched layers by h/conv pair, candidates and shifts."""
    layers = case.touched or case.numbers
    off_h = tuple(n for n in layers if n in case.off["h"])
    off_conv = tuple(n for n in layers if n in case.off["conv"])
    parts = [part for part, off in (("h", off_h), ("conv", off_conv)) if off]
    known = explained(case, layers, parts) if parts else None
    if known is not None:
        label, exactly = known
        return named(case, label, "+".join(parts), layers, 1.0 if exactly else 0.9)
    if off_h and off_conv:
        return _both(case, layers, off_h, off_conv)
    if off_conv:
        return _conv_alone(case, layers)
    return _h_alone(case, layers) if off_h else Verdict("unknown", "the difference fits no rule", confidence=0.2)


def _h_alone(case: Case, layers: tuple[int, ...]) -> Verdict:
    drift = flat_drift(case, within=False) if len(layers) == len(case.profile) else None
    if drift is not None:
        return drift
    lines = case.lines(layers)
    errors = [line.h.error for line in lines]
    over = max(line.h.error / case.floor.limit(line.layer, "h") for line in lines)
    text = (
        f"h of {listed('layer', layers)} is off by {min(errors):.2g} to {max(errors):.2g} while conv agrees within "
        f"{max(line.conv.error for line in lines):.1e}"
    )
    if not case.given("conv", layers):
        text = f"h of {listed('layer', layers)} is off by {min(errors):.2g} to {max(errors):.2g}; no conv was given"
        return Verdict("unknown", text, "h", layers, confidence=0.3)
    if case.profile[0].repeats and case.profile[0].conv.compared:
        text += "; but the window of the first layer repeats itself and cannot tell positions apart"
        return Verdict("stale_h", text, "h", layers, confidence=0.4)
    if over <= 1.0:
        text += ": bit-equal windows rule out rounding of activations, yet it is small; another kernel?"
        return Verdict("unknown", text, "h", layers, confidence=0.3)
    if over < 2.0:
        return Verdict("unknown", f"{text}: only just beyond {case.floor.source}", "h", layers, confidence=0.3)
    return Verdict("stale_h", f"{text}: h did not move with conv", "h", layers, confidence=0.8)


def _conv_alone(case: Case, layers: tuple[int, ...]) -> Verdict:
    tokens, text = _shifted(case, layers)
    if not case.given("h", layers):
        kind = "unknown" if tokens is None else "wrong_position"
        seen = text or f"conv of {listed('layer', layers)} is off at every shift"
        return Verdict(kind, f"{seen}; no h was given to pair it with", "conv", layers, tokens=tokens, confidence=0.5)
    if tokens is not None:
        return Verdict("stale_conv", f"{text} while h agrees", "conv", layers, tokens=tokens, confidence=0.9)
    changed = _changed_columns(case, layers)
    if changed:
        return Verdict(
            "unknown", f"{changed}, h agrees: no shift of the window explains it", "conv", layers, confidence=0.4
        )
    errors = [line.conv.error for line in case.lines(layers)]
    text = (
        f"conv of {listed('layer', layers)} is off by {min(errors):.2g} to {max(errors):.2g} at every shift, h agrees"
    )
    return Verdict("stale_conv", f"{text}: conv did not move with h", "conv", layers, confidence=0.6)


def _both(case: Case, layers: tuple[int, ...], off_h: tuple[int, ...], off_conv: tuple[int, ...]) -> Verdict:
    tokens, shifted = _shifted(case, off_conv)
    split = split_candidates(case, layers)
    if split is not None:
        return split
    lines = case.lines(layers)
    h_range = f"h error {min(line.h.error for line in lines):.2g} to {max(line.h.error for line in lines):.2g}"
    if tokens is not None:
        return Verdict("wrong_position", f"{shifted}; {h_range}", "h+conv", layers, tokens=tokens, confidence=0.9)
    drift = flat_drift(case, within=False)
    if drift is not None:
        return drift
    first = layers[0]
    if first in off_h and first not in off_conv and case.given("conv", (first,)):
        text = f"in layer {first} h is off and conv is right; deeper layers inherit the error ({h_range})"
        return Verdict("stale_h", text, "h", layers, confidence=0.6)
    if first in off_conv and first not in off_h and case.given("h", (first,)):
        text = f"in layer {first} conv is off and h is right; deeper layers inherit the error ({h_range})"
        return Verdict("stale_conv", text, "conv", layers, confidence=0.6)
    unlike = _unlike(lines)
    changed = _changed_columns(case, off_conv[:1])
    if changed and unlike < UNRELATED:
        return Verdict(
            "unknown", f"{changed}: another token was absorbed there; {h_range}", "h+conv", layers, confidence=0.5
        )
    windows = median(line.conv.error for line in case.lines(off_conv))
    seen = f"no shift of the window matches (conv error {windows:.2g}) and {h_range}"
    if windows <= GROSS:
        return Verdict("unknown", seen, "h+conv", layers, confidence=0.3)
    confidence = 0.6 if abs(unlike - UNRELATED) > SURE else 0.4
    score = f"1 - cosine of the most alike heads is {unlike:.2f}"
    if unlike >= UNRELATED:
        text = f"{seen}; {score}, as between two sequences: another request's state"
        return Verdict("wrong_owner", text, "h+conv", layers, confidence=confidence)
    text = f"{seen}; {score}, as within one sequence: a position beyond the window"
    return Verdict("wrong_position", text, "h+conv", layers, confidence=confidence)


def _unlike(lines: Sequence[LayerError]) -> float:
    """Mean of 1 - cosine over the most alike eighth of the heads."""
    scores = sorted(score for line in lines for score in line.h.unlike)
    few = scores[: max(1, len(scores) // 8)]
    return sum(few) / len(few) if few else 1.0


def _shifted(case: Case, layers: Iterable[int]) -> tuple[int | None, str]:
    """The shift on which the windows of most layers agree. A window that repeats itself has no vote."""
    votes: dict[int, list[LayerError]] = {}
    voters = 0
    for line in case.lines(layers):
        if line.shift is None or line.shift.periodic:
            continue
        voters += 1
        tokens = line.shift.matches(case.floor.limit(line.layer, "conv"), case.limit(line.layer, "conv"))
        if tokens is not None:
            votes.setdefault(tokens, []).append(line)
    if not votes:
        return None, ""
    tokens, lines = max(votes.items(), key=lambda item: (len(item[1]), -abs(item[0])))
    shift = lines[0].shift
    if shift is None or len(lines) * 2 <= voters:
        return None, ""
    text = (
        f"conv of {len(lines)} of {voters} layers matches shifted, {shift.text()} (error {shift.best.error:.1e}, "
        f"{shift.unshifted.error:.2g} unshifted)"
    )
    return tokens, text


def _changed_columns(case: Case, layers: Iterable[int]) -> str:
    """The few columns that differ, grossly, while the others agree in place in all of these layers; else ""."""
    found: set[tuple[int, ...]] = set()
    for line in case.lines(layers):
        limit = case.floor.limit(line.layer, "conv")
        wrong = tuple(len(line.columns) - 1 - i for i, error in enumerate(line.columns) if error > limit)
        if not wrong or 4 * len(wrong) > len(line.columns) or min(line.columns[-1 - back] for back in wrong) < GROSS:
            return ""
        found.add(wrong)
    if len(found) != 1:
        return ""
    names = ", ".join(f"t-{back}" if back else "t" for back in sorted(next(iter(found))))
    return f"the conv window agrees except for column {names}"
