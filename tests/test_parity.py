"""Truth: the same weights in transformers, token by token and layer by layer, in fp32."""

from __future__ import annotations

import itertools
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import MtpCache
from transformers.modeling_layers import MtpModel

from engine.checkpoint import inspect_checkpoint, load_checkpoint
from engine.demo import demo_path
from tests.model_helpers import VOCAB, Bed, make_bed, make_checkpoint

CLASSES = {
    "qwen3_next": "Qwen3NextForCausalLM",
    "qwen3_5": "Qwen3_5ForCausalLM",
    "qwen3_5_moe": "Qwen3_5MoeForCausalLM",
}
STATE_LIMIT, LOGIT_LIMIT = 5e-6, 2e-5
# shorter than the convolution kernel; longer than two chunks of 64
PROMPTS = (2, 150)
STEPS = 64


class Reference:
    """A transformers model with its cache, fed with explicit positions."""

    def __init__(self, folder: Path, family: str, dtype: torch.dtype = torch.float32) -> None:
        transformers.utils.logging.disable_progress_bar()
        self.model: Any = getattr(transformers, CLASSES[family]).from_pretrained(folder, dtype=dtype)
        self.restart()

    def restart(self) -> None:
        self.cache = DynamicCache(config=self.model.config)
        self.position = 0

    @torch.inference_mode()
    def feed(self, tokens: list[int]) -> tuple[Tensor, Tensor]:
        """(logits, hidden after the final norm), [n, ...] each."""
        positions = torch.arange(self.position, self.position + len(tokens))[None]
        self.position += len(tokens)
        ids = torch.tensor([tokens])
        hidden = self.model.model(input_ids=ids, position_ids=positions, cache=self.cache).last_hidden_state
        return self.model.lm_head(hidden)[0].float(), hidden[0].float()

    def states(self, layers: tuple[int, ...]) -> list[tuple[Tensor, Tensor]]:
        cached = [self.cache.layers[layer] for layer in layers]
        return [(layer.recurrent_states[0][0].float(), layer.conv_states[0][0].float()) for layer in cached]


def tokens(count: int, seed: int) -> list[int]:
    return torch.randint(0, VOCAB, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def off(found: Tensor, expected: Tensor) -> float:
    """Relative Frobenius error."""
    return float((found - expected).norm() / expected.norm())


def off_range(found: Tensor, expected: Tensor) -> float:
    """Largest difference, as a share of the range of the expected values."""
    return float((found - expected).abs().max() / (expected.max() - expected.min()))


def worst_state(bed: Bed, reference: Reference) -> float:
    expected = reference.states(bed.model.config.recurrent_layers)
    pairs = zip(bed.state(), expected, strict=True)
    return max(off(mine, theirs) for ours, other in pairs for mine, theirs in zip(ours, other, strict=True))


@cache
def opened(family: str, tied: bool, ratio: int, saved: bool) -> tuple[Bed, Reference]:
    """Our model and the reference on one checkpoint: published naming, or written again by ``save_pretrained``."""
    import tempfile

    folder = make_checkpoint(Path(tempfile.mkdtemp()), family, tied=tied, ratio=ratio)
    reference = Reference(folder, family)
    if saved:
        reference.model.save_pretrained(folder / "saved")
        folder = folder / "saved"
    return make_bed(load_checkpoint(folder)), reference


CASES = [
    (family, tied, ratio, saved)
    for family, (tied, ratio) in itertools.product(CLASSES, itertools.product((True, False), (1, 2, 3)))
    for saved in ((False, True) if ratio == 2 and tied else (False,))
]


def check_prefill_and_steps(bed: Bed, reference: Reference, ids: list[int], prompt: int) -> None:
    """Every number of the issue's table, for one prompt and the tokens after it."""
    reference.restart()
    bed.zero()
    table = bed.table()
    logits, hidden = reference.feed(ids[:prompt])
    rows = bed.model.prefill(ids[:prompt], bed.pool, 0, table, 0)
    assert off_range(rows.hidden, hidden) <= LOGIT_LIMIT
    assert off_range(rows.logits[-1], logits[-1]) <= LOGIT_LIMIT
    assert worst_state(bed, reference) <= STATE_LIMIT

    for position in range(prompt, prompt + STEPS):
        logits, hidden = reference.feed([ids[position]])
        rows = bed.model.step(ids[position], bed.pool, 0, table, position)
        assert off_range(rows.logits[0], logits[0]) <= LOGIT_LIMIT, position
        assert off_range(rows.hidden[0], hidden[0]) <= LOGIT_LIMIT, position
        assert worst_state(bed, reference) <= STATE_LIMIT, position
    table.release()


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize(("family", "tied", "ratio", "saved"), CASES)
def test_prefill_and_64_steps_match_transformers(family: str, tied: bool, ratio: int, saved: bool, prompt: int) -> None:
    bed, reference = opened(family, tied, ratio, saved)
    check_prefill_and_steps(bed, reference, tokens(prompt + STEPS, seed=ratio), prompt)


@pytest.mark.parametrize("prompt", PROMPTS)
def test_the_bundled_model_matches_transformers(prompt: int, tmp_path: Path) -> None:
    info = inspect_checkpoint(demo_path())
    for name, text in info.side.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "model.safetensors").symlink_to(demo_path())
    loaded = load_checkpoint(demo_path(), "float32")
    assert loaded.tokenizer is not None
    ids = loaded.tokenizer.encode("1 And it came to pass, when the king had said, It is a great thing.\n" * 14)
    check_prefill_and_steps(make_bed(loaded), Reference(tmp_path, info.config.family), ids[: prompt + STEPS], prompt)


