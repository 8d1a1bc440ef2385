"""Recomputation beside the session: golden meets a healthy session bit for bit, and disturbs nothing."""

from __future__ import annotations

import numpy as np
import pytest
from engine_helpers import PROMPT, make_engine, of, rounds, run, start, tokens

from engine.engine import Engine
from engine.events import (
    Columns,
    FirstLayer,
    Golden,
    Place,
    Prefill,
    Rerun,
    RunRound,
    StateData,
    TensorData,
    TensorRef,
    VerifyRow,
)
from engine.runtime import EngineRefusal


def array(data: TensorData) -> np.ndarray:
    return np.frombuffer(data.raw, dtype=np.float32).reshape(data.shape)


def committed(engine: Engine, req: int) -> tuple[int, ...]:
    seq = engine.rt.requests[req].seq
    return tuple(seq.tokens[: seq.cursor])


def session(count: int = 10, **settings: object) -> tuple[Engine, tuple[tuple[int, int], ...]]:
    engine = make_engine(**settings)
    events = start(engine, PROMPT * 3, ignore_eos=True)
    rounds(engine, count)
    list(engine.rt.sync_secondary(1))
    return engine, tuple((e.start, e.start + e.count) for e in of(Prefill, events))


def live(engine: Engine, layer: int, part: str) -> TensorData:
    return engine.read(TensorRef(Place("live", 0), layer, part))


def assert_live_is(engine: Engine, golden: StateData) -> None:
    for layer, h, conv in zip(golden.layers, golden.h, golden.conv, strict=True):
        assert live(engine, layer, "h") == h
        assert live(engine, layer, "conv") == conv


@pytest.mark.parametrize("mode", ["snapshot", "replay"])
def test_golden_with_the_sessions_chunks_is_bitwise_equal_to_live(mode: str) -> None:
    engine, chunks = session(rollback=mode)
    for _ in range(3):
        (golden,) = engine.compute(Golden(tokens=committed(engine, 1), chunks=chunks))
        assert golden.tokens == engine.rt.requests[1].seq.cursor
        assert_live_is(engine, golden)
        rounds(engine, 2)
        list(engine.rt.sync_secondary(1))


def test_golden_by_prefill_and_by_steps_agree_up_to_rounding() -> None:
    engine, _ = session()
    (steps,) = engine.compute(Golden(tokens=committed(engine, 1)))
    (prefill,) = engine.compute(Golden(tokens=committed(engine, 1), form="prefill", chunk=50))
    for a, b in zip((*steps.h, *steps.conv), (*prefill.h, *prefill.conv), strict=True):
        assert a != b
        # engines.md C.4: re-prefill against sequential, fp32, at most 1.7e-6 for h; here over 60 tokens and 8 layers
        assert np.linalg.norm(array(a) - array(b)) < 2e-5 * np.linalg.norm(array(a))


def test_asking_again_after_more_tokens_goes_on_from_what_is_kept() -> None:
    engine, chunks = session()
    whole = committed(engine, 1)
    engine.compute(Golden(tokens=whole[:-7], chunks=chunks))
    (continued,) = engine.compute(Golden(tokens=whole, chunks=chunks))
    (fresh,) = make_engine().compute(Golden(tokens=whole, chunks=chunks))
    assert continued == fresh
    other = (*whole[:20], 9, *whole[21:])
    (detour,) = engine.compute(Golden(tokens=other, chunks=chunks))
    assert detour.h != fresh.h
    (again,) = engine.compute(Golden(tokens=whole, chunks=chunks))
    assert again == fresh


def test_the_layer_zero_oracle_equals_live_bit_for_bit() -> None:
    engine, chunks = session()
    for _ in range(3):
        (first,) = engine.compute(FirstLayer(tokens=committed(engine, 1), chunks=chunks))
        assert first.h == (live(engine, 0, "h"),)
        assert first.conv == (live(engine, 0, "conv"),)
        rounds(engine, 1)
        list(engine.rt.sync_secondary(1))


@pytest.mark.parametrize("form", ["prefill", "steps"])
def test_the_leading_layers_follow_from_the_ids_as_layer_zero_does(form: str) -> None:
    engine, chunks = session()
    whole = committed(engine, 1)
    spans = chunks if form == "prefill" else ()
    (golden,) = engine.compute(Golden(tokens=whole, chunks=spans))
    for count in (len(whole) - 3, len(whole), len(whole) - 1):  # kept states are gone on from, and cut back to
        (leading,) = engine.compute(FirstLayer(tokens=whole[:count], chunks=spans, layers=3))
    (leading,) = engine.compute(FirstLayer(tokens=whole, chunks=spans, layers=3))
    assert leading.layers == golden.layers[:3] == (0, 1, 2)
    assert (leading.h, leading.conv) == (golden.h[:3], golden.conv[:3])
    (first,) = engine.compute(FirstLayer(tokens=whole, chunks=spans))
    assert (first.h, first.conv) == (golden.h[:1], golden.conv[:1])
    for layers in (0, 4):
        with pytest.raises(
            EngineRefusal, match=f"3 recurrent layers come before the first attention layer, not {layers}"
        ):
            engine.compute(FirstLayer(tokens=whole, layers=layers))


def test_the_window_holds_the_columns_of_the_last_tokens() -> None:
    engine, _ = session()
    last = committed(engine, 1)[-4:]
    (table,) = engine.compute(Columns(tokens=last))
    window, columns = array(live(engine, 0, "conv")), array(table.conv[0])
    assert np.abs(window - columns.T).max() <= 1e-5 * np.abs(columns).max()


def test_rerun_from_the_checkpoint_repeats_the_verify_rows() -> None:
    engine, _ = session()
    events = run(engine, RunRound(req=1, drafts=(50, 60, 70), accept=2))
    rows = of(VerifyRow, events)
    list(engine.rt.sync_secondary(1))
    before = rows[0].position - 1
    states = engine.compute(
        Rerun(req=1, place=Place("checkpoint", 0), position=before, tokens=tuple(r.token for r in rows))
    )
    assert [s.tokens for s in states] == [r.position for r in rows]
    assert_live_is(engine, states[1])
    batched = engine.compute(
        Rerun(req=1, place=Place("checkpoint", 0), position=before, tokens=tuple(r.token for r in rows), form="rows")
    )
    assert [state.tokens for state in batched] == [state.tokens for state in states]
    for one, other in zip(states, batched, strict=True):
        for a, b in zip((*one.h, *one.conv), (*other.h, *other.conv), strict=True):
            assert np.linalg.norm(array(a) - array(b)) < 1e-5 * np.linalg.norm(array(a))


def test_computing_disturbs_nothing() -> None:
    engine, chunks = session()
    before = engine.save()
    engine.compute(Golden(tokens=committed(engine, 1)))
    engine.compute(Golden(tokens=committed(engine, 1), form="prefill"))
    engine.compute(FirstLayer(tokens=committed(engine, 1), chunks=chunks))
    engine.compute(Rerun(req=1, place=Place("live", 0), position=engine.rt.requests[1].seq.cursor, tokens=(5, 6)))
    assert engine.save() == before
    assert tokens(engine, 1)


def test_what_cannot_be_computed_is_refused() -> None:
    engine, _ = session(2)
    with pytest.raises(EngineRefusal, match="outside the vocabulary"):
        engine.compute(Golden(tokens=(99999,)))
    with pytest.raises(EngineRefusal, match="steps or prefill"):
        engine.compute(Golden(tokens=(1,), form="guess"))
    with pytest.raises(EngineRefusal, match="no running request"):
        engine.compute(Rerun(req=9, place=Place("live", 0), tokens=(1,)))
