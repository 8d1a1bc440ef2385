"""The four ways to absorb tokens: what they depend on, and which of them give the same bits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.checkpoint import LoadedModel
from engine.model import Rows
from engine.state.paged_kv import KvTable
from engine.state.reserve import SsmRollbackMode
from tests.model_helpers import VOCAB, Bed, load_tiny, make_bed

PROMPT, K = 21, 4
# hidden 256: matrices large enough for every form of product
LARGE = {
    "hidden": 256,
    "ffn": 1040,
    "key_dim": 32,
    "value_dim": 48,
    "layer_types": ("linear_attention", "full_attention"),
}
KINDS: dict[str, dict[str, Any]] = {
    "dense-fp32": {},
    "dense-bf16": {"dtype": "bfloat16"},
    "next-fp32": {"family": "qwen3_next", "ratio": 1},
    "moe-bf16": {"family": "qwen3_5_moe", "dtype": "bfloat16"},
    "large-fp32": LARGE,
    "large-bf16": {**LARGE, "dtype": "bfloat16"},
}


def tokens(count: int, seed: int = 1) -> list[int]:
    return torch.randint(0, VOCAB, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


@pytest.fixture(params=KINDS)
def loaded(request: pytest.FixtureRequest) -> LoadedModel:
    return load_tiny(**KINDS[request.param])


def scattered(bed: Bed, tokens: int = 256) -> KvTable:
    """A table whose blocks descend, with holes: reads have to gather."""
    need = bed.kv.blocks_for(tokens)
    taken = bed.kv.alloc(2 * need)
    bed.kv.release(taken[1::2])
    return KvTable(bed.kv, taken[-2::-2])


def run(bed: Bed, slot: int, table: KvTable, ids: list[int]) -> Iterator[Rows]:
    bed.model.prefill(ids[:PROMPT], bed.pool, slot, table, 0)
    for position in range(PROMPT, len(ids)):
        yield bed.model.step(ids[position], bed.pool, slot, table, position)


def same_state(left: list[tuple[Tensor, Tensor]], right: list[tuple[Tensor, Tensor]]) -> bool:
    return all(
        torch.equal(a, b) for one, other in zip(left, right, strict=True) for a, b in zip(one, other, strict=True)
    )


def test_a_step_gives_the_same_bits_in_any_slot_any_blocks_and_after_any_work(loaded: LoadedModel) -> None:
    bed, ids = make_bed(loaded, slots=3), tokens(PROMPT + 30)
    plain = list(run(bed, 0, bed.table(64), ids))

    other = make_bed(loaded, slots=3)
    noise, mixed = other.table(96), scattered(other, 64)
    other.model.prefill(tokens(40, seed=9), other.pool, 0, noise, 0)
    for number, rows in enumerate(run(other, 2, mixed, ids)):
        assert not mixed.contiguous
        assert torch.equal(rows.logits, plain[number].logits)
        assert torch.equal(rows.hidden, plain[number].hidden)
        # something else runs between two steps
        other.model.step(number, other.pool, 0, noise, 40 + number)
    assert same_state(bed.state(0), other.state(2))


def test_rows_belong_to_the_caller_and_logits_are_fp32(loaded: LoadedModel) -> None:
    bed = make_bed(loaded)
    table = bed.table(64)
    first = bed.model.prefill(tokens(5), bed.pool, 0, table, 0)
    step = bed.model.step(3, bed.pool, 0, table, 5)
    kept = step.logits.clone()
    bed.model.step(4, bed.pool, 0, table, 6)
    assert torch.equal(step.logits, kept)
    step.logits.div_(2.0)
    assert first.logits.shape == (1, VOCAB) and first.hidden.shape == (5, bed.model.config.hidden)
    assert step.logits.dtype == torch.float32 and step.hidden.dtype == bed.model.dtype


def test_replayed_rows_leave_the_bits_that_the_steps_left(loaded: LoadedModel) -> None:
    bed, ids = make_bed(loaded, mode=SsmRollbackMode.REPLAY, k=K), tokens(PROMPT + K)
    table = bed.table(64)
    bed.model.prefill(ids[:PROMPT], bed.pool, 0, table, 0)
    before, after = bed.state(), []
    for row in range(K - 1):
        bed.model.step(ids[PROMPT + row], bed.pool, 0, table, PROMPT + row, record_row=row)
        after.append(bed.state())
    bed.model.step(ids[-1], bed.pool, 0, table, PROMPT + K - 1)
    for place in ("live", "checkpoint"):
        h, conv = (bed.pool.h, bed.pool.conv) if place == "live" else (bed.pool.checkpoint_h, bed.pool.checkpoint_conv)
        for i, (old_h, old_conv) in enumerate(before):
            h(i)[0].copy_(old_h)
            conv(i)[0].copy_(old_conv)
        for row in range(K - 1):
            bed.model.replay_row(bed.pool, 0, row, place)
            found = [(h(i)[0], conv(i)[0]) for i in range(bed.model.geometry.layers)]
            assert same_state(found, after[row]), (place, row)
    assert not same_state(before, after[0])


def test_batched_verify_writes_every_step_and_its_replay_is_bit_identical(loaded: LoadedModel) -> None:
    ids = tokens(PROMPT + K)
    steps, replay = make_bed(loaded, k=K), make_bed(loaded, k=K, mode=SsmRollbackMode.REPLAY)
    for bed, planes in ((steps, True), (replay, False)):
        table = bed.table(64)
        bed.model.prefill(ids[:PROMPT], bed.pool, 1, table, 0)
        before = bed.state(1)
        bed.model.verify(ids[PROMPT:], bed.pool, 1, table, PROMPT, steps=planes, record=not planes)
    assert same_state(steps.state(1), replay.state(1))
    layers = range(steps.model.geometry.layers)
    for i in layers:
        assert torch.equal(steps.pool.step_conv(i)[1, K - 1], steps.pool.conv(i)[1])
        replay.pool.h(i)[1].copy_(before[i][0])
        replay.pool.conv(i)[1].copy_(before[i][1])
    for row in range(K - 1):
        replay.model.replay_row(replay.pool, 1, row)
        planes = [(steps.pool.step_h(i)[1, row], steps.pool.step_conv(i)[1, row]) for i in layers]
        assert same_state(replay.state(1), planes), row


def test_batched_verify_differs_from_steps_by_rounding_only(loaded: LoadedModel) -> None:
    ids = tokens(PROMPT + K)
    one, many = make_bed(loaded, k=K), make_bed(loaded, k=K)
    single = torch.cat([rows.logits for rows in run(one, 0, one.table(64), ids)])
    table = many.table(64)
    many.model.prefill(ids[:PROMPT], many.pool, 0, table, 0)
    batched = many.model.verify(ids[PROMPT:], many.pool, 0, table, PROMPT)
    limit = 1e-5 if loaded.dtype == "float32" else 5e-2
    assert float((batched.logits - single).abs().max() / (single.max() - single.min())) < limit
    for (h, conv), (h2, conv2) in zip(one.state(), many.state(), strict=True):
        assert float((h - h2).norm() / h.norm()) < limit
        assert float((conv - conv2).norm() / conv.norm()) < limit


def test_the_window_holds_raw_projections_newest_last_and_zeros_before_a_short_prompt(loaded: LoadedModel) -> None:
    bed, ids = make_bed(loaded), tokens(2)
    bed.model.prefill(ids, bed.pool, 0, bed.table(16), 0)
    window, raw = bed.pool.conv(0)[0], bed.model.leading.columns(ids)
    assert torch.equal(window[:, :2], torch.zeros_like(window[:, :2]))
    torch.testing.assert_close(window[:, 2:].t(), raw, rtol=1e-2, atol=1e-5)
    assert bed.model.leading.columns().shape == (VOCAB, bed.model.config.channels)


def test_layer_zero_follows_from_the_tokens_alone(loaded: LoadedModel) -> None:
    bed, ids = make_bed(loaded), tokens(70)
    table = bed.table(128)
    bed.model.prefill(ids[:1], bed.pool, 0, table, 0)
    bed.zero()
    for position, token in enumerate(ids):
        bed.model.step(token, bed.pool, 0, table, position)
    ((h, conv),) = bed.model.leading.states(ids, form="step")
    assert torch.equal(h, bed.pool.h(0)[0]) and torch.equal(conv, bed.pool.conv(0)[0])
    bed.model.prefill(ids, bed.pool, 1, bed.table(128), 0)
    ((h, conv),) = bed.model.leading.states(ids)
    assert torch.equal(h, bed.pool.h(0)[1]) and torch.equal(conv, bed.pool.conv(0)[1])
    ((h, _),) = bed.model.leading.states([])
    assert not h.any()


def test_no_first_layer_oracle_when_layer_zero_is_attention() -> None:
    loaded = load_tiny("qwen3_5", layer_types=("full_attention", "linear_attention"))
    model = make_bed(loaded).model
    with pytest.raises(ValueError, match="0 recurrent layers come before"):
        model.leading.states([1, 2])
    with pytest.raises(ValueError, match="layer 0"):
        model.leading.columns([1])


def test_mtp_rows_can_be_rewound_and_fed_again(loaded: LoadedModel) -> None:
    bed, ids = make_bed(loaded), tokens(PROMPT + 1)
    table = bed.table(64)
    assert bed.model.has_mtp and bed.model.kv_layers == 2
    hidden = bed.model.prefill(ids[:-1], bed.pool, 0, table, 0).hidden
    state = bed.state()
    first = bed.model.mtp_rows(hidden, ids[1:], table, 0)
    draft = bed.model.mtp_rows(first.hidden[-1:], [7], table, PROMPT)
    # a rejected draft is overwritten: the same pair at the same place again gives the same bits
    bed.model.mtp_rows(first.hidden[-1:], [9], table, PROMPT)
    again = bed.model.mtp_rows(first.hidden[-1:], [7], table, PROMPT)
    assert torch.equal(draft.logits, again.logits) and torch.equal(draft.hidden, again.hidden)
    assert same_state(state, bed.state())
    with pytest.raises(ValueError, match="hidden states for"):
        bed.model.mtp_rows(hidden, ids[:2], table, 0)


def test_a_model_without_the_head_has_no_mtp() -> None:
    bed = make_bed(load_tiny("qwen3_5", mtp=False))
    assert not bed.model.has_mtp and bed.model.kv_layers == 1
    with pytest.raises(ValueError, match="no MTP head"):
        bed.model.mtp_rows(torch.zeros(1, 32), [1], bed.table(16), 0)


def test_a_model_of_recurrent_layers_only_needs_no_kv() -> None:
    loaded = load_tiny("qwen3_5", layer_types=("linear_attention",) * 2, mtp=False)
    bed = make_bed(loaded)
    assert bed.model.kv_layers == 0
    rows = bed.model.prefill(tokens(9), bed.pool, 0, bed.table(16), 0)
    assert torch.isfinite(bed.model.step(int(rows.logits.argmax()), bed.pool, 0, bed.table(16), 9).logits).all()


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("family", ["qwen3_5", "qwen3_next"])
def test_cuda_matches_the_cpu_in_fp32(family: str) -> None:
    from engine.checkpoint import load_checkpoint
    from tests.model_helpers import Shape, _cached

    torch.backends.cuda.matmul.allow_tf32 = False
    ids = tokens(PROMPT + 30)
    cpu = make_bed(load_tiny(family))
    cuda = make_bed(load_checkpoint(_cached(Shape(family=family)), device="cuda"))
    pairs = zip(run(cpu, 0, cpu.table(64), ids), run(cuda, 0, cuda.table(64), ids), strict=True)
    for mine, other in pairs:
        assert float((mine.logits - other.logits.cpu()).abs().max() / (mine.logits.max() - mine.logits.min())) < 2e-5
    for (h, conv), (h2, conv2) in zip(cpu.state(), cuda.state(), strict=True):
        assert float((h - h2.cpu()).norm() / h.norm()) < 5e-6
        assert float((conv - conv2.cpu()).norm() / conv.norm()) < 5e-6
