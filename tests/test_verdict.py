"""Every kind of verdict from real recurrent states: a stack of gated delta net layers in numpy, run right and wrong."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from gdn_toy import State, Toy

from inspector.analysis.arrays import TensorError, tensor_data, through
from inspector.analysis.noise import DEFAULTS, NoiseFloor, default_floor, measured_floor
from inspector.analysis.verdict import KINDS, Candidate, LayerState, Verdict, judge

ARITHMETICS = ("float32", "bfloat16", "float16")
SEEDS = range(3)
DEPTH = 6
NUMBERS = (0, 1, 2, 4, 5, 6)


class Story:
    """A committed sequence, the states after 0 to 4 further tokens, and a stranger's state."""

    def __init__(self, seed: int, arithmetic: str) -> None:
        self.rng = np.random.default_rng(1000 + seed)
        self.toy = Toy(seed, DEPTH, arithmetic)
        self.past = self.draw(40)
        self.new = self.draw(4)
        self.states = [self.toy.run(self.past)]
        for token in self.new:
            self.states.append(self.toy.run([token], self.states[-1]))
        self.block = [self.toy.run(self.new[:n], self.states[0], split=2) for n in range(5)]
        self.other = self.toy.run(self.draw(35))
        self.far = self.toy.run(self.past[:-12])
        self.measured = measured_floor(
            [judge(self.block[n].layers(NUMBERS), self.states[n].layers(NUMBERS)).errors for n in (1, 2)]
        )

    def draw(self, count: int) -> list[int]:
        return [int(token) for token in self.rng.integers(0, self.toy.vocab, count)]


@functools.cache
def story(seed: int, arithmetic: str) -> Story:
    return Story(seed, arithmetic)


@pytest.fixture(params=[(seed, arithmetic) for arithmetic in ARITHMETICS for seed in SEEDS], ids=str)
def told(request: pytest.FixtureRequest) -> Story:
    return story(*request.param)


@pytest.fixture(params=["default", "measured"])
def floor(request: pytest.FixtureRequest, told: Story) -> NoiseFloor | None:
    return told.measured if request.param == "measured" else None


def verdict(found: State, expected: State, floor: NoiseFloor | None, **candidates: Candidate) -> Verdict:
    result = judge(found.layers(NUMBERS), expected.layers(NUMBERS), candidates, floor)
    assert result.kind in KINDS
    assert 0.0 < result.confidence <= 1.0
    assert result.evidence
    assert tuple(line.layer for line in result.profile) == NUMBERS
    return result


def copied(state: State) -> State:
    return state.copy()


def test_a_rerun_is_bitwise(told: Story, floor: NoiseFloor | None) -> None:
    again = told.toy.run(told.new[:2], told.states[0])
    result = verdict(again, told.states[2], floor)
    assert (result.kind, result.confidence, result.benign) == ("bitwise", 1.0, True)


def test_another_batch_shape_is_rounding(told: Story, floor: NoiseFloor | None) -> None:
    for n in (3, 4):
        result = verdict(told.block[n], told.states[n], floor)
        assert result.kind == "rounding", result.evidence
        assert result.benign


def test_rounding_over_the_whole_sequence_is_rounding(told: Story) -> None:
    result = verdict(told.toy.run(told.past, split=2), told.states[0], None)
    assert result.kind == "rounding", result.evidence


@pytest.mark.parametrize("tokens", [1, 2, 3, -1, -2, -3])
def test_a_state_of_another_position_says_by_how_many_tokens(
    told: Story, floor: NoiseFloor | None, tokens: int
) -> None:
    found, expected = (told.states[tokens], told.states[0]) if tokens > 0 else (told.states[4 + tokens], told.states[4])
    result = verdict(found, expected, floor)
    assert (result.kind, result.tokens, result.parts) == ("wrong_position", tokens, "h+conv"), result.evidence
    assert result.layers == NUMBERS


def test_noise_does_not_hide_the_position(told: Story, floor: NoiseFloor | None) -> None:
    result = verdict(told.block[4], told.states[2], floor)
    assert (result.kind, result.tokens) == ("wrong_position", 2), result.evidence


def test_a_token_absorbed_twice_is_one_ahead(told: Story, floor: NoiseFloor | None) -> None:
    twice = told.toy.run([told.new[0]], told.states[1])
    result = verdict(twice, told.states[1], floor)
    assert (result.kind, result.tokens) == ("wrong_position", 1), result.evidence


def test_a_position_beyond_the_window_is_told_from_another_owner(told: Story, floor: NoiseFloor | None) -> None:
    far = verdict(told.far, told.states[0], floor)
    assert (far.kind, far.tokens) == ("wrong_position", None), far.evidence
    assert far.confidence < 0.9
    foreign = verdict(told.other, told.states[0], floor)
    assert foreign.kind == "wrong_owner", foreign.evidence
    assert foreign.confidence < 0.9


