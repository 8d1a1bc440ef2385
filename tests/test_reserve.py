"""Rollback mode and byte formulas, against the published figures and against what is really allocated."""

from __future__ import annotations

import pytest
import torch
from state_helpers import GEOMETRY, make_memory

from engine.state import reserve
from engine.state.geometry import StateGeometry
from engine.state.reserve import SsmRollbackMode

KIB, MIB = 1 << 10, 1 << 20
QWEN_27B = StateGeometry(tuple(range(48)), (48, 128, 128), (10240, 4))
QWEN_35B = StateGeometry(tuple(range(30)), (32, 128, 128), (8192, 4))
SNAPSHOT, REPLAY = SsmRollbackMode.SNAPSHOT, SsmRollbackMode.REPLAY


@pytest.fixture
def unpublished(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reserve, "_published", None)


# -------------------------------------------------------------------------------------------------------- rollback mode


def test_modes_are_parsed_by_name() -> None:
    assert SsmRollbackMode.parse("snapshot") is SNAPSHOT
    assert SsmRollbackMode.parse("replay") is REPLAY


@pytest.mark.parametrize("text", ["", "Replay", "fast", " snapshot"])
def test_unknown_mode_is_refused_with_the_valid_ones(text: str) -> None:
    with pytest.raises(ValueError, match="unknown ssm-rollback-mode") as error:
        SsmRollbackMode.parse(text)
    assert str(error.value) == f"unknown ssm-rollback-mode '{text}' (valid: snapshot, replay)"


@pytest.mark.usefixtures("unpublished")
def test_first_published_mode_wins() -> None:
    assert reserve.set_ssm_rollback_mode(REPLAY) is REPLAY
    assert reserve.set_ssm_rollback_mode(SNAPSHOT) is REPLAY
    assert reserve.ssm_rollback_mode() is REPLAY


@pytest.mark.usefixtures("unpublished")
def test_reading_an_unpublished_mode_fixes_snapshot() -> None:
    assert reserve.ssm_rollback_mode() is SNAPSHOT
    assert reserve.set_ssm_rollback_mode(REPLAY) is SNAPSHOT


@pytest.mark.usefixtures("unpublished")
def test_an_engine_takes_its_own_mode_and_publishes_nothing() -> None:
    assert make_memory(mode="replay").mode is REPLAY
    assert reserve.set_ssm_rollback_mode(SNAPSHOT) is SNAPSHOT


# -------------------------------------------------------------------------------------------------------- recorded rows


@pytest.mark.parametrize(
    ("geometry", "row"),
    [
        (QWEN_27B, 33_152),
        (QWEN_35B, 24_832),
        (StateGeometry(tuple(range(18)), (16, 128, 128), (6144, 4)), 16_512),
    ],
)
def test_row_bytes_of_published_models(geometry: StateGeometry, row: int) -> None:
    assert reserve.ssm_replay_row_bytes(reserve.qkvz_elems(geometry), geometry.h_shape[0]) == row


def test_projection_row_of_27b_has_16384_elements() -> None:
    assert reserve.qkvz_elems(QWEN_27B) == 16_384


def test_replay_ring_keeps_one_row_less_than_the_window() -> None:
    assert reserve.ssm_replay_ring_bytes(48, 33_152, 4, 1) == 3 * 48 * 33_152
    assert reserve.ssm_replay_ring_bytes(48, 33_152, 4, 5) == 5 * 3 * 48 * 33_152


def test_replay_ring_without_a_window_is_empty() -> None:
    assert reserve.ssm_replay_ring_bytes(48, 33_152, 1, 4) == 0
    assert reserve.ssm_replay_ring_bytes(48, 33_152, 0, 4) == 0


# ------------------------------------------------------------------------------------------------------------- pools


@pytest.mark.parametrize(
    ("layers", "h", "conv", "slots", "k", "expected"),
    [
        (30, 2 * MIB, 128 * KIB, 8, 2, 1_840_250_880),
        (48, 3 * MIB, 160 * KIB, 1, 4, 1_604_321_280),
        (23, 2 * MIB, 96 * KIB, 8, 1, 454_459_392),
    ],
    ids=["35B-A3B", "27B", "nemotron-nano"],
)
def test_pool_bytes_equal_the_published_ledgers(
    layers: int, h: int, conv: int, slots: int, k: int, expected: int
) -> None:
    assert reserve.ssm_pool_bytes(layers, h, conv, slots, k) == expected


def test_no_verify_slots_drop_the_verify_terms() -> None:
    without = reserve.ssm_pool_bytes(3, 100, 10, 4, 4, mtp_slots=0)
    assert without == reserve.ssm_pool_bytes(3, 100, 10, 4, 1) == 3 * 5 * 110


def test_fewer_verify_slots_shrink_the_verify_terms_only() -> None:
    assert reserve.ssm_pool_bytes(3, 100, 10, 40, 2, mtp_slots=32) == 3 * (41 * 110 + 33 * 100 + 33 * 2 * 10 + 33 * 110)


@pytest.mark.parametrize(
    ("slots", "cap", "full", "expected"),
    [(8, 32, False, 8), (40, 32, False, 32), (40, 36, False, 36), (64, 4, True, 64)],
)
def test_verify_slots_are_capped_unless_full(slots: int, cap: int, full: bool, expected: int) -> None:
    assert reserve.mtp_state_slots(slots, cap, full) == expected


