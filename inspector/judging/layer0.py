"""The layer-0 oracle at commit points: layer 0, recomputed from the committed ids, against the live bytes.

When the first layer is recurrent its h and conv follow from the token ids alone, and one more token costs one more step
of one layer. It is asked when a round ends, after a rollback, and when the secondary stream was waited for, about every
request whose live state is settled then. In an exact session nothing may differ, not even by rounding; once rows were
verified in a batch, what lies within the measured noise floor is taken for rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.events import Event, FirstLayer, TensorData, TensorRef
from inspector.analysis.moments import moments
from inspector.analysis.noise import NoiseFloor
from inspector.judging.floor import measure_first
from inspector.judging.states import Subject, right_position
from inspector.judging.windows import decode_with
from sessions.finding import Finding

if TYPE_CHECKING:
    from engine.events import EnginePort, Place
    from sessions.view import LedgerView, RequestFact

NAME = "layer0-oracle"
REMEMBERED = 256
POINTS = frozenset(("round_end", "rollback", "sync"))


@dataclass(frozen=True, slots=True)
class FirstDiff:
    """Layer 0 of one request against its recomputation. ``beyond``: more than rounding."""

    h: float
    conv: float
    equal: bool
    beyond: bool


class LayerZero:
    """Asked by the live edge after each event; gives findings. ``every`` n looks at every n-th commit point only.

    ``strict``: a difference within the noise floor is a finding too; None (the default) means in exact sessions, where
    the engine claims the same bits."""

    def __init__(self, every: int = 1, strict: bool | None = None) -> None:
        self.on, self.every, self.strict = True, every, strict
        self.asked = self.compared = 0
        self._floor: NoiseFloor | None = None
        self._right: dict[tuple[int, Place], tuple[object, ...]] = {}

    def __call__(self, before: LedgerView, event: Event, after: LedgerView, engine: EnginePort) -> list[Finding]:
        if event.kind not in POINTS or not self.on or 0 not in after.start.recurrent_layers:
            return []
        self.asked += 1
        if self.asked % self.every:
            return []
        findings = []
        try:
            for req, request in after.requests.items():
                if request.slot >= 0 and request.status == "running":
                    findings += self._check(event, after, req, request, engine)
        except ValueError:  # this engine does not recompute; golden and judge say so in words
            self.on = False
        return findings

    def applies(self, view: LedgerView) -> bool:
        """Whether this model has a recurrent layer 0."""
        return 0 in view.start.recurrent_layers

    def wants_bits(self, view: LedgerView) -> bool:
        """Whether any difference counts: nothing in this session was absorbed by batched rows."""
        if self.strict is not None:
            return self.strict
        return view.start.verify_mode == "exact" and not view.counters.get("verifies.batched", 0)

    def floor(self, engine: EnginePort, view: LedgerView) -> NoiseFloor:
        """The noise floor of layer 0, measured on first use."""
        if self._floor is None:
            self._floor = measure_first(engine.compute, view.start)
        return self._floor

    def _check(
        self, event: Event, view: LedgerView, req: int, request: RequestFact, engine: EnginePort
    ) -> list[Finding]:
        about = _settled(view, request)
        if about is None:
            return []
        known = (about.tokens, about.chunks)
        live = view.states[about.place]
        token = (known, live.h_writer, live.conv_writer, live.digests)
        # a request that nothing was done to since it was found right; without digests its bytes are compared again
        if live.digests and self._right.get((req, about.place)) == token and (event.req != req or event.kind == "sync"):
            return []
        self._right.pop((req, about.place), None)
        h, conv = (engine.read(TensorRef(about.place, 0, part)) for part in ("h", "conv"))
        (right,) = engine.compute(FirstLayer(tokens=about.tokens, chunks=about.chunks))
        self.compared += 1
        if h.raw == right.h[0].raw and conv.raw == right.conv[0].raw:
            if len(self._right) >= REMEMBERED:
                self._right.clear()
            self._right[req, about.place] = token
            return []
        diff = difference(h, conv, right.h[0], right.conv[0], self.floor(engine, view))
        if not diff.beyond and not self.wants_bits(view):
            return []
        return [_finding(event, view, about, diff, conv, engine)]


def difference(
    h: TensorData, conv: TensorData, right_h: TensorData, right_conv: TensorData, floor: NoiseFloor
) -> FirstDiff:
    """Errors of both parts of layer 0 against the recomputed ones."""
    a, b = moments(h, right_h), moments(conv, right_conv, heads=1)
    bad = a.bad_a + b.bad_a > 0
    beyond = bad or a.error > floor.limit(0, "h") or b.error > floor.limit(0, "conv")
    return FirstDiff(a.error, b.error, h == right_h and conv == right_conv, beyond)


def _settled(view: LedgerView, request: RequestFact) -> Subject | None:
    """The live state of a request with the tokens it should have absorbed; None while a copy into it is on its way, in
    the middle of a verify, or when its tokens are not known."""
    live = view.live(request.req)
    if live is None or live.queued or not (live.h_writer or live.conv_writer):
        return None
    state = request.round
    if state.open and state.rows and not state.accepted:
        return None
    position = right_position(request)
    tokens = request.tokens[:position]
    if not position or len(tokens) < position or -1 in tokens:
        return None
    chunks = tuple(span for span in request.chunks if span[1] <= position)
    future = request.rejected or request.tokens[position:]
    return Subject(0, view.seq, request.req, live.place, tokens, chunks, (live.place, live.place), future)


def _finding(
    event: Event, view: LedgerView, about: Subject, diff: FirstDiff, conv: TensorData, engine: EnginePort
) -> Finding:
    live = view.states[about.place]
    writer = max(live.h_writer, live.conv_writer)
    if not diff.beyond:
        text = (
            f"layer 0 of {about.place} is not bit-equal to the one computed from the {about.position} tokens of "
            f"r{about.req} (h {diff.h:.1e}, conv {diff.conv:.1e}): rounding, so another kernel absorbed them than an "
            "exact session uses"
        )
    else:
        text = (
            f"layer 0 of {about.place} is not what the {about.position} tokens of r{about.req} give: h is off by "
            f"{diff.h:.2g}, conv by {diff.conv:.2g}; {_window(engine, view, about, conv)}"
        )
    found = f"h {diff.h:.2g}, conv {diff.conv:.2g} off, written at @{writer}"
    return Finding(
        NAME, event.seq, about.req, str(about.place), f"the state after {about.position} tokens", found, text
    )


def _window(engine: EnginePort, view: LedgerView, about: Subject, conv: TensorData) -> str:
    try:
        reading = decode_with(engine, conv, view, about).reading
    except ValueError as error:
        return f"its window cannot be read: {error}"
    return f"its window says: {reading.text('live')}"
