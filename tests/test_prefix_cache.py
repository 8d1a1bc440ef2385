"""The prefix cache: true coverage, who may use what, recency, and why nothing was found."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.state.prefix_cache import (
    DecodeCheckpoint,
    PrefixCache,
    decode_checkpoint_due,
    prefix_key,
    prefix_keys,
)

SIZE = 4
TOKENS = list(range(100, 140))


def make_cache(slots: int = 4) -> PrefixCache:
    return PrefixCache(slots, SIZE)


def add(cache: PrefixCache, count: int, index: int, kind: str = "chunk", session: int = 0) -> str:
    blocks = range(-(-count // SIZE))
    return cache.insert(TOKENS[:count], index, tuple(blocks), kind, session).key


# ---------------------------------------------------------------------------------------------------------------- keys


def test_keys_of_several_prefixes_equal_the_keys_of_each() -> None:
    keys = prefix_keys(TOKENS, (8, 3, 3, 40, 41, 0))
    assert keys == {length: prefix_key(TOKENS[:length]) for length in (0, 3, 8, 40)}


def test_keys_depend_on_every_token_and_on_the_length() -> None:
    assert prefix_key([1, 2, 3]) != prefix_key([1, 2, 4])
    assert prefix_key([0]) != prefix_key([0, 0])
    assert prefix_key([256]) != prefix_key([1])


# ------------------------------------------------------------------------------------------------------------- lookups


def test_deepest_fitting_snapshot_wins() -> None:
    cache = make_cache()
    add(cache, 8, 0)
    add(cache, 16, 1)
    add(cache, 12, 2)
    found = cache.lookup(TOKENS[:20])
    assert found.entry is not None and (found.entry.index, found.entry.tokens) == (1, 16)
    assert found.entry.blocks == (0, 1, 2, 3)
    assert found.matched == 16


def test_coverage_is_true_coverage_and_never_rounded() -> None:
    cache = make_cache()
    add(cache, 10, 0, "decode")
    found = cache.lookup(TOKENS[:20])
    assert found.entry is not None and found.entry.tokens == 10 and found.entry.blocks == (0, 1, 2)
    assert not cache.contains(TOKENS[:8]) and cache.contains(TOKENS[:10])
    assert cache.lookup(TOKENS[:9]).entry is None


def test_other_tokens_do_not_hit() -> None:
    cache = make_cache()
    add(cache, 8, 0)
    other = [*TOKENS[:7], 1, *TOKENS[8:20]]
    found = cache.lookup(other)
    assert (found.entry, found.matched) == (None, 4)


def test_last_prompt_token_is_always_left_to_feed() -> None:
    cache = make_cache()
    add(cache, 8, 0)
    found = cache.lookup(TOKENS[:8])
    assert found.entry is None and found.matched == 8
    assert found.reason == "the snapshot at 8 tokens lies past the 7 that may be skipped"
    exact = cache.lookup(TOKENS[:8], limit=8)
    assert exact.entry is not None and exact.entry.tokens == 8


def test_limit_excludes_deeper_snapshots() -> None:
    cache = make_cache()
    add(cache, 8, 0)
    add(cache, 12, 1)
    found = cache.lookup(TOKENS[:20], limit=11)
    assert found.entry is not None and found.entry.tokens == 8
    assert found.matched == 12


def test_tail_is_for_its_own_session_only() -> None:
    cache = make_cache()
    add(cache, 8, 0, "tail", session=7)
    own = cache.lookup(TOKENS[:20], session=7)
    assert own.entry is not None and own.entry.is_tail
    for stranger in (0, 8):
        found = cache.lookup(TOKENS[:20], session=stranger)
        assert found.entry is None and found.matched == 8
        assert found.reason == "the snapshot at 8 tokens is the tail of another session"


def test_tail_of_no_session_is_for_nobody() -> None:
    cache = make_cache()
    add(cache, 8, 0, "tail", session=0)
    assert cache.lookup(TOKENS[:20], session=0).entry is None


@pytest.mark.parametrize("kind", ["chunk", "leaf", "decode"])
def test_exact_snapshots_are_for_every_session(kind: str) -> None:
    cache = make_cache()
    add(cache, 8, 0, kind, session=7)
    assert cache.lookup(TOKENS[:20], session=9).entry is not None


def test_deeper_foreign_tail_does_not_hide_a_usable_snapshot() -> None:
    cache = make_cache()
    add(cache, 8, 0)
    add(cache, 12, 1, "tail", session=7)
    found = cache.lookup(TOKENS[:20], session=1)
    assert found.entry is not None and found.entry.index == 0


def test_misses_say_why() -> None:
    cache = make_cache()
    assert cache.lookup(TOKENS[:20]).reason == "the cache is empty"
    add(cache, 12, 0)
    assert cache.lookup([1, 2, 3, 4, 5]).reason == "no cached prefix begins like this prompt"
    short = cache.lookup([*TOKENS[:9], 1, 2, 3])
    assert (short.matched, short.reason) == (8, "KV of 8 tokens is cached, but no snapshot at or before them")


def test_prompt_of_no_tokens_misses() -> None:
    cache = make_cache()
    add(cache, 4, 0)
    assert cache.lookup([]).entry is None


# ---------------------------------------------------------------------------------------------------- recency, eviction


def test_only_the_winner_becomes_more_recent() -> None:
    cache = make_cache()
    for index, count in enumerate((4, 8, 12)):
        add(cache, count, index)
    assert cache.oldest() == 0
    cache.lookup(TOKENS[:9])
    assert [entry.index for entry in cache.entries] == [0, 2, 1]
    cache.lookup(TOKENS[:5])
    assert [entry.index for entry in cache.entries] == [2, 1, 0]


def test_misses_and_questions_change_no_recency() -> None:
    cache = make_cache()
    for index, count in enumerate((4, 8)):
        add(cache, count, index)
    cache.lookup([1, 2, 3])
    cache.contains(TOKENS[:4])
    cache.lookup(TOKENS[:4])
    assert cache.oldest() == 0


def test_evicted_entry_is_gone_and_tells_its_blocks() -> None:
    cache = make_cache()
    add(cache, 10, 3)
    entry = cache.evict(3)
    assert (entry.blocks, entry.tokens) == ((0, 1, 2), 10)
    assert len(cache) == 0 and cache.oldest() is None
    assert cache.lookup(TOKENS[:20]).reason == "the cache is empty"
    with pytest.raises(KeyError, match="prefix slot 3 holds no entry"):
        cache.evict(3)


def test_inserting_twice_into_a_slot_twice_or_past_the_room_is_refused() -> None:
    cache = make_cache(slots=2)
    add(cache, 4, 0)
    with pytest.raises(ValueError, match="prefix slot 0 is in use"):
        add(cache, 8, 0)
    with pytest.raises(ValueError, match="these 4 tokens is cached already, in slot 0"):
        add(cache, 4, 1)
    add(cache, 8, 1)
    with pytest.raises(ValueError, match="all 2 are"):
        add(cache, 12, 2)


def test_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="chunk, tail, leaf, decode, not 'finish'"):
        add(make_cache(), 4, 0, "finish")


def test_saved_cache_goes_on_like_the_original() -> None:
    cache = make_cache()
    add(cache, 10, 0, "tail", session=3)
    add(cache, 8, 1)
    cache.lookup(TOKENS[:20], session=3)
    twin = make_cache()
    twin.load_plain(cache.to_plain())
    assert twin.entries == cache.entries
    assert twin.oldest() == cache.oldest() == 1
    assert twin.lookup(TOKENS[:9]) == cache.lookup(TOKENS[:9])
    assert twin.to_plain() == cache.to_plain()


Tokens = st.lists(st.integers(0, 2), min_size=0, max_size=14)


@given(cached=st.lists(Tokens, max_size=6), prompt=Tokens, limit=st.integers(0, 14))
@settings(max_examples=200, deadline=None)
def test_lookup_equals_comparing_the_tokens_themselves(cached: list[list[int]], prompt: list[int], limit: int) -> None:
    cache = make_cache(slots=6)
    for index, tokens in enumerate(cached):
        if tokens and not cache.contains(tokens):
            cache.insert(tokens, index, (), "chunk")
    fits = [len(t) for t in cached if t and prompt[: len(t)] == t and len(t) <= min(limit, len(prompt))]
    found = cache.lookup(prompt, limit=limit)
    assert (found.entry.tokens if found.entry else 0) == max(fits, default=0)
    whole = [len(t) for t in cached if t and prompt[: len(t)] == t]
    shared = [n for t in cached for n in range(SIZE, len(t) + 1, SIZE) if len(prompt) >= n and prompt[:n] == t[:n]]
    assert found.matched == max(whole + shared, default=0)
    assert bool(found.reason) == (found.entry is None)


# --------------------------------------------------------------------------------------------------- decode checkpoints


@pytest.mark.parametrize(
    ("tokens", "last", "table", "expected"),
    [
        (63, 0, 9, None),
        (64, 0, 9, DecodeCheckpoint(4, 64, 0)),
        (70, 0, 9, DecodeCheckpoint(4, 70, 6)),
        (70, 4, 9, None),
        (79, 0, 9, DecodeCheckpoint(4, 79, 15)),
        (80, 0, 9, None),
        (128, 4, 8, DecodeCheckpoint(8, 128, 0)),
        (128, 4, 7, None),
        (0, 0, 9, None),
        (15, 3, 9, None),
    ],
)
def test_decode_checkpoints_are_due_every_four_blocks(
    tokens: int, last: int, table: int, expected: DecodeCheckpoint | None
) -> None:
    assert decode_checkpoint_due(tokens, 16, last, table) == expected


def test_checkpoint_interval_can_be_set() -> None:
    assert decode_checkpoint_due(16, 16, 0, 9, interval=1) == DecodeCheckpoint(1, 16, 0)
    assert decode_checkpoint_due(64, 16, 0, 9, interval=8) is None
