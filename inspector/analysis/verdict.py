"""What kind of difference is it? Two states that should be equal go in, a verdict with its evidence comes out.

The rules are those of engines.md C.3, thresholds from C.4 (``noise`` has the noise floors):

* rounding starts small at the first recurrent layer and grows with depth; corruption is large there already;
* h and conv are read as a pair: h off alone is a stale h, conv off alone a stale conv, both off a wrong position,
  both unlike in every head a wrong owner, h error exactly 1 a zero state;
* a round trip through bfloat16 costs 1.7e-3, through float16 2.1e-4, flat over the layers;
* a transposed h keeps norm and singular values.

Facts come before patterns: equality with a candidate, with a cast, with a transpose or with a shifted window decides
first. Patterns follow, and the confidence says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from inspector.analysis.arrays import Tensor, fits, flat
from inspector.analysis.noise import NoiseFloor, default_floor
from inspector.analysis.profile import Candidate, LayerError, LayerState, PartError, States, measure
from inspector.analysis.shift import ahead

__all__ = ["KINDS", "Candidate", "LayerState", "States", "Verdict", "judge"]

KINDS = (
    "bitwise",
    "rounding",
    "wrong_position",
    "stale_h",
    "stale_conv",
    "wrong_owner",
    "zero",
    "transposed",
    "dtype_drift",
    "nonfinite",
    "partial_layers",
    "partial_heads",
    "unknown",
)
BENIGN = ("bitwise", "rounding")

# A head that forgets slowly keeps a trace of the text it has read. Among the heads of one sequence, up to 20 tokens
# apart, the most alike one scored 0.00 to 0.44 (nine in ten below 0.25); between two texts 0.37 to 0.83 (measured on a
# small trained Qwen3.5 model, five texts). 1 - 2ab/(aa+bb); 1 is unrelated.
RELATED = 0.30
UNRELATED = 0.36
# Layers count as untouched only when their errors are this far below those of the touched ones.
CLEAR = 0.1
# Unmeasured limits are wide in deep layers: one layer this far above every other, and this large, is no rounding.
OUTLIER, OUTLIER_ERROR = 30.0, 0.02
# Errors of one round trip of h through a dtype (engines.md C.4), and the spread over layers that still counts as flat.
DRIFT = {"bfloat16": 1.7e-3, "float16": 2.1e-4}
DRIFT_SPREAD = 2.5
# A conv column of another token is off by about 1.4, inherited errors stay below this.
GROSS = 0.7
# Rounding beyond the limit is still rounding when the first layer is inside, no layer jumps, and it is not far beyond.
JUMP, BEYOND = 4.0, 4.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """``kind`` is one of :data:`KINDS`; ``evidence`` says in one sentence what was seen.

    ``parts``: "h+conv", "h", "conv" or "". ``layers``: model layer numbers that differ. ``heads``: set when only these
    differ. ``tokens``: how far found is ahead (+) or behind (-), None when not known. ``owner`` and ``match``: whose
    state it is, and the label of the candidate it equals. ``dtype``: for a drift. ``inner``: for partial kinds, what
    the touched layers or heads look like. ``flags``: further remarks. ``confidence``: 1 for a bitwise fact, 0.9 for a
    pattern with a second witness, 0.5 to 0.8 for a pattern alone, less for a guess. ``profile``: all measurements.
    """

    kind: str
    evidence: str
    parts: str = ""
    layers: tuple[int, ...] = ()
    heads: tuple[int, ...] = ()
    tokens: int | None = None
    owner: str = ""
    match: str = ""
    dtype: str = ""
    inner: str = ""
    flags: tuple[str, ...] = ()
    confidence: float = 1.0
    profile: tuple[LayerError, ...] = ()

    @property
    def benign(self) -> bool:
        """Bitwise or rounding."""
        return self.kind in BENIGN

    @property
    def errors(self) -> dict[int, tuple[float, float]]:
        """Relative (h, conv) errors by layer: what :func:`~inspector.analysis.noise.measured_floor` takes."""
        return {line.layer: (line.h.error, line.conv.error) for line in self.profile}

    @property
    def detail(self) -> str:
        """A few words: how many tokens, whose, which dtype, which layers."""
        words = [self.inner.replace("_", " ")]
        if self.tokens:
            words.append(ahead(self.tokens))
        words += [f"owner {self.owner}" if self.owner else "", f"equals {self.match}" if self.match else "", self.dtype]
        if self.kind in ("partial_layers", "zero") or (self.kind in ("dtype_drift", "transposed") and self.layers):
            words.append(f"layers {numbers(self.layers)}")
        if self.heads:
            words.append(f"heads {numbers(self.heads)}")
        return ", ".join(word for word in words if word)


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
        TensorError: no common layer, or shapes that cannot be compared.
        ValueError: ``arithmetic`` has no default limits.
    """
    profile = measure(found, expected, candidates or {})
    limits = floor or default_floor((line.layer for line in profile), arithmetic or _arithmetic(found, expected))
    case = _Case(profile, limits, candidates or {})
    for rule in RULES:
        verdict = rule(case)
        if verdict is not None:
            return replace(verdict, profile=profile, flags=tuple(dict.fromkeys((*verdict.flags, *case.flags))))
    raise AssertionError("the last rule always answers")


