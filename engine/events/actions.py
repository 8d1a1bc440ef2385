"""What a person or a policy may ask of the engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from engine.codec import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Action(Record):
    """Something a person or a policy asks of the engine. Recorded with every decision taken, so it can be done again
    without a drafter and without a person."""

    kind: ClassVar[str] = "action"
    req: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRequest(Action):
    """Admit a request. ``drafter``: "" (the engine's default), mtp, lookup, none."""

    kind: ClassVar[str] = "new"
    prompt: tuple[int, ...] = ()
    max_tokens: int = 256
    seed: int = 0
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    streaming: bool = False
    ignore_eos: bool = False
    drafter: str = ""
    session: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRound(Action):
    """One round of ``req`` (-1: whose turn it is). ``drafts`` None lets the drafter speak, ``accept`` None lets the
    accept rule decide, ``token`` >= 0 replaces the (last) emitted token. ``boundary`` >= 0 answers a rollback asked
    for by a watchdog inside this round (outputs kept)."""

    kind: ClassVar[str] = "round"
    drafts: tuple[int, ...] | None = None
    source: str = ""
    accept: int | None = None
    token: int = -1
    boundary: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class RollBack(Action):
    """Roll ``req`` back. ``to``: boundary (value: tokens to drop at least), ring (a slot), length (outputs kept)."""

    kind: ClassVar[str] = "rollback"
    to: str = "boundary"
    value: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveRing(Action):
    """Save live into the ring now, whatever the last token is."""

    kind: ClassVar[str] = "save"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreRing(Action):
    """Copy ring slot ``ring_slot`` to live and nothing else: cursor and outputs stay (an invariant will complain)."""

    kind: ClassVar[str] = "restore"
    ring_slot: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeCheckpoint(Action):
    """live to checkpoint; ``queued`` puts the copy on the secondary stream."""

    kind: ClassVar[str] = "checkpoint"
    queued: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreCheckpoint(Action):
    """``rollback_ssm_states``: 0 brings the checkpoint back, n >= 1 the state after verify row n-1."""

    kind: ClassVar[str] = "restore_checkpoint"
    accepted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncSecondary(Action):
    """Wait for the secondary stream."""

    kind: ClassVar[str] = "sync"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkRequest(Action):
    """Make a second request that continues ``req`` from here."""

    kind: ClassVar[str] = "fork"
    seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeRequest(Action):
    """End ``req`` now and give everything back."""

    kind: ClassVar[str] = "free"


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectToken(Action):
    """Replace the pending token of ``req``."""

    kind: ClassVar[str] = "inject"
    token: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class SetFault(Action):
    """Switch a fault of the gallery."""

    kind: ClassVar[str] = "fault"
    name: str = ""
    on: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SetOption(Action):
    """Change a setting: drafts, drafter, verify, digests, watchdogs."""

    kind: ClassVar[str] = "set"
    name: str = ""
    value: str = ""
