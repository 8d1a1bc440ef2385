"""Tensors and states asked for by name, computations beside the session, and the port itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

from engine.codec import Record
from engine.events.actions import Action
from engine.events.base import Event, Place
from engine.events.requests import Start


@dataclass(frozen=True, slots=True)
class TensorRef:
    """Which tensor: a place, a model layer number (``Start.recurrent_layers``) and a part, h or conv."""

    place: Place
    layer: int
    part: str


@dataclass(frozen=True, slots=True)
class TensorData:
    """A tensor as plain data: little-endian ``raw`` bytes in C order, ``dtype`` a torch/numpy name (bfloat16 too)."""

    dtype: str
    shape: tuple[int, ...]
    raw: bytes


@dataclass(frozen=True, slots=True)
class StateData:
    """Whole states as plain data: ``h`` and ``conv`` one tensor per entry of ``layers`` (model layer numbers), the
    logits [V] of the last token, and how many ``tokens`` were absorbed."""

    layers: tuple[int, ...]
    h: tuple[TensorData, ...]
    conv: tuple[TensorData, ...]
    logits: TensorData | None = None
    tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Computation(Record):
    """Something recomputed from token ids beside the session, which it does not disturb."""

    kind: ClassVar[str] = "computation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Absorbing(Computation):
    """``tokens`` absorbed from scratch, one by one but for what is in spans: the (start, end) in ``chunks`` as prefill
    chunks, and the (start, end, rejected ids ...) in ``rows`` as the accepted rows of a batched verify, whose shape the
    rejected ones were part of. With the session's own spans a healthy session is met bit for bit."""

    kind: ClassVar[str] = "absorbing"
    tokens: tuple[int, ...] = ()
    chunks: tuple[tuple[int, int], ...] = ()
    rows: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Golden(Absorbing):
    """All states. ``form`` steps: as :class:`Absorbing` says; ``form`` prefill: all in chunks of ``chunk``."""

    kind: ClassVar[str] = "golden"
    form: str = "steps"
    chunk: int = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstLayer(Absorbing):
    """h and conv of layer 0, when it is recurrent: they follow from the token ids alone, and so do those of further
    recurrent layers up to the first attention layer, of which ``layers`` are wanted in all."""

    kind: ClassVar[str] = "first_layer"
    layers: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns(Computation):
    """What the conv window of the first recurrent layer stores for each of ``tokens``: ``conv[0]`` is [n, channels]."""

    kind: ClassVar[str] = "columns"
    tokens: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerun(Computation):
    """Run ``tokens`` on a copy of the state at ``place`` and of the KV of ``req`` below ``position``: ``form`` steps
    (one by one), rows (all at once, as a batched verify), prefill (as one chunk), replay (the recorded inputs of the
    last verify again; replay mode only). One :class:`StateData` after each token; prefill gives only the last.
    ``empty``: begin from an all-zero state instead of the one at ``place``. ``twice``: absorb the first token one more
    time before, at the same position. ``conv_from``: take conv from that place instead."""

    kind: ClassVar[str] = "rerun"
    req: int = -1
    place: Place = Place("checkpoint", 0)
    position: int = 0
    tokens: tuple[int, ...] = ()
    form: str = "steps"
    empty: bool = False
    twice: bool = False
    conv_from: Place | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Residuals(Rerun):
    """The residual stream of ``tokens`` fed as in :class:`Rerun`, forms steps, rows and prefill. One
    :class:`StateData`: ``h`` holds the stream [n, hidden] before the first block and after each one (the mixer, then
    the feed-forward of each layer), ``layers`` the layer of each block. With ``history`` the state and the KV before
    ``tokens`` are computed from these ids from scratch, by ``chunks`` and ``rows`` as in :class:`Absorbing`, and place
    is not used."""

    kind: ClassVar[str] = "residuals"
    history: tuple[int, ...] = ()
    chunks: tuple[tuple[int, int], ...] = ()
    rows: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadRow(Computation):
    """What the MTP head gives for its newest feeding of ``req``, run again from the trunk's hidden states, the
    committed tokens and the head's own KV below them. One :class:`StateData`: ``h`` holds the head's hidden [hidden] of
    the newest row as it is computed now, then the one that the engine drafts from; ``tokens`` is its position + 1."""

    kind: ClassVar[str] = "head_row"
    req: int = -1


class EnginePort(Protocol):
    """What a timeline needs of an engine; the same calls must be able to cross a process boundary."""

    def perform(self, action: Action) -> Iterator[Event]:
        """Do ``action``, yielding each fact right after it happened; may be left paused between two of them. Only one
        action at a time. Raises EngineRefusal (a ValueError) before the first event when it cannot be done."""

    def answer(self, what: str, value: int | tuple[int, ...]) -> None:
        """Answer the ``Decision`` the paused action waits at, instead of the policy."""

    def taken(self) -> Action:
        """The action performed last, with every decision taken written into it."""

    def read(self, ref: TensorRef) -> TensorData:
        """The bytes at a place now. Raises KeyError for a place this engine does not have."""

    def save(self) -> dict[str, TensorData]:
        """Everything needed to continue, between two actions."""

    def load(self, image: Mapping[str, TensorData]) -> None:
        """Inverse of :meth:`save`, exactly."""

    def start(self) -> Start:
        """The first event of a run of this engine."""

    def tokens(self, text: str) -> tuple[int, ...]:
        """Token ids of a text. Raises ValueError without a tokenizer."""

    def text(self, token: int) -> str | None:
        """Text of one token, whether or not the run has told it yet; None without a tokenizer."""

    def runnable(self) -> tuple[int, ...]:
        """Requests that have work left, in the order of their turns."""

    def compute(self, computation: Computation) -> tuple[StateData, ...]:
        """Recompute states beside the session. Raises EngineRefusal when this model cannot."""

    def cancel(self) -> None:
        """Drop the paused action, if any; state is as the facts so far say."""
