"""Where two runs part: the first field, layer or tensor in which an event differs from the recorded one."""

from __future__ import annotations

import dataclasses
import math

from engine.codec import CodecError
from engine.events import Event
from sessions.canonical import canonical, same
from sessions.errors import DivergedError

# A margin is the difference of two logits and has their rounding: the tolerance is one of their size.
LOGITS = 16.0
# Hashes of floating-point bytes: equal only where every operation is.
HASHES = ("digests", "fed", "hidden", "head")
# By kind, what older recordings do not tell: at its default there it is not compared.
LATER = {
    "round_end": ("head_rows", "fed_position", "fed", "hidden", "head"),
    **dict.fromkeys(("claim", "release", "compact"), ("free",)),
    "verify_row": ("batch",),
}
UNCOMPARED_ELSEWHERE = ("dtype", "device", "model", "digests", "state_dtype")  # of Start, on another machine or dtype


@dataclasses.dataclass(frozen=True, slots=True)
class Comparison:
    """How strictly events are compared.

    ``digests``: state digests too (off for recordings of level ``events``). ``tolerance``: relative tolerance of
    floating-point facts on another machine or dtype, where digests cannot be compared; None means bitwise."""

    digests: bool = True
    tolerance: float | None = None

    @property
    def bitwise(self) -> bool:
        """Whether state digests are compared."""
        return self.digests and self.tolerance is None

    @property
    def sentence(self) -> str:
        """What is compared, for people."""
        if self.tolerance is not None:
            within = f"margins within {self.tolerance:g} of the logits"
            return f"facts exactly, {within}; state digests are not compared bitwise"
        return "every fact and every state digest" if self.digests else "every fact; the record holds no state digests"

    def equal(self, recorded: Event, found: Event) -> bool:
        if self.tolerance is not None:
            return type(recorded) is type(found) and not self._different(recorded, found)
        if self.digests:
            equal = same(recorded, found)
        else:
            equal = type(recorded) is type(found) and canonical(recorded, False) == canonical(found, False)
        if equal or recorded.kind not in LATER or type(recorded) is not type(found):
            return equal
        return not self._different(recorded, found)

    def _different(self, recorded: Event, found: Event) -> list[str]:
        """Names of the fields that differ."""
        out = []
        later = LATER.get(recorded.kind, ())
        for field in dataclasses.fields(recorded):
            a, b = getattr(recorded, field.name), getattr(found, field.name)
            if field.name in later and field.default in (a, b):
                continue
            if field.name == "digests" and (self.tolerance is not None or not self.digests):
                continue
            if self.tolerance is not None:
                if field.name in HASHES:
                    continue
                if recorded.kind == "start" and field.name in UNCOMPARED_ELSEWHERE:
                    continue
                if isinstance(a, float) and isinstance(b, (int, float)):
                    slack = self.tolerance * (LOGITS if field.name == "margin" else 1.0)
                    if not math.isclose(a, b, rel_tol=self.tolerance, abs_tol=slack) and not a != a != b:
                        out.append(field.name)
                    continue
            if a != b:
                out.append(field.name)
        return out

    def describe(self, recorded: Event, found: Event, layers: tuple[int, ...]) -> DivergedError:
        """The first difference, as an error to raise. ``layers``: numbers of the recurrent layers, in digest order."""
        seq = recorded.seq
        if type(recorded) is not type(found):
            text = f"diverged at event {seq}: recorded {recorded.kind}, now {found.kind}"
            return DivergedError(seq, text, expected=recorded.kind, found=found.kind)
        names = self._different(recorded, found)
        facts = [name for name in names if name != "digests"]
        name = (facts or ["digests"])[0]
        expected, now = _short(getattr(recorded, name, None)), _short(getattr(found, name, None))
        fact = f"{name}: recorded {expected}, now {now}"
        if "digests" in names and recorded.kind != "start":  # the state comes before what is picked from it
            also = f"; {fact}" if facts else ""
            return digest_difference(seq, getattr(recorded, "digests", ()), getattr(found, "digests", ()), layers, also)
        text = f"diverged at event {seq} ({recorded.kind}), {fact}"
        return DivergedError(seq, text, expected=expected, found=now)


def digest_difference(
    seq: int, recorded: object, found: object, layers: tuple[int, ...], also: str = ""
) -> DivergedError:
    """The first layer and part whose digest differs; ``also`` is said after it."""
    pairs = list(zip(_pairs(recorded), _pairs(found), strict=False))
    for index, (old, new) in enumerate(pairs):
        for part, expected, now in zip(("h", "conv"), old, new, strict=True):
            if expected != now:
                layer = layers[index] if index < len(layers) else index
                text = f"diverged at event {seq}, layer {layer}, {part}{also}"
                return DivergedError(seq, text, layer, part, expected, now)
    text = (
        f"diverged at event {seq}: {len(_pairs(recorded))} layers of digests recorded, {len(_pairs(found))} now{also}"
    )
    return DivergedError(seq, text)


def _pairs(digests: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(digests, tuple):
        raise CodecError(f"expected digests, found {type(digests).__name__}")
    return digests


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."
