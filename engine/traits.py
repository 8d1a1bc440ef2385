"""What a model with recurrent state can do with it (``ModelSsmState``), and the sequence it does it to.

No torch here. Every operation that moves state returns :class:`Moved`, bytes counted as they were copied, so a default
that silently does nothing shows as 0 bytes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.events import LIVE, Place
from engine.state.ring import SsmDecodeRing

if TYPE_CHECKING:
    from engine.seams import Seams
    from engine.state.paged_kv import KvTable
    from engine.state.state_pool import SlotClaim


class Moved(NamedTuple):
    """One state copy as it really happened, or was queued.

    ``parts`` is what the operation claims to copy ("h+conv", "h", "conv", "" for none), ``bytes`` and ``layers`` what
    it moved. ``stream`` is default or secondary, ``landed`` False while the copy waits. ``copy`` numbers the copies of
    a run from 1; 0 when nothing was to be copied. ``replay`` recorded rows must be run again into ``dst`` by the
    model before it holds what was asked for (replay mode)."""

    src: Place
    dst: Place
    parts: str = ""
    bytes: int = 0
    layers: int = 0
    stream: str = "default"
    landed: bool = True
    copy: int = 0
    op: str = ""
    replay: int = 0


@dataclass(slots=True)
class SequenceState:
    """One sequence as state memory knows it.

    ``tokens`` are prompt and outputs; once there are outputs the last one is pending: not yet fed. ``slot`` is -1 while
    it has none. ``checkpoint_block`` is the last block at which a decode checkpoint was taken."""

    req: int
    prompt_len: int
    tokens: list[int]
    table: KvTable
    ring: SsmDecodeRing
    slot: int = -1
    epoch: int = 0
    claim: SlotClaim | None = None
    thinking: bool = False
    rollback_count: int = 0
    session: int = 0
    streaming: bool = False
    checkpoint_block: int = 0
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def cursor(self) -> int:
        """``seq_len``: tokens valid in paged KV, of which the live state has absorbed as many between rounds."""
        return self.table.cursor

    @property
    def outputs(self) -> int:
        """Number of generated tokens."""
        return max(0, len(self.tokens) - self.prompt_len)

    @property
    def pending(self) -> int:
        """The token to feed next, -1 before the first output."""
        return self.tokens[-1] if self.outputs else -1

    @property
    def position(self) -> int:
        """Tokens the live state must have absorbed between rounds: prompt + outputs - 1, or the cursor in prefill."""
        return len(self.tokens) - 1 if self.outputs else self.cursor

    @property
    def live(self) -> Place:
        return LIVE(self.slot)

    def attach(self, claim: SlotClaim) -> None:
        """Own the slot of ``claim``."""
        self.claim, self.slot, self.epoch = claim, claim.slot, claim.epoch

    def save(self) -> dict[str, Any]:
        """Everything but the claim as plain data (``extra`` must be plain too)."""
        names = ("req", "prompt_len", "slot", "epoch", "thinking", "rollback_count", "session", "streaming")
        data: dict[str, Any] = {name: getattr(self, name) for name in (*names, "checkpoint_block", "extra")}
        data["tokens"] = list(self.tokens)
        data["table"] = {"blocks": list(self.table.blocks), "cursor": self.cursor}
        data["ring"] = self.ring.save()
        return data

    @classmethod
    def load(cls, data: Mapping[str, Any], table: KvTable, seams: Seams | None = None) -> SequenceState:
        """Inverse of :meth:`save`; ``table`` has the saved blocks and cursor, the claim is adopted later."""
        plain = {name: value for name, value in data.items() if name not in ("table", "ring")}
        plain["tokens"] = list(plain["tokens"])
        plain["extra"] = dict(plain["extra"])
        return cls(table=table, ring=SsmDecodeRing.load(data["ring"], seams), **plain)


class ModelSsmState(ABC):
    """Checkpoint and rollback around a verify, boundary snapshots, commit of an accepted prefix."""

    @abstractmethod
    def checkpoint_ssm_states(self, seq: SequenceState) -> Moved:
        """live to checkpoint, on the default stream, waited for."""

    @abstractmethod
    def rollback_ssm_states(self, seq: SequenceState, num_accepted: int) -> Moved:
        """Bring live back to where ``num_accepted`` rows of the last verify were accepted."""

    def has_ssm_layers(self) -> bool:
        """Whether there are layers whose state the KV cursor does not rewind."""
        return False

    def decode_rollback_unsupported(self) -> bool:
        """Whether some layer keeps state that no snapshot covers; rollbacks are declined then."""
        return False

    def decode_rollback_ring_slots(self) -> int:
        """Ring slots per sequence; 0: no boundary snapshots."""
        return 0

    def save_decode_ssm_snapshot(self, seq: SequenceState, ring_slot: int) -> Moved:
        """live to ring slot ``ring_slot``. Default: nothing."""
        return Moved(seq.live, Place("ring", seq.slot, ring_slot))

    def restore_decode_ssm_snapshot(self, seq: SequenceState, ring_slot: int) -> Moved:
        """Ring slot ``ring_slot`` to live. Default: nothing."""
        return Moved(Place("ring", seq.slot, ring_slot), seq.live)

    def decode_marconi_checkpoint(self, seq: SequenceState) -> Moved | None:
        """Save a block-aligned snapshot for the prefix cache when one is due; None when not. Default: never."""
        return None

    def start_checkpoint_async(self, seq: SequenceState) -> Moved:
        """live to checkpoint on the secondary stream. Default: the synchronous one."""
        return self.checkpoint_ssm_states(seq)

    def start_rollback_and_checkpoint_async(self, seq: SequenceState, num_accepted: int) -> tuple[Moved, Moved]:
        """Roll back, then checkpoint, on the secondary stream. Default: both synchronously."""
        return self.rollback_ssm_states(seq, num_accepted), self.checkpoint_ssm_states(seq)

    def sync_secondary(self) -> tuple[Moved, ...]:
        """Wait for the secondary stream; the copies that landed. Default: there are none."""
        return ()

    def commit_accepted_prefix(self, seq: SequenceState, num_accepted: int, k: int) -> Moved:
        """Make the state after ``num_accepted`` of ``k`` rows live, on the secondary stream. Default: nothing."""
        return Moved(seq.live, seq.live)

    def ssm_snapshot_occupancy(self) -> tuple[int, int] | None:
        """(used, total) slots of the prefix snapshot pool, None without one."""
        return None
