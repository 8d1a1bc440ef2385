"""State memory for tests: small, with shapes that are no multiples of anything, and bytes that tell where they are."""

from __future__ import annotations

import torch

from engine.events import Place
from engine.seams import Seams
from engine.state.geometry import StateGeometry
from engine.state.memory import StateMemory
from engine.state.paged_kv import KvTable, PagedKv
from engine.state.reserve import SsmRollbackMode
from engine.state.ring import SsmDecodeRing
from engine.traits import SequenceState

GEOMETRY = StateGeometry(recurrent_layers=(0, 1, 3), h_shape=(2, 3, 3), conv_shape=(5, 4))


def make_memory(
    *,
    slots: int = 3,
    k: int = 4,
    mode: SsmRollbackMode | str = SsmRollbackMode.SNAPSHOT,
    ring_depth: int = 3,
    prefix_slots: int = 2,
    hidden: int = 0,
    geometry: StateGeometry = GEOMETRY,
    kv_dtype: torch.dtype = torch.float32,
    device: str = "cpu",
) -> StateMemory:
    kv = PagedKv(2, 1, 4, blocks=6, block_size=4, dtype=kv_dtype, device=device)
    return StateMemory(
        geometry,
        slots=slots,
        k=k,
        kv=kv,
        mode=mode,
        ring_depth=ring_depth,
        prefix_slots=prefix_slots,
        hidden=hidden,
        device=device,
        seams=Seams(),
    )


def make_sequence(memory: StateMemory, req: int = 1, prompt_len: int = 3) -> SequenceState:
    """A sequence with a claimed slot and an empty block table."""
    ring = SsmDecodeRing(memory.decode_rollback_ring_slots(), memory.seams)
    seq = SequenceState(req, prompt_len, list(range(prompt_len)), KvTable(memory.kv), ring)
    seq.attach(memory.pool.claim())
    return seq


def fill(memory: StateMemory, place: Place, seed: int) -> None:
    """Random bytes, different for every seed; negative zeros and denormals among them."""
    generator = torch.Generator().manual_seed(seed)
    view = memory.places.view(place)
    for part in (view.h, view.conv):
        if part is not None:
            value = torch.randn(part.shape, generator=generator)
            value.view(-1)[:3] = torch.tensor([-0.0, 1e-42, float(seed)])
            part.copy_(value)


def fill_all(memory: StateMemory, slot: int, seed: int) -> None:
    """Every place of ``slot`` gets bytes of its own."""
    for offset, place in enumerate(places_of(memory, slot)):
        fill(memory, place, seed * 1000 + offset)


def places_of(memory: StateMemory, slot: int) -> list[Place]:
    places = [Place("live", slot)]
    places += [Place("checkpoint", slot)] if memory.pool.has_checkpoint else []
    places += [Place("step", slot, row) for row in range(memory.pool.conv_steps)]
    places += [Place("ring", slot, index) for index in range(memory.snapshots.ring_depth)]
    return places


def content(memory: StateMemory, place: Place) -> tuple[bytes, bytes]:
    """All layers' h and conv bytes, read by another way than the copies take."""
    h, conv = b"", b""
    for ordinal in range(memory.geometry.layers):
        if memory.places.view(place).h is not None:
            h += memory.read(place, ordinal, "h").raw
        conv += memory.read(place, ordinal, "conv").raw
    return h, conv


def snapshot(memory: StateMemory) -> dict[Place, tuple[bytes, bytes]]:
    """Content of every place there is."""
    slots = range(memory.pool.slots)
    places = [place for slot in slots for place in places_of(memory, slot)]
    places += [Place("prefix", -1, index) for index in range(memory.snapshots.prefix_slots)]
    return {place: content(memory, place) for place in places}
