"""State memory: the pools, the streams, and every operation on recurrent state.

Seams. Faults are imitated by changing values at these points (``engine.seams``), nothing else. ``OP`` is one of
checkpoint, rollback, commit, ring_save, ring_restore, prefix_save, prefix_restore, step_save, zero, copy. Every ``OP``
point gets the context op, src, dst (the places asked for).

    point            value passed                          what a change imitates
    OP.skip          False                                 True: operation omitted, though it claims its parts
    OP.parts         "h+conv" ("conv": step_save's last)   conv omitted ("h"), h omitted ("conv"); told as it is
    OP.src, OP.dst   Place                                 another slot, ring slot or step; told as it is
    OP.src_at,       Place                                 address computed wrongly (32-bit overflow, stride, swapped
    OP.dst_at                                              slots): bytes go elsewhere, nobody is told
    OP.layers        (0, .., layers - 1)                   a layer left behind
    OP.elems         fp32 elements per layer; part=        0: zero-byte copy; fewer: short copy
    OP.value         tensor [layers, ...]; part=           dtype round trip, transposed h, conv one column off; applied
                                                           to the bytes at the moment they are copied (zero: to zeros,
                                                           NaN that a multiplication by zero leaves)
    OP.fail          ""                                    a text: StateError with it, nothing copied
    commit.row,      n - 1 (accepted=n)                    wrong step index, clamp; not asked when nothing is copied
    rollback.row
    sync.skip        False (from the scheduler: req=, at=) missing stream wait: nothing lands; ``at`` is rollback,
                                                           finish, compact, or "" for every other wait
    compact.skip     False                                 survivor moved without its bytes
    compact.rings    False                                 True: the rings stay behind
    padding.slot     dummy slot (slot=)                    padded rows written into a live slot
    kv.shared_write  False (block=)                        a block that others hold is overwritten
    ring.slot, ring.evict, ring.truncate_cursor            see ``engine.state.ring`` and its ``LEGACY_RING``

A slot that is not zeroed on reuse is ``zero.skip``; a failed save whose ring entry stays is ``ring_save.fail`` without
the truncation that the scheduler owes.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from engine.events import LIVE, Digests, Place, TensorData
from engine.seams import Seams
from engine.state import image
from engine.state.copier import Copier
from engine.state.errors import StateError
from engine.state.geometry import StateGeometry
from engine.state.paged_kv import PagedKv
from engine.state.places import Places
from engine.state.prefix_cache import decode_checkpoint_due
from engine.state.reserve import SsmRollbackMode
from engine.state.snapshot_pool import SsmSnapshotPool
from engine.state.state_pool import SsmStatePool
from engine.state.streams import DEFAULT, SECONDARY, Streams
from engine.traits import ModelSsmState, Moved, SequenceState


class StateMemory(ModelSsmState):
    """Pools for ``slots`` sequences and verify width ``k``, on ``device``, allocated here and never again.

    ``mode`` is the rollback mode of this engine (not the published one of the process). ``hidden`` > 0 keeps a hidden
    row with prefix snapshots. ``seams`` are shared with ``kv``."""

    def __init__(
        self,
        geometry: StateGeometry,
        *,
        slots: int,
        k: int,
        kv: PagedKv,
        mode: SsmRollbackMode | str = SsmRollbackMode.SNAPSHOT,
        ring_depth: int = 0,
        prefix_slots: int = 0,
        hidden: int = 0,
        act_dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        seams: Seams | None = None,
    ) -> None:
        self.geometry = geometry
        self.mode = SsmRollbackMode.parse(mode) if isinstance(mode, str) else mode
        self.seams = seams if seams is not None else Seams()
        self.pool = SsmStatePool(geometry, slots, k, self.mode, device, act_dtype)
        self.snapshots = SsmSnapshotPool(geometry, prefix_slots, ring_depth, slots, device, hidden, act_dtype)
        self.kv = kv
        kv.seams = self.seams
        self.places = Places(geometry, self.pool, self.snapshots)
        self.copier = Copier(geometry, self.seams, self.places, Streams(device))
        self._copy = self.copier.copy

    # ------------------------------------------------------------------------------------------- what there is

    def has_ssm_layers(self) -> bool:
        return self.geometry.layers > 0

    def decode_rollback_ring_slots(self) -> int:
        return self.snapshots.ring_depth if self.has_ssm_layers() else 0

    def ssm_snapshot_occupancy(self) -> tuple[int, int] | None:
        return self.snapshots.occupancy()

    @property
    def pending(self) -> tuple[Moved, ...]:
        """Copies on the secondary stream that nobody waited for yet, oldest first."""
        return tuple(transfer.moved(False) for transfer in self.copier.streams.pending)

    def bytes(self) -> dict[str, int]:
        """Bytes allocated, by the names of ``reserve.memory_plan``."""
        return {
            "ssm_pool": self.pool.bytes,
            "prefix_pool": self.snapshots.prefix_bytes,
            "decode_ring": self.snapshots.ring_bytes,
            "replay_ring": self.pool.replay_bytes,
            "kv": self.kv.bytes,
        }

    def digests(self, place: Place) -> Digests:
        """See :meth:`Places.digests`."""
        return self.places.digests(place)

    def read(self, place: Place, ordinal: int, part: str) -> TensorData:
        """One layer's h or conv at ``place`` now; ``ordinal`` counts recurrent layers. Raises KeyError."""
        return self.places.read(place, ordinal, part)

    # ------------------------------------------------------------------------------------------- verify

    def checkpoint_ssm_states(self, seq: SequenceState) -> Moved:
        """live to checkpoint; the host waits. Raises StateError when the pool was built for K = 1."""
        moved = self._copy("checkpoint", seq.live, Place("checkpoint", seq.slot))
        self.copier.streams.synchronize()
        return moved

    def start_checkpoint_async(self, seq: SequenceState) -> Moved:
        """live to checkpoint on the secondary stream."""
        return self._copy("checkpoint", seq.live, Place("checkpoint", seq.slot), stream=SECONDARY)

    def save_step(self, seq: SequenceState, row: int, k: int) -> Moved:
        """live, which has absorbed verify row ``row`` of ``k``, to step ``row``; of the last row conv only."""
        parts = "h+conv" if row < k - 1 else "conv"
        return self._copy("step_save", seq.live, Place("step", seq.slot, row), parts)

    def rollback_ssm_states(self, seq: SequenceState, num_accepted: int) -> Moved:
        """0: checkpoint to live. n >= 1: step n-1 to live; in replay mode the checkpoint, with ``replay`` = n.

        Raises StateError, before anything moved, when there are fewer than n states after rows."""
        return self._rollback(seq, num_accepted, DEFAULT)

    def start_rollback_and_checkpoint_async(self, seq: SequenceState, num_accepted: int) -> tuple[Moved, Moved]:
        """Both copies on the secondary stream, in order. Raises like :meth:`rollback_ssm_states`, and in replay mode
        for n >= 1, because the rows must be run again between the two copies."""
        if self.mode is SsmRollbackMode.REPLAY and num_accepted > 0:
            raise StateError("replay mode cannot checkpoint in the same breath: the accepted rows must run first")
        return self._rollback(seq, num_accepted, SECONDARY), self.start_checkpoint_async(seq)

    def _rollback(self, seq: SequenceState, num_accepted: int, stream: str) -> Moved:
        most = self.pool.replay_rows if self.mode is SsmRollbackMode.REPLAY else self.pool.h_steps
        if not 0 <= num_accepted <= most:
            raise StateError(f"cannot roll back to {num_accepted} accepted rows: states after 0..{most} rows are kept")
        checkpoint = Place("checkpoint", seq.slot)
        if num_accepted == 0 or self.mode is SsmRollbackMode.REPLAY:
            return self._copy("rollback", checkpoint, seq.live, stream=stream, replay=num_accepted)
        row = self.seams("rollback.row", num_accepted - 1, accepted=num_accepted, slot=seq.slot)
        return self._copy("rollback", Place("step", seq.slot, row), seq.live, stream=stream)

    def commit_accepted_prefix(self, seq: SequenceState, num_accepted: int, k: int) -> Moved:
        """Step n-1 to live on the secondary stream; n = k moves nothing (live holds it).

        In replay mode the checkpoint comes back on the default stream, with ``replay`` = n. Raises StateError for
        n = 0 (row 0 is always accepted), n > k, or a k this pool was not built for."""
        if not 1 <= num_accepted <= k or k > self.pool.k:
            raise StateError(f"cannot commit {num_accepted} of {k} rows: 1..{k} can be, and K is at most {self.pool.k}")
        if num_accepted == k:
            return Moved(seq.live, seq.live, op="commit")
        if self.mode is SsmRollbackMode.REPLAY:
            return self._copy("commit", Place("checkpoint", seq.slot), seq.live, replay=num_accepted)
        row = self.seams("commit.row", num_accepted - 1, accepted=num_accepted, slot=seq.slot, k=k)
        return self._copy("commit", Place("step", seq.slot, row), seq.live, stream=SECONDARY)

    def sync_secondary(self) -> tuple[Moved, ...]:
        """Let the default stream wait for the secondary one; every copy that landed since the last report."""
        if self.seams("sync.skip", False):
            return ()
        self.copier.settle()
        return self.copier.report()

    # ------------------------------------------------------------------------------------------- snapshots

    def save_decode_ssm_snapshot(self, seq: SequenceState, ring_slot: int) -> Moved:
        return self.save_ring(seq, ring_slot, seq.live)

    def save_ring(self, seq: SequenceState, ring_slot: int, source: Place) -> Moved:
        """``source`` to ring slot ``ring_slot`` of the sequence, bit for bit.

        Raises StateError: no ring region, slot without a ring, ring slot out of range."""
        return self._copy("ring_save", source, Place("ring", seq.slot, ring_slot))

    def restore_decode_ssm_snapshot(self, seq: SequenceState, ring_slot: int) -> Moved:
        """Ring slot to live, bit for bit. Raises like :meth:`save_ring`."""
        return self._copy("ring_restore", Place("ring", seq.slot, ring_slot), seq.live)

    def save_prefix(self, seq: SequenceState, index: int, hidden: Tensor | None = None) -> Moved:
        """live to prefix slot ``index``, with the ``hidden`` row [hidden] after its last token when given.

        Nothing of the sequence may wait on the secondary stream. Raises StateError for a slot that does not exist."""
        moved = self._copy("prefix_save", seq.live, Place("prefix", -1, index))
        if hidden is not None:
            self.snapshots.keep_hidden(index, hidden)
        return moved

    def restore_prefix(self, seq: SequenceState, index: int) -> Moved:
        """Prefix slot ``index`` to live."""
        return self._copy("prefix_restore", Place("prefix", -1, index), seq.live)

    def decode_marconi_checkpoint(self, seq: SequenceState) -> Moved | None:
        """When a decode checkpoint is due and a prefix slot is free: wait for the secondary stream, live to the slot.

        The caller registers the slot under the first ``cursor`` tokens (true coverage); it evicts first when full."""
        due = decode_checkpoint_due(seq.cursor, self.kv.block_size, seq.checkpoint_block, len(seq.table.blocks))
        if due is None or not self.snapshots.prefix_free or not self.has_ssm_layers():
            return None
        self.copier.settle()
        seq.checkpoint_block = due.end_block
        return self.save_prefix(seq, self.snapshots.claim_prefix())

    # ------------------------------------------------------------------------------------------- slots

    def zero(self, slot: int) -> Moved:
        """Fill live of ``slot`` with zeros: position 0."""
        return self.copier.zero(LIVE(slot))

    def copy(self, src: Place, dst: Place, stream: str = DEFAULT) -> Moved:
        """Any place to any place. Raises StateError when one does not exist or lacks h."""
        if self.places.view(src).h is None or self.places.view(dst).h is None:
            raise StateError(f"{src} to {dst}: the last verify row has no h plane, live holds that state")
        return self._copy("copy", src, dst, stream=stream)

    def compact(self, seq: SequenceState, dst: int) -> Moved:
        """Move a sequence to the free slot ``dst``: live, checkpoint, steps, recorded rows and ring, and its claim.

        Wait for the secondary stream first. Raises StateError when the sequence holds no claim or ``dst`` is taken."""
        if seq.claim is None:
            raise StateError(f"r{seq.req} holds no slot")
        src = seq.slot
        seq.claim.migrate(dst)
        total = 0
        if not self.seams("compact.skip", False, src=src, dst=dst):
            total = self.pool.copy_slot(src, dst)
            if not self.seams("compact.rings", False, src=src, dst=dst):
                total += self.snapshots.copy_rings(src, dst)
        seq.attach(seq.claim)
        self.copier.copies += 1
        layers = self.geometry.layers if total else 0
        return Moved(LIVE(src), LIVE(dst), "h+conv", total, layers, copy=self.copier.copies, op="compact")

    def write_padding(self, seq: SequenceState) -> Moved | None:
        """What the unused rows of a verify narrower than K write: the dummy slot, which nobody reads, so the write is
        left out (None) unless ``padding.slot`` names a slot that somebody does read."""
        slot = self.seams("padding.slot", self.pool.dummy, slot=seq.slot)
        if slot == self.pool.dummy or not self.has_ssm_layers():
            return None
        return self._copy("copy", seq.live, LIVE(slot))

    # ------------------------------------------------------------------------------------------- image

    def save_image(self) -> dict[str, TensorData]:
        """Everything in the pools and the KV that was ever written, queued copies and all bookkeeping but the
        sequences themselves. Names begin with ``memory.``."""
        return image.save(self)

    def load_image(self, data: Mapping[str, TensorData]) -> None:
        """Inverse of :meth:`save_image`, exactly; other names are left alone. Claims are adopted by the caller.

        Raises StateError, before anything changed, when the image does not fit this memory."""
        image.load(self, data)
