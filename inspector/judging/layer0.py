"""The layer-0 oracle at commit points: layer 0, recomputed from the committed ids, against the live bytes.

When the first layer is recurrent its h and conv follow from the token ids alone, and one more token costs one more step
of one layer. It is asked when a round ends, after a rollback, and when the secondary stream was waited for, about every
request whose live state is settled then. In replay mode the rows of a verify are looked at before the commit: it runs
the recorded inputs again from the checkpoint, which makes layer 0 right whatever the rows had met. What the commit then
leaves in live only has to have the digest of the row it is after.

Layer 0 forgets, within a few tokens if the model wants it to; the recurrent layers between it and the first attention
layer follow from the ids as well and remember other things. They are asked after a prefill chunk that had a history,
where dropping it is a known fault.

Nothing may differ, not even by rounding: the rows of a batched verify are recomputed in the same batch. On a device
that does not promise the same bits for the same shapes, what lies within the measured noise floor is taken for rounding
once rows were verified in a batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.events import Digests, Event, FirstLayer, TensorData, TensorRef, VerifyRow
from inspector.analysis.moments import moments
from inspector.analysis.noise import NoiseFloor
from inspector.judging.floor import measure_first
from inspector.judging.states import Subject, absorbed, bitwise, right_position
from inspector.judging.windows import decode_with
from sessions.finding import Finding

if TYPE_CHECKING:
    from engine.events import EnginePort, Place
    from sessions.view import LedgerView, RequestFact

NAME = "layer0-oracle"
REMEMBERED = 256
POINTS = frozenset(("round_end", "rollback", "sync", "verify"))


@dataclass(frozen=True, slots=True)
class FirstDiff:
    """One ``layer`` of a request, 0 or a later leading one, against its recomputation: errors over finite values, and
    how many are not finite. ``beyond``: not by rounding."""

    layer: int
    h: float
    conv: float
    equal: bool
    beyond: bool
    nonfinite: int = 0

    def __str__(self) -> str:
        if self.nonfinite:
            return f"{self.nonfinite} of its values are no finite numbers"
        return f"h is off by {self.h:.2g}, conv by {self.conv:.2g}"


class LayerZero:
    """Asked by the live edge after each event; gives findings. ``every`` n looks at every n-th commit point only.

    ``strict``: a difference within the noise floor is a finding too; None (the default) means where the same bits can
    be expected, see :func:`bitwise`. ``refused`` is why the engine did not compute the last time it did not."""

    def __init__(self, every: int = 1, strict: bool | None = None) -> None:
        self.on, self.every, self.strict, self.refused = True, every, strict, ""
        self.asked = self.compared = 0
        self._floors: dict[int, NoiseFloor] = {}
        self._right: dict[tuple[int, Place], tuple[object, ...]] = {}
        # Replay mode: digests of layer 0 after each row of the running verify, and by request those found right.
        self._seen: list[Digests] = []
        self._rows: dict[int, tuple[int, tuple[Digests, ...]]] = {}

    def __call__(self, before: LedgerView, event: Event, after: LedgerView, engine: EnginePort) -> list[Finding]:
        if not self.on or 0 not in after.start.recurrent_layers:
            return []
        replay = after.start.rollback_mode == "replay"
        if replay and isinstance(event, VerifyRow):
            self._seen = [*self._seen[: event.row], event.digests[:1]]
        if event.kind not in POINTS or (event.kind == "verify" and not replay):
            return []
        self.asked += 1
        if self.asked % self.every:
            return []
        findings = []
        try:
            for req, request in after.requests.items():
                if request.slot >= 0 and request.status == "running" and (event.kind != "verify" or req == event.req):
                    findings += self._check(event, after, req, request, engine)
        except ValueError as error:  # this engine cannot, or not this
            self.refused = str(error)
        return findings

    def applies(self, view: LedgerView) -> bool:
        """Whether this model has a recurrent layer 0."""
        return 0 in view.start.recurrent_layers

    def wants_bits(self, view: LedgerView) -> bool:
        """Whether any difference counts."""
        return bitwise(view) if self.strict is None else self.strict

    def floor(self, engine: EnginePort, view: LedgerView, layers: int = 1) -> NoiseFloor:
        """The noise floor of the first ``layers`` layers, measured on first use."""
        if layers not in self._floors:
            self._floors[layers] = measure_first(engine.compute, view.start, layers)
        return self._floors[layers]

    def _check(
        self, event: Event, view: LedgerView, req: int, request: RequestFact, engine: EnginePort
    ) -> list[Finding]:
        about = _rows(view, request) if event.kind == "verify" else _settled(view, request)
        if about is None:
            return []
        known = (about.tokens, about.chunks, about.rows)
        live = view.states[about.place]
        token = (known, live.h_writer, live.conv_writer, live.digests)
        # a request that nothing was done to since it was found right; without digests its bytes are compared again
        if live.digests and self._right.get((req, about.place)) == token and (event.req != req or event.kind == "sync"):
            return []
        self._right.pop((req, about.place), None)
        if event.kind == "round_end" and self._run_again(request, live.digests[:1]):
            return []
        layers = _layers(view, about)
        asked = FirstLayer(tokens=about.tokens, chunks=about.chunks, rows=about.rows, layers=layers)
        (right,) = engine.compute(asked)
        self.compared += 1
        for layer in range(layers):
            h, conv = (engine.read(TensorRef(about.place, layer, part)) for part in ("h", "conv"))
            if h.raw == right.h[layer].raw and conv.raw == right.conv[layer].raw:
                continue
            diff = difference(h, conv, right.h[layer], right.conv[layer], self.floor(engine, view, layers), layer)
            if diff.beyond or self.wants_bits(view):
                return [_finding(event, view, about, diff, conv, engine)]
            return []  # rounding here is rounding from here on
        if len(self._right) >= REMEMBERED:
            self._right.clear()
            self._rows.clear()
        self._right[req, about.place] = token
        if event.kind == "verify":
            self._rows[req] = request.round.base, tuple(self._seen)
        return []

    def _run_again(self, request: RequestFact, now: Digests) -> bool:
        """Replay mode: live has the bits that a row of this round had, in a verify that was found right."""
        base, rows = self._rows.pop(request.req, (-1, ()))
        accepted = request.round.accepted
        return bool(now) and base == request.round.base and 0 < accepted <= len(rows) and rows[accepted - 1] == now


def difference(
    h: TensorData, conv: TensorData, right_h: TensorData, right_conv: TensorData, floor: NoiseFloor, layer: int = 0
) -> FirstDiff:
    """Errors of both parts of a layer against the recomputed ones."""
    a, b = moments(h, right_h), moments(conv, right_conv, heads=1)
    bad = a.bad_a + b.bad_a
    beyond = bad > 0 or a.error > floor.limit(layer, "h") or b.error > floor.limit(layer, "conv")
    return FirstDiff(layer, a.error, b.error, h == right_h and conv == right_conv, beyond, bad)


def _layers(view: LedgerView, about: Subject) -> int:
    """All layers before the first attention layer right after a prefill chunk that had a history, else layer 0."""
    if not about.chunks or about.chunks[-1][1] != about.position or about.chunks[-1][0] == 0:
        return 1
    recurrent = view.start.recurrent_layers
    return next((n for n, layer in enumerate(recurrent) if layer != n), len(recurrent))


def _rows(view: LedgerView, request: RequestFact) -> Subject | None:
    """Live after all rows of a verify, with the tokens fed so far: the committed ones, the pending one, the drafts."""
    live, state = view.live(request.req), request.round
    if live is None or live.queued or state.base < 0 or state.rows != len(state.drafts) + 1:
        return None
    tokens = request.tokens[: state.base + 1] + state.drafts
    if len(tokens) != state.base + state.rows or -1 in tokens:
        return None
    chunks, rows = absorbed(request, tokens, len(tokens))
    return Subject(
        0, view.seq, request.req, live.place, tokens, chunks, (live.place, live.place), request.rejected, rows
    )


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
    chunks, rows = absorbed(request, request.tokens, position)
    future = request.rejected or request.tokens[position:]
    return Subject(0, view.seq, request.req, live.place, tokens, chunks, (live.place, live.place), future, rows)


def _finding(
    event: Event, view: LedgerView, about: Subject, diff: FirstDiff, conv: TensorData, engine: EnginePort
) -> Finding:
    live = view.states[about.place]
    writer = max(live.h_writer, live.conv_writer)
    if not diff.beyond:
        text = (
            f"layer {diff.layer} of {about.place} is not bit-equal to the one computed from the {about.position} "
            f"tokens of r{about.req} (h {diff.h:.1e}, conv {diff.conv:.1e}): rounding, so another kernel absorbed them "
            "than the record says"
        )
    else:
        text = (
            f"layer {diff.layer} of {about.place} is not what the {about.position} tokens of r{about.req} give: {diff}"
        )
        if diff.layer == 0:
            text += f"; {_window(engine, view, about, conv)}"
    found = f"{diff}, written at @{writer}"
    return Finding(
        NAME, event.seq, about.req, str(about.place), f"the state after {about.position} tokens", found, text
    )


def _window(engine: EnginePort, view: LedgerView, about: Subject, conv: TensorData) -> str:
    try:
        reading = decode_with(engine, conv, view, about).reading
    except ValueError as error:
        return f"its window cannot be read: {error}"
    return f"its window says: {reading.text('live')}"
