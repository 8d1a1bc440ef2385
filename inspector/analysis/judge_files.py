"""A verdict for two files of tensors: dumps of this tool or of any other engine.

Tensors are paired by layer number. Our own names are ``live:0/layer.3/h`` or ``live.L03.h``, and the same with conv;
other names are matched by two regular expressions whose group ``layer`` (or first group of digits) is the number.
Layers are read one by one. When a file holds several places, those not compared are offered to the verdict as
candidates; the metadata of our own exports says whose they are and at which position.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any

from engine.errors import UserError
from engine.events import TensorData
from inspector.analysis.arrays import Tensor, TensorError
from inspector.analysis.kinds import listed
from inspector.analysis.layout import OURS, Layout, LayoutError, conv_to_ours, h_to_ours, parse_layout
from inspector.analysis.place_fact import PlaceFact, place_fact
from inspector.analysis.profile import Candidate, LayerState, PartError
from inspector.analysis.tensorfile import TensorFile, some_names
from inspector.analysis.verdict import Verdict, judge

OUR_NAME = r"^(?:(?P<place>.+)[./])?(?:L|layer\.)(?P<layer>\d{1,6})[./]%s$"
CANDIDATES = 16


@dataclass(frozen=True, slots=True)
class Side:
    """How to read one file: layout, name patterns, which place, slot or batch entry, and shapes of flat rows.

    ``layout`` None is what the metadata says, or ours. ``h_pattern`` and ``conv_pattern`` "" mean our own names.
    ``offset`` is the first column of the conv window that counts (vLLM: accepted - 1), ``columns`` how many do (0: all
    further ones; vLLM: 3). ``h_shape`` and ``conv_shape`` reshape flat rows before the layout is applied."""

    layout: Layout | None = None
    h_pattern: str = ""
    conv_pattern: str = ""
    place: str = ""
    slot: int | None = None
    offset: int = 0
    columns: int = 0
    h_shape: tuple[int, ...] = ()
    conv_shape: tuple[int, ...] = ()


OUR_SIDE = Side()


@dataclass(frozen=True, slots=True)
class FileStates(Mapping[int, LayerState]):
    """States of one place of a file, by layer; a layer is read when it is asked for."""

    file: TensorFile
    side: Side
    layout: Layout
    place: str
    names: Mapping[int, tuple[str, str]] = field(default_factory=dict)

    def __getitem__(self, layer: int) -> LayerState:
        h, conv = self.names[layer]
        return LayerState(self._part(h, "h") if h else None, self._part(conv, "conv") if conv else None)

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self.names))

    def __len__(self) -> int:
        return len(self.names)

    def _part(self, name: str, part: str) -> Tensor:
        """The tensor in our layout; it stays as stored (dtype too) when nothing has to be moved."""
        side = self.side
        tensor = self.file.read(name)
        pick = {} if side.slot is None else {"slot": side.slot, "batch": side.slot}
        try:
            tensor = _shaped(tensor, side.h_shape if part == "h" else side.conv_shape)
            axes = (self.layout.h if part == "h" else self.layout.conv)[-len(tensor.shape) :]
            if part == "h":
                return tensor if axes == OURS.h else h_to_ours(tensor, self.layout, **pick)
            if axes == OURS.conv and not side.offset + side.columns:
                return tensor
            return conv_to_ours(tensor, self.layout, side.columns or None, side.offset, **pick)
        except (LayoutError, TensorError) as error:
            raise UserError(f"{self.file.path}: tensor {name!r:.200}: {error}") from None


def _shaped(tensor: TensorData, shape: tuple[int, ...]) -> TensorData:
    if not shape:
        return tensor
    if prod(shape) != prod(tensor.shape):
        raise LayoutError(f"{prod(tensor.shape)} values cannot take the shape {list(shape)}")
    return replace(tensor, shape=shape)


def open_states(path: Path | str, side: Side = OUR_SIDE) -> tuple[FileStates, dict[str, FileStates]]:
    """The states to compare, and those of the other places of the file by name.

    Raises:
        UserError: unreadable, no tensor with such a name, or several places and none chosen.
    """
    file = TensorFile(path)
    places: dict[str, dict[int, list[str]]] = {}
    for index, (part, given) in enumerate((("h", side.h_pattern), ("conv", side.conv_pattern))):
        pattern = _compiled(given or OUR_NAME % part)
        for name in file:
            match = pattern.search(name)
            if match is None:
                continue
            layer = _layer(match, f"{file.path}: tensor {name!r:.200}")
            pair = places.setdefault(match.groupdict().get("place") or "", {}).setdefault(layer, ["", ""])
            if pair[index]:
                raise UserError(
                    f"{file.path}: {pair[index]!r:.80} and {name!r:.80} both claim {part} of layer {layer}."
                )
            pair[index] = name
    if not places:
        raise UserError.about(
            file.path,
            some_names(file),
            "names like live.L00.h and live.L00.conv",
            "Give --h-pattern and --conv-pattern.",
        )
    layout = side.layout or _told_layout(file)
    states = {
        place: FileStates(file, side, layout, place, {n: (pair[0], pair[1]) for n, pair in layers.items()})
        for place, layers in places.items()
    }
    return states.pop(_chosen(file, side.place, list(states))), states


def _told_layout(file: TensorFile) -> Layout:
    told = file.metadata.get("layout", "")
    try:
        return parse_layout(told) if told else OURS
    except LayoutError as error:
        raise UserError(f"{file.path}: metadata: {error}. Give --layout.") from None


def _chosen(file: TensorFile, wanted: str, places: list[str]) -> str:
    """The place asked for; without one the only place, or the only live one."""
    live = [place for place in places if place.startswith("live")]
    if wanted in places:
        return wanted
    if not wanted and (len(places) == 1 or len(live) == 1):
        return places[0] if len(places) == 1 else live[0]
    what = f"no place {wanted!r:.40}" if wanted else f"{len(places)} places"
    raise UserError.about(
        file.path, what, f"one of {', '.join(sorted(places)[:12])}", "Choose with --place-a or --place-b."
    )


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise UserError(f"pattern {pattern!r:.80}: {error}.") from None
    if compiled.groups < 1:
        raise UserError.about(f"pattern {pattern!r:.80}", "no group", "one for the layer number: (?P<layer>\\d+)")
    return compiled


def _layer(match: re.Match[str], where: str) -> int:
    text = match.groupdict().get("layer") or next((g for g in match.groups() if g and g.isdecimal()), "")
    if not text.isdecimal() or len(text) > 6:
        raise UserError.about(where, f"{match.group(0)!r:.80}", "a layer number in a group of the pattern")
    return int(text)


@dataclass(frozen=True, slots=True)
class Judged:
    """The verdict, and which places it is about: ``found`` and ``expected``, one of ``places`` (of each file)."""

    verdict: Verdict
    found: PlaceFact
    expected: PlaceFact
    places: tuple[int, int]

    def text(self) -> str:
        """One line: what was compared with what, and what the metadata tells of both."""
        sides = zip((self.found, self.expected), self.places, strict=True)
        left, right = (fact.text() + (f" (1 of {count} places)" if count > 1 else "") for fact, count in sides)
        return f"{left} against {right}"


def judge_files(
    a: Path | str, b: Path | str, left: Side = OUR_SIDE, right: Side = OUR_SIDE, arithmetic: str = ""
) -> Judged:
    """Verdict for found ``a`` against expected ``b``.

    Raises:
        UserError: one cannot be read, or their layers and shapes cannot be compared.
        ValueError: ``arithmetic`` has no default limits.
    """
    found, others = open_states(a, left)
    expected, more = open_states(b, right)
    left_fact, right_fact = place_fact(found.file, found.place), place_fact(expected.file, expected.place)
    candidates: dict[str, Candidate] = {}
    for path, places in ((a, others), (b, more)):
        for place, states in places.items():
            fact = place_fact(states.file, place)
            candidates[f"{place} of {Path(path).name}"] = _candidate(states, fact, right_fact)
    try:
        verdict = judge(found, expected, dict(list(candidates.items())[:CANDIDATES]), arithmetic=arithmetic)
    except TensorError as error:
        raise UserError(f"{a} against {b}: {error}.") from None
    missing = sorted(set(found) ^ set(expected))
    if missing:
        verdict = replace(verdict, flags=(*verdict.flags, f"in one file only: {listed('layer', missing)}"))
    return Judged(verdict, left_fact, right_fact, (1 + len(others), 1 + len(more)))


def _candidate(states: FileStates, fact: PlaceFact, right: PlaceFact) -> Candidate:
    """A place as a candidate: foreign when both owners are told and differ, else with its distance in tokens."""
    if fact.owner is not None and right.owner is not None and fact.owner != right.owner:
        return Candidate(states, owner=f"r{fact.owner}")
    known = fact.position is not None and right.position is not None
    return Candidate(states, tokens=fact.position - right.position if known else None)  # type: ignore[operator]


def report(judged: Judged) -> dict[str, Any]:
    """The verdict as plain data for JSON; infinities and NaN become texts, the error of a part that one side lacks is
    null."""
    verdict = judged.verdict
    data = asdict(replace(verdict, profile=()))
    data["detail"] = verdict.detail
    data["compared"] = judged.text()
    data["found"], data["expected"] = asdict(judged.found), asdict(judged.expected)
    data["profile"] = [
        {"layer": line.layer, "h": _number(line.h), "conv": _number(line.conv)} for line in verdict.profile
    ]
    return data


def _number(part: PartError) -> float | str | None:
    if not part.compared:
        return None
    return part.error if part.error - part.error == 0.0 else str(part.error)
