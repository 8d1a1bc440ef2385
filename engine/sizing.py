"""How much memory an engine takes: one plan for ``info`` and for the engine that allocates it. No torch."""

from __future__ import annotations

import os
from dataclasses import dataclass

from engine.config import DTYPES, EngineConfig, ModelConfig
from engine.errors import UserError
from engine.state.reserve import (
    RingDepth,
    SsmRollbackMode,
    check_ring_depth,
    decode_rollback_ring_slots,
    memory_plan,
)


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Sizes of the pools and their bytes by name (``engine.state.reserve.memory_plan``)."""

    ring: RingDepth
    prefix_slots: int
    blocks: int
    kv_layers: int
    bytes: dict[str, int]

    @property
    def ring_depth(self) -> int:
        return self.ring.depth

    @property
    def total(self) -> int:
        """Bytes of all pools together (weights not counted)."""
        return sum(self.bytes[name] for name in ("ssm_pool", "prefix_pool", "decode_ring", "replay_ring", "kv"))


def plan_memory(model: ModelConfig, config: EngineConfig, *, has_mtp: bool, dtype: str) -> MemoryPlan:
    """Plan for running ``model`` as ``config`` asks, activations in ``dtype``."""
    geometry = model.geometry
    ring = decode_rollback_ring_slots(
        geometry.layers,
        flag=config.ring,
        speculation=config.drafts > 0,
        watchdogs=config.watchdogs,
        ring_under_speculation=True,
    )
    blocks = -(-config.kv_tokens // config.block_size)
    prefix_slots = config.prefix_slots if config.prefix_caching else 0
    kv_layers = len(model.attention_layers) + (1 if has_mtp else 0)
    return MemoryPlan(
        ring=ring,
        prefix_slots=prefix_slots,
        blocks=blocks,
        kv_layers=kv_layers,
        bytes=memory_plan(
            geometry,
            slots=config.slots,
            k=config.k,
            mode=SsmRollbackMode.parse(config.rollback),
            ring_depth=ring.depth,
            prefix_slots=prefix_slots,
            kv_layers=kv_layers,
            kv_heads=model.kv_heads,
            head_dim=model.head_dim,
            blocks=blocks,
            block_size=config.block_size,
            elem_bytes=DTYPES[dtype],
        ),
    )


# Pools beside the ring, and what makes each of them smaller.
SHRINK = {
    "ssm_pool": "ask for fewer --slots or --drafts",
    "replay_ring": "ask for fewer --slots or --drafts",
    "prefix_pool": "ask for fewer prefix slots",
    "kv": "ask for fewer --kv-tokens",
}


def check_memory(plan: MemoryPlan, config: EngineConfig, free: int) -> None:
    """Refuse a plan that does not fit into ``free`` bytes before anything is allocated.

    Raises:
        UserError: the figures, and which settings to lower.
    """
    reserved = plan.total - plan.bytes["decode_ring"]
    if reserved > free:
        name = max(SHRINK, key=lambda pool: plan.bytes[pool])
        raise UserError(
            f"the pools do not fit into memory: without the ring they need {reserved:,} bytes, {free:,} are free. "
            f"Most of it is {name} ({plan.bytes[name]:,} bytes): {SHRINK[name]}."
        )
    try:
        check_ring_depth(plan.ring_depth, plan.bytes["per_sequence"], config.slots, reserved, free)
    except ValueError as error:
        figures = ", ".join(f"{name} {plan.bytes[name]:,}" for name in ("ssm_pool", "prefix_pool", "replay_ring", "kv"))
        raise UserError(f"the pools do not fit into memory: {error}. Bytes: {figures}.") from None


def host_memory_free() -> int:
    """Bytes of memory the operating system calls available."""
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
