"""Since when is a state wrong? The commit points of its request, checked one after another against golden.

Digests in the record are enough where the engine is exact: nothing is executed again. Otherwise bytes are fetched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.events import Golden
from inspector.analysis.noise import NoiseFloor
from inspector.analysis.verdict import judge
from inspector.judging.states import Subject, equal, read, states_of, subject
from inspector.judging.suspects import digests_of
from sessions.errors import NotAvailable

if TYPE_CHECKING:
    from sessions.timeline import Timeline

POINTS = ("round", "round_end", "rollback", "sync")
LINEAR = 400
"""Commit points that are looked at one by one; of more, the first wrong one is found by halving."""


@dataclass(frozen=True, slots=True)
class Origin:
    """``wrong`` is the first commit point at which the state was wrong, ``right`` the last before it that was (0: none
    was)."""

    wrong: int
    right: int


def origin(timeline: Timeline, about: Subject, floor: NoiseFloor | None, exact: bool) -> Origin | None:
    """The commit point at which the live state of ``about`` went wrong; None when it is right, or cannot be told."""
    points = _points(timeline, about)
    if not points or not _wrong(timeline, about.req, points[-1], about.branch, floor, exact):
        return None
    if len(points) > LINEAR:
        low, high = -1, len(points) - 1
        while high - low > 1:
            middle = (low + high) // 2
            if _wrong(timeline, about.req, points[middle], about.branch, floor, exact):
                high = middle
            else:
                low = middle
        return Origin(points[high], points[low] if low >= 0 else 0)
    right, wrong = 0, 0
    for point in points:
        if not _wrong(timeline, about.req, point, about.branch, floor, exact):
            right, wrong = point, 0
        elif not wrong:
            wrong = point
    return Origin(wrong, right) if wrong else None


def _points(timeline: Timeline, about: Subject) -> list[int]:
    """Commit points of the request at which nothing is on its way into live; only the first "round" counts."""
    found: list[int] = []
    begun = False
    low = timeline.first
    while low <= about.seq:
        for event in timeline.events(low, min(low + 255, about.seq), about.branch):
            # whoever waits for the secondary stream, everybody's copies have landed
            mine = event.req == about.req or (event.kind == "sync" and begun)
            if not mine or event.kind not in POINTS or (event.kind == "round" and begun):
                continue
            begun = begun or event.kind == "round"
            view = timeline.view_at(event.seq, about.branch)
            request, live = view.requests.get(about.req), view.live(about.req)
            if request is None or live is None or live.queued or request.status == "finished":
                continue
            found.append(event.seq)
        low += 256
    return found


def _wrong(timeline: Timeline, req: int, seq: int, branch: int, floor: NoiseFloor | None, exact: bool) -> bool:
    try:
        about = subject(timeline, req, seq, branch)
    except NotAvailable:
        return False
    view = timeline.view_at(seq, branch)
    asked = Golden(tokens=about.tokens, chunks=about.chunks, rows=about.rows)
    (golden,) = timeline.compute(asked, timeline.now, timeline.branch)
    right = states_of(golden)
    live = view.states.get(about.place)
    if exact and live is not None and len(live.digests) == len(right) and live.h_writer and live.conv_writer:
        return live.digests != digests_of(right)
    found = read(timeline, about.sources, seq, branch)
    if equal(found, right):
        return False
    return not judge(found, right, floor=floor, arithmetic=view.start.dtype).benign
