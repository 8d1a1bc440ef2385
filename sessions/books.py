"""The working copy of the ledger while one event is folded, and the moves that several folds share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from immutables import Map

from engine.events import Event, Place, Start, StateCopy
from sessions import places
from sessions.evolve import evolve
from sessions.view import InFlight, LedgerView, PoolFact, PrefixFact, RequestFact, StateFact

Fold = Callable[["Books", Any], None]


class Books:
    """Same names as :class:`LedgerView`, but open for writing. Everything in it is immutable, so a view made from it
    stays as it was."""

    seq: int
    round: int
    last: Event | None
    start: Start
    requests: Map[int, RequestFact]
    states: Map[Place, StateFact]
    slot_owner: Map[int, int]
    slot_epoch: Map[int, int]
    pools: Map[str, PoolFact]
    block_refs: Map[int, int]
    prefixes: Map[int, PrefixFact]
    queued: tuple[StateCopy, ...]
    in_flight: tuple[InFlight, ...]
    lingering: tuple[int, ...]
    leaked: tuple[int, ...]
    texts: Map[int, str]
    boundaries: Map[int, bool]
    counters: Map[str, int]
    faults: tuple[str, ...]
    troubles: int
    changed: set[tuple[str, object]] | frozenset[tuple[str, object]]

    def __init__(self, view: LedgerView) -> None:
        self.open(view)

    def open(self, view: LedgerView) -> None:
        """Go on from ``view``."""
        self.__dict__.update(view.__dict__)

    def view(self) -> LedgerView:
        """What the books say now; later changes do not reach it."""
        view = LedgerView.__new__(LedgerView)
        view.__dict__.update(self.__dict__)
        return view

    def note(self, what: str, key: object) -> None:
        """Mark a key as touched by this event."""
        self.changed.add((what, key))  # type: ignore[union-attr]

    def count(self, name: str, by: int = 1) -> None:
        """Raise a counter."""
        self.counters = self.counters.set(name, self.counters.get(name, 0) + by)
        self.changed.add(("counter", name))  # type: ignore[union-attr]

    # ------------------------------------------------------------------------------------------------- requests

    def request(self, req: int) -> RequestFact:
        """The request, or a fresh one that nobody announced."""
        found = self.requests.get(req)
        return RequestFact(req) if found is None else found

    def put_request(self, fact: RequestFact) -> None:
        """Replace a request."""
        self.requests = self.requests.set(fact.req, fact)
        self.changed.add(("request", fact.req))  # type: ignore[union-attr]

    def settle(self, fact: RequestFact) -> None:
        """Replace a request that ended or gave something back: it lingers while it still holds a slot or blocks."""
        self.put_request(fact)
        holds = fact.status == "finished" and (fact.slot >= 0 or bool(fact.blocks))
        if holds != (fact.req in self.lingering):
            kept = tuple(req for req in self.lingering if req != fact.req)
            self.lingering = (*kept, fact.req) if holds else kept

    # --------------------------------------------------------------------------------------------------- states

    def state(self, place: Place) -> StateFact:
        """The facts of a place; of a place nobody wrote in this epoch: owner and epoch of its slot, no positions."""
        found = self.states.get(place)
        return self.blank(place) if found is None else found

    def blank(self, place: Place) -> StateFact:
        """A place whose bytes nobody in this epoch has written."""
        return StateFact(
            place,
            owner=self.slot_owner.get(place.slot, -1),
            epoch=self.slot_epoch.get(place.slot, 0),
            layout=self.start.layout,
            dtype=self.start.state_dtype,
        )

    def put(self, fact: StateFact) -> None:
        """Replace the facts of a place."""
        self.states = self.states.set(fact.place, fact)
        self.changed.add(("state", fact.place))  # type: ignore[union-attr]

    def places_of(self, slot: int) -> list[Place]:
        """Places of a slot that have facts. Looks at all places: for claims and releases only."""
        return [place for place in self.states if place.slot == slot]

    def claim(self, slot: int, req: int, epoch: int) -> None:
        """``req`` owns ``slot`` in a new epoch; what its places held before is nobody's business any more."""
        self.slot_owner = self.slot_owner.set(slot, req)
        self.slot_epoch = self.slot_epoch.set(slot, epoch)
        self.note("slot", slot)
        for place in self.places_of(slot):
            self.put(self.blank(place))
        self.put(self.blank(places.live(slot)))
        self.pool("slots", len(self.slot_owner))

    def release(self, slot: int) -> None:
        """``slot`` is free. Its bytes stay where they are, without an owner."""
        if slot in self.slot_owner:
            self.slot_owner = self.slot_owner.delete(slot)
        self.note("slot", slot)
        for place in self.places_of(slot):
            self.put(evolve(self.states[place], owner=-1))
        self.pool("slots", len(self.slot_owner))

    # ---------------------------------------------------------------------------------------------------- pools

    def pool(self, name: str, used: int) -> None:
        """Set the occupancy of a pool."""
        fact = self.pools.get(name) or PoolFact(name)
        self.pools = self.pools.set(name, PoolFact(name, used, fact.total, max(fact.peak, used)))
        self.changed.add(("pool", name))  # type: ignore[union-attr]

    def refer(self, blocks: Iterable[int], by: int) -> None:
        """Add ``by`` references to each of ``blocks``; without references a block is free."""
        refs = self.block_refs
        for block in blocks:
            count = refs.get(block, 0) + by
            if count > 0:
                refs = refs.set(block, count)
            elif block in refs:
                refs = refs.delete(block)
            self.note("block", block)
        self.block_refs = refs
        self.pool("blocks", len(refs))