def test_dense_layers_among_sparse_ones_match_transformers(tmp_path: Path) -> None:
    kinds = ("full_attention", "linear_attention", "linear_attention")
    folder = make_checkpoint(tmp_path, "qwen3_next", dense_layers=(1,), layer_types=kinds)
    bed, reference = make_bed(load_checkpoint(folder)), Reference(folder, "qwen3_next")
    check_prefill_and_steps(bed, reference, tokens(5 + STEPS, seed=4), 5)


@pytest.mark.parametrize("family", CLASSES)
def test_prefill_in_any_pieces_and_batched_verify_match_transformers(family: str) -> None:
    bed, reference = opened(family, True, 2, False)
    reference.restart()
    bed.zero()
    table, ids = bed.table(), tokens(200, seed=7)
    logits, _ = reference.feed(ids)
    position = 0
    for size in (1, 2, 63, 64, 65, 1):
        rows = bed.model.prefill(ids[position : position + size], bed.pool, 0, table, position)
        position += size
        assert off_range(rows.logits[0], logits[position - 1]) <= LOGIT_LIMIT
    rows = bed.model.verify(ids[position:], bed.pool, 0, table, position, steps=False)
    assert off_range(rows.logits, logits[position:]) <= LOGIT_LIMIT
    assert worst_state(bed, reference) <= STATE_LIMIT
    table.release()


@pytest.mark.parametrize("family", CLASSES)
def test_bfloat16_is_as_close_to_fp32_as_transformers_bfloat16(family: str, tmp_path: Path) -> None:
    """Same casts, other summation orders: neither may be farther from the fp32 result than twice the other."""
    folder = make_checkpoint(tmp_path, family, dtype="bfloat16")
    exact, rounded = Reference(folder, family), Reference(folder, family, torch.bfloat16)
    bed = make_bed(load_checkpoint(folder))
    table, ids = bed.table(), tokens(90, seed=3)
    for reference in (exact, rounded):
        reference.feed(ids[:80])
    bed.model.prefill(ids[:80], bed.pool, 0, table, 0)
    ours = theirs = 0.0
    for position in range(80, 90):
        truth, _ = exact.feed([ids[position]])
        other, _ = rounded.feed([ids[position]])
        mine = bed.model.step(ids[position], bed.pool, 0, table, position).logits[0]
        ours, theirs = ours + off(mine, truth[0]), theirs + off(other[0], truth[0])
    assert 0 < ours <= 2 * theirs
    truth_states = exact.states(bed.model.config.recurrent_layers)
    other_states = rounded.states(bed.model.config.recurrent_layers)
    for mine, other, truth in zip(bed.state(), other_states, truth_states, strict=True):
        for part in (0, 1):
            assert off(mine[part], truth[part]) <= 2 * off(other[part], truth[part]) + 1e-3


# ----------------------------------------------------------------------------------------------------------- MTP


def mtp_of(reference: Reference) -> Any:
    config = reference.model.config
    config.num_mtp_layers, config.mtp_layer_types = 1, ["full_attention"]
    return MtpModel.from_pretrained(reference.model).eval()


@pytest.mark.parametrize("family", CLASSES)
def test_mtp_head_matches_the_generic_mtp_model_of_transformers(family: str) -> None:
    bed, reference = opened(family, False, 2, False)
    reference.restart()
    bed.zero()
    table, ids = bed.table(), tokens(41, seed=5)
    _, hidden = reference.feed(ids)
    head, count = mtp_of(reference), len(ids) - 1
    cache = MtpCache(config=reference.model.config.get_mtp_config())
    with torch.inference_mode():
        theirs = head.forward_layer(
            0, hidden[None, :count], torch.arange(1, count + 1)[None], cache, input_ids=torch.tensor([ids[1:]])
        )
        their_logits = reference.model.lm_head(theirs)[0]
    ours = bed.model.prefill(ids, bed.pool, 0, table, 0).hidden
    # several pairs at once, then one by one
    rows = bed.model.mtp_rows(ours[:30], ids[1:31], table, 0)
    assert off_range(rows.logits, their_logits[:30]) <= LOGIT_LIMIT
    assert off_range(rows.hidden, theirs[0, :30]) <= LOGIT_LIMIT
    for position in range(30, count):
        rows = bed.model.mtp_rows(ours[position : position + 1], [ids[position + 1]], table, position)
        assert off_range(rows.logits[0], their_logits[position]) <= LOGIT_LIMIT
    table.release()


