"""The state memory as plain data: every row and block that was ever written, queued copies, and the bookkeeping.

Rows of free slots are kept too: they are read again when a fault (or a person) reads what it should not, and a
continued run must then do exactly what the first one did. The dummy slot is not kept, nobody reads it. Rows that hold
only zero bytes are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from engine.events import Place, TensorData
from engine.state.errors import StateError
from engine.state.places import to_plain
from engine.state.transfer import Transfer
from engine.traits import Moved

if TYPE_CHECKING:
    from engine.state.memory import StateMemory

FORMAT = 1
PREFIX = "memory."
JSON = PREFIX + "json"


def save(memory: StateMemory) -> dict[str, TensorData]:
    """See :meth:`StateMemory.save_image`."""
    if memory.copier.streams.device.type == "cuda":
        torch.cuda.synchronize(memory.copier.streams.device)
    state = {
        "format": FORMAT,
        "shape": _shape(memory),
        "copies": memory.copier.copies,
        "unreported": [_moved_to_plain(moved) for moved in memory.copier.unreported],
        "queue": [transfer.to_plain() for transfer in memory.copier.streams.pending],
        "touched": sorted(str(place) for place in memory.copier.touched),
        "slots": memory.pool.save_owners(),
        "prefix": memory.snapshots.save_slots(),
        "blocks": memory.kv.save_blocks(),
    }
    raw = json.dumps(state, sort_keys=True, separators=(",", ":")).encode()
    image = {JSON: TensorData("uint8", (len(raw),), raw)}
    for name, row in _used(memory):
        data = to_plain(row)
        if np.frombuffer(data.raw, np.uint8).any():
            image[name] = data
    return image


def load(memory: StateMemory, image: Mapping[str, TensorData]) -> None:
    """See :meth:`StateMemory.load_image`."""
    try:
        state: dict[str, Any] = json.loads(image[JSON].raw)
        copies, shape = int(state["copies"]), state["shape"]
        unreported = [_moved_from_plain(item) for item in state["unreported"]]
        queue = [Transfer.from_plain(item) for item in state["queue"]]
        touched = {Place.from_text(text) for text in state["touched"]}
        tables = (state["slots"], state["prefix"], state["blocks"])
    except (KeyError, TypeError, ValueError) as error:
        raise StateError(f"the image has no readable {JSON}: {type(error).__name__} {error}") from None
    if state.get("format") != FORMAT or shape != _shape(memory):
        raise StateError(f"the image is of format {state.get('format')} and memory {shape}, not {_shape(memory)}")
    names = [name for name in image if name.startswith(PREFIX) and name != JSON]
    targets = [_target(memory, name) for name in names]
    values = [_tensor(name, image[name], row) for name, row in zip(names, targets, strict=True)]
    stale = [row for _, row in _used(memory)]
    _load_tables(memory, tables)
    copier = memory.copier
    copier.streams.drop()
    for row in stale:
        row.zero_()
    for row, value in zip(targets, values, strict=True):
        row.copy_(value)
    copier.copies, copier.unreported = copies, unreported
    copier.touched |= touched
    for transfer in queue:
        copier.submit(transfer)


def _load_tables(memory: StateMemory, tables: tuple[Any, Any, Any]) -> None:
    before = (memory.pool.save_owners(), memory.snapshots.save_slots(), memory.kv.save_blocks())
    loaders = (memory.pool.load_owners, memory.snapshots.load_slots, memory.kv.load_blocks)
    try:
        for load_table, data in zip(loaders, tables, strict=True):
            load_table(data)
    except StateError:
        for load_table, data in zip(loaders, before, strict=True):
            load_table(data)
        raise


def _shape(memory: StateMemory) -> dict[str, Any]:
    geometry, kv = memory.geometry, memory.kv
    return {
        "layers": list(geometry.recurrent_layers),
        "h": list(geometry.h_shape),
        "conv": list(geometry.conv_shape),
        "slots": memory.pool.slots,
        "k": memory.pool.k,
        "mode": memory.mode.value,
        "ring": memory.snapshots.ring_depth,
        "prefix": memory.snapshots.prefix_slots,
        "kv": [*kv.buffer.shape, str(kv.buffer.dtype)],
    }


def _used(memory: StateMemory) -> Iterator[tuple[str, Tensor]]:
    """Every row that may hold something else than zeros."""
    pool, snapshots, touched = memory.pool, memory.snapshots, memory.copier.touched
    slots = {place.slot for place in touched}
    for slot in range(pool.slots):
        if pool.epoch(slot) or slot in slots:
            yield from _slot_rows(memory, slot)
    copied = {place.index for place in touched if place.kind == "prefix"}
    for index in sorted(copied.union(range(snapshots.ever_used))):
        yield f"{PREFIX}prefix:{index}", _blob(memory, Place("prefix", -1, index))
        if snapshots.hidden_row(index).numel():
            yield f"{PREFIX}hidden:{index}", snapshots.hidden_row(index)
    for block in range(memory.kv.ever_used):
        yield f"{PREFIX}kv:{block}", memory.kv.buffer[:, :, block]


def _slot_rows(memory: StateMemory, slot: int) -> Iterator[tuple[str, Tensor]]:
    pool = memory.pool
    places = [Place("live", slot)]
    places += [Place("checkpoint", slot)] if pool.has_checkpoint else []
    places += [Place("ring", slot, index) for index in range(memory.snapshots.ring_depth)]
    for place in places:
        yield f"{PREFIX}{place}", _blob(memory, place)
    for row in range(pool.conv_steps):
        view = memory.places.view(Place("step", slot, row))
        yield f"{PREFIX}step:{slot}.{row}.conv", view.conv
        if view.h is not None:
            yield f"{PREFIX}step:{slot}.{row}.h", view.h
    if pool.replay_rows:
        qkvz, gates = pool.replay_planes(slot)
        yield f"{PREFIX}replay:{slot}.qkvz", qkvz
        yield f"{PREFIX}replay:{slot}.gates", gates


def _blob(memory: StateMemory, place: Place) -> Tensor:
    blob = memory.places.view(place).blob
    assert blob is not None
    return blob


def _target(memory: StateMemory, name: str) -> Tensor:
    """The row called ``name``. Raises StateError when this memory has none of that name."""
    kind, _, rest = name.removeprefix(PREFIX).partition(":")
    number = rest.split(".")[0]
    if number.isdecimal() and len(number) < 10:
        index = int(number)
        if kind == "kv" and index < memory.kv.blocks:
            return memory.kv.buffer[:, :, index]
        if kind in ("prefix", "hidden") and index < memory.snapshots.prefix_slots:
            if kind == "hidden":
                return memory.snapshots.hidden_row(index)
            return _blob(memory, Place("prefix", -1, index))
        if index < memory.pool.slots:
            found = dict(_slot_rows(memory, index)).get(name)
            if found is not None:
                return found
    raise StateError(f"the image holds {name!r:.60}, which this memory does not have")


def _tensor(name: str, data: TensorData, row: Tensor) -> Tensor:
    """``data`` on the host, checked against the row it is for."""
    dtype, shape = str(row.dtype).removeprefix("torch."), tuple(row.shape)
    if data.dtype != dtype or tuple(data.shape) != shape or len(data.raw) != row.numel() * row.itemsize:
        found = f"{data.dtype} {tuple(data.shape)} in {len(data.raw)} bytes"
        raise StateError(f"image row {name}: found {found}, expected {dtype} {shape}")
    return torch.frombuffer(bytearray(data.raw), dtype=row.dtype).view(row.shape)


def _moved_to_plain(moved: Moved) -> dict[str, Any]:
    return {**moved._asdict(), "src": str(moved.src), "dst": str(moved.dst)}


def _moved_from_plain(data: Mapping[str, Any]) -> Moved:
    return Moved(**{**data, "src": Place.from_text(data["src"]), "dst": Place.from_text(data["dst"])})
