"""The rule for exchanged parts: found h made of the values of expected conv, or found conv of those of expected h.

The parts differ in size, so what was read as the other is cut, or runs on into something else: the first values, as
many as both have, are compared in order, within the noise floor; or else all values are looked up, bit for bit.
"""

from __future__ import annotations

import numpy as np

from inspector.analysis.arrays import Floats, Tensor, as_floats
from inspector.analysis.case import Case
from inspector.analysis.kinds import Verdict, differ, listed
from inspector.analysis.moments import moments
from inspector.analysis.profile import LayerError

OTHER = {"h": "conv", "conv": "h"}
# Fewer values may agree by chance; of so many the first few decide whether looking up all of them is worth it.
LEAST, PROBE = 16, 64
# Values of a low dtype occur everywhere: the expected part must not consist of the other's values as well.
NEARLY, HARDLY = 0.99, 0.5


def swapped(case: Case) -> Verdict | None:
    seen: dict[str, dict[int, str]] = {"h": {}, "conv": {}}
    for line in case.lines(case.touched):
        taken = {part: text for part in OTHER if line.layer in case.off[part] and (text := _taken(case, line, part))}
        if not taken:
            break  # a swap is one of addresses: it does not begin in a deeper layer than the difference
        for part, text in taken.items():
            seen[part][line.layer] = text
    parts = [part for part, layers in seen.items() if layers]
    if not parts:
        return None
    layers = tuple(sorted({layer for part in parts for layer in seen[part]}))
    words = [
        f"{part} of {listed('layer', tuple(seen[part]))} consists of values of the expected {OTHER[part]} "
        f"({next(iter(seen[part].values()))})"
        for part in parts
    ]
    rest = [layer for layer in case.touched if layer not in layers]
    flags = (f"{listed('layer', rest)} {differ(rest)} in another way",) if rest else ()
    exact = all("bit for bit" in text for part in parts for text in seen[part].values())
    text = " and ".join(words) + (": the two parts are exchanged" if len(parts) == 2 else "")
    return Verdict("swapped_parts", text, "+".join(parts), layers, flags=flags, confidence=1.0 if exact else 0.9)


def _taken(case: Case, line: LayerError, part: str) -> str:
    """How found's ``part`` shows that it was taken from the other part of expected; "" when it was not."""
    found = _values(case, "found", line.layer, part)
    right = _values(case, "expected", line.layer, part)
    source = _values(case, "expected", line.layer, OTHER[part])
    if found is None or right is None or source is None:
        return ""
    count = min(found.size, source.size)
    first = source[:count]
    if np.count_nonzero(first) < LEAST:
        return ""
    sums = moments(found[:count], first, heads=1)
    of = f"the first {count} of {found.size}" if count < found.size else f"all {count}"
    if sums.bad_a + sums.bad_b:
        return ""
    if sums.error == 0.0:
        return f"{of} in their order, bit for bit"
    if sums.error <= case.floor.limit(line.layer, OTHER[part]):
        return f"{of} in their order, within {sums.error:.1e}"
    return _looked_up(found, right, source)


def _values(case: Case, side: str, layer: int, part: str) -> Floats | None:
    state = (case.found if side == "found" else case.expected)[layer]
    tensor: Tensor | None = state.h if part == "h" else state.conv
    return None if tensor is None else as_floats(tensor).reshape(-1)


def _looked_up(found: Floats, right: Floats, source: Floats) -> str:
    told = found[found != 0.0]
    if told.size < LEAST or not np.isin(told[:: max(1, told.size // PROBE)], source).all():
        return ""
    share = float(np.isin(told, source).mean())
    if share < NEARLY or float(np.isin(right[right != 0.0], source).mean()) > HARDLY:
        return ""
    return f"{share:.0%} of its values occur there bit for bit, in another order"
