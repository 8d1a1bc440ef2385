"""The values of the expression language: facts of a view, places, tensors at places; and the scope they are read in.

A value is a number, a text, a bool, ``none``, a tuple of those, or one of the fact types below. ``none`` means "nothing
is known here": arithmetic with it gives ``none`` and every comparison with it is false, except a comparison with the
word ``none`` itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from engine.events import Event, Place, TensorRef
from sessions.finding import Finding
from sessions.view import LedgerView, PoolFact, PrefixFact, RequestFact, RingFact, StateFact

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]
    TensorReader = Callable[[TensorRef, int], Array]

PARTS = ("h", "conv")


class ValueProblem(ValueError):
    """A value that cannot be had; the expression that asked adds where."""


@dataclass(frozen=True, slots=True)
class PlaceValue:
    """A place of a view. ``place`` is None when the request has no slot."""

    place: Place | None
    name: str = ""


@dataclass(frozen=True, slots=True)
class Tensors:
    """A part of a place: of one layer, or of all recurrent layers when ``layer`` is None; ``index`` picks inside."""

    place: Place
    part: str
    layer: int | None = None
    index: tuple[int, ...] = ()


@dataclass(slots=True)
class Scope:
    """What names mean: a view, the event that led to it, the request that bare names speak of."""

    view: LedgerView
    event: Event | None = None
    req: int = -1
    tensors: TensorReader | None = None
    findings: Callable[[LedgerView], tuple[Finding, ...]] | None = None
    extras: Mapping[str, Any] = field(default_factory=dict)

    def request(self) -> RequestFact | None:
        return self.view.requests.get(self.req)

    def state(self, value: PlaceValue) -> StateFact | None:
        return self.view.states.get(value.place) if value.place is not None else None

    def place(self, kind: str, index: int = 0, req: int | None = None) -> PlaceValue:
        """``kind`` of a request (the current one), or of the prefix region."""
        if kind == "prefix":
            return PlaceValue(Place("prefix", -1, index), f"prefix {index}")
        request = self.view.requests.get(self.req if req is None else req)
        if request is None or request.slot < 0:
            return PlaceValue(None, kind)
        return PlaceValue(Place(kind, request.slot, index), kind)

    def arrays(self, value: Tensors) -> Iterator[tuple[int, Array]]:
        """(layer, array) of each layer that ``value`` names. Raises ValueProblem when there are no tensors here."""
        if self.tensors is None:
            raise ValueProblem("tensors cannot be read here: this source has facts only")
        known = self.view.start.recurrent_layers
        if value.layer is not None and value.layer not in known:
            some = ", ".join(map(str, known[:12])) + (", ..." if len(known) > 12 else "")
            raise ValueProblem(f"layer {value.layer} has no recurrent state; the layers that have: {some or 'none'}")
        for layer in known if value.layer is None else (value.layer,):
            array = self.tensors(TensorRef(value.place, layer, value.part), self.view.seq)
            if value.index:
                if len(value.index) > array.ndim or any(
                    not -size <= i < size for i, size in zip(value.index, array.shape, strict=False)
                ):
                    shape = "x".join(map(str, array.shape))
                    raise ValueProblem(f"index {list(value.index)} is outside {value.part} of shape {shape}")
                array = array[value.index]
            yield layer, array


def plain(value: Any, scope: Scope) -> Any:
    """What arithmetic and comparisons see: a request is its number, a pool its use, one element its value."""
    if isinstance(value, RequestFact):
        return value.req
    if isinstance(value, PoolFact):
        return value.used
    if isinstance(value, Place):
        return value.to_text()
    if isinstance(value, Tensors) and value.layer is not None:
        _, array = next(scope.arrays(value))
        if array.ndim == 0:
            return float(array)
    return value


NOUNS: tuple[tuple[type[Any], str], ...] = (
    (RequestFact, "request"),
    (PlaceValue, "place"),
    (RingFact, "ring"),
    (PoolFact, "pool"),
    (PrefixFact, "prefix"),
    (Place, "place name"),
)


def kind_of(value: Any) -> str:
    """The noun for a value in an error."""
    if value is None:
        return "none"
    for cls, noun in NOUNS:
        if isinstance(value, cls):
            return f"a {noun}"
    nouns = {bool: "a truth value", int: "a number", float: "a number", str: "a text", tuple: "a list"}
    if isinstance(value, Event):
        return "an event"
    return "a tensor" if isinstance(value, Tensors) else nouns.get(type(value), "a value")
