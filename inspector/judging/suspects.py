"""What a wrong state may be instead: rows of the round, other places, bytes that were somewhere before, other forwards.

Copies are exact, so places are looked up by digest: only those whose digests equal the found ones become candidates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import xxhash

from engine.events import Digests, Event, Place, Rerun, StateData, TensorData
from inspector.analysis.profile import Candidate, LayerState
from inspector.judging.rounds import Made
from inspector.judging.states import Subject, read, states_of
from sessions.errors import DivergedError, NotAvailable

if TYPE_CHECKING:
    from sessions.timeline import Timeline

MOST = 12
"""Places a round may have gone on from that are tried; each costs the round's tokens again."""
States = Mapping[int, LayerState]


@dataclass(frozen=True, slots=True)
class Seen:
    """Bytes that were written at event ``seq`` to ``place``: at ``position``, holding tokens of ``owner``."""

    seq: int
    place: Place
    position: int | None
    owner: int
    digests: Digests


def digests_of(states: States) -> Digests:
    """(h, conv) digests by layer, as the engine tells them."""
    return tuple((_digest(states[n].h), _digest(states[n].conv)) for n in sorted(states))


def _digest(tensor: object) -> str:
    return xxhash.xxh3_64_hexdigest(tensor.raw) if isinstance(tensor, TensorData) else ""


def of_rows(before: States, rows: tuple[StateData, ...], made: Made) -> dict[str, Candidate]:
    """The states before the round and after each of its rows."""
    total = len(rows)
    found = {"the state before the round": Candidate(before, -made.count)} if made.count else {}
    for number, row in enumerate(rows, 1):
        if number != made.count:
            found[f"the state after {number} of {total} rows"] = Candidate(states_of(row), number - made.count)
    return found


def other_places(timeline: Timeline, about: Subject) -> dict[str, Candidate]:
    """What all other places hold at the instant, the newest first: a part of found may be a part of one of them."""
    view = timeline.view_at(about.seq, about.branch)
    facts = [f for place, f in view.states.items() if place not in (about.place, *about.sources) and f.h_writer]
    found: dict[str, Candidate] = {}
    for fact in sorted((f for f in facts if f.conv_writer), key=lambda f: -max(f.h_writer, f.conv_writer))[:MOST]:
        own = fact.h_owner in (about.req, -1)
        tokens = fact.position - about.position if own and fact.position is not None else None
        try:
            states = read(timeline, (fact.place, fact.place), about.seq, about.branch)
        except (NotAvailable, DivergedError):
            continue
        found[str(fact.place)] = Candidate(states, tokens, "" if own else f"r{fact.h_owner}")
    return found


def seen_before(timeline: Timeline, about: Subject, found: States) -> dict[str, Candidate]:
    """States the record saw with all the same h, or all the same conv, or everything, newest first."""
    wanted = digests_of(found)
    result: dict[str, Candidate] = {}
    known: set[tuple[int, int | None, bool, bool]] = set()
    fact = timeline.view_at(about.seq, about.branch).states.get(about.place)
    itself = (fact.h_writer, fact.conv_writer) if fact is not None else ()
    for seen in _written(timeline, about):
        if len(seen.digests) != len(wanted) or seen.seq in itself:
            continue
        h = _all_equal(seen.digests, wanted, 0)
        conv = _all_equal(seen.digests, wanted, 1)
        own = seen.owner in (about.req, -1)
        tokens = seen.position - about.position if own and seen.position is not None else None
        key = (seen.owner, seen.position, h, conv)
        if not (h or conv) or key in known or (own and not tokens):
            continue
        known.add(key)
        states = {n: _kept(found[n], h, conv) for n in found}
        label = f"{seen.place} as written at event {seen.seq}"
        result[label] = Candidate(states, tokens, "" if own else f"r{seen.owner}")
    return result


def _all_equal(a: Digests, b: Digests, part: int) -> bool:
    return all(x[part] and x[part] == y[part] for x, y in zip(a, b, strict=True))


def _kept(state: LayerState, h: bool, conv: bool) -> LayerState:
    """The found bytes where the digests were equal, nothing where they were not: nothing equals a part that lacks."""
    return LayerState(state.h if h else None, state.conv if conv else None)