def test_deeper_drafts_follow_the_recursion_formula() -> None:
    """Draft i + 1 is fed draft i and the head's own output after ``mtp.norm``: recomputed here from the raw tensors
    over all pairs at once, with plain attention and without a cache."""
    bed, _ = opened("qwen3_5", True, 2, False)
    bed.zero()
    table, ids = bed.table(), tokens(20, seed=11)
    hidden = bed.model.prefill(ids, bed.pool, 0, table, 0).hidden
    pairs: list[tuple[Tensor, int]] = [(hidden[i], ids[i + 1]) for i in range(len(ids) - 1)]
    pairs.append((hidden[-1], 77))
    ours = bed.model.mtp_rows(hidden, [*ids[1:], 77], table, 0)
    logits, out = ours.logits[-1], ours.hidden[-1]
    for position in range(len(ids), len(ids) + 4):
        expected_logits, expected_out = mtp_formula(pairs)
        assert off_range(logits, expected_logits) <= LOGIT_LIMIT
        assert off_range(out, expected_out) <= LOGIT_LIMIT
        draft = int(logits.argmax())
        pairs.append((expected_out, draft))
        rows = bed.model.mtp_rows(out[None], [draft], table, position)
        logits, out = rows.logits[0], rows.hidden[0]
    table.release()


def mtp_formula(pairs: list[tuple[Tensor, int]]) -> tuple[Tensor, Tensor]:
    """Logits and hidden of the last pair, float64."""
    from tests.model_helpers import Shape, tensors_of

    shape = Shape()
    raw = {name: tensor.double() for name, tensor in tensors_of(shape).items()}
    heads, kv, d = shape.heads, shape.kv_heads, shape.head_dim

    def norm(x: Tensor, name: str) -> Tensor:
        return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * (1 + raw[name])

    def turn(x: Tensor) -> Tensor:
        angle = torch.arange(len(pairs), dtype=torch.float64)[:, None] / 10000.0 ** torch.tensor([0.0, 0.5])
        cos, sin = angle.cos()[:, None], angle.sin()[:, None]
        first, second, rest = x[..., :2], x[..., 2:4], x[..., 4:]
        return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), -1)

    embed = raw[f"{shape.prefix}embed_tokens.weight"]
    e = norm(torch.stack([embed[token] for _, token in pairs]), "mtp.pre_fc_norm_embedding.weight")
    t = norm(torch.stack([hidden.double() for hidden, _ in pairs]), "mtp.pre_fc_norm_hidden.weight")
    x = torch.cat((e, t), -1) @ raw["mtp.fc.weight"].T
    prefix, n = "mtp.layers.0.", len(pairs)
    y = norm(x, f"{prefix}input_layernorm.weight")
    q, gate = (y @ raw[f"{prefix}self_attn.q_proj.weight"].T).view(n, heads, 2, d).unbind(2)
    k = (y @ raw[f"{prefix}self_attn.k_proj.weight"].T).view(n, kv, d)
    v = (y @ raw[f"{prefix}self_attn.v_proj.weight"].T).view(n, kv, d)
    q = turn(norm(q, f"{prefix}self_attn.q_norm.weight"))
    k = turn(norm(k, f"{prefix}self_attn.k_norm.weight"))
    mixed = torch.empty(n, heads, d, dtype=torch.float64)
    for head in range(heads):
        scores = q[:, head] @ k[:, head // (heads // kv)].T / d**0.5
        scores.masked_fill_(torch.ones(n, n, dtype=torch.bool).triu(1), float("-inf"))
        mixed[:, head] = scores.softmax(-1) @ v[:, head // (heads // kv)]
    x = x + (mixed * gate.sigmoid()).reshape(n, -1) @ raw[f"{prefix}self_attn.o_proj.weight"].T
    y = norm(x, f"{prefix}post_attention_layernorm.weight")
    gated = torch.nn.functional.silu(y @ raw[f"{prefix}mlp.gate_proj.weight"].T)
    x = x + (gated * (y @ raw[f"{prefix}mlp.up_proj.weight"].T)) @ raw[f"{prefix}mlp.down_proj.weight"].T
    out = norm(x[-1], "mtp.norm.weight")
    return (embed @ out).float(), out.float()