def _arithmetic(found: States, expected: States) -> str:
    """The lowest dtype that holds every conv value of either side: those are outputs of projections."""
    names: list[str] = []
    for states in (found, expected):
        windows = [state.conv for state in states.values() if state.conv is not None]
        told = [window for window in windows[:4] if _any(window)]
        names.append(next((d for d in ("bfloat16", "float16") if told and all(fits(w, d) for w in told)), "float32"))
    return min(names, key=("bfloat16", "float16", "float32").index)


def _any(tensor: Tensor) -> bool:
    return bool(flat(tensor).values.any())


class _Case:
    """The profile with its readings: which parts of which layers are off, and which layers are touched."""

    def __init__(self, profile: tuple[LayerError, ...], floor: NoiseFloor, candidates: Mapping[str, Candidate]) -> None:
        self.profile, self.floor, self.candidates = profile, floor, candidates
        self.off = {part: self._off(part) for part in ("h", "conv")}
        self.touched = tuple(n for n in self.numbers if n in self.off["h"] or n in self.off["conv"])
        self.flags: tuple[str, ...] = self._flags()

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(line.layer for line in self.profile)

    def lines(self, layers: Iterable[int]) -> list[LayerError]:
        wanted = set(layers)
        return [line for line in self.profile if line.layer in wanted]

    def _off(self, part: str) -> frozenset[int]:
        off = {n.layer for n in self.profile if n.part(part).error > self.floor.limit(n.layer, part)}
        if self.floor.measured:
            return frozenset(off)
        for line in self.profile:
            others = [other.part(part).error for other in self.profile if other is not line]
            error = line.part(part).error
            if others and error > OUTLIER_ERROR and error > OUTLIER * max(others):
                off.add(line.layer)
        return frozenset(off)

    def _flags(self) -> tuple[str, ...]:
        flags = []
        if any(line.h.bad_expected or line.conv.bad_expected for line in self.profile):
            flags.append("expected holds NaN or infinities")
        only = {line.h.only for line in self.profile if line.h.only}
        if only:
            flags.append(f"found h holds only {' or '.join(sorted(only))} values")
        return tuple(flags)

    @property
    def partial(self) -> bool:
        """Some layers are touched and the others clearly are not."""
        rest = [n for n in self.numbers if n not in self.touched]
        if not rest or not self.touched:
            return False
        smallest = min(_largest(line) for line in self.lines(self.touched))
        return max(_largest(line) for line in self.lines(rest)) <= CLEAR * smallest

    @property
    def parts(self) -> str:
        return "+".join(part for part in ("h", "conv") if self.off[part])


Rule = Callable[[_Case], Verdict | None]


def _largest(line: LayerError) -> float:
    return max(line.h.error, line.conv.error)


def numbers(values: Sequence[int]) -> str:
    """0, 1, 2, 4 as "0-2, 4"; long lists are cut."""
    runs: list[list[int]] = []
    for value in sorted(values):
        if runs and value == runs[-1][1] + 1:
            runs[-1][1] = value
        else:
            runs.append([value, value])
    words = [str(a) if a == b else f"{a}-{b}" for a, b in runs]
    return ", ".join(words[:8]) + (", ..." if len(words) > 8 else "")