def _written(timeline: Timeline, about: Subject) -> Iterator[Seen]:
    """Every state that was computed up to the instant, newest first. Copies are left out: a copy that went wrong says
    where it should have come from, not what it is."""
    high = about.seq
    while high >= timeline.first:
        low = max(timeline.first, high - 255)
        for event in reversed(timeline.events(low, high, about.branch)):
            digests: Digests = getattr(event, "digests", ())
            place = _place(event)
            if not digests or place is None:
                continue
            fact = timeline.view_at(event.seq, about.branch).states.get(place)
            if fact is not None:
                yield Seen(event.seq, place, fact.position, fact.h_owner, digests)
        high = low - 1


def _place(event: Event) -> Place | None:
    if event.kind in ("replay_row", "zero"):
        return event.place  # type: ignore[no-any-return,attr-defined]
    slot = getattr(event, "slot", -1)
    if event.kind == "verify_row":
        return Place("live", slot)
    return Place("live", slot) if event.kind in ("prefill", "decode") else None


def other_forwards(timeline: Timeline, about: Subject, made: Made) -> dict[str, Candidate]:
    """What the round's tokens would have made of other starting states, by other kernels, or with one fed twice."""
    if made.place is None or not made.count:
        return {}
    fed = made.fed[: made.count]
    form = "prefill" if made.mode == "prefill" else "steps"
    plans: list[tuple[str, Rerun, int | None, str]] = []
    base = Rerun(req=about.req, place=made.place, position=made.base, tokens=fed, form=form)
    many = f"the {len(fed)} tokens" if len(fed) > 1 else "the token"
    plans.append((f"{many} of this round alone, from an empty state", replace(base, empty=True), None, ""))
    other = "steps" if form == "prefill" else "prefill"
    kernel = "token by token" if other == "steps" else "by the prefill kernel"
    plans.append((f"{many} absorbed {kernel}", replace(base, form=other), 0, ""))
    if form == "steps":
        plans.append(("the pending token absorbed twice", replace(base, twice=True), 1, ""))
    view = timeline.view_at(made.before, about.branch)
    places = [fact for place, fact in view.states.items() if place != made.place and fact.h_writer and fact.conv_writer]
    for fact in sorted(places, key=lambda fact: -max(fact.h_writer, fact.conv_writer))[:MOST]:
        own = fact.h_owner in (about.req, -1)
        tokens = fact.position - made.base if own and fact.position is not None else None
        owner = "" if own else f"r{fact.h_owner}"
        plans.append((f"going on from {fact.place}", replace(base, place=fact.place), tokens, owner))
    found: dict[str, Candidate] = {}
    if made.mode == "verify" and timeline.start.rollback_mode == "replay":
        found |= _half_replays(timeline, about, made)
    for label, rerun, tokens, owner in plans:
        try:
            states = timeline.compute(rerun, made.before, about.branch)
        except NotAvailable:
            continue
        found[label] = Candidate(states_of(states[-1]), tokens, owner)
    return found


H_LEFT, CONV_LEFT = "h left as it was", "conv left as it was"


def _half_replays(timeline: Timeline, about: Subject, made: Made) -> dict[str, Candidate]:
    """Replay mode: the recorded rows run again on a state of which only one part came back from the checkpoint."""
    events = timeline.events(made.before, about.seq, about.branch)
    rows = next((e.seq for e in events if e.kind == "verify" and e.req == about.req), 0)
    if not rows or made.place is None or made.count >= len(made.fed):
        return {}
    saved = replace(made.place, kind="checkpoint")
    base = Rerun(req=about.req, position=made.base, tokens=made.fed[: made.count], form="replay", place=saved)
    plans = (
        (f"the rows run again with {H_LEFT}", replace(base, place=made.place, conv_from=saved)),
        (f"the rows run again with {CONV_LEFT}", replace(base, conv_from=made.place)),
        ("the rows run again on top of themselves", replace(base, place=made.place)),
    )
    found: dict[str, Candidate] = {}
    for label, rerun in plans:
        try:
            states = timeline.compute(rerun, rows, about.branch)
        except NotAvailable:
            continue
        found[label] = Candidate(states_of(states[-1]), len(made.fed) - made.count)
    return found
