"""Saving and loading the whole state memory: exactly, used rows only, and nothing half-loaded."""

from __future__ import annotations

import json

import pytest
import torch
from state_helpers import GEOMETRY, content, fill_all, make_memory, make_sequence, snapshot

from engine.events import LIVE, Place, TensorData
from engine.state.errors import StateError
from engine.state.memory import StateMemory
from engine.state.paged_kv import KvTable
from engine.state.reserve import SsmRollbackMode
from engine.traits import SequenceState


def lived_in(mode: SsmRollbackMode | str = "snapshot", kv_dtype: torch.dtype = torch.bfloat16) -> StateMemory:
    """Two sequences, one gone; a queued commit; a prefix; KV of two tables that share a block."""
    memory = make_memory(mode=mode, hidden=4, kv_dtype=kv_dtype)
    gone, seq = make_sequence(memory, 1), make_sequence(memory, 2)
    for slot in (0, 1):
        fill_all(memory, slot, slot + 1)
    memory.save_prefix(seq, memory.snapshots.claim_prefix(), torch.arange(4.0))
    memory.checkpoint_ssm_states(seq)
    memory.commit_accepted_prefix(seq, 2, 4)
    if memory.pool.replay_rows:
        memory.pool.replay_qkvz(1)[1, 2] = 5.0
        memory.pool.replay_gates(2)[1, 0] = -6.0
    seq.table.reserve(7)
    k = torch.arange(28.0).view(7, 1, 4) + 1
    for layer in range(2):
        seq.table.write(layer, 0, k * (layer + 1), -k)
    seq.table.advance(7)
    KvTable(memory.kv).share_from(seq.table.blocks[:1])
    assert gone.claim is not None
    gone.claim.release()
    return memory


def everything(memory: StateMemory) -> object:
    replay = (memory.pool.replay_qkvz(1).tolist(), memory.pool.replay_gates(2).tolist())
    hidden = [memory.snapshots.hidden(index) for index in range(2)]
    return (
        snapshot(memory),
        memory.pending,
        memory.pool.save_owners(),
        memory.snapshots.save_slots(),
        memory.kv.save_blocks(),
        memory.kv.buffer.float().tolist(),
        replay,
        [None if row is None else row.tolist() for row in hidden],
    )


MODES = pytest.mark.parametrize("mode", ["snapshot", "replay"])


@MODES
def test_fresh_memory_continues_where_the_image_was_taken(mode: str) -> None:
    memory = lived_in(mode)
    twin = make_memory(mode=mode, hidden=4, kv_dtype=torch.bfloat16)
    twin.load_image(memory.save_image())
    assert everything(twin) == everything(memory)
    assert twin.save_image() == memory.save_image()


@MODES
def test_used_memory_forgets_everything_that_is_not_in_the_image(mode: str) -> None:
    memory = lived_in(mode)
    image = memory.save_image()
    other = lived_in(mode)
    seq = make_sequence(other, 3)
    for slot in range(3):
        fill_all(other, slot, 50 + slot)
    other.copy(LIVE(0), Place("prefix", -1, 1))
    other.copy(LIVE(0), Place("checkpoint", 2))
    other.start_checkpoint_async(seq)
    other.kv.alloc(1)
    other.kv.buffer[:, :, :3] = 9.0
    other.load_image(image)
    assert everything(other) == everything(memory)


def test_queued_copies_land_after_loading() -> None:
    memory = lived_in()
    twin = make_memory(hidden=4, kv_dtype=torch.bfloat16)
    twin.load_image(memory.save_image())
    expected = content(twin, Place("step", 1, 1))
    assert content(twin, LIVE(1)) != expected
    assert twin.sync_secondary() == memory.sync_secondary() != ()
    assert content(twin, LIVE(1)) == expected == content(memory, LIVE(1))


def test_copies_are_numbered_on() -> None:
    memory = lived_in()
    image = memory.save_image()
    seq = SequenceState.load(make_sequence(memory, 9).save(), KvTable(memory.kv))
    expected = memory.copy(LIVE(0), LIVE(1)).copy
    memory.load_image(image)
    assert memory.copy(LIVE(0), LIVE(1)).copy == expected
    assert seq.req == 9


def test_landed_but_unreported_copies_survive() -> None:
    memory = lived_in()
    seq = make_sequence(memory, 3)
    seq.table.reserve(16)
    seq.table.advance(16)
    assert memory.decode_marconi_checkpoint(seq) is not None
    twin = make_memory(hidden=4, kv_dtype=torch.bfloat16)
    twin.load_image(memory.save_image())
    assert [moved.op for moved in twin.sync_secondary()] == ["commit"]


def test_rows_never_written_are_left_out() -> None:
    memory = make_memory()
    assert list(memory.save_image()) == ["memory.json"]
    make_sequence(memory)
    memory.pool.conv(2)[0, 0, 0] = 1.0
    assert sorted(memory.save_image()) == ["memory.json", "memory.live:0"]


def test_negative_zero_is_written_and_comes_back() -> None:
    memory = make_memory()
    make_sequence(memory)
    memory.pool.h(0)[0, 0, 0, 0] = -0.0
    twin = make_memory()
    twin.load_image(memory.save_image())
    assert twin.digests(LIVE(0)) == memory.digests(LIVE(0))


