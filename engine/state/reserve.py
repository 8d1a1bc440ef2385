"""Rollback mode and every byte formula of the state memory. No torch: ``info`` plans with the functions that allocate.

``L`` recurrent layers, ``B`` slots, ``m`` slots with verify buffers, ``K`` = drafts + 1, ``h`` and ``c`` bytes of one
layer's h and conv.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from engine.state.geometry import F32, StateGeometry

BF16 = 2


class SsmRollbackMode(Enum):
    """How a partial accept gets back to the state after the accepted rows.

    SNAPSHOT (default): verify writes a state plane after each row, the right one is copied back. REPLAY: verify records
    each row's inputs; the checkpoint comes back and the accepted rows run again."""

    SNAPSHOT = "snapshot"
    REPLAY = "replay"

    @classmethod
    def parse(cls, text: str) -> SsmRollbackMode:
        """Raises ValueError for anything but ``snapshot`` and ``replay``."""
        for mode in cls:
            if mode.value == text:
                return mode
        raise ValueError(f"unknown ssm-rollback-mode '{text}' (valid: snapshot, replay)")


_published: SsmRollbackMode | None = None
_publishing = threading.Lock()


def set_ssm_rollback_mode(mode: SsmRollbackMode) -> SsmRollbackMode:
    """Publish the command line's mode for this process and return the mode in force: the first write wins.

    An engine never reads the published mode by itself; it takes its mode as an argument, so that two engines of one
    process may differ. The command line publishes, reads back and hands it on."""
    global _published
    with _publishing:
        if _published is None:
            _published = mode
        return _published


def ssm_rollback_mode() -> SsmRollbackMode:
    """The mode in force; SNAPSHOT when nothing was published, and reading it that way fixes it."""
    return set_ssm_rollback_mode(SsmRollbackMode.SNAPSHOT)


def qkvz_elems(geometry: StateGeometry) -> int:
    """Elements of one row of Q, K, V (the conv channels) and Z (value heads x value dim)."""
    return geometry.conv_shape[0] + geometry.h_shape[0] * geometry.h_shape[2]


def ssm_replay_row_bytes(qkvz: int, nv: int, elem_bytes: int = BF16) -> int:
    """Bytes of one recorded verify row, one recurrent layer: projections, and fp32 gate and beta per value head."""
    return qkvz * elem_bytes + nv * 2 * F32


def ssm_replay_ring_bytes(num_ssm_layers: int, row_bytes: int, k_ceiling: int, mtp_state_slots: int) -> int:
    """Bytes of all recorded rows. A full accept replays nothing, so K-1 rows are kept.

    Preflight calls this with ``mtp_state_slots``, the pool with one more (its dummy slot)."""
    return mtp_state_slots * max(k_ceiling - 1, 0) * num_ssm_layers * row_bytes


def mtp_state_slots(slots: int, cap: int = 32, full: bool = False) -> int:
    """Slots that get verify buffers: all when ``full``, else at most max(cap, 32)."""
    return slots if full else min(slots, max(cap, 32))


def ssm_pool_terms(
    layers: int,
    h_bytes: int,
    conv_bytes: int,
    slots: int,
    k: int,
    mode: SsmRollbackMode = SsmRollbackMode.SNAPSHOT,
    mtp_slots: int | None = None,
) -> dict[str, int]:
    """Bytes of each region of the state pool: live, step_h, step_conv, checkpoint; dummy slots included.

    bytes = L * [(B+1)(h+c) + (m+1)(K-1)h + (m+1)Kc + (m+1)(h+c)]; without verify (K = 1 or m = 0) only the first term,
    in replay mode no step terms. ``mtp_slots`` None means all slots."""
    m = slots if mtp_slots is None else mtp_slots
    terms = {"live": layers * (slots + 1) * (h_bytes + conv_bytes), "step_h": 0, "step_conv": 0, "checkpoint": 0}
    if k > 1 and m > 0:
        terms["checkpoint"] = layers * (m + 1) * (h_bytes + conv_bytes)
        if mode is SsmRollbackMode.SNAPSHOT:
            terms["step_h"] = layers * (m + 1) * (k - 1) * h_bytes
            terms["step_conv"] = layers * (m + 1) * k * conv_bytes
    return terms


def ssm_pool_bytes(
    layers: int,
    h_bytes: int,
    conv_bytes: int,
    slots: int,
    k: int,
    mode: SsmRollbackMode = SsmRollbackMode.SNAPSHOT,
    mtp_slots: int | None = None,
) -> int:
    """Sum of :func:`ssm_pool_terms`: what the state pool allocates, padding and recorded rows not counted."""
    return sum(ssm_pool_terms(layers, h_bytes, conv_bytes, slots, k, mode, mtp_slots).values())


def prefix_pool_bytes(prefix_slots: int, blob_bytes: int, hidden: int = 0, elem_bytes: int = BF16) -> int:
    """Bytes of the prefix snapshots, fp32, with one hidden row of ``hidden`` elements each (0: none kept)."""
    return prefix_slots * (blob_bytes + hidden * elem_bytes)


def decode_ring_bytes(depth: int, slots: int, blob_bytes: int) -> int:
    """Bytes of the ring region: ``depth`` whole states per slot at fp32 width."""
    return depth * slots * blob_bytes


def kv_bytes(layers: int, kv_heads: int, head_dim: int, blocks: int, block_size: int, elem_bytes: int) -> int:
    """Bytes of the paged KV pool: keys and values."""
    return layers * 2 * blocks * block_size * kv_heads * head_dim * elem_bytes


