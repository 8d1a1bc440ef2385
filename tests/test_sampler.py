"""The counter-seeded sampler."""

from __future__ import annotations

import math
from collections import Counter

import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.sampler import Sampling, pick, uniform

LOGITS = torch.log(torch.tensor([0.5, 0.3, 0.15, 0.05]))


def test_greedy_takes_the_best_and_tells_its_lead() -> None:
    chosen = pick(torch.tensor([1.0, 4.0, 2.5]), Sampling(), counter=9)
    assert chosen.token == 1
    assert chosen.margin == 1.5


def test_the_same_counter_draws_the_same_token_whatever_was_drawn_between() -> None:
    sampling = Sampling(temperature=1.0, seed=5)
    first = [pick(LOGITS, sampling, n).token for n in range(50)]
    again = [pick(LOGITS, sampling, n).token for n in reversed(range(50))]
    assert first == again[::-1]
    assert first != [pick(LOGITS, Sampling(temperature=1.0, seed=6), n).token for n in range(50)]


def test_draws_follow_the_distribution() -> None:
    counts = Counter(pick(LOGITS, Sampling(temperature=1.0, seed=1), n).token for n in range(4000))
    for token, share in enumerate((0.5, 0.3, 0.15, 0.05)):
        deviation = math.sqrt(4000 * share * (1 - share))
        assert abs(counts[token] - 4000 * share) < 4 * deviation


def test_top_k_and_top_p_cut_the_tail() -> None:
    top_k = {pick(LOGITS, Sampling(temperature=1.0, top_k=2), n).token for n in range(300)}
    top_p = {pick(LOGITS, Sampling(temperature=1.0, top_p=0.79), n).token for n in range(300)}
    assert top_k == {0, 1}
    assert top_p == {0, 1}
    assert {pick(LOGITS, Sampling(temperature=1.0, top_p=0.01), n).token for n in range(50)} == {0}


@given(st.integers(0, 2**64), st.integers(0, 2**40))
def test_uniform_stays_in_range(seed: int, counter: int) -> None:
    assert 0.0 <= uniform(seed, counter) < 1.0
