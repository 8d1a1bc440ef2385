"""What dialogs offer, worked out from the frame."""

from __future__ import annotations

from engine.events import Place
from inspector.tui.frame import Frame

Choice = tuple[str, str, str]  # the answer, what it is, what it means
"""(key shown first, description, answer given)."""


def rollback_choices(frame: Frame) -> list[Choice]:
    """Ring entries newest first, then the latest boundary. While a round is open its outputs are still to come, and are
    dropped too."""
    request = frame.request
    if request is None:
        return []
    out: list[Choice] = []
    more = " and what the round adds" if request.round.open else ""
    for entry in reversed(request.ring.entries):
        dropped = request.outputs - entry.token_position
        if entry.saved:
            out.append(
                (f"ring {entry.ring_slot}", f"{entry.token_position} outputs kept, {dropped}{more} dropped",
                 f"ring {entry.ring_slot}")
            )  # fmt: skip
    out.append(("boundary", "the last boundary that has a snapshot", "boundary"))
    return out


def rollback_remark(frame: Frame) -> str:
    """What happens before a rollback: the open round ends. "" between rounds."""
    request = frame.request
    if request is None or not request.round.open:
        return ""
    return f"Round {request.round.number} is open and ends first; it may add outputs and ring entries."


def diff_choices(frame: Frame) -> list[Choice]:
    """Bases that exist now: the places of the focused request, then instants and computed states."""
    out: list[Choice] = [("previous", "the same place before it was last written", "previous")]
    request, view = frame.request, frame.view
    if request is not None and request.slot >= 0:
        if view.states.get(Place("checkpoint", request.slot)) is not None:
            out.append(("checkpoint", "the copy taken before the last verify", "checkpoint"))
        for index in range(view.start.k):
            state = view.states.get(Place("step", request.slot, index))
            if state is not None and state.h_position is not None:
                out.append(
                    (f"step {index}", f"the state after verify row {index}, at {state.h_position}", f"step {index}")
                )
        for entry in reversed(request.ring.entries):
            if entry.saved:
                name = f"ring {entry.ring_slot}"
                out.append((name, f"saved after {entry.token_position} outputs", name))
    for index, fact in sorted(view.prefixes.items()):
        out.append((f"prefix {index}", f"cached snapshot of {fact.tokens} tokens", f"prefix {index}"))
    out += [
        ("golden", "recomputed from the committed tokens", "golden"),
        ("twin", "the same request without speculation", "twin"),
    ]
    out += [(f"'{name}", f"bookmark at event {seq}", f"'{name}") for seq, name in frame.marks.bookmarks]
    return out
