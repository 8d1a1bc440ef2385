"""Small phrases about facts that several panes share."""

from __future__ import annotations

from inspector.text import plural
from inspector.tui.frame import Frame
from inspector.tui.text import Span
from sessions.finding import Finding
from sessions.view import LedgerView, RequestFact, StateFact

SHORT = {
    "verify_row": "row",
    "replay_row": "replay",
    "ring_save": "save",
    "ring_restore": "restore",
    "prefix_save": "cache",
    "prefix_hit": "hit",
    "state_rollback": "rollback",
    "checkpoint": "ckpt",
}


def position_spans(state: StateFact | None) -> Span:
    """``318``, ``319/321`` when h and conv differ, a dash when nobody wrote it."""
    if state is None or (state.h_position is None and state.conv_position is None):
        return "–", "faint"
    if state.h_position == state.conv_position:
        return str(state.h_position), "text"
    if state.place.kind == "step" and state.h_position is None:
        # there are K conv planes but K - 1 h planes: the last row's h is live itself
        return f"–/{state.conv_position}", "dim"
    h = "–" if state.h_position is None else state.h_position
    conv = "–" if state.conv_position is None else state.conv_position
    return f"{h}/{conv}", "bad"


def last_writer(state: StateFact | None) -> int:
    """Number of the event that wrote a state last, 0 when none did."""
    return 0 if state is None else max(state.h_writer, state.conv_writer)


def writer_text(frame: Frame, state: StateFact | None) -> str:
    """``988 commit``: number of the last writer, and its kind when the event is near."""
    writer = last_writer(state)
    if not writer:
        return "–"
    rows = frame.events
    if rows and rows[0].seq <= writer <= rows[-1].seq:
        for row in rows:
            if row.seq == writer:
                return f"{writer} {SHORT.get(row.kind, row.kind)}"
    return str(writer)


def skew(view: LedgerView, request: RequestFact) -> int:
    """Largest difference between the positions of h, conv and the KV cursor of a request; 0 without a state."""
    live = view.live(request.req)
    if live is None or live.h_position is None or live.conv_position is None:
        return 0
    places = (live.h_position, live.conv_position, request.cursor)
    return max(places) - min(places)


def rows_ahead(view: LedgerView, request: RequestFact) -> int:
    """Rows that a dirty live state has absorbed beyond the committed tokens; 0 when it is clean."""
    live = view.live(request.req)
    if live is None or not live.dirty or live.h_position is None:
        return 0
    return live.h_position - request.expected


def consequence(frame: Frame, finding: Finding) -> str:
    """What a finding means, its point first: ``conv is 2 tokens ahead of h and KV (26 vs 24)``. Positions are told only
    while they are what the finding found; anything else in its own sentence, and as values when it has none."""
    request = frame.view.requests.get(finding.req)
    live = frame.view.live(finding.req)
    about_live = finding.name.replace(" ", "-") in ("positions-agree", "layer0-oracle")
    if request is not None and live is not None and about_live and not live.dirty:
        told = _odd_one(live.h_position, live.conv_position, request.cursor)
        if told:
            return told
    return finding.text or values_text(finding)


def values_text(finding: Finding) -> str:
    """Both values of a finding, "" when it has none."""
    if not finding.found and not finding.expected:
        return ""
    return f"found {finding.found or '-'}, expected {finding.expected or '-'}"


def elsewhere_text(elsewhere: tuple[tuple[int, int], ...]) -> str:
    """``branch 1 has 2 findings: branch 1 goes there``; "" when no other branch has any."""
    if not elsewhere:
        return ""
    told = ", ".join(f"branch {number} has {plural(count, 'finding')}" for number, count in elsewhere[:3])
    more = f", {len(elsewhere) - 3} more branches have some" if len(elsewhere) > 3 else ""
    return f"{told}{more}: branch {elsewhere[0][0]} goes there"


def _odd_one(h: int | None, conv: int | None, kv: int) -> str:
    """Which of the three positions stands alone, and where; "" when they agree or one is unknown."""
    if h is None or conv is None or h == conv == kv:
        return ""
    at = {"h": h, "conv": conv, "KV": kv}
    for name, position in at.items():
        others = [other for other in at if other != name]
        if at[others[0]] == at[others[1]]:
            off = position - at[others[0]]
            way = "ahead of" if off > 0 else "behind"
            unit = "token" if abs(off) == 1 else "tokens"
            return f"{name} is {abs(off)} {unit} {way} {' and '.join(others)} ({position} vs {at[others[0]]})"
    return f"h, conv and KV differ: {h}, {conv} and {kv}"


def phase_text(frame: Frame) -> str:
    """``verify, 3 drafts`` or ``verify 2/4``: what the round of the focused request is doing."""
    request = frame.request
    if request is None:
        return ""
    facts = request.round
    if facts.open:
        phase = facts.phase.removeprefix("decide:")
        return f"{facts.mode} · {phase}" if phase and phase != facts.mode else facts.mode
    if facts.mode == "verify" and facts.accepted:
        return f"verify {facts.accepted}/{facts.k}"
    return facts.mode
