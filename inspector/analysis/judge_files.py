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
from inspector.analysis.layout import OURS, Layout, LayoutError, conv_to_ours, h_to_ours, parse_layout
from inspector.analysis.profile import Candidate, LayerState
from inspector.analysis.tensorfile import TensorFile, json_metadata, some_names
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


def judge_files(
    a: Path | str, b: Path | str, left: Side = OUR_SIDE, right: Side = OUR_SIDE, arithmetic: str = ""
) -> Verdict:
    """Verdict for found ``a`` against expected ``b``.

    Raises:
        UserError: one cannot be read, or their layers and shapes cannot be compared.
        ValueError: ``arithmetic`` has no default limits.
    """
    found, others = open_states(a, left)
    expected, more = open_states(b, right)
    right_fact = _fact(expected)
    candidates: dict[str, Candidate] = {}
    for path, places in ((a, others), (b, more)):
        for place, states in places.items():
            candidates[f"{place} of {Path(path).name}"] = _candidate(states, _fact(states), right_fact)
    try:
        verdict = judge(found, expected, dict(list(candidates.items())[:CANDIDATES]), arithmetic=arithmetic)
    except TensorError as error:
        raise UserError(f"{a} against {b}: {error}.") from None
    missing = sorted(set(found) ^ set(expected))
    if missing:
        return replace(verdict, flags=(*verdict.flags, f"layers {missing[:8]} are in one file only"))
    return verdict


def _fact(states: FileStates) -> tuple[int | None, int | None]:
    """(owner, position) of the place as the metadata of our own exports tells them; position only where h and conv
    agree. None for what is not told."""
    facts = json_metadata(states.file.metadata, "places")
    fact = facts.get(states.place) if isinstance(facts, dict) else None
    if not isinstance(fact, dict):
        return None, None
    owner, h, conv = (value if type(value := fact.get(key)) is int else None for key in ("owner", "h", "conv"))
    return owner, h if h == conv else None


def _candidate(
    states: FileStates, fact: tuple[int | None, int | None], right: tuple[int | None, int | None]
) -> Candidate:
    """A place as a candidate: foreign when both owners are told and differ, else with its distance in tokens."""
    (owner, position), (right_owner, right_position) = fact, right
    if owner is not None and right_owner is not None and owner != right_owner:
        return Candidate(states, owner=f"r{owner}")
    known = position is not None and right_position is not None
    return Candidate(states, tokens=position - right_position if known else None)  # type: ignore[operator]


def report(verdict: Verdict) -> dict[str, Any]:
    """The verdict as plain data for JSON; infinities and NaN become texts."""
    data = asdict(replace(verdict, profile=()))
    data["detail"] = verdict.detail
    data["profile"] = [
        {"layer": line.layer, "h": _number(line.h.error), "conv": _number(line.conv.error)} for line in verdict.profile
    ]
    return data


def _number(value: float) -> float | str:
    return value if value - value == 0.0 else str(value)