# ------------------------------------------------------------------------------------------------------ facts


def _nonfinite(case: _Case) -> Verdict | None:
    bad = [line for line in case.profile if line.h.bad_found + line.conv.bad_found > 0]
    if not bad:
        return None
    count = sum(line.h.bad_found + line.conv.bad_found for line in bad)
    parts = "+".join(part for part in ("h", "conv") if any(line.part(part).bad_found for line in bad))
    layers = tuple(line.layer for line in bad)
    text = f"found holds {count} NaN or infinite values in {parts} of layers {numbers(layers)}, first in layer {layers[0]}"
    return Verdict("nonfinite", text, parts=parts, layers=layers)


def _bitwise(case: _Case) -> Verdict | None:
    if not all(line.h.equal and line.conv.equal for line in case.profile):
        return None
    return Verdict("bitwise", f"h and conv of all {len(case.profile)} layers are bit-equal")


def _zero(case: _Case) -> Verdict | None:
    def gone(part: PartError) -> bool:
        return part.zero_found and not part.zero_expected and not part.equal

    hit = [line for line in case.profile if gone(line.h) or gone(line.conv)]
    if not hit:
        return None
    parts = "+".join(part for part in ("h", "conv") if any(gone(line.part(part)) for line in hit))
    layers = tuple(line.layer for line in hit)
    rest = [n for n in case.touched if n not in layers]
    flags = (f"layers {numbers(rest)} differ in another way",) if rest else ()
    where = "all layers" if len(hit) == len(case.profile) else f"layers {numbers(layers)}"
    text = f"{parts} of {where} is all zero where expected is not (relative error exactly 1)"
    return Verdict("zero", text, parts=parts, layers=layers, flags=flags)


def _transposed(case: _Case) -> Verdict | None:
    layers = [
        line
        for line in case.profile
        if line.layer in case.off["h"] and line.h.transposed <= case.floor.limit(line.layer, "h")
    ]
    if not layers or len(layers) < len(case.off["h"]):
        return None
    chosen = tuple(line.layer for line in layers)
    flags = ("conv differs too",) if case.off["conv"] else ()
    worst = max(line.h.transposed for line in layers)
    text = (
        f"h of layers {numbers(chosen)} equals the transpose of expected (error {worst:.1e}, untransposed "
        f"{median(line.h.error for line in layers):.2g}): [value, key] was read as [key, value]"
    )
    whole = len(chosen) == len(case.profile)
    return Verdict("transposed", text, parts="h", layers=() if whole else chosen, flags=flags)


def _cast(case: _Case) -> Verdict | None:
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
            f"{parts} of layers {numbers(layers)} equals expected after one round trip through {dtype}, bit for bit "
            f"(error {min(errors):.1e} to {max(errors):.1e})"
        )
        whole = len(layers) == len(case.profile)
        return Verdict("dtype_drift", text, parts=parts, layers=() if whole else layers, dtype=dtype)
    for dtype in DRIFT:
        kept = [line for line in case.profile if line.h.only == dtype]
        if len(kept) > len(case.profile) // 2 and median(line.h.error for line in case.profile) < 0.1:
            text = (
                f"found h of layers {numbers([line.layer for line in kept])} holds only {dtype} values, expected does "
                f"not (error {kept[0].h.error:.1e} in the first of them)"
            )
            return Verdict("dtype_drift", text, parts="h", dtype=dtype, confidence=0.9)
    return None


def _flat_drift(case: _Case, within: bool) -> Verdict | None:
    """h error flat over the layers and of the size of one round trip. ``within`` the noise floor it counts only while
    every conv window is bit-equal: then all inputs were equal, and rounding of activations is ruled out."""
    errors = [line.h.error for line in case.profile]
    if len(errors) < 2 or min(errors) <= 0.0 or max(errors) > DRIFT_SPREAD * min(errors):
        return None
    conv = [line.conv.error for line in case.profile]
    still = all(line.conv.equal for line in case.profile) if within else conv[0] <= 0.1 * errors[0] and max(conv) <= max(errors)
    for dtype, size in DRIFT.items():
        if still and size / 1.5 <= median(errors) <= size * 1.5:
            text = (
                f"h error is flat over the layers, {min(errors):.1e} to {max(errors):.1e}: the size of one round trip "
                f"through {dtype} ({size:.1e}); conv {'is bit-equal' if within else f'differs by {max(conv):.1e} at most'}"
            )
            return Verdict("dtype_drift", text, parts="h", dtype=dtype, confidence=0.8 if within else 0.6)
    return None


