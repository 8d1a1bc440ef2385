"""Events of recurrent state: slots, what was absorbed, every copy, and what landed when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from engine.events.base import Digests, Event, Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim(Event):
    """``req`` owns ``slot`` from here on. ``epoch`` counts the allocations of this slot, from 1; ``free`` are the slots
    that the engine counts as free now (-1: not told)."""

    kind: ClassVar[str] = "claim"
    slot: int = -1
    epoch: int = 0
    free: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Release(Event):
    """``slot`` went back to the free list, which counts ``free`` entries now (-1: not told)."""

    kind: ClassVar[str] = "release"
    slot: int = -1
    epoch: int = 0
    free: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Compact(Event):
    """``req`` moved from slot ``src`` to the lower slot ``dst``: live, checkpoint, steps and ring with it.

    ``dst`` is claimed by this event with ``epoch``; ``src`` is released; ``free`` as in :class:`Claim`."""

    kind: ClassVar[str] = "compact"
    src: int = -1
    dst: int = -1
    epoch: int = 0
    parts: str = "h+conv"
    bytes: int = 0
    free: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Zero(Event):
    """A place was filled with zeros: position 0."""

    kind: ClassVar[str] = "zero"
    place: Place = Place("live", 0)
    parts: str = "h+conv"
    bytes: int = 0
    digests: Digests = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefill(Event):
    """One prefill chunk was absorbed into live. ``start`` tokens were there before; ``count`` are absorbed now."""

    kind: ClassVar[str] = "prefill"
    slot: int = -1
    start: int = 0
    count: int = 0
    tokens: tuple[int, ...] = ()
    chunk: int = 0
    last: bool = False
    cursor: int = 0
    position: int = 0
    digests: Digests = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decode(Event):
    """One token was absorbed into live; ``pick`` is the next token the model chose, ``margin`` its logit lead."""

    kind: ClassVar[str] = "decode"
    slot: int = -1
    token: int = -1
    pick: int = -1
    margin: float = 0.0
    cursor: int = 0
    position: int = 0
    digests: Digests = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyRow(Event):
    """Verify row ``row`` was absorbed into live. ``step_parts`` of the new state were also written to step ``row``.
    ``batch`` rows were absorbed at once, this one among them: live holds them all already (0: one by one)."""

    kind: ClassVar[str] = "verify_row"
    slot: int = -1
    row: int = 0
    token: int = -1
    pick: int = -1
    margin: float = 0.0
    step_parts: str = ""
    position: int = 0
    batch: int = 0
    digests: Digests = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verify(Event):
    """All ``k`` rows are absorbed: live is dirty until the commit. ``cursor`` counts all rows."""

    kind: ClassVar[str] = "verify"
    slot: int = -1
    k: int = 1
    tokens: tuple[int, ...] = ()
    picks: tuple[int, ...] = ()
    mode: str = "exact"
    cursor: int = 0
    position: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRow(Event):
    """Replay mode: the recorded inputs of verify row ``row`` were run again into ``place`` (live, or checkpoint when an
    accepted boundary inside the round needs its snapshot)."""

    kind: ClassVar[str] = "replay_row"
    slot: int = -1
    place: Place = Place("live", 0)
    row: int = 0
    token: int = -1
    position: int = 0
    digests: Digests = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StateCopy(Event):
    """State bytes went, or were queued to go, from ``src`` to ``dst``.

    ``copy`` numbers the copies of a run. ``bytes`` and ``layers`` say what was really moved; a copy that claims parts
    but moves nothing shows bytes 0. ``landed`` is False while it waits on the secondary stream. ``digests`` are those
    of ``dst`` afterwards (only when landed). ``position`` is what the engine believes ``dst`` holds."""

    kind: ClassVar[str] = "copy"
    copy: int = 0
    src: Place = Place("live", 0)
    dst: Place = Place("live", 0)
    parts: str = "h+conv"
    bytes: int = 0
    layers: int = 0
    stream: str = "default"
    landed: bool = True
    position: int = -1
    digests: Digests = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint(StateCopy):
    """live to checkpoint, before a verify."""

    kind: ClassVar[str] = "checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit(StateCopy):
    """The accepted prefix becomes live: step ``accepted - 1`` to live; nothing to move when ``accepted == k``
    (parts "", bytes 0). In replay mode the checkpoint came back and ``replayed`` rows were run again."""

    kind: ClassVar[str] = "commit"
    accepted: int = 1
    k: int = 1
    replayed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRollback(StateCopy):
    """``rollback_ssm_states``: 0 accepted is checkpoint to live, n is step n-1 to live."""

    kind: ClassVar[str] = "state_rollback"
    accepted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RingSave(StateCopy):
    """A boundary snapshot was written into a ring slot; ``token_position`` is the label it is found under."""

    kind: ClassVar[str] = "ring_save"
    token_position: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RingRestore(StateCopy):
    """A ring slot became live."""

    kind: ClassVar[str] = "ring_restore"
    token_position: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixSave(StateCopy):
    """A snapshot entered the prefix cache under ``key`` covering ``tokens`` tokens. ``origin``: chunk, tail, leaf,
    decode."""

    kind: ClassVar[str] = "prefix_save"
    tokens: int = 0
    key: str = ""
    origin: str = ""
    session: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixHit(StateCopy):
    """A cached snapshot became live: ``tokens`` are skipped of the ``matched`` the cache knew."""

    kind: ClassVar[str] = "prefix_hit"
    tokens: int = 0
    matched: int = 0
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed(Event):
    """The bytes of queued copy ``copy`` are at ``dst`` now."""

    kind: ClassVar[str] = "landed"
    copy: int = 0
    src: Place = Place("live", 0)
    dst: Place = Place("live", 0)
    parts: str = "h+conv"
    bytes: int = 0
    digests: Digests = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync(Event):
    """The default stream waited for the secondary one; ``count`` queued copies had landed by then."""

    kind: ClassVar[str] = "sync"
    stream: str = "secondary"
    count: int = 0