def test_bytes_a_wrong_address_put_into_an_unclaimed_slot_come_back() -> None:
    memory = make_memory()
    seq = make_sequence(memory)
    fill_all(memory, 0, 3)
    memory.seams.add("checkpoint.dst_at", lambda place, **context: Place("checkpoint", 2))
    memory.checkpoint_ssm_states(seq)
    twin = make_memory()
    twin.load_image(memory.save_image())
    assert snapshot(twin) == snapshot(memory)
    twin.load_image(make_memory().save_image())
    assert not any(any(part) for value in snapshot(twin).values() for part in value)


def test_other_names_in_the_image_are_left_alone() -> None:
    memory = lived_in()
    image = {**memory.save_image(), "engine.json": TensorData("uint8", (1,), b"x")}
    make_memory(hidden=4, kv_dtype=torch.bfloat16).load_image(image)


def test_claims_are_adopted_after_loading() -> None:
    memory = lived_in()
    twin = make_memory(hidden=4, kv_dtype=torch.bfloat16)
    twin.load_image(memory.save_image())
    claim = twin.pool.adopt(1)
    assert claim.epoch == 1 and twin.pool.claim().slot == 0


def test_sequence_survives_saving() -> None:
    memory = make_memory()
    seq = make_sequence(memory, 4)
    seq.tokens += [7, 8]
    seq.table.reserve(6)
    seq.table.advance(4)
    seq.ring.record(2)
    seq.thinking, seq.rollback_count, seq.session, seq.checkpoint_block = True, 1, 5, 4
    data = json.loads(json.dumps(seq.save()))
    twin = SequenceState.load(data, KvTable(memory.kv, data["table"]["blocks"], data["table"]["cursor"]))
    assert twin.save() == seq.save()
    assert (twin.slot, twin.epoch, twin.claim) == (0, 1, None)
    assert (twin.outputs, twin.pending, twin.position, twin.cursor, twin.live) == (2, 8, 4, 4, LIVE(0))


# ------------------------------------------------------------------------------------------------------- damaged input


def damaged(what: str) -> dict[str, TensorData]:
    image = lived_in().save_image()
    live = image["memory.live:1"]
    state = json.loads(image["memory.json"].raw)
    if what == "no json":
        del image["memory.json"]
    elif what == "no text":
        image["memory.json"] = TensorData("uint8", (3,), b"\xff\x00{")
    elif what == "short row":
        image["memory.live:1"] = TensorData(live.dtype, live.shape, live.raw[:-4])
    elif what == "other dtype":
        image["memory.live:1"] = TensorData("int32", live.shape, live.raw)
    elif what == "other shape":
        image["memory.live:1"] = TensorData(live.dtype, (live.shape[0] // 2, 2), live.raw)
    elif what == "unknown row":
        image["memory.live:77"] = live
    elif what == "unknown kind":
        image["memory.cache:0"] = live
    else:
        if what == "bad owner":
            state["slots"]["owned"] = [9]
        elif what == "bad blocks":
            state["blocks"]["refs"] = [1]
        elif what == "bad prefix":
            state["prefix"]["free"] = [5]
        elif what == "bad queue":
            state["queue"][0]["src"] = "nowhere:1"
        elif what == "bad format":
            state["format"] = 99
        raw = json.dumps(state).encode()
        image["memory.json"] = TensorData("uint8", (len(raw),), raw)
    return image


@pytest.mark.parametrize(
    "what",
    [
        "no json",
        "no text",
        "short row",
        "other dtype",
        "other shape",
        "unknown row",
        "unknown kind",
        "bad owner",
        "bad blocks",
        "bad prefix",
        "bad queue",
        "bad format",
    ],
)
def test_damaged_image_is_refused_and_changes_nothing(what: str) -> None:
    memory = lived_in()
    memory.zero(1)
    before = everything(memory)
    with pytest.raises(StateError):
        memory.load_image(damaged(what))
    assert everything(memory) == before


@pytest.mark.parametrize("sizes", [{"slots": 2}, {"k": 3}, {"ring_depth": 2}, {"prefix_slots": 1}, {"mode": "replay"}])
def test_image_of_another_memory_is_refused(sizes: dict[str, object]) -> None:
    image = lived_in().save_image()
    other = make_memory(**{"hidden": 4, "kv_dtype": torch.bfloat16} | sizes)  # type: ignore[arg-type]
    with pytest.raises(StateError, match="the image is of format"):
        other.load_image(image)


def test_image_of_another_kv_dtype_is_refused() -> None:
    with pytest.raises(StateError, match="the image is of format"):
        make_memory(hidden=4).load_image(lived_in().save_image())


def test_row_sizes_are_the_state_without_padding() -> None:
    image = lived_in().save_image()
    assert len(image["memory.live:1"].raw) == GEOMETRY.blob_bytes
    assert image["memory.kv:0"].shape == (2, 2, 4, 1, 4)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_cuda_image_loads_on_cpu_and_back() -> None:
    host = lived_in()
    device = make_memory(hidden=4, kv_dtype=torch.bfloat16, device="cuda")
    device.load_image(host.save_image())
    assert device.save_image() == host.save_image()
    device.sync_secondary()
    host.sync_secondary()
    assert snapshot(device) == snapshot(host)