def _same_as_candidate(case: _Case) -> Verdict | None:
    """All layers and parts bit-equal to a candidate of another position or owner."""
    exact = [label for label in case.candidates if _matched(case, label, case.numbers, ("h", "conv"), exactly=True)]
    for label in sorted(exact, key=lambda name: _preference(case.candidates[name])):
        if case.candidates[label].tokens == 0 and not case.candidates[label].owner:
            continue
        return _named(case, label, "h+conv", case.numbers, 1.0)
    return None


# --------------------------------------------------------------------------------------------------- rounding


def _rounding(case: _Case) -> Verdict | None:
    excused = bool(case.touched) and _grown(case)
    if case.touched and not excused:
        return None
    errors = [line.h.error for line in case.profile]
    conv = max(line.conv.error for line in case.profile)
    first, top = errors[0], max(errors)
    shape = "grows with depth to" if top > 2.0 * first else "stays at"
    label = next(
        (
            label
            for label, candidate in case.candidates.items()
            if candidate.tokens == 0
            and not candidate.owner
            and _matched(case, label, case.numbers, ("h", "conv"), exactly=True)
        ),
        "",
    )
    text = (
        f"h error starts at {first:.1e} in layer {case.profile[0].layer} and {shape} {top:.1e}, conv is within "
        f"{conv:.1e}: {'a little beyond' if excused else 'inside'} {case.floor.source}"
    )
    if label:
        text += f"; found equals {label} bit for bit"
    confidence = 0.6 if excused else 0.95 if case.floor.measured else 0.8
    return Verdict("rounding", text, match=label, confidence=confidence)


def _grown(case: _Case) -> bool:
    """Beyond the limit, but in the manner of rounding: first layer inside, gradual growth, never far beyond."""
    first = case.profile[0]
    if first.layer in case.touched or first.h.error == 0.0:
        return False
    running = first.h.error
    for line in case.profile[1:]:
        for part in ("h", "conv"):
            if line.part(part).error > BEYOND * case.floor.limit(line.layer, part):
                return False
        if line.layer in case.off["h"] and line.h.error > JUMP * running:
            return False
        running = max(running, line.h.error)
    return True


# --------------------------------------------------------------------------------------------------- patterns


def _preference(candidate: Candidate) -> tuple[bool, int, str]:
    """Own states before foreign ones, near positions before far and unknown ones."""
    return bool(candidate.owner), abs(candidate.tokens) if candidate.tokens is not None else 1 << 30, candidate.owner


def _matched(case: _Case, label: str, layers: Iterable[int], parts: Sequence[str], exactly: bool) -> bool:
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


def _explained(case: _Case, layers: tuple[int, ...], parts: Sequence[str]) -> tuple[str, bool] | None:
    """The best candidate that explains these parts of these layers, and whether it does so bit for bit.

    Within the noise floor several may match; the nearest in value wins then."""
    for exactly in (True, False):
        fit = [label for label in case.candidates if _matched(case, label, layers, parts, exactly)]
        if fit:
            return min(fit, key=lambda label: (_distance(case, label, layers, parts), *_preference(case.candidates[label]))), exactly
    return None


def _distance(case: _Case, label: str, layers: tuple[int, ...], parts: Sequence[str]) -> float:
    matches = [line.matches[label] for line in case.lines(layers)]
    return sum(match.h if part == "h" else match.conv for match in matches for part in parts)


def _named(case: _Case, label: str, parts: str, layers: tuple[int, ...], confidence: float) -> Verdict:
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