def test_conv_rewound_without_h_is_a_stale_h(told: Story, floor: NoiseFloor | None) -> None:
    for kept, rewound in ((4, 2), (1, 0), (3, 1)):
        found = State(told.states[kept].h, told.states[rewound].conv)
        result = verdict(found, told.states[rewound], floor)
        assert (result.kind, result.parts) == ("stale_h", "h"), result.evidence


def test_a_stale_h_is_still_seen_some_tokens_later(told: Story, floor: NoiseFloor | None) -> None:
    later = [(7 * i + 3) % told.toy.vocab for i in range(6)]
    found = told.toy.run(later, State(told.states[4].h.copy(), told.states[2].conv.copy()))
    result = verdict(found, told.toy.run(later, told.states[2]), floor)
    assert (result.kind, result.parts) == ("stale_h", "h"), result.evidence


def test_h_moved_without_conv_is_a_stale_conv(told: Story, floor: NoiseFloor | None) -> None:
    for tokens in (1, 2, 3):
        result = verdict(State(told.states[tokens].h, told.states[0].conv), told.states[tokens], floor)
        assert (result.kind, result.parts, result.tokens) == ("stale_conv", "conv", -tokens), result.evidence
    beyond = verdict(State(told.states[4].h, told.states[0].conv), told.states[4], floor)
    assert (beyond.kind, beyond.tokens) == ("stale_conv", None), beyond.evidence


def test_conv_cut_one_column_off(told: Story, floor: NoiseFloor | None) -> None:
    shifted = np.concatenate([told.states[2].conv[..., 1:], told.states[3].conv[..., -1:]], axis=-1)
    result = verdict(State(told.states[2].h, shifted), told.states[2], floor)
    assert (result.kind, result.tokens) == ("stale_conv", 1), result.evidence


@pytest.mark.parametrize(("h", "conv", "parts"), [(0, 0, "h+conv"), (0, 1, "h"), (1, 0, "conv")])
def test_a_zero_state(told: Story, floor: NoiseFloor | None, h: int, conv: int, parts: str) -> None:
    state = told.states[0]
    result = verdict(State(state.h * np.float32(h), state.conv * np.float32(conv)), state, floor)
    assert (result.kind, result.parts, result.confidence) == ("zero", parts, 1.0)


def test_a_transposed_h(told: Story, floor: NoiseFloor | None) -> None:
    turned = np.ascontiguousarray(told.states[0].h.transpose(0, 1, 3, 2))
    result = verdict(State(turned, told.states[0].conv), told.states[0], floor)
    assert (result.kind, result.parts) == ("transposed", "h")
    noisy = np.ascontiguousarray(told.block[2].h.transpose(0, 1, 3, 2))
    result = verdict(State(noisy, told.block[2].conv), told.states[2], floor)
    assert result.kind == "transposed", result.evidence


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_h_stored_in_a_lower_dtype(told: Story, floor: NoiseFloor | None, dtype: str) -> None:
    state = told.states[0]
    result = verdict(State(through(state.h, dtype), state.conv), state, floor)
    assert (result.kind, result.dtype, result.confidence) == ("dtype_drift", dtype, 1.0), result.evidence
    drifting = state.copy()
    for token in told.new[:3]:
        told.toy.step(drifting, token)
        drifting.h = through(drifting.h, dtype)
    result = verdict(drifting, told.states[3], floor)
    assert (result.kind, result.dtype) == ("dtype_drift", dtype), result.evidence


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("seed", SEEDS)
def test_one_round_trip_some_tokens_ago_is_seen_by_its_size(seed: int, dtype: str) -> None:
    told = story(seed, "float32")
    once = told.toy.run(told.new[:1], State(through(told.states[0].h, dtype), told.states[0].conv.copy()))
    result = verdict(once, told.states[1], None)
    assert (result.kind, result.dtype) == ("dtype_drift", dtype), result.evidence


def test_a_layer_left_behind_is_named(told: Story, floor: NoiseFloor | None) -> None:
    found = told.states[2].copy()
    found.h[3], found.conv[3] = told.states[0].h[3], told.states[0].conv[3]
    result = verdict(found, told.states[2], floor)
    assert (result.kind, result.layers) == ("partial_layers", (4,)), result.evidence
    assert (result.inner, result.tokens) == ("wrong_position", -2)
    only_h = told.states[2].copy()
    only_h.h[3] = told.states[0].h[3]
    result = verdict(only_h, told.states[2], floor)
    assert (result.kind, result.layers, result.inner) == ("partial_layers", (4,), "stale_h"), result.evidence


def test_a_layer_left_behind_in_a_noisy_state_is_named(told: Story) -> None:
    found = told.block[2].copy()
    found.h[3], found.conv[3] = told.states[0].h[3], told.states[0].conv[3]
    result = verdict(found, told.states[2], told.measured)
    assert (result.kind, result.layers) == ("partial_layers", (4,)), result.evidence


def test_heads_left_behind_are_named(told: Story, floor: NoiseFloor | None) -> None:
    found = told.states[2].copy()
    found.h[:, 1] = told.states[0].h[:, 1]
    found.h[:, 3] = told.states[0].h[:, 3]
    result = verdict(found, told.states[2], floor)
    assert (result.kind, result.heads) == ("partial_heads", (1, 3)), result.evidence


