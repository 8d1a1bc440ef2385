"""The rule for rounding: inside the noise floor everywhere, or a little beyond it in the manner of rounding."""

from __future__ import annotations

from inspector.analysis.candidates import matched
from inspector.analysis.case import Case
from inspector.analysis.kinds import Verdict

# Rounding beyond the limit is still rounding when the first layer is inside, no layer jumps, and it is not far beyond.
JUMP, BEYOND = 4.0, 4.0


def rounding(case: Case) -> Verdict | None:
    excused = bool(case.touched) and _grown(case)
    if case.touched and not excused:
        return None
    conv = max(line.conv.error for line in case.profile)
    lines = [line for line in case.profile if line.h.compared]
    first, top = (lines[0].h.error, max(line.h.error for line in lines)) if lines else (0.0, 0.0)
    shape = "grows with depth to" if top > 2.0 * first else "stays at"
    words = [f"h error starts at {first:.1e} in layer {lines[0].layer} and {shape} {top:.1e}"] if lines else []
    words += [f"conv is within {conv:.1e}"] if case.has["conv"] else []
    label = next(
        (
            label
            for label, candidate in case.candidates.items()
            if candidate.tokens == 0
            and not candidate.owner
            and matched(case, label, case.numbers, case.parts, exactly=True)
        ),
        "",
    )
    text = f"{', '.join(words)}: {'a little beyond' if excused else 'inside'} {case.floor.source}"
    if top == conv == 0.0:
        text = "all values are equal, but not bit for bit: signs of zeros differ"
    if label:
        text += f"; found equals {label} bit for bit"
    confidence = 0.6 if excused else 0.95 if case.floor.measured else 0.8
    return Verdict("rounding", text, match=label, confidence=confidence)


def _grown(case: Case) -> bool:
    """Beyond the limit, but in the manner of rounding: first layer inside, gradual growth, never far beyond."""
    first = case.profile[0]
    if first.layer in case.touched or first.h.error == 0.0:
        return False
    running = first.h.error
    for line in case.profile[1:]:
        for part in ("h", "conv"):
            if line.part(part).error > BEYOND * case.limit(line.layer, part):
                return False
        if line.layer in case.off["h"] and line.h.error > JUMP * running:
            return False
        running = max(running, line.h.error)
    return True
