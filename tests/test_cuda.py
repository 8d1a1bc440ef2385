"""The same engine on a GPU: real streams and events, states equal to the CPU's up to rounding."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from engine_helpers import PROMPT, SMALL, of, rounds, run, start, tokens

from engine.checkpoint import load_checkpoint
from engine.config import EngineConfig
from engine.demo import demo_path
from engine.engine import Engine
from engine.events import Commit, Decode, Landed, Place, RollBack, RunRound, TensorRef

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


def engine_on(device: str, **settings: object) -> Engine:
    config = EngineConfig(**{**SMALL, **settings, "device": device})
    return Engine(load_checkpoint(demo_path(), dtype="float32", device=device), config)


def state(engine: Engine) -> list[np.ndarray]:
    list(engine.rt.sync_secondary(1))
    slot = engine.rt.requests[1].seq.slot
    refs = [
        TensorRef(Place("live", slot), layer, part)
        for layer in engine.model.geometry.recurrent_layers
        for part in ("h", "conv")
    ]
    return [np.frombuffer(engine.read(ref).raw, dtype=np.float32) for ref in refs]


def test_cpu_and_cuda_states_agree_on_the_same_tokens() -> None:
    cpu, cuda = engine_on("cpu"), engine_on("cuda")
    for engine in (cpu, cuda):
        start(engine, PROMPT, ignore_eos=True)
    outputs = [50 + i for i in range(40)]
    for token in outputs:
        for engine in (cpu, cuda):
            run(engine, RunRound(req=1, drafts=(), token=token))
    for a, b in zip(state(cpu), state(cuda), strict=True):
        # fp32 products in another order over 50 tokens and 8 layers
        assert np.linalg.norm(a - b) <= 1e-4 * np.linalg.norm(a)


@pytest.mark.parametrize("mode", ["snapshot", "replay"])
def test_exact_verify_equals_plain_decoding_bit_for_bit_on_cuda(mode: str) -> None:
    engine = engine_on("cuda", rollback=mode, prefix_caching=False)
    plain = engine_on("cuda", drafts=0, drafter="none", prefix_caching=False)
    start(engine, PROMPT, ignore_eos=True)
    start(plain, PROMPT, ignore_eos=True)
    for accept in (None, 1, 2, 3, None, 1, 4, 2):
        run(engine, RunRound(req=1, accept=accept))
    for token in tokens(engine, 1)[1:]:
        run(plain, RunRound(req=1, token=token))
    for a, b in zip(state(engine), state(plain), strict=True):
        assert (a == b).all()


def test_a_commit_lands_on_the_real_secondary_stream_before_the_next_reader() -> None:
    engine = engine_on("cuda", prefix_caching=False)
    start(engine, PROMPT, ignore_eos=True)
    (commit,) = of(Commit, run(engine, RunRound(req=1, drafts=(11, 12, 13), accept=2)))
    assert not commit.landed
    events = run(engine, RunRound(req=1, drafts=()))
    kinds = [event.kind for event in events]
    assert [event.copy for event in of(Landed, events)] == [commit.copy]
    assert kinds.index("landed") < kinds.index("decode")
    assert of(Decode, events)[0].digests


def test_an_image_moves_from_cuda_to_cpu_and_back() -> None:
    cuda = engine_on("cuda")
    start(cuda, PROMPT, ignore_eos=True)
    rounds(cuda, 5)
    run(cuda, RollBack(req=1, to="boundary", value=1))
    image = cuda.save()
    cpu = engine_on("cpu")
    cpu.load(image)
    assert cpu.save() == image
    for a, b in zip(state(cuda), state(cpu), strict=True):
        assert (a == b).all()