def head_channels(*wanted: int) -> list[int]:
    """Channels of the toy's value heads: 2 key heads and 4 value heads of 16, queries | keys | values."""
    keys = sorted({head // 2 for head in wanted})
    found = [start + 16 * head + i for start in (0, 32) for head in keys for i in range(16)]
    return found + [64 + 16 * head + i for head in wanted for i in range(16)]


def mixture(base: State, other: State, heads: tuple[int, ...], channels: list[int]) -> State:
    """``base`` with some heads and conv channels of ``other``."""
    found = base.copy()
    found.h[:, list(heads)] = other.h[:, list(heads)]
    found.conv[:, channels] = other.conv[:, channels]
    return found


class TestMixtures:
    """Right in some heads or channels only, which is what ranks and torn copies leave behind."""

    UPPER = head_channels(2, 3)

    def test_the_upper_heads_of_a_stranger(self, told: Story, floor: NoiseFloor | None) -> None:
        known = {"step:1.1": Candidate(told.other.layers(NUMBERS), owner="r2")}
        found = mixture(told.states[2], told.other, (2, 3), self.UPPER)
        result = judge(found.layers(NUMBERS), told.states[2].layers(NUMBERS), known, floor)
        assert (result.kind, result.heads, result.inner) == ("partial_heads", (2, 3), "wrong_owner"), result.evidence
        assert (result.parts, result.owner, result.match) == ("h+conv", "r2", "step:1.1")
        assert (result.channels, result.confidence) == (tuple(self.UPPER), 1.0)
        assert (
            "only heads 2-3 of 4 and 64 of 128 conv channels (16-31, 48-63, 96-127), those of these" in result.evidence
        )
        unnamed = verdict(found, told.states[2], floor)
        assert (unnamed.kind, unnamed.heads, unnamed.owner) == ("partial_heads", (2, 3), ""), unnamed.evidence

    def test_heads_that_are_zero(self, told: Story, floor: NoiseFloor | None) -> None:
        for channels, parts in ((self.UPPER, "h+conv"), ([], "h")):
            result = verdict(mixture(told.states[2], told.toy.fresh(), (2, 3), channels), told.states[2], floor)
            assert (result.kind, result.heads, result.inner) == ("partial_heads", (2, 3), "zero"), result.evidence
            assert result.parts == parts

    @pytest.mark.parametrize("tokens", [1, 2, -1, -2])
    def test_heads_of_another_position(self, told: Story, floor: NoiseFloor | None, tokens: int) -> None:
        found = mixture(told.states[2], told.states[2 + tokens], (1,), head_channels(1))
        result = verdict(found, told.states[2], floor)
        assert (result.kind, result.inner, result.tokens) == ("partial_heads", "wrong_position", tokens), (
            result.evidence
        )
        assert result.heads == (1,)

    def test_channels_that_are_not_those_of_the_heads_are_told_without_that_remark(self, told: Story) -> None:
        result = verdict(mixture(told.states[2], told.other, (2, 3), list(range(16))), told.states[2], None)
        assert (result.kind, result.channels) == ("partial_heads", tuple(range(16))), result.evidence
        assert "of these heads" not in result.evidence

    def test_heads_of_some_layers_only(self, told: Story, floor: NoiseFloor | None) -> None:
        found = told.states[2].copy()
        found.h[3:5, 2:] = told.other.h[3:5, 2:]
        result = verdict(found, told.states[2], floor)
        assert (result.kind, result.heads, result.layers) == ("partial_heads", (2, 3), (4, 5)), result.evidence

    @pytest.mark.parametrize("tokens", [1, 2, -1, -2])
    def test_torn_conv_says_how_many_channels_and_columns(
        self, told: Story, floor: NoiseFloor | None, tokens: int
    ) -> None:
        found = mixture(told.states[2], told.states[2 + tokens], (), list(range(64, 128)))
        result = verdict(found, told.states[2], floor)
        assert (result.kind, result.parts, result.tokens) == ("torn_conv", "conv", tokens), result.evidence
        assert (result.channels, result.inner) == (tuple(range(64, 128)), "stale_conv")
        columns = f"{abs(tokens)} column{'s' if abs(tokens) > 1 else ''}"
        assert f"64 of 128 conv channels (64-127) differ by {columns}" in result.evidence
        assert result.detail.endswith("conv channels 64-127")

    def test_a_shift_that_keeps_the_last_column(self, told: Story, floor: NoiseFloor | None) -> None:
        found = told.states[2].copy()
        found.conv[:, 64:, :-1] = found.conv[:, 64:, 1:].copy()
        result = verdict(found, told.states[2], floor)
        assert (result.kind, result.tokens, len(result.channels)) == ("torn_conv", 1, 64), result.evidence

    def test_scattered_channels_of_a_stranger(self, told: Story, floor: NoiseFloor | None) -> None:
        result = verdict(mixture(told.states[2], told.other, (), [3, 50, 77]), told.states[2], floor)
        assert (result.kind, result.channels, result.tokens) == ("torn_conv", (3, 50, 77), None), result.evidence

    def test_noise_does_not_hide_a_mixture(self, told: Story) -> None:
        found = mixture(told.block[2], told.other, (2, 3), self.UPPER)
        result = verdict(found, told.states[2], told.measured)
        assert (result.kind, result.heads, result.channels) == ("partial_heads", (2, 3), tuple(self.UPPER))
        torn = verdict(mixture(told.block[2], told.block[3], (), list(range(64, 128))), told.states[2], told.measured)
        assert (torn.kind, torn.tokens, len(torn.channels)) == ("torn_conv", 1, 64), torn.evidence

    def test_a_channel_that_differs_in_one_layer_only_is_no_tear(self, told: Story) -> None:
        found = told.states[2].copy()
        for layer in range(DEPTH):
            found.conv[layer, 64 + layer] *= np.float32(1 + 2**-8)
        assert verdict(found, told.states[2], None).kind == "stale_conv"


def other_part(source: np.ndarray, like: np.ndarray) -> np.ndarray:
    """``source`` in the shape of ``like``, layer by layer: cut, or begun again."""
    return np.stack([np.resize(a, b.shape) for a, b in zip(source, like, strict=True)])


class TestSwappedParts:
    """The bytes of one part where the other belongs."""

    def test_both(self, told: Story, floor: NoiseFloor | None) -> None:
        right = told.states[2]
        result = verdict(State(other_part(right.conv, right.h), other_part(right.h, right.conv)), right, floor)
        assert (result.kind, result.parts, result.layers) == ("swapped_parts", "h+conv", NUMBERS), result.evidence
        assert "the first 512 of 1024 in their order, bit for bit" in result.evidence
        assert "the two parts are exchanged" in result.evidence and result.confidence == 1.0

    def test_one(self, told: Story, floor: NoiseFloor | None) -> None:
        right = told.states[2]
        only_h = verdict(State(other_part(right.conv, right.h), right.conv), right, floor)
        assert (only_h.kind, only_h.parts) == ("swapped_parts", "h"), only_h.evidence
        only_conv = verdict(State(right.h, other_part(right.h, right.conv)), right, floor)
        assert (only_conv.kind, only_conv.parts) == ("swapped_parts", "conv"), only_conv.evidence
        assert "exchanged" not in only_h.evidence + only_conv.evidence

    def test_what_follows_the_shorter_part_may_be_anything(self, told: Story, floor: NoiseFloor | None) -> None:
        right = told.states[2]
        found = right.h.copy()
        found.reshape(DEPTH, -1)[:, :512] = right.conv.reshape(DEPTH, -1)
        result = verdict(State(found, right.conv), right, floor)
        assert (result.kind, result.parts) == ("swapped_parts", "h"), result.evidence

    def test_in_another_order(self, told: Story, floor: NoiseFloor | None) -> None:
        right = told.states[2]
        turned = np.ascontiguousarray(other_part(right.conv, right.h).transpose(0, 1, 3, 2))
        result = verdict(State(turned, right.conv), right, floor)
        assert (result.kind, result.parts) == ("swapped_parts", "h"), result.evidence
        assert "100% of its values occur there bit for bit, in another order" in result.evidence

    def test_within_the_noise(self, told: Story, floor: NoiseFloor | None) -> None:
        noisy, right = told.block[2], told.states[2]
        result = verdict(State(other_part(noisy.conv, noisy.h), noisy.conv), right, floor)
        assert (result.kind, result.parts) == ("swapped_parts", "h"), result.evidence
        assert ", within " in result.evidence and result.confidence == 0.9

    def test_one_layer_and_the_rest_of_a_stranger(self, told: Story) -> None:
        right, found = told.states[2], told.other.copy()
        found.h[0] = other_part(right.conv, right.h)[0]
        result = verdict(found, right, None)
        assert (result.kind, result.layers) == ("swapped_parts", (0,)), result.evidence
        assert any("1-2, 4-6 differ in another way" in flag for flag in result.flags)

    def test_values_of_a_low_dtype_that_occur_everywhere_are_no_swap(self) -> None:
        """States stored in few bits share most of their values: that says nothing."""
        rng = np.random.default_rng(5)
        h, other = (rng.integers(-8, 8, (DEPTH, 4, 16, 16)).astype(np.float32) for _ in range(2))
        conv = rng.integers(-8, 8, (DEPTH, 128, 4)).astype(np.float32)
        result = verdict(State(other, conv), State(h, conv), None)
        assert result.kind == "stale_h", result.evidence


def test_whole_differences_are_neither_mixtures_nor_swaps(told: Story, floor: NoiseFloor | None) -> None:
    right = told.states[2]
    layer = right.copy()
    layer.h[2], layer.conv[2] = told.other.h[2], told.other.conv[2]
    conv_of_a_layer = right.copy()
    conv_of_a_layer.conv[2] = told.other.conv[2]
    cases = {
        "wrong_owner": told.other,
        "partial_layers": layer,
        "zero": told.toy.fresh(),
        "rounding": told.block[2],
        "transposed": State(np.ascontiguousarray(right.h.transpose(0, 1, 3, 2)), right.conv),
        "stale_conv": State(right.h, told.states[0].conv),
        "stale_h": State(told.states[0].h, right.conv),
        "wrong_position": told.states[1],
    }
    for kind, found in cases.items():
        result = verdict(found, right, floor)
        assert result.kind == kind, result.evidence
        assert not result.heads and not result.channels
    assert verdict(conv_of_a_layer, right, floor).kind == "partial_layers"
    if floor is None or told.toy.arithmetic == "float32":
        assert verdict(State(right.h, told.other.conv), right, floor).kind == "stale_conv"


def test_nan_comes_first(told: Story, floor: NoiseFloor | None) -> None:
    found = told.states[0].copy()
    found.h[2, 0, 0, 0] = np.nan
    found.conv[4, 0, 0] = np.inf
    result = verdict(found, told.states[2], floor)
    assert (result.kind, result.layers, result.parts) == ("nonfinite", (2, 5), "h+conv")


def test_another_token_inside_the_window_is_unknown_with_its_column(told: Story, floor: NoiseFloor | None) -> None:
    swapped = list(told.new[:3])
    swapped[0] = (swapped[0] + 1) % told.toy.vocab
    result = verdict(told.toy.run(swapped, told.states[0]), told.states[3], floor)
    assert result.kind == "unknown"
    assert "column t-2" in result.evidence


class TestCandidates:
    """With states to compare with, the answer has a name."""

    @pytest.fixture
    def known(self, told: Story) -> dict[str, Candidate]:
        return {
            "the checkpoint": Candidate(told.states[0].layers(NUMBERS), tokens=-2),
            "step 0": Candidate(told.states[1].layers(NUMBERS), tokens=-1),
            "ring 2": Candidate(told.far.layers(NUMBERS), tokens=-14),
            "live of r2": Candidate(told.other.layers(NUMBERS), owner="r2"),
        }

    def test_a_copy_of_the_checkpoint(self, told: Story, known: dict[str, Candidate]) -> None:
        result = judge(told.states[0].layers(NUMBERS), told.states[2].layers(NUMBERS), known)
        assert (result.kind, result.match, result.tokens) == ("wrong_position", "the checkpoint", -2)
        assert result.confidence == 1.0
        assert "2 tokens behind" in result.evidence

    def test_beyond_the_window(self, told: Story, known: dict[str, Candidate]) -> None:
        result = judge(told.far.layers(NUMBERS), told.states[2].layers(NUMBERS), known)
        assert (result.kind, result.match, result.tokens) == ("wrong_position", "ring 2", -14)

    def test_another_owner(self, told: Story, known: dict[str, Candidate]) -> None:
        result = judge(told.other.layers(NUMBERS), told.states[2].layers(NUMBERS), known)
        assert (result.kind, result.owner, result.match) == ("wrong_owner", "r2", "live of r2")

    def test_only_h(self, told: Story, known: dict[str, Candidate]) -> None:
        found = State(told.states[0].h, told.states[2].conv)
        result = judge(found.layers(NUMBERS), told.states[2].layers(NUMBERS), known)
        assert (result.kind, result.match, result.tokens) == ("stale_h", "the checkpoint", -2), result.evidence
        found = State(told.other.h, told.states[2].conv)
        result = judge(found.layers(NUMBERS), told.states[2].layers(NUMBERS), known)
        assert (result.kind, result.owner, result.parts) == ("wrong_owner", "r2", "h"), result.evidence

    def test_only_conv(self, told: Story, known: dict[str, Candidate]) -> None:
        found = State(told.states[2].h, told.far.conv)
        result = judge(found.layers(NUMBERS), told.states[2].layers(NUMBERS), known)
        assert (result.kind, result.match) == ("stale_conv", "ring 2"), result.evidence

    def test_h_from_one_place_and_conv_from_another(self, told: Story, known: dict[str, Candidate]) -> None:
        found = State(told.states[0].h, told.states[1].conv)
        result = judge(found.layers(NUMBERS), told.states[2].layers(NUMBERS), known)
        assert result.kind == "wrong_position"
        assert result.match == "the checkpoint (h), step 0 (conv)"

    def test_one_layer(self, told: Story, known: dict[str, Candidate]) -> None:
        found = told.states[2].copy()
        found.h[0], found.conv[0] = told.other.h[0], told.other.conv[0]
        result = judge(found.layers(NUMBERS), told.states[2].layers(NUMBERS), known)
        assert (result.kind, result.inner, result.owner, result.layers) == ("partial_layers", "wrong_owner", "r2", (0,))

    def test_near_a_candidate_within_the_noise(self, told: Story) -> None:
        known = {"by blocks": Candidate(told.block[1].layers(NUMBERS), tokens=1)}
        result = judge(told.states[1].layers(NUMBERS), told.states[0].layers(NUMBERS), known, told.measured)
        assert (result.kind, result.match, result.tokens) == ("wrong_position", "by blocks", 1), result.evidence
        assert result.confidence == 0.9

    def test_the_same_position_by_another_path_is_rounding(self, told: Story) -> None:
        known = {"the block of four": Candidate(told.block[4].layers(NUMBERS), tokens=0)}
        result = judge(told.block[4].layers(NUMBERS), told.states[4].layers(NUMBERS), known)
        assert (result.kind, result.match) == ("rounding", "the block of four"), result.evidence

    def test_candidates_never_change_a_right_answer(self, told: Story, known: dict[str, Candidate]) -> None:
        same = judge(told.states[2].copy().layers(NUMBERS), told.states[2].layers(NUMBERS), known)
        assert same.kind == "bitwise"
        noisy = judge(told.block[2].layers(NUMBERS), told.states[2].layers(NUMBERS), known)
        assert noisy.kind == "rounding"


def corruptions(told: Story) -> list[State]:
    s = told.states
    turned = np.ascontiguousarray(s[2].h.transpose(0, 1, 3, 2))
    states = [State(s[i].h, s[j].conv) for i in range(5) for j in range(5) if (i, j) != (2, 2)]
    states += [told.other, told.far, told.toy.fresh(), State(turned, s[2].conv), told.block[3], told.block[1]]
    for layer in range(DEPTH):
        for part in ("h", "conv"):
            one = s[2].copy()
            getattr(one, part)[layer] = getattr(s[1], part)[layer]
            states.append(one)
    return states


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("arithmetic", ARITHMETICS)
def test_corruption_is_never_called_rounding(seed: int, arithmetic: str) -> None:
    told = story(seed, arithmetic)
    for number, found in enumerate(corruptions(told)):
        for floor in (None, told.measured):
            result = verdict(found, told.states[2], floor)
            assert not result.benign, (number, result.evidence)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("arithmetic", ARITHMETICS)
def test_noise_is_never_called_corruption(seed: int, arithmetic: str) -> None:
    told = story(seed, arithmetic)
    runs = [(told.block[n], told.states[n]) for n in (1, 2, 3, 4)]
    runs.append((told.toy.run(told.past, split=3), told.states[0]))
    for found, expected in runs:
        result = verdict(found, expected, None)
        assert result.kind == "rounding", result.evidence
    for found, expected in runs[:4]:
        result = verdict(found, expected, told.measured)
        assert result.kind == "rounding", result.evidence


@pytest.mark.parametrize("arithmetic", ["float32", "bfloat16"])
@pytest.mark.parametrize("growth", [1.0, 1.4])
def test_simulated_noise_of_the_published_size_is_rounding(arithmetic: str, growth: float) -> None:
    """engines.md C.4: 1.4e-7 (fp32) or 1.3e-3 (bf16) in the first of nine layers, growing with depth."""
    rng = np.random.default_rng(11)
    toy = Toy(11, 9, arithmetic)
    state = toy.run([int(token) for token in rng.integers(0, 64, 30)])
    size = {"float32": 1.4e-7, "bfloat16": 1.3e-3}[arithmetic]
    noisy = state.copy()
    for layer in range(9):
        for part in (noisy.h[layer], noisy.conv[layer]):
            part *= (1 + size * growth**layer * rng.standard_normal(part.shape)).astype(np.float32)
    result = judge(noisy.layers(), state.layers(), arithmetic=arithmetic)
    assert result.kind == "rounding", result.evidence


def scaled(state: State, size: float, parts: tuple[str, ...] = ("h", "conv")) -> State:
    """``state`` with relative noise of the given size in every value of ``parts``."""
    rng = np.random.default_rng(12)
    noisy = state.copy()
    for name in parts:
        values = getattr(noisy, name)
        values *= (1 + size * rng.standard_normal(values.shape)).astype(np.float32)
    return noisy


def test_conv_never_rounds_alone() -> None:
    """h is computed from conv: were it rounding, h would show it too, however small the difference is."""
    told = story(1, "bfloat16")
    result = verdict(scaled(told.states[2], 1e-3, ("conv",)), told.states[2], None)
    assert result.kind == "stale_conv", result.evidence
    assert verdict(scaled(told.states[2], 1e-3), told.states[2], None).kind == "rounding"


def test_one_deep_layer_far_above_the_noise_of_all_others_is_named() -> None:
    """The unmeasured bf16 limit is wide in deep layers; one layer that stands out alone is no rounding even there."""
    told = story(2, "bfloat16")
    noisy = scaled(told.states[2], 1e-4)
    noisy.h[-1] = scaled(told.states[2], 0.1).h[-1]
    result = verdict(noisy, told.states[2], None)
    assert max(h for h, _ in result.errors.values()) < DEFAULTS["bfloat16"].last
    assert (result.kind, result.layers) == ("partial_layers", NUMBERS[-1:]), result.evidence


def test_bit_equal_windows_leave_no_room_for_rounding_of_activations() -> None:
    told = story(3, "bfloat16")
    small = verdict(scaled(told.states[2], 5e-3, ("h",)), told.states[2], None)
    assert small.kind == "unknown", small.evidence
    assert "another kernel" in small.evidence
    assert verdict(scaled(told.states[2], 1e-6, ("h",)), told.states[2], None).kind == "rounding"


def test_rounding_a_little_beyond_a_measured_floor_is_told_from_a_jump() -> None:
    told = story(0, "bfloat16")
    errors = judge(told.block[4].layers(NUMBERS), told.states[4].layers(NUMBERS)).errors
    tight = measured_floor([errors], margin=0.7)
    tight = NoiseFloor({**tight.h, 0: 2 * errors[0][0]}, dict.fromkeys(NUMBERS, 1.0), "a tight floor", True)
    beyond = verdict(told.block[4], told.states[4], tight)
    assert beyond.kind == "rounding", beyond.evidence
    assert "a little beyond" in beyond.evidence
    assert beyond.confidence < 0.8
    jump = told.block[4].copy()
    jump.h[3] = told.states[3].h[3]
    assert not verdict(jump, told.states[4], tight).benign


def test_repeated_tokens_hide_the_position_and_the_verdict_says_so() -> None:
    toy = Toy(2, DEPTH)
    state = toy.run([5] * 12)
    result = verdict(toy.run([5], State(state.h.copy(), state.conv.copy())), state, None)
    assert not result.benign or max(h for h, _ in result.errors.values()) < 1e-5
    stale = verdict(State(toy.run([5, 5], state).h, state.conv), state, None)
    assert stale.kind in ("stale_h", "rounding")
    assert "repeats itself" in stale.evidence or stale.kind == "rounding"


def test_short_prompts_with_zero_columns() -> None:
    toy = Toy(3, DEPTH)
    one, two, three = toy.run([1]), toy.run([1, 2]), toy.run([1, 2, 3])
    assert verdict(two.copy(), two, None).kind == "bitwise"
    ahead = verdict(three, two, None)
    assert (ahead.kind, ahead.tokens) == ("wrong_position", 1), ahead.evidence
    behind = verdict(one, two, None)
    assert (behind.kind, behind.tokens) == ("wrong_position", -1), behind.evidence
    assert verdict(toy.fresh(), one, None).kind == "zero"


def test_layouts_of_three_columns_are_compared_on_the_columns_both_have() -> None:
    toy = Toy(4, DEPTH)
    state = toy.run([1, 2, 3, 4, 5, 6])
    three = {
        n: LayerState(line.h, np.ascontiguousarray(state.conv[i][:, 1:]))
        for i, (n, line) in enumerate(state.layers(NUMBERS).items())
    }
    assert judge(three, state.layers(NUMBERS)).kind == "bitwise"
    later = toy.run([7], state)
    result = judge(three, later.layers(NUMBERS))
    assert (result.kind, result.tokens) == ("wrong_position", -1), result.evidence


def test_a_part_that_is_missing_is_left_out_and_never_claimed() -> None:
    toy = Toy(5, DEPTH)
    state = toy.run([1, 2, 3, 4, 5, 6])
    later = toy.run([7, 8], state)

    def only(part: str, source: State) -> dict[int, LayerState]:
        return {n: LayerState(**{part: getattr(line, part)}) for n, line in source.layers(NUMBERS).items()}

    assert judge(only("h", state), state.layers(NUMBERS)).kind == "bitwise"
    lone_h = judge(only("h", later), state.layers(NUMBERS))
    assert (lone_h.kind, lone_h.parts) == ("unknown", "h")
    assert "no conv was given" in lone_h.evidence
    lone_conv = judge(only("conv", later), state.layers(NUMBERS))
    assert (lone_conv.kind, lone_conv.tokens) == ("wrong_position", 2)
    assert "no h was given" in lone_conv.evidence


def test_a_candidate_never_matches_on_a_part_it_lacks() -> None:
    told = story(0, "float32")
    now, before, rows = told.states[2], told.states[0], told.states[2].layers(NUMBERS)
    conv_only = {n: LayerState(None, line.conv) for n, line in rows.items()}
    h_only = {n: LayerState(line.h, None) for n, line in rows.items()}
    nothing = {n: LayerState() for n in rows}
    lacking = {
        "c": Candidate(conv_only),
        "h": Candidate(h_only),
        "n": Candidate(nothing, 3),
        "o": Candidate(nothing, owner="r9"),
    }
    for state, kind in ((State(before.h, now.conv), "stale_h"), (State(now.h, before.conv), "stale_conv")):
        result = verdict(state, now, None, **lacking)
        assert (result.kind, result.match) == (kind, ""), result.evidence
        known = verdict(state, now, None, **lacking, before=Candidate(before.layers(NUMBERS), -2))
        assert (known.kind, known.tokens, known.match) == (kind, -2, "before")
    other = verdict(told.other, now, None, **lacking)
    assert (other.kind, other.match) == ("wrong_owner", "")
    assert verdict(now, now, None, **lacking).kind == "bitwise"


def test_equality_in_the_only_part_given_claims_no_more_than_that() -> None:
    told = story(0, "float32")
    now, before = told.states[2], told.states[0]
    h_only = {n: LayerState(line.h, None) for n, line in before.layers(NUMBERS).items()}
    result = judge(h_only, now.layers(NUMBERS), {"saved": Candidate(before.layers(NUMBERS), -2)})
    assert (result.kind, result.parts, result.tokens) == ("wrong_position", "h", -2)
    assert result.evidence.startswith("h of layers 0-2, 4-6 equals saved bit for bit")


def test_a_layer_that_lacks_the_part_is_no_witness_that_it_is_right() -> None:
    told = story(0, "float32")
    now = told.states[2].layers(NUMBERS)
    found = {n: LayerState(None, line.conv) for n, line in now.items()}
    found[2] = LayerState(told.states[0].layers(NUMBERS)[2].h, now[2].conv)
    result = judge(found, now)
    assert (result.kind, result.layers) == ("stale_h", (2,)), result.evidence
    assert result.flags == ("h of layers 0-1, 4-6 was not compared: not both sides have it",)
    alone = {**found, 2: LayerState(found[2].h, None)}
    assert judge(alone, now).kind == "unknown"


def test_nothing_in_common_is_refused() -> None:
    rows = story(0, "float32").states[0].layers(NUMBERS)
    h, conv = ({n: LayerState(**{part: getattr(line, part)}) for n, line in rows.items()} for part in ("h", "conv"))
    with pytest.raises(TensorError, match="no part in common"):
        judge(h, conv)


def test_signs_of_zeros_are_not_bitwise() -> None:
    toy = Toy(6, DEPTH)
    state = toy.run([1])
    assert (state.conv == 0).any()
    found = state.copy()
    found.conv[found.conv == 0] = -0.0
    result = verdict(found, state, None)
    assert result.kind == "rounding"
    assert "signs of zeros" in result.evidence


def test_a_lower_dtype_that_loses_nothing_is_told() -> None:
    toy = Toy(7, DEPTH, "bfloat16")
    state = toy.run([1, 2, 3, 4, 5])
    found = {
        n: LayerState(line.h, tensor_data(state.conv[i], "bfloat16"))
        for i, (n, line) in enumerate(state.layers(NUMBERS).items())
    }
    result = judge(found, state.layers(NUMBERS))
    assert result.kind == "bitwise"
    assert "conv stored as bfloat16 against float32" in result.flags
    assert "bit-equal" not in result.evidence


def test_heads_that_are_not_square_show_a_transpose_by_shape() -> None:
    rng = np.random.default_rng(8)
    h = rng.standard_normal((2, 3, 5)).astype(np.float32)
    conv = rng.standard_normal((8, 4)).astype(np.float32)
    found = {0: LayerState(np.ascontiguousarray(h.transpose(0, 2, 1)), conv)}
    assert judge(found, {0: LayerState(h, conv)}).kind == "transposed"


def test_states_that_cannot_be_compared_are_refused() -> None:
    h, conv = np.ones((2, 3, 3), np.float32), np.ones((8, 4), np.float32)
    with pytest.raises(TensorError, match="no layer in common"):
        judge({0: LayerState(h, conv)}, {1: LayerState(h, conv)})
    with pytest.raises(TensorError, match="layer 0: shapes differ"):
        judge({0: LayerState(h, conv)}, {0: LayerState(h[:1], conv)})
    with pytest.raises(TensorError, match="layer 0"):
        judge({0: LayerState(h, conv)}, {0: LayerState(h, conv[:4])})
    with pytest.raises(ValueError, match="no default noise floor"):
        judge({0: LayerState(h, conv)}, {0: LayerState(h, conv)}, arithmetic="int8")


def test_limits_rise_with_depth_and_need_a_measurement() -> None:
    floor = default_floor((0, 1, 2), "bfloat16")
    assert [floor.limit(n, "h") for n in (0, 2)] == pytest.approx(
        [DEFAULTS["bfloat16"].first, DEFAULTS["bfloat16"].last]
    )
    assert floor.limit(0, "h") < floor.limit(1, "h") < floor.limit(2, "h")
    assert not floor.measured
    measured = measured_floor([{0: (1e-3, 0.0), 1: (5e-4, 2e-3)}, {0: (2e-3, 0.0), 1: (1e-4, 0.0)}])
    assert measured.limit(0, "h") == measured.limit(1, "h") == pytest.approx(1e-2)
    assert measured.limit(1, "conv") == pytest.approx(1e-2)
    assert 0 < measured.limit(0, "conv") < 1e-5
    for wrong in ([], [{0: (float("nan"), 0.0)}], [{0: (float("inf"), 0.0)}]):
        with pytest.raises(ValueError, match="noise floor"):
            measured_floor(wrong)


def test_a_verdict_can_be_read_aloud() -> None:
    told = story(0, "float32")
    result = verdict(told.states[2], told.states[0], None)
    assert result.detail == "2 tokens ahead"
    assert "found[t-3] == expected[t-1]" in result.evidence
    found = told.states[2].copy()
    found.h[3] = told.states[0].h[3]
    assert verdict(found, told.states[2], None).detail == "stale h, layer 4"
