"""The twin: the same request without speculation on an engine of its own, compared token by token, state by state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.events import Decode, Fork, NewRequest, Place, Prefill, Request, RunRound, TensorRef
from inspector.analysis.profile import LayerState
from inspector.judging.states import equal, read, subject
from sessions.errors import NotAvailable

if TYPE_CHECKING:
    from engine.events import EnginePort
    from sessions.timeline import Timeline
    from sessions.view import RequestFact


@dataclass(frozen=True, slots=True)
class TwinResult:
    """``tokens`` outputs were compared. ``at`` is the first output that differs (-1: none), ``mine`` and ``other`` the
    two tokens, ``margin`` how far the twin put its own above the next one. ``states``: equal, differ, or why not
    known."""

    tokens: int
    at: int = -1
    mine: int = -1
    other: int = -1
    margin: float = 0.0
    states: str = ""

    @property
    def same(self) -> bool:
        return self.at < 0 and self.states != "differ"


class Twin:
    """Begins the request again on a fresh engine, drafter none. A fork is begun like its parent, and its inherited
    outputs are given.

    Raises:
        NotAvailable: no second engine can be made, or the record does not tell how the request began.
    """

    def __init__(self, timeline: Timeline, req: int) -> None:
        self.timeline, self.req = timeline, req
        told, inherited = _beginning(timeline, req)
        self.engine: EnginePort = timeline.second_engine()
        self.outputs: list[int] = []
        self.margins: list[float] = []
        self._given = inherited
        self._slot = 0
        self.position = 0
        action = NewRequest(
            prompt=told.prompt, max_tokens=1 << 20, seed=told.seed, temperature=told.temperature, top_k=told.top_k,
            top_p=told.top_p, ignore_eos=True, drafter="none",
        )  # fmt: skip
        self.engine.start()
        for _ in self.engine.perform(action):
            pass

    def advance(self, outputs: int) -> None:
        """Run on until there are as many outputs. Raises NotAvailable when it cannot."""
        while len(self.outputs) < outputs:
            at = len(self.outputs)
            token = self._given[at] if at < len(self._given) else -1
            done = False
            for event in self.engine.perform(RunRound(drafts=(), token=token)):
                if isinstance(event, (Prefill, Decode)):
                    self._slot, self.position = event.slot, event.cursor
                if isinstance(event, Decode):
                    self.margins += [0.0] * (at + 1 - len(self.margins))
                    self.margins[at] = event.margin
                if event.kind == "emit":
                    self.outputs.append(event.token)  # type: ignore[attr-defined]
                done = done or event.kind == "finish"
            if done:
                raise NotAvailable(f"the twin of r{self.req} ended after {len(self.outputs)} outputs")

    def states(self) -> dict[int, LayerState]:
        """Its live state by layer."""
        live = Place("live", self._slot)
        return {
            layer: LayerState(*(self.engine.read(TensorRef(live, layer, part)) for part in ("h", "conv")))
            for layer in self.timeline.start.recurrent_layers
        }

    def compare(self, request: RequestFact, seq: int, branch: int) -> TwinResult:
        """Outputs of ``request``, and its state when both have absorbed the same tokens."""
        self.advance(request.outputs)
        mine = request.tokens[request.prompt_len :]
        for at, (a, b) in enumerate(zip(mine, self.outputs, strict=False)):
            if a != b:
                margin = self.margins[at] if at < len(self.margins) else 0.0
                return TwinResult(at + 1, at, a, b, margin, "")
        if request.slot < 0:
            return TwinResult(len(mine), states="the request has no state any more")
        about = subject(self.timeline, self.req, seq, branch)
        if about.position != self.position:
            return TwinResult(len(mine), states=f"not compared: the twin is at {self.position}, not {about.position}")
        found = read(self.timeline, about.sources, seq, branch)
        return TwinResult(len(mine), states="equal" if equal(found, self.states()) else "differ")


def _beginning(timeline: Timeline, req: int) -> tuple[Request, tuple[int, ...]]:
    """How ``req`` began, and the outputs it inherited."""
    told: Request | None = None
    inherited: tuple[int, ...] = ()
    for seq in range(timeline.first, timeline.now + 1, 256):
        for event in timeline.events(seq, min(seq + 255, timeline.now)):
            if event.req == req and isinstance(event, Fork):
                inherited = event.outputs
            if event.req == req and isinstance(event, Request):
                told = event
    if told is None:
        raise NotAvailable(f"the record does not tell how r{req} began")
    return told, inherited
