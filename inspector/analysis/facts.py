"""Rules that decide by facts: not finite, bit-equal, zero, transposed, cast to a lower dtype."""

from __future__ import annotations

from statistics import median

from inspector.analysis.case import Case
from inspector.analysis.kinds import Verdict, differ, listed
from inspector.analysis.profile import LayerError, PartError

# Errors of one round trip of h through a dtype (engines.md C.4), and the spread over layers that still counts as flat.
DRIFT = {"bfloat16": 1.7e-3, "float16": 2.1e-4}
DRIFT_SPREAD = 2.5


def nonfinite(case: Case) -> Verdict | None:
    bad = [line for line in case.profile if line.h.bad_found + line.conv.bad_found > 0]
    if not bad:
        return None
    count = sum(line.h.bad_found + line.conv.bad_found for line in bad)
    parts = "+".join(part for part in ("h", "conv") if any(line.part(part).bad_found for line in bad))
    layers = tuple(line.layer for line in bad)
    text = (
        f"found holds {count} NaN or infinite values in {parts} of {listed('layer', layers)}, "
        f"first in layer {layers[0]}"
    )
    return Verdict("nonfinite", text, parts=parts, layers=layers)


def bitwise(case: Case) -> Verdict | None:
    if not all(line.h.equal and line.conv.equal for line in case.profile):
        return None
    parts = " and ".join(_where(case, part) for part in case.parts)
    if all(case.given(part, (n,)) for part in case.parts for n in case.numbers):
        parts = f"{' and '.join(case.parts)} of all {len(case.profile)} layers"
    how = (
        "equal in value, and stored in different dtypes" if any(_mixed(line) for line in case.profile) else "bit-equal"
    )
    return Verdict("bitwise", f"{parts} are {how}")


def _where(case: Case, part: str) -> str:
    """Such as: h of layers 0-2, 4."""
    return f"{part} of {listed('layer', [line.layer for line in case.profile if line.part(part).compared])}"


def _mixed(line: LayerError) -> bool:
    return bool(line.h.dtypes or line.conv.dtypes)


def zero(case: Case) -> Verdict | None:
    def gone(part: PartError) -> bool:
        return part.zero_found and not part.zero_expected and not part.equal

    hit = [line for line in case.profile if gone(line.h) or gone(line.conv)]
    if not hit:
        return None
    parts = "+".join(part for part in ("h", "conv") if any(gone(line.part(part)) for line in hit))
    layers = tuple(line.layer for line in hit)
    rest = [n for n in case.touched if n not in layers]
    flags = (f"{listed('layer', rest)} {differ(rest)} in another way",) if rest else ()
    where = "all layers" if len(hit) == len(case.profile) else listed("layer", layers)
    text = f"{parts} of {where} is all zero where expected is not (relative error exactly 1)"
    return Verdict("zero", text, parts=parts, layers=layers, flags=flags)


def transposed(case: Case) -> Verdict | None:
    layers = [
        line
        for line in case.profile
        if line.layer in case.off["h"] and line.h.transposed <= case.limit(line.layer, "h")
    ]
    if not layers or len(layers) < len(case.off["h"]):
        return None
    chosen = tuple(line.layer for line in layers)
    flags = ("conv differs too",) if case.off["conv"] else ()
    worst = max(line.h.transposed for line in layers)
    text = (
        f"h of {listed('layer', chosen)} equals the transpose of expected (error {worst:.1e}, untransposed "
        f"{median(line.h.error for line in layers):.2g}): [value, key] was read as [key, value]"
    )
    whole = len(chosen) == len(case.profile)
    return Verdict("transposed", text, parts="h", layers=() if whole else chosen, flags=flags)


def cast(case: Case) -> Verdict | None:
    """Found is expected after a round trip through a lower dtype, exactly; or h holds only such values."""
    for dtype in DRIFT:
        exact = [line for line in case.profile if dtype in (line.h.cast, line.conv.cast)]
        plain = [line for line in case.profile if line not in exact]
        if not exact or any(line.layer in case.touched for line in plain):
            continue
        if any(line.conv.cast != dtype and line.layer in case.off["conv"] for line in exact):
            continue
        layers = tuple(line.layer for line in exact)
        parts = "+".join(part for part in ("h", "conv") if any(line.part(part).cast == dtype for line in exact))
        errors = [line.part(parts.split("+")[0]).error for line in exact]
        text = (
            f"{parts} of {listed('layer', layers)} equals expected after one round trip through {dtype}, bit for bit "
            f"(error {min(errors):.1e} to {max(errors):.1e})"
        )
        whole = len(layers) == len(case.profile)
        return Verdict("dtype_drift", text, parts=parts, layers=() if whole else layers, dtype=dtype)
    for dtype in DRIFT:
        kept = [line for line in case.profile if line.h.only == dtype]
        if len(kept) > len(case.profile) // 2 and median(line.h.error for line in case.profile) < 0.1:
            text = (
                f"found h of {listed('layer', [line.layer for line in kept])} holds only {dtype} values, expected does "
                f"not (error {kept[0].h.error:.1e} in the first of them)"
            )
            return Verdict("dtype_drift", text, parts="h", dtype=dtype, confidence=0.9)
    return None


def flat_drift(case: Case, within: bool) -> Verdict | None:
    """h error flat over the layers and of the size of one round trip. ``within`` the noise floor it counts only while
    every conv window is bit-equal: then all inputs were equal, and rounding of activations is ruled out."""
    errors = [line.h.error for line in case.profile]
    if len(errors) < 2 or min(errors) <= 0.0 or max(errors) > DRIFT_SPREAD * min(errors):
        return None
    conv = [line.conv.error for line in case.profile]
    quiet = case.conv_equal if within else conv[0] <= 0.1 * errors[0] and max(conv) <= max(errors)
    told = f"conv differs by {max(conv):.1e} at most" if case.has["conv"] else "no conv was given"
    for dtype, size in DRIFT.items():
        if quiet and size / 1.5 <= median(errors) <= size * 1.5:
            text = (
                f"h error is flat over the layers, {min(errors):.1e} to {max(errors):.1e}: the size of one round trip "
                f"through {dtype} ({size:.1e}); {told}"
            )
            return Verdict("dtype_drift", text, parts="h", dtype=dtype, confidence=0.8 if within else 0.6)
    return None
