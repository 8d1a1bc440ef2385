"""Events of requests: admission, rounds and decisions, outputs, rollbacks, the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from engine.events.base import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Start(Event):
    """First event of every run: the geometry that later events refer to. Bytes are per layer and per state."""

    kind: ClassVar[str] = "start"
    source: str = "engine"
    model: str = ""
    fingerprint: str = ""
    layers: int = 0
    recurrent_layers: tuple[int, ...] = ()
    h_shape: tuple[int, ...] = ()
    conv_shape: tuple[int, ...] = ()
    h_bytes: int = 0
    conv_bytes: int = 0
    state_dtype: str = "float32"
    layout: str = "h[head,key,value] conv[channel,time]"
    vocab: int = 0
    slots: int = 0
    ring_depth: int = 0
    k: int = 1
    prefix_slots: int = 0
    blocks: int = 0
    block_size: int = 16
    verify_mode: str = "exact"
    rollback_mode: str = "snapshot"
    dtype: str = ""
    device: str = "cpu"
    eos: tuple[int, ...] = ()
    digests: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts(Event):
    """Text of token ids, told once before an id is first used. ``boundary`` marks ids that end a line or sentence."""

    kind: ClassVar[str] = "texts"
    ids: tuple[int, ...] = ()
    texts: tuple[str, ...] = ()
    boundary: tuple[bool, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Event):
    """A request was admitted (it may still wait for a slot). ``parent`` is the request it was forked from, or -1."""

    kind: ClassVar[str] = "request"
    prompt: tuple[int, ...] = ()
    prompt_len: int = 0
    max_tokens: int = 0
    seed: int = 0
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    streaming: bool = False
    drafter: str = ""
    session: int = 0
    parent: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork(Event):
    """``req`` now continues ``parent``: same outputs, cursor and position. The copies are told by copy events."""

    kind: ClassVar[str] = "fork"
    parent: int = -1
    outputs: tuple[int, ...] = ()
    pending: int = -1
    cursor: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundBegin(Event):
    """A round of ``req`` starts; ``mode`` is prefill, decode or verify."""

    kind: ClassVar[str] = "round"
    mode: str = "decode"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundEnd(Event):
    """The round is over: invariants hold here.

    When the request drafts with an MTP head: ``head_rows`` true rows are in the head's KV, one for each token below the
    cursor; ``fed_position`` is that of the newest one (-1: none, or it was forgotten by a rollback). ``fed`` is the
    digest of the hidden state it was fed with there, ``hidden`` of the trunk's newest one, after the final norm: they
    must be the same. ``head`` is the digest of the head's own output for it."""

    kind: ClassVar[str] = "round_end"
    head_rows: int = -1
    fed_position: int = -1
    fed: str = ""
    hidden: str = ""
    head: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision(Event):
    """The round waits here for an answer: ``what`` is drafts, accept or boundary. ``default`` is what it goes
    on with when nobody answers: the rule's, or what the action asked for (drafts: their number; accept: rows; boundary:
    outputs kept). Left paused, a person may answer."""

    kind: ClassVar[str] = "decision"
    what: str = ""
    default: int = 0
    low: int = 0
    high: int = 0
    tokens: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft(Event):
    """Draft tokens for this round; ``source`` is mtp, lookup, hand or none. ``hidden`` is the digest of the trunk's
    newest post-final-norm hidden state, ``fed`` of what the MTP head was fed with: they must be the same."""

    kind: ClassVar[str] = "draft"
    tokens: tuple[int, ...] = ()
    source: str = ""
    fed: str = ""
    hidden: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accept(Event):
    """``accepted`` rows are confirmed; ``natural`` is what the accept rule gave, ``emitted`` the new outputs."""

    kind: ClassVar[str] = "accept"
    slot: int = -1
    accepted: int = 1
    k: int = 1
    natural: int = 1
    forced: bool = False
    emitted: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Emit(Event):
    """Output number ``index`` (from 0) is ``token``; it is the pending input now. ``mark``: plain, accepted, bonus,
    inject."""

    kind: ClassVar[str] = "emit"
    token: int = -1
    index: int = 0
    mark: str = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary(Event):
    """The token just emitted ends a line or sentence outside thinking; ``output_len`` outputs exist now."""

    kind: ClassVar[str] = "boundary"
    token: int = -1
    output_len: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinking(Event):
    """The request entered or left thinking."""

    kind: ClassVar[str] = "thinking"
    inside: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Watchdog(Event):
    """A loop detector fired and asks for a rollback that drops at least ``min_keep`` tokens."""

    kind: ClassVar[str] = "watchdog"
    name: str = ""
    min_keep: int = 0
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollback(Event):
    """Outcome of a rollback. ``outcome``: rolled_back, disabled, stream_unsafe, layer_state_not_rewindable,
    cap_reached, no_boundary, no_ssm_snapshot. When rolled back, outputs are cut to ``keep_len`` and ``dropped`` are
    gone; ``cursor`` is the new cursor and ``pending`` the new last token."""

    kind: ClassVar[str] = "rollback"
    outcome: str = ""
    reason: str = ""
    keep_len: int = 0
    dropped: int = 0
    cursor: int = 0
    pending: int = -1
    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish(Event):
    """``req`` ended: stop, length, tool_calls, freed, error. ``guard`` names the watchdog that ended it."""

    kind: ClassVar[str] = "finish"
    reason: str = ""
    guard: str = ""
