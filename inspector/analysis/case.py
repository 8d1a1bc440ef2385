"""A profile with its readings: which parts of which layers are off, which layers are touched, which clearly not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from inspector.analysis.kinds import listed
from inspector.analysis.noise import EQUAL_INPUTS, NoiseFloor
from inspector.analysis.profile import PARTS, Candidate, LayerError, States

# Layers count as untouched only when their errors are this far below those of the touched ones.
CLEAR = 0.1
# Unmeasured limits are wide in deep layers: one layer this far above every other, and this large, is no rounding.
OUTLIER, OUTLIER_ERROR = 30.0, 0.02


class Case:
    """The profile with its readings: which parts of which layers are off, and which layers are touched. The states
    themselves are read again only by rules that the profile gives reason to."""

    def __init__(
        self,
        profile: tuple[LayerError, ...],
        floor: NoiseFloor,
        candidates: Mapping[str, Candidate],
        found: States,
        expected: States,
    ) -> None:
        self.profile, self.floor, self.candidates = profile, floor, candidates
        self.found, self.expected = found, expected
        # Parts that were not given prove nothing.
        self.has = {part: any(line.part(part).compared for line in profile) for part in PARTS}
        self.h_equal = all(line.h.compared and line.h.equal for line in profile)
        self.conv_equal = all(line.conv.compared and line.conv.equal for line in profile)
        self.off = {part: self._off(part) for part in PARTS}
        self.touched = tuple(n for n in self.numbers if n in self.off["h"] or n in self.off["conv"])
        self.flags: tuple[str, ...] = self._flags()

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(line.layer for line in self.profile)

    def limit(self, layer: int, part: str) -> float:
        """Largest error that passes as rounding here.

        Rounding never changes conv alone: h is computed from it. And without a measurement, bit-equal windows in all
        layers leave h nothing but fp32 rounding."""
        limit = self.floor.limit(layer, part)
        if part == "conv" and self.h_equal:
            return 0.0
        return min(limit, EQUAL_INPUTS) if part == "h" and self.conv_equal and not self.floor.measured else limit

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts that were compared in some layer."""
        return tuple(part for part in PARTS if self.has[part])

    def given(self, part: str, layers: Iterable[int]) -> bool:
        """Whether ``part`` was compared in one of these layers, so that it can be right there."""
        return any(line.part(part).compared for line in self.lines(layers))

    def lines(self, layers: Iterable[int]) -> list[LayerError]:
        wanted = set(layers)
        return [line for line in self.profile if line.layer in wanted]

    def _off(self, part: str) -> frozenset[int]:
        off = {n.layer for n in self.profile if n.part(part).error > self.limit(n.layer, part)}
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
        for part in self.parts:
            missing = [line.layer for line in self.profile if not line.part(part).compared]
            if missing:
                flags.append(f"{part} of {listed('layer', missing)} was not compared: not both sides have it")
        if any(line.h.bad_expected or line.conv.bad_expected for line in self.profile):
            flags.append("expected holds NaN or infinities")
        only = {line.h.only for line in self.profile if line.h.only}
        if only:
            flags.append(f"found h holds only {' or '.join(sorted(only))} values")
        stored = {
            f"{part} stored as {text}" for line in self.profile for part in self.has if (text := line.part(part).dtypes)
        }
        return (*flags, *sorted(stored))

    @property
    def partial(self) -> bool:
        """Some layers are touched and the others clearly are not."""
        parts = [part for part in PARTS if self.off[part]]
        rest = [n.layer for n in self.profile if n.layer not in self.touched and not self._mute(n, parts)]
        if not rest or not self.touched:
            return False
        smallest = min(largest(line) for line in self.lines(self.touched))
        return max(largest(line) for line in self.lines(rest)) <= CLEAR * smallest

    def _mute(self, line: LayerError, parts: list[str]) -> bool:
        """A layer that is no witness: it lacks the parts that are off, or its window repeats itself and stays equal
        when shifted (against a stale conv)."""
        return not any(line.part(part).compared for part in parts) or (not self.off["h"] and line.repeats)


def largest(line: LayerError) -> float:
    """The larger error of the two parts."""
    return max(line.h.error, line.conv.error)