def test_prefix_pool_bytes_equal_the_published_ledgers() -> None:
    assert reserve.prefix_pool_bytes(16, QWEN_35B.blob_bytes) == 1020 * MIB
    assert reserve.prefix_pool_bytes(256, QWEN_27B.blob_bytes) == 38_784 * MIB
    assert reserve.prefix_pool_bytes(256, QWEN_27B.blob_bytes, hidden=5120) - 38_784 * MIB == int(2.5 * MIB)


def test_ring_bytes_equal_the_published_ledgers() -> None:
    assert QWEN_27B.blob_bytes == 158_859_264
    assert QWEN_35B.blob_bytes == 66_846_720
    nano = 23 * (2 * MIB + 96 * KIB)
    assert reserve.decode_ring_bytes(8, 8, nano) == 3082 * MIB


@pytest.mark.parametrize("mode", list(SsmRollbackMode))
@pytest.mark.parametrize("k", [1, 2, 5])
def test_plan_equals_what_is_allocated(mode: SsmRollbackMode, k: int) -> None:
    memory = make_memory(mode=mode, k=k, hidden=6, kv_dtype=torch.float32)
    kv = memory.kv
    plan = reserve.memory_plan(
        GEOMETRY,
        slots=3,
        k=k,
        mode=mode,
        ring_depth=3,
        prefix_slots=2,
        kv_layers=kv.layers,
        kv_heads=kv.kv_heads,
        head_dim=kv.head_dim,
        blocks=kv.blocks,
        block_size=kv.block_size,
        elem_bytes=4,
        hidden=6,
    )
    assert {name: plan[name] for name in memory.bytes()} == memory.bytes()
    assert plan["per_sequence"] == 3 * (plan["per_layer_h"] + plan["per_layer_conv"])


def test_preflight_and_pool_differ_by_the_dummy_slot_only() -> None:
    sizes = {"ring_depth": 0, "prefix_slots": 0, "kv_layers": 0, "kv_heads": 1, "head_dim": 1, "blocks": 1}
    plan = reserve.memory_plan(QWEN_27B, slots=8, k=4, mode=REPLAY, block_size=16, elem_bytes=2, **sizes)
    assert plan["replay_ring"] - plan["replay_ring_preflight"] == 3 * 48 * 33_152
    assert plan["ssm_pool"] == 48 * 2 * 9 * (QWEN_27B.h_bytes + QWEN_27B.conv_bytes)


# --------------------------------------------------------------------------------------------------------- ring depth


def depth(**rules: object) -> tuple[int, str]:
    given: dict[str, object] = {"layers": 4, "env": {}} | rules
    done = reserve.decode_rollback_ring_slots(**given)  # type: ignore[arg-type]
    return done.depth, done.reason


def test_depth_is_eight_by_default() -> None:
    assert depth() == (8, "default")


def test_no_recurrent_layers_beat_everything() -> None:
    assert depth(layers=0, flag=4, env={"METRALE_SSM_DECODE_RING": "1"})[0] == 0


def test_flag_beats_environment_speculation_and_watchdogs() -> None:
    rules = {"env": {"METRALE_SSM_DECODE_RING": "0"}, "speculation": True, "watchdogs": False}
    assert depth(flag=3, **rules)[0] == 3
    assert depth(flag=0)[0] == 0


def test_environment_beats_speculation_and_watchdogs() -> None:
    assert depth(env={"METRALE_SSM_DECODE_RING": "1"}, speculation=True, watchdogs=False)[0] == 8
    found, reason = depth(env={"METRALE_SSM_DECODE_RING": "0"})
    assert found == 0 and "METRALE_SSM_DECODE_RING=0" in reason


def test_process_environment_is_read_when_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METRALE_SSM_DECODE_RING", "0")
    assert depth(env=None)[0] == 0


def test_other_environment_values_are_refused() -> None:
    with pytest.raises(ValueError, match=r"METRALE_SSM_DECODE_RING: found '8', expected 0"):
        depth(env={"METRALE_SSM_DECODE_RING": "8"})


def test_negative_depth_is_refused() -> None:
    with pytest.raises(ValueError, match="found -1"):
        depth(flag=-1)


def test_speculation_empties_the_ring_and_says_so() -> None:
    found, reason = depth(speculation=True)
    assert found == 0 and "speculation is on" in reason


def test_speculation_keeps_the_ring_of_an_engine_that_saves_under_it() -> None:
    assert depth(speculation=True, ring_under_speculation=True)[0] == 8
    assert depth(speculation=True, ring_under_speculation=True, watchdogs=False)[0] == 0


def test_no_watchdogs_empty_the_ring_and_say_so() -> None:
    found, reason = depth(watchdogs=False)
    assert found == 0 and "watchdogs are off" in reason


@pytest.mark.parametrize(
    ("free", "expected"),
    [(1800, 8), (1799, 4), (1400, 4), (1399, 2), (1200, 2), (1199, 1), (1100, 1), (1099, 0), (5, 0)],
)
def test_auto_takes_the_deepest_ring_that_fits(free: int, expected: int) -> None:
    assert reserve.fit_ring_depth(blob_bytes=50, slots=2, reserved=1000, free=free).depth == expected


def test_explicit_depth_is_refused_instead_of_shrunk() -> None:
    reserve.check_ring_depth(8, blob_bytes=50, slots=2, reserved=1000, free=1800)
    with pytest.raises(ValueError, match=r"ring of 8 slots for 2 sequences needs 800 bytes.*at most 4"):
        reserve.check_ring_depth(8, blob_bytes=50, slots=2, reserved=1000, free=1799)
