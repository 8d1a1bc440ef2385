"""Each layer against its formula, written out in float64."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from engine.config import ModelConfig, MoeConfig
from engine.layers.chunked_delta import CHUNK, chunked_delta_rule
from engine.layers.gated_delta_net import DeltaRow, GatedDeltaNet, RowState
from engine.layers.linear import SMALL, Packed, Plain, Transposed, Upcast, projection
from engine.layers.mlp import Mlp
from engine.layers.moe import Moe
from engine.layers.norms import RowNorm, VectorNorm, rms_norm, zero_centred
from engine.layers.rotary import Rotary
from engine.weights import LinearWeights, MlpWeights, MoeWeights
from tests.model_helpers import Shape, config_of, load_tiny

CPU = torch.device("cpu")


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def off(found: Tensor, expected: Tensor) -> float:
    return float((found.double() - expected.double()).norm() / expected.double().norm())


# ---------------------------------------------------------------------------------------------- chunked delta rule


def one_by_one(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """The recurrence of engines.md E.4, float64: outputs [H, n, dv] and the last state."""
    q, k, v, g, beta, state = (x.double() for x in (q, k, v, g, beta, state))
    outs = []
    for i in range(q.shape[1]):
        state = g[:, i].exp()[:, None, None] * state
        delta = beta[:, i, None] * (v[:, i] - torch.einsum("hkv,hk->hv", state, k[:, i]))
        state = state + torch.einsum("hk,hv->hkv", k[:, i], delta)
        outs.append(torch.einsum("hkv,hk->hv", state, q[:, i]))
    return torch.stack(outs, 1), state


def delta_inputs(n: int, fast: bool = False) -> tuple[Tensor, ...]:
    heads, dk, dv = 3, 8, 5
    q, k = (F.normalize(draw(heads, n, dk, seed=s), dim=-1) for s in (1, 2))
    g = -torch.rand(heads, n, generator=torch.Generator().manual_seed(3)) * (40.0 if fast else 0.2)
    beta = torch.rand(heads, n, generator=torch.Generator().manual_seed(4))
    return q, k, draw(heads, n, dv, seed=5), g, beta, draw(heads, dk, dv, seed=6)


@pytest.mark.parametrize("n", [1, 2, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 7])
@pytest.mark.parametrize("fast", [False, True])
def test_the_chunked_delta_rule_equals_the_recurrence(n: int, fast: bool) -> None:
    *inputs, state = delta_inputs(n, fast)
    expected, last = one_by_one(*inputs, state)
    found = chunked_delta_rule(*inputs, state)
    assert off(found, expected) < 2e-6
    assert off(state, last) < 2e-6


def test_chunks_go_on_from_the_state_they_are_given() -> None:
    *inputs, state = delta_inputs(150)
    whole, parts = state.clone(), state.clone()
    expected = chunked_delta_rule(*inputs, whole)
    found = [
        chunked_delta_rule(*(x[:, a:b].contiguous() for x in inputs), parts) for a, b in ((0, 3), (3, 90), (90, 150))
    ]
    assert off(torch.cat(found, 1), expected) < 1e-6
    assert off(parts, whole) < 1e-6


def test_total_decay_leaves_no_trace_and_no_nan() -> None:
    *inputs, state = delta_inputs(CHUNK)
    inputs[3] = torch.full_like(inputs[3], -200.0)
    found = chunked_delta_rule(*inputs, state)
    assert torch.isfinite(found).all() and torch.isfinite(state).all()
    _, k, v, _, beta = inputs
    # only the last token is left
    last = beta[:, -1, None, None] * torch.einsum("hk,hv->hkv", k[:, -1], v[:, -1])
    assert off(state, last) < 1e-6


# ------------------------------------------------------------------------------------------------- gated delta net


def make_mixer(ratio: int, gate: str = "swish") -> tuple[ModelConfig, LinearWeights, GatedDeltaNet]:
    shape = Shape(ratio=ratio, extra=(("output_gate_type", gate),))
    config = ModelConfig.from_dict(config_of(shape))
    weights = load_tiny(ratio=ratio).weights.layers[0].mixer
    assert isinstance(weights, LinearWeights)
    return config, weights, GatedDeltaNet(config, weights, DeltaRow(config, torch.float32, CPU))


def mixer_formula(
    config: ModelConfig, w: LinearWeights, x: Tensor, h: Tensor, conv: Tensor, gate: str
) -> tuple[Tensor, Tensor, Tensor]:
    """One token through the mixer, float64: output, new h, new window."""
    hk, hv, dk, dv = config.key_heads, config.value_heads, config.key_dim, config.value_dim
    proj = w.in_proj.double() @ x.double()
    raw, z, b, a = torch.split(proj, [config.channels, hv * dv, hv, hv])
    conv = torch.cat((conv.double()[:, 1:], raw[:, None]), 1)
    mixed = F.silu((conv * w.conv.double()).sum(1))
    q, k, v = torch.split(mixed, [hk * dk, hk * dk, hv * dv])
    q, k = (y.view(hk, dk) / (y.view(hk, dk).square().sum(-1, keepdim=True) + 1e-6).sqrt() for y in (q, k))
    q, k = (y.repeat_interleave(hv // hk, 0)[:, None] for y in (q / dk**0.5, k))
    g = -w.a_log.double().exp() * F.softplus(a + w.dt_bias.double())
    out, h = one_by_one(q, k, v.view(hv, 1, dv), g[:, None], b.sigmoid()[:, None], h)
    out = out[:, 0]
    out = out / (out.square().mean(-1, keepdim=True) + config.eps).sqrt() * w.norm.double()
    out = out * (F.silu(z) if gate == "swish" else z.sigmoid()).view(hv, dv)
    return w.out.double() @ out.reshape(-1), h, conv


@pytest.mark.parametrize("gate", ["swish", "sigmoid"])
@pytest.mark.parametrize("ratio", [1, 2, 3])
def test_a_token_through_the_gated_delta_net(ratio: int, gate: str) -> None:
    config, weights, mixer = make_mixer(ratio, gate)
    h, conv = draw(*config.geometry.h_shape), draw(*config.geometry.conv_shape, seed=1)
    expected_h, expected_conv, state = h, conv, RowState.of(h.clone(), conv.clone())
    for i in range(6):
        x = draw(config.hidden, seed=10 + i)
        expected, expected_h, expected_conv = mixer_formula(config, weights, x, expected_h, expected_conv, gate)
        found = mixer.step(x, state, torch.empty(config.hidden))
        assert off(found, expected) < 2e-6
        assert off(state.h, expected_h) < 1e-6 and off(state.conv, expected_conv) < 1e-6


@pytest.mark.parametrize("n", [1, 2, 3, 4, 70])
def test_prefill_continues_window_and_state_like_single_tokens(n: int) -> None:
    config, weights, mixer = make_mixer(2)
    h, conv = draw(*config.geometry.h_shape), draw(*config.geometry.conv_shape, seed=1)
    x, state = draw(n, config.hidden, seed=2), RowState.of(h.clone(), conv.clone())
    found = mixer.prefill(x, state)
    outs = []
    for row in x:
        out, h, conv = mixer_formula(config, weights, row, h, conv, "swish")
        outs.append(out)
    assert off(found, torch.stack(outs)) < 3e-6
    assert off(state.h, h) < 2e-6 and off(state.conv, conv) < 1e-6


# --------------------------------------------------------------------------------------------------- norms, rotary


def test_norms_against_their_formulas() -> None:
    x, w = draw(5, 24), draw(24, seed=1) * 0.1
    expected = x.double() / (x.double().square().mean(-1, keepdim=True) + 1e-3).sqrt() * (1 + w.double())
    assert off(rms_norm(x, zero_centred(w), 1e-3), expected) < 1e-6
    assert off(RowNorm(x, 1e-3)() * zero_centred(w), expected) < 1e-6
    assert off(VectorNorm(x[0].clone(), 1e-3)(zero_centred(w)), expected[0]) < 1e-6
    unit = x.double() / (x.double().square().sum(-1, keepdim=True) + 1e-3).sqrt()
    assert off(RowNorm(x, 1e-3, mean=False)(), unit) < 1e-6


def test_half_norms_compute_in_fp32_and_round_once() -> None:
    x, w = draw(24).bfloat16(), zero_centred(draw(24, seed=1).bfloat16())
    exact = rms_norm(x.float(), w, 1e-6)
    assert torch.equal(rms_norm(x, w, 1e-6), exact.bfloat16())
    assert off(VectorNorm(x.clone(), 1e-6)(w), exact) < 3e-3


def test_rotary_turns_the_leading_pairs_and_leaves_the_rest() -> None:
    rotary = Rotary(8, 100.0, torch.float32, CPU)
    x = draw(3, 2, 12)
    cos, sin = rotary.at(5000, 3)
    found = rotary.rotate(x, cos, sin)
    assert torch.equal(found[..., 8:], x[..., 8:])
    for i in range(3):
        for pair in range(4):
            angle = torch.tensor((5000 + i) / 100.0 ** (2 * pair / 8), dtype=torch.float64)
            turned = torch.complex(x[i, :, pair].double(), x[i, :, pair + 4].double()) * torch.exp(1j * angle)
            assert torch.allclose(found[i, :, pair].double(), turned.real, atol=2e-3)
            assert torch.allclose(found[i, :, pair + 4].double(), turned.imag, atol=2e-3)


# -------------------------------------------------------------------------------------------------- projections


@pytest.mark.parametrize(
    ("kind", "dtype", "shape"),
    [
        (Transposed, torch.float32, (40, 24)),
        (Upcast, torch.bfloat16, (40, 24)),
        (Upcast, torch.float16, (40, 24)),
        (Packed, torch.bfloat16, (SMALL // 64 + 8, 64)),
        (Plain, torch.float16, (SMALL // 64 + 8, 64)),
    ],
)
def test_each_weight_gets_its_form_and_multiplies_rightly(
    kind: type, dtype: torch.dtype, shape: tuple[int, int]
) -> None:
    weight, x = draw(*shape).to(dtype), draw(5, shape[1], seed=1).to(dtype)
    made = projection(weight)
    assert type(made) is kind
    expected = x.double() @ weight.double().T
    limit = 1e-6 if dtype == torch.float32 else 4e-3
    assert off(made.rows(x), expected) < limit
    out = torch.empty(shape[0], dtype=dtype)
    assert made.row(x[2], out) is out and off(out, expected[2]) < limit


def test_a_small_half_matrix_rounds_its_products_once() -> None:
    weight, x = draw(40, 24).bfloat16(), draw(24, seed=1).bfloat16()
    exact = (weight.double() @ x.double()).bfloat16()
    found = projection(weight).row(x, torch.empty(40, dtype=torch.bfloat16))
    assert (found == exact).sum() >= 38


# ------------------------------------------------------------------------------------------------ feed-forward


def mlp_formula(w: MlpWeights, x: Tensor) -> Tensor:
    gate, up = (x.double() @ w.gate_up.double().T).chunk(2, -1)
    return (F.silu(gate) * up) @ w.down.double().T


def test_the_dense_block() -> None:
    weights = MlpWeights(draw(40, 16), draw(16, 20, seed=1))
    x, block = draw(3, 16, seed=2), Mlp(weights)
    assert off(block.rows(x), mlp_formula(weights, x)) < 1e-6
    assert off(block.step(x[1], torch.empty(16)), mlp_formula(weights, x[1])) < 1e-6


@pytest.mark.parametrize("renormalise", [True, False])
def test_the_expert_block(renormalise: bool) -> None:
    config = MoeConfig(experts=6, top_k=2, width=10, shared_width=12, renormalise=renormalise)
    shared = MlpWeights(draw(24, 16, seed=4), draw(16, 12, seed=5))
    weights = MoeWeights(draw(6, 16), draw(6, 20, 16, seed=2), draw(6, 16, 10, seed=3), shared, draw(1, 16, seed=6))
    block, x = Moe(config, weights), draw(7, 16, seed=7)
    for i, row in enumerate(x):
        scores = (weights.router.double() @ row.double()).softmax(0)
        chosen = scores.argsort(descending=True)[:2].tolist()
        total = sum(scores[e] for e in chosen) if renormalise else 1.0
        expected = (weights.shared_gate.double() @ row.double()).sigmoid() * mlp_formula(shared, row)
        for e in chosen:
            expert = MlpWeights(weights.gate_up[e], weights.down[e])
            expected = expected + scores[e] / total * mlp_formula(expert, row)
        assert off(block.step(row, torch.empty(16)), expected) < 2e-6
        assert off(block.rows(x)[i], expected) < 2e-6
