"""The port between the engine and everybody else: events out, actions in, places asked for by name.

All of it is plain frozen data that survives JSON, so the same port can cross a process boundary. Nothing here imports
torch. An event is a *fact*: what was written where, how many bytes moved, which slot was claimed. Whoever folds the
events (``sessions.ledger``) knows owner, epoch, position, rings, cursors, pools and blocks without asking the engine.

Conventions
    position   tokens absorbed by a state. Between rounds the live state is at ``prompt + outputs - 1``.
    cursor     ``seq_len``: tokens valid in the paged KV.
    row        verify row i consumes ``tokens[i]``; row 0 is the pending token. ``accepted`` counts rows, 1..K.
    parts      "h+conv", "h", "conv" or "" (nothing was copied).
    digests    one (h, conv) pair of xxh3-64 hex strings per recurrent layer, or () when digests are off.
    stream     "default" or "secondary". A copy queued on the secondary stream has ``landed=False``; a ``Landed`` event
               tells when its bytes are there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from engine.codec import CodecError, Named, Record, from_dict, to_dict

__all__ = [
    "ACTIONS",
    "EVENTS",
    "LIVE",
    "Action",
    "CodecError",
    "Columns",
    "Computation",
    "Digests",
    "EnginePort",
    "Event",
    "FirstLayer",
    "Golden",
    "Place",
    "Rerun",
    "StateData",
    "TensorData",
    "TensorRef",
    "action_from_dict",
    "event_from_dict",
    "to_dict",
]

Digests = tuple[tuple[str, str], ...]

PLACE_KINDS = ("live", "checkpoint", "step", "ring", "prefix")


@dataclass(frozen=True, slots=True, order=True)
class Place(Named):
    """Somewhere a recurrent state can be: ``live:2``, ``checkpoint:2``, ``step:2.0``, ``ring:2.3``, ``prefix:5``.

    ``slot`` is the row of the state pool that the place belongs to (-1 for the prefix region, which has no slot);
    ``index`` is the verify row, ring slot or prefix slot.
    """

    kind: str
    slot: int
    index: int = 0

    def to_text(self) -> str:
        if self.kind == "prefix":
            return f"prefix:{self.index}"
        return f"{self.kind}:{self.slot}.{self.index}" if self.kind in ("step", "ring") else f"{self.kind}:{self.slot}"

    __str__ = to_text

    @classmethod
    def from_text(cls, text: str) -> Place:
        """Inverse of :meth:`to_text`. Raises ValueError on anything else."""
        kind, _, rest = text.partition(":")
        slot, dot, index = rest.partition(".")
        indexed = kind in ("step", "ring")
        numbers = (slot, index) if indexed else (slot,)
        if kind not in PLACE_KINDS or indexed != bool(dot) or not all(n.isdecimal() and len(n) < 10 for n in numbers):
            raise ValueError(f"expected a place such as live:0, step:0.1 or prefix:3, found {text!r:.40}")
        if kind == "prefix":
            return cls("prefix", -1, int(slot))
        return cls(kind, int(slot), int(index) if indexed else 0)


def LIVE(slot: int) -> Place:
    """The live place of a slot."""
    return Place("live", slot)


# --------------------------------------------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True, kw_only=True)
class Event(Record):
    """A fact. ``seq`` is its number in the run (from 1), ``round`` the round it belongs to (0 = outside any), ``req``
    the request it is about (-1 = none)."""

    kind: ClassVar[str] = "event"
    seq: int = 0
    round: int = 0
    req: int = -1


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
class Claim(Event):
    """``req`` owns ``slot`` from here on. ``epoch`` counts the allocations of this slot, from 1."""

    kind: ClassVar[str] = "claim"
    slot: int = -1
    epoch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Release(Event):
    """``slot`` went back to the free list."""

    kind: ClassVar[str] = "release"
    slot: int = -1
    epoch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Compact(Event):
    """``req`` moved from slot ``src`` to the lower slot ``dst``: live, checkpoint, steps and ring with it.

    ``dst`` is claimed by this event with ``epoch``; ``src`` is released."""

    kind: ClassVar[str] = "compact"
    src: int = -1
    dst: int = -1
    epoch: int = 0
    parts: str = "h+conv"
    bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Zero(Event):
    """A place was filled with zeros: position 0."""

    kind: ClassVar[str] = "zero"
    place: Place = Place("live", 0)
    parts: str = "h+conv"
    bytes: int = 0
    digests: Digests = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KvAlloc(Event):
    """Fresh blocks were appended to the block table of ``req``."""

    kind: ClassVar[str] = "kv_alloc"
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KvShare(Event):
    """Blocks that others hold too were appended to the block table of ``req``: one more reference each."""

    kind: ClassVar[str] = "kv_share"
    blocks: tuple[int, ...] = ()
    tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCopy(Event):
    """The first ``tokens`` entries of block ``src`` were copied to the fresh block ``dst``, which takes its place in
    the block table of ``req`` (one reference less on ``src``)."""

    kind: ClassVar[str] = "kv_copy"
    src: int = -1
    dst: int = -1
    tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KvHold(Event):
    """The prefix cache took a reference on blocks, for prefix slot ``index``."""

    kind: ClassVar[str] = "kv_hold"
    index: int = -1
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KvDrop(Event):
    """The prefix cache gave its references back."""

    kind: ClassVar[str] = "kv_drop"
    index: int = -1
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KvRewind(Event):
    """The cursor was lowered. Frees nothing."""

    kind: ClassVar[str] = "kv_rewind"
    before: int = 0
    cursor: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KvFree(Event):
    """``req`` gave back one reference on each of its blocks; its table is empty."""

    kind: ClassVar[str] = "kv_free"
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundBegin(Event):
    """A round of ``req`` starts; ``mode`` is prefill, decode or verify."""

    kind: ClassVar[str] = "round"
    mode: str = "decode"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundEnd(Event):
    """The round is over: invariants hold here."""

    kind: ClassVar[str] = "round_end"


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
class Decision(Event):
    """The round waits here for an answer: ``what`` is drafts, accept or boundary. ``default`` is what the policy would
    answer (drafts: their number; accept: rows; boundary: outputs kept). Left paused, a person may answer instead."""

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
class VerifyRow(Event):
    """Verify row ``row`` was absorbed into live. ``step_parts`` of the new state were also written to step ``row``."""

    kind: ClassVar[str] = "verify_row"
    slot: int = -1
    row: int = 0
    token: int = -1
    pick: int = -1
    margin: float = 0.0
    step_parts: str = ""
    position: int = 0
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RingRecord(Event):
    """Ring slot ``ring_slot`` is reserved for the snapshot after ``token_position`` outputs; ``next_slot`` is the
    cursor afterwards."""

    kind: ClassVar[str] = "ring_record"
    slot: int = -1
    ring_slot: int = -1
    token_position: int = 0
    next_slot: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RingEvict(Event):
    """The entry that held ``ring_slot`` is gone."""

    kind: ClassVar[str] = "ring_evict"
    slot: int = -1
    ring_slot: int = -1
    token_position: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RingTruncate(Event):
    """Entries past ``keep_len`` were dropped (their positions in ``dropped``); the cursor is ``next_slot``."""

    kind: ClassVar[str] = "ring_truncate"
    slot: int = -1
    keep_len: int = 0
    dropped: tuple[int, ...] = ()
    next_slot: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixMiss(Event):
    """No snapshot could be used for a prompt; ``reason`` says why, ``matched`` how many tokens of KV were known."""

    kind: ClassVar[str] = "prefix_miss"
    matched: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixEvict(Event):
    """Prefix slot ``index`` is free again."""

    kind: ClassVar[str] = "prefix_evict"
    index: int = -1
    key: str = ""
    tokens: int = 0
    reason: str = ""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault(Event):
    """A fault of the gallery was switched on or off."""

    kind: ClassVar[str] = "fault"
    name: str = ""
    on: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Option(Event):
    """A setting of the running engine changed."""

    kind: ClassVar[str] = "option"
    name: str = ""
    value: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble(Event):
    """Something went wrong inside the engine or in a trace; ``place`` says where. The run may go on."""

    kind: ClassVar[str] = "trouble"
    text: str = ""
    place: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown(Event):
    """A call in an imported trace that has no meaning for state memory; kept and shown, never dropped."""

    kind: ClassVar[str] = "unknown"
    text: str = ""
    line: int = 0


# -------------------------------------------------------------------------------------------------------- actions


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


def _tree(base: type[Any]) -> list[type[Any]]:
    return [cls for child in base.__subclasses__() for cls in (child, *_tree(child))]


EVENTS: Mapping[str, type[Event]] = {cls.kind: cls for cls in _tree(Event)}
ACTIONS: Mapping[str, type[Action]] = {cls.kind: cls for cls in _tree(Action)}


def event_from_dict(data: Mapping[str, Any]) -> Event:
    """Raises CodecError when ``data`` is not an event."""
    return from_dict(data, EVENTS)


def action_from_dict(data: Mapping[str, Any]) -> Action:
    """Raises CodecError when ``data`` is not an action."""
    return from_dict(data, ACTIONS)


# ----------------------------------------------------------------------------------------------------------- port


@dataclass(frozen=True, slots=True)
class TensorRef:
    """Which tensor: a place, a model layer number (``Start.recurrent_layers``) and a part, h or conv."""

    place: Place
    layer: int
    part: str


@dataclass(frozen=True, slots=True)
class TensorData:
    """A tensor as plain data: little-endian ``raw`` bytes in C order, ``dtype`` a torch/numpy name (bfloat16 too)."""

    dtype: str
    shape: tuple[int, ...]
    raw: bytes


@dataclass(frozen=True, slots=True)
class StateData:
    """Whole states as plain data: ``h`` and ``conv`` one tensor per entry of ``layers`` (model layer numbers), the
    logits [V] of the last token, and how many ``tokens`` were absorbed."""

    layers: tuple[int, ...]
    h: tuple[TensorData, ...]
    conv: tuple[TensorData, ...]
    logits: TensorData | None = None
    tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Computation(Record):
    """Something recomputed from token ids beside the session, which it does not disturb."""

    kind: ClassVar[str] = "computation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Golden(Computation):
    """The states after ``tokens`` from scratch. ``form`` steps: one by one, but the (start, end) spans in ``chunks``
    are absorbed as prefill chunks; with the session's own chunks a healthy exact session is met bit for bit.
    ``form`` prefill: all in chunks of ``chunk``."""

    kind: ClassVar[str] = "golden"
    tokens: tuple[int, ...] = ()
    form: str = "steps"
    chunk: int = 256
    chunks: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstLayer(Computation):
    """h and conv of layer 0, when it is recurrent: they follow from the token ids alone. The (start, end) spans in
    ``chunks`` are absorbed as prefill chunks, the rest one by one."""

    kind: ClassVar[str] = "first_layer"
    tokens: tuple[int, ...] = ()
    chunks: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns(Computation):
    """What the conv window of the first recurrent layer stores for each of ``tokens``: ``conv[0]`` is [n, channels]."""

    kind: ClassVar[str] = "columns"
    tokens: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerun(Computation):
    """Run ``tokens`` on a copy of the state at ``place`` and of the KV of ``req`` below ``position``: ``form`` steps
    (one by one), rows (all at once, as a batched verify), prefill (as one chunk), replay (the recorded inputs of the
    last verify again; replay mode only). One :class:`StateData` after each token; prefill gives only the last.
    ``empty``: begin from an all-zero state instead of the one at ``place``. ``twice``: absorb the first token one more
    time before, at the same position. ``conv_from``: take conv from that place instead."""

    kind: ClassVar[str] = "rerun"
    req: int = -1
    place: Place = Place("checkpoint", 0)
    position: int = 0
    tokens: tuple[int, ...] = ()
    form: str = "steps"
    empty: bool = False
    twice: bool = False
    conv_from: Place | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Residuals(Rerun):
    """The residual stream of ``tokens`` fed as in :class:`Rerun`, forms steps, rows and prefill. One
    :class:`StateData`: ``h`` holds the stream [n, hidden] before the first block and after each one (the mixer, then
    the feed-forward of each layer), ``layers`` the layer of each block. With ``history`` the state and the KV before
    ``tokens`` are computed from these ids from scratch, ``chunks`` of them as prefill chunks, and place is not used."""

    kind: ClassVar[str] = "residuals"
    history: tuple[int, ...] = ()
    chunks: tuple[tuple[int, int], ...] = ()


class EnginePort(Protocol):
    """What a timeline needs of an engine; the same calls must be able to cross a process boundary."""

    def perform(self, action: Action) -> Iterator[Event]:
        """Do ``action``, yielding each fact right after it happened; may be left paused between two of them. Only one
        action at a time. Raises EngineRefusal (a ValueError) before the first event when it cannot be done."""

    def answer(self, what: str, value: int | tuple[int, ...]) -> None:
        """Answer the ``Decision`` the paused action waits at, instead of the policy."""

    def taken(self) -> Action:
        """The action performed last, with every decision taken written into it."""

    def read(self, ref: TensorRef) -> TensorData:
        """The bytes at a place now. Raises KeyError for a place this engine does not have."""

    def save(self) -> dict[str, TensorData]:
        """Everything needed to continue, between two actions."""

    def load(self, image: Mapping[str, TensorData]) -> None:
        """Inverse of :meth:`save`, exactly."""

    def start(self) -> Start:
        """The first event of a run of this engine."""

    def tokens(self, text: str) -> tuple[int, ...]:
        """Token ids of a text. Raises ValueError without a tokenizer."""

    def runnable(self) -> tuple[int, ...]:
        """Requests that have work left, in the order of their turns."""

    def compute(self, computation: Computation) -> tuple[StateData, ...]:
        """Recompute states beside the session. Raises EngineRefusal when this model cannot."""

    def cancel(self) -> None:
        """Drop the paused action, if any; state is as the facts so far say."""