def _pattern(case: _Case) -> Verdict:
    """The touched layers by h/conv pair, candidates and shifts."""
    layers = case.touched or case.numbers
    off_h = tuple(n for n in layers if n in case.off["h"])
    off_conv = tuple(n for n in layers if n in case.off["conv"])
    parts = [part for part, off in (("h", off_h), ("conv", off_conv)) if off]
    explained = _explained(case, layers, parts) if parts else None
    if explained is not None:
        label, exactly = explained
        return _named(case, label, "+".join(parts), layers, 1.0 if exactly else 0.9)
    if off_h and off_conv:
        return _both(case, layers, off_h, off_conv)
    if off_conv:
        return _conv_alone(case, layers)
    return _h_alone(case, layers) if off_h else Verdict("unknown", "the difference fits no rule", confidence=0.2)


def _h_alone(case: _Case, layers: tuple[int, ...]) -> Verdict:
    drift = _flat_drift(case, within=False) if len(layers) == len(case.profile) else None
    if drift is not None:
        return drift
    lines = case.lines(layers)
    errors = [line.h.error for line in lines]
    over = max(line.h.error / case.floor.limit(line.layer, "h") for line in lines)
    text = (
        f"h of layers {numbers(layers)} is off by {min(errors):.2g} to {max(errors):.2g} while conv agrees within "
        f"{max(line.conv.error for line in lines):.1e}"
    )
    if over < 2.0:
        return Verdict("unknown", f"{text}: only just beyond {case.floor.source}", "h", layers, confidence=0.3)
    return Verdict("stale_h", f"{text}: h did not move with conv", "h", layers, confidence=0.8)


def _conv_alone(case: _Case, layers: tuple[int, ...]) -> Verdict:
    tokens, text = _shifted(case, layers)
    if tokens is not None:
        return Verdict("stale_conv", f"{text} while h agrees", "conv", layers, tokens=tokens, confidence=0.9)
    changed = _changed_columns(case, layers)
    if changed:
        return Verdict("unknown", f"{changed}, h agrees: no shift of the window explains it", "conv", layers, confidence=0.4)
    errors = [line.conv.error for line in case.lines(layers)]
    text = f"conv of layers {numbers(layers)} is off by {min(errors):.2g} to {max(errors):.2g} at every shift, h agrees"
    return Verdict("stale_conv", f"{text}: conv did not move with h", "conv", layers, confidence=0.6)


def _both(case: _Case, layers: tuple[int, ...], off_h: tuple[int, ...], off_conv: tuple[int, ...]) -> Verdict:
    tokens, shifted = _shifted(case, off_conv)
    split = _split_candidates(case, layers)
    if split is not None:
        return split
    lines = case.lines(layers)
    h_range = f"h error {min(line.h.error for line in lines):.2g} to {max(line.h.error for line in lines):.2g}"
    if tokens is not None:
        return Verdict("wrong_position", f"{shifted}; {h_range}", "h+conv", layers, tokens=tokens, confidence=0.9)
    first = layers[0]
    if first in off_h and first not in off_conv:
        text = f"in layer {first} h is off and conv is right; deeper layers inherit the error ({h_range})"
        return Verdict("stale_h", text, "h", layers, confidence=0.6)
    if first in off_conv and first not in off_h:
        text = f"in layer {first} conv is off and h is right; deeper layers inherit the error ({h_range})"
        return Verdict("stale_conv", text, "conv", layers, confidence=0.6)
    changed = _changed_columns(case, off_conv[:1])
    if changed:
        return Verdict("unknown", f"{changed}: another token was absorbed there; {h_range}", "h+conv", layers, confidence=0.5)
    alike = min(min(line.h.unlike, default=1.0) for line in lines)
    windows = median(line.conv.error for line in case.lines(off_conv))
    seen = f"no shift of the window matches (conv error {windows:.2g}) and {h_range}"
    if windows > 0.5 and alike >= UNRELATED:
        text = f"{seen}; even the most alike head scores {alike:.2f} of 1 unrelated: another sequence's state"
        return Verdict("wrong_owner", text, "h+conv", layers, confidence=0.6)
    if windows > 0.5 and alike <= RELATED:
        text = f"{seen}, yet the most alike head scores {alike:.2f}: the same sequence beyond the window"
        return Verdict("wrong_position", text, "h+conv", layers, confidence=0.5)
    return Verdict("unknown", seen, "h+conv", layers, confidence=0.3)