# ------------------------------------------------------------------------------------------------------ ring depth

DEFAULT_RING_DEPTH = 8
RING_DEPTHS = (8, 4, 2, 1, 0)
RING_ENV = "METRALE_SSM_DECODE_RING"


@dataclass(frozen=True, slots=True)
class RingDepth:
    """Ring slots per sequence, and why."""

    depth: int
    reason: str


def decode_rollback_ring_slots(
    layers: int,
    flag: int | None = None,
    env: Mapping[str, str] | None = None,
    speculation: bool = False,
    watchdogs: bool = True,
    ring_under_speculation: bool = False,
) -> RingDepth:
    """The depth policy; the first rule that applies decides.

    No recurrent layers: 0. An explicit or fitted ``flag``: that. ``METRALE_SSM_DECODE_RING`` in ``env`` (None: the
    process environment): 1 means 8, 0 means 0. Speculation on, or watchdogs off: 0. Otherwise 8.
    ``ring_under_speculation`` is for engines that take boundary snapshots of speculative rounds too, as this one does:
    speculation then no longer empties the ring. Raises ValueError on another environment value or a negative flag."""
    if layers == 0:
        return RingDepth(0, "the model has no recurrent layers: the KV cursor alone rewinds it")
    if flag is not None:
        if flag < 0:
            raise ValueError(f"ring depth must be 0 or more, found {flag}")
        return RingDepth(flag, f"{flag} ring slots were asked for")
    value = (os.environ if env is None else env).get(RING_ENV)
    if value is not None:
        if value not in ("0", "1"):
            raise ValueError(f"{RING_ENV}: found {value!r}, expected 0 (no ring) or 1 ({DEFAULT_RING_DEPTH} slots)")
        return RingDepth(DEFAULT_RING_DEPTH if value == "1" else 0, f"{RING_ENV}={value} is set")
    if speculation and not ring_under_speculation:
        return RingDepth(0, "skipped: speculation is on, and the ring is written by plain decoding only")
    if not watchdogs:
        return RingDepth(0, "skipped: watchdogs are off, so nothing would ask for a rollback")
    return RingDepth(DEFAULT_RING_DEPTH, "default")


def fit_ring_depth(blob_bytes: int, slots: int, reserved: int, free: int) -> RingDepth:
    """``auto``: the deepest of 8, 4, 2, 1, 0 whose ring fits beside ``reserved`` bytes into ``free`` bytes.

    Measure both the same way: what is still to be reserved against the memory free after loading, or everything with
    the weights against the memory free before. 0 is returned even when ``reserved`` alone does not fit."""
    for depth in RING_DEPTHS:
        need = reserved + decode_ring_bytes(depth, slots, blob_bytes)
        if need <= free:
            return RingDepth(depth, f"auto: {need} of {free} bytes with a ring of {depth}")
    return RingDepth(0, f"auto: {reserved} bytes are needed without a ring, {free} are free")


def check_ring_depth(depth: int, blob_bytes: int, slots: int, reserved: int, free: int) -> None:
    """An explicit depth is never shrunk. Raises ValueError when its ring does not fit beside ``reserved`` bytes."""
    ring = decode_ring_bytes(depth, slots, blob_bytes)
    if reserved + ring > free:
        fitting = fit_ring_depth(blob_bytes, slots, reserved, free).depth
        raise ValueError(
            f"a ring of {depth} slots for {slots} sequences needs {ring} bytes beside {reserved} reserved ones, but "
            f"{free} are free: ask for at most {fitting}, fewer slots or fewer drafts"
        )


def memory_plan(
    geometry: StateGeometry,
    *,
    slots: int,
    k: int,
    mode: SsmRollbackMode,
    ring_depth: int,
    prefix_slots: int,
    kv_layers: int,
    kv_heads: int,
    head_dim: int,
    blocks: int,
    block_size: int,
    elem_bytes: int,
    hidden: int = 0,
) -> dict[str, int]:
    """Every byte figure by name, from the functions the pools allocate with.

    ``elem_bytes`` is the activation width (KV, recorded rows, hidden rows). ``replay_ring`` is what the pool allocates,
    ``replay_ring_preflight`` what a preflight without the dummy slot would reserve."""
    layers, h, conv = geometry.layers, geometry.h_bytes, geometry.conv_bytes
    row = ssm_replay_row_bytes(qkvz_elems(geometry), geometry.h_shape[0], elem_bytes)
    replay_slots = slots + 1 if mode is SsmRollbackMode.REPLAY and k > 1 else 0
    return {
        "ssm_pool": ssm_pool_bytes(layers, h, conv, slots, k, mode),
        "prefix_pool": prefix_pool_bytes(prefix_slots, geometry.blob_bytes, hidden, elem_bytes),
        "decode_ring": decode_ring_bytes(ring_depth, slots, geometry.blob_bytes),
        "replay_ring": ssm_replay_ring_bytes(layers, row, k, replay_slots),
        "replay_ring_preflight": ssm_replay_ring_bytes(layers, row, k, max(replay_slots - 1, 0)),
        "kv": kv_bytes(kv_layers, kv_heads, head_dim, blocks, block_size, elem_bytes),
        "per_sequence": geometry.blob_bytes,
        "per_layer_h": h,
        "per_layer_conv": conv,
    }