def _split_candidates(case: _Case, layers: tuple[int, ...]) -> Verdict | None:
    """h from one candidate, conv from another."""
    ones = [_explained(case, layers, (part,)) for part in ("h", "conv")]
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


def _shifted(case: _Case, layers: Iterable[int]) -> tuple[int | None, str]:
    """The shift on which the windows of most layers agree. A window that repeats itself has no vote."""
    votes: dict[int, list[LayerError]] = {}
    voters = 0
    for line in case.lines(layers):
        if line.shift is None or line.shift.periodic:
            continue
        voters += 1
        tokens = line.shift.matches(case.floor.limit(line.layer, "conv"))
        if tokens is not None:
            votes.setdefault(tokens, []).append(line)
    if not votes:
        return None, ""
    tokens, lines = max(votes.items(), key=lambda item: (len(item[1]), -abs(item[0])))
    shift = lines[0].shift
    if shift is None or len(lines) * 2 <= voters:
        return None, ""
    text = (
        f"conv of {len(lines)} of {voters} layers matches shifted, {shift.text()} (error {shift.best.error:.1e} against "
        f"{shift.unshifted.error:.2g} unshifted)"
    )
    return tokens, text


def _changed_columns(case: _Case, layers: Iterable[int]) -> str:
    """The few columns that differ, grossly, while the others agree in place in all of these layers; else ""."""
    found: set[tuple[int, ...]] = set()
    for line in case.lines(layers):
        limit = case.floor.limit(line.layer, "conv")
        wrong = tuple(len(line.columns) - 1 - i for i, error in enumerate(line.columns) if error > limit)
        if not wrong or 2 * len(wrong) > len(line.columns) or min(line.columns[-1 - back] for back in wrong) < GROSS:
            return ""
        found.add(wrong)
    if len(found) != 1:
        return ""
    names = ", ".join(f"t-{back}" if back else "t" for back in sorted(next(iter(found))))
    return f"the conv window agrees except for column {names}"


def _heads(case: _Case) -> tuple[int, ...]:
    """Heads that differ in every touched layer while the others are untouched there; () when all differ.

    Untouched means bit-equal, or within a measured or fp32 noise floor: a slow head of a wrong position may be near."""
    common: set[int] | None = None
    for line in case.lines(case.touched):
        limit = case.floor.limit(line.layer, "h")
        quiet = limit if case.floor.measured or limit < 1e-3 else 0.0
        off = {i for i, error in enumerate(line.h.heads) if error > quiet}
        if not off or len(off) == len(line.h.heads) or (common is not None and off != common):
            return ()
        common = off
    return tuple(sorted(common or ()))


def _decide(case: _Case) -> Verdict:
    """The last rule: the pattern of the touched layers, named partial when others or other heads are clearly right."""
    verdict = _pattern(case)
    heads = _heads(case) if case.touched and not case.off["conv"] else ()
    if heads:
        of = len(case.lines(case.touched)[0].h.heads)
        text = f"only heads {numbers(heads)} of {of} differ in layers {numbers(case.touched)}; {verdict.evidence}"
        return replace(verdict, kind="partial_heads", heads=heads, inner=verdict.kind, evidence=text)
    if case.partial and verdict.kind != "dtype_drift":
        rest = max(_largest(line) for line in case.profile if line.layer not in case.touched)
        where = f"only layers {numbers(case.touched)} of {len(case.profile)} differ (the others by {rest:.1e} at most)"
        if len(case.touched) > 1 and case.touched == case.numbers[-len(case.touched) :]:
            where += f"; it starts in layer {case.touched[0]}, deeper layers may inherit it"
        return replace(verdict, kind="partial_layers", inner=verdict.kind, evidence=f"{where}; {verdict.evidence}")
    return verdict


RULES: tuple[Rule, ...] = (
    _nonfinite,
    _bitwise,
    _zero,
    _transposed,
    _cast,
    _same_as_candidate,
    lambda case: _flat_drift(case, within=True),
    _rounding,
    _decide,
)
