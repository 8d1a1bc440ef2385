"""Paged KV: blocks, references, tables, copy-on-write, rewinding."""

from __future__ import annotations

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.state.errors import KvExhausted, StateError
from engine.state.paged_kv import BlockCopy, KvTable, PagedKv

LAYERS, HEADS, DIM, SIZE = 2, 2, 3, 4


def make_kv(blocks: int = 8, layers: int = LAYERS, dtype: torch.dtype = torch.float32) -> PagedKv:
    return PagedKv(layers, HEADS, DIM, blocks, SIZE, dtype)


def rows(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, HEADS, DIM, generator=generator), torch.randn(count, HEADS, DIM, generator=generator)


def put(table: KvTable, count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Append ``count`` tokens: layer 0 gets the rows, layer 1 their negatives."""
    k, v = rows(count, seed)
    table.unshare()
    table.reserve(table.cursor + count)
    for layer, sign in enumerate((1, -1)):
        table.write(layer, table.cursor, sign * k, sign * v)
    table.advance(count)
    return k, v


def scattered(kv: PagedKv, blocks: int) -> KvTable:
    """A table whose blocks are no ascending run."""
    spare = kv.alloc(2)
    table = KvTable(kv)
    table.reserve(SIZE)
    kv.release(spare[:1])
    table.reserve(blocks * SIZE)
    kv.release(spare[1:])
    assert not table.contiguous
    return table


# -------------------------------------------------------------------------------------------------------------- blocks


def test_bytes_are_keys_and_values_of_all_layers() -> None:
    assert make_kv().bytes == LAYERS * 2 * 8 * SIZE * HEADS * DIM * 4
    assert make_kv(dtype=torch.bfloat16).bytes == LAYERS * 2 * 8 * SIZE * HEADS * DIM * 2


def test_lowest_free_blocks_are_taken_first() -> None:
    kv = make_kv()
    assert kv.alloc(3) == (0, 1, 2)
    kv.release((2, 0))
    assert kv.alloc(3) == (0, 2, 3)
    assert kv.free == 4 and kv.used == 4


def test_full_pool_refuses_and_takes_nothing() -> None:
    kv = make_kv(blocks=3)
    kv.alloc(2)
    with pytest.raises(KvExhausted, match="2 KV blocks of 4 tokens are needed, 1 of 3 are free"):
        kv.alloc(2)
    assert kv.free == 1


def test_shared_block_is_freed_by_its_last_holder() -> None:
    kv = make_kv()
    (block,) = kv.alloc(1)
    kv.share((block,))
    assert kv.refs(block) == 2
    assert kv.release((block,)) == ()
    assert kv.release((block,)) == (block,)
    assert kv.refs(block) == 0 and kv.free == 8


def test_free_block_cannot_be_shared_or_released() -> None:
    kv = make_kv()
    kv.alloc(1)
    with pytest.raises(StateError, match="block 1 is free"):
        kv.share((0, 1))
    assert kv.refs(0) == 1
    with pytest.raises(StateError, match="block 1 is released twice"):
        kv.release((1,))


@pytest.mark.parametrize(("tokens", "blocks"), [(0, 0), (1, 1), (4, 1), (5, 2), (8, 2)])
def test_blocks_for_rounds_up(tokens: int, blocks: int) -> None:
    assert make_kv().blocks_for(tokens) == blocks


@pytest.mark.parametrize(("blocks", "size"), [(0, 4), (4, 0)])
def test_pool_without_blocks_is_refused(blocks: int, size: int) -> None:
    with pytest.raises(StateError, match="at least one block"):
        PagedKv(1, 1, 1, blocks, size)


def test_block_table_survives_saving() -> None:
    kv = make_kv()
    kv.alloc(3)
    kv.share((1,))
    kv.release((0,))
    twin = make_kv()
    twin.load_blocks(kv.save_blocks())
    assert [twin.refs(block) for block in range(4)] == [0, 2, 1, 0]
    assert twin.ever_used == 3 and twin.alloc(2) == (0, 3)
    with pytest.raises(StateError, match="does not fit a KV pool of 2 blocks"):
        make_kv(blocks=2).load_blocks(kv.save_blocks())


# -------------------------------------------------------------------------------------------------------------- tables


@pytest.mark.parametrize("scatter", [False, True], ids=["one run", "scattered"])
def test_rows_read_back_as_written_across_blocks(scatter: bool) -> None:
    kv = make_kv()
    table = scattered(kv, 4) if scatter else KvTable(kv)
    ks, vs = zip(*(put(table, count, seed) for seed, count in enumerate((1, 6, 3, 5))), strict=True)
    k, v = torch.cat(ks), torch.cat(vs)
    for length in (0, 1, 4, 5, 11, 15):
        for layer, sign in enumerate((1, -1)):
            found_k, found_v = table.read(layer, length)
            assert found_k.shape == found_v.shape == (length, HEADS, DIM)
            assert torch.equal(found_k, sign * k[:length]) and torch.equal(found_v, sign * v[:length])


def test_ascending_run_is_read_without_copying() -> None:
    kv = make_kv()
    kv.alloc(2)
    table = KvTable(kv)
    table.reserve(3 * SIZE)
    assert table.blocks == [2, 3, 4] and table.contiguous
    k, _ = table.read(1, 9)
    assert k.data_ptr() == kv.buffer[1, 0, 2].data_ptr()


def test_scattered_rows_have_the_strides_of_a_run() -> None:
    kv = make_kv()
    run = KvTable(kv)
    run.reserve(2 * SIZE)
    a, b = run.read(0, 7)[0], scattered(kv, 3).read(0, 7)[0]
    assert a.stride() == b.stride() and b.is_contiguous()


def test_reserve_grows_by_whole_blocks_and_tells_the_fresh_ones() -> None:
    table = KvTable(make_kv())
    assert table.reserve(5) == (0, 1)
    assert table.reserve(8) == ()
    assert table.reserve(9) == (2,)
    assert table.capacity == 12 and table.cursor == 0


def test_reserve_past_the_pool_takes_nothing() -> None:
    table = KvTable(make_kv(blocks=2))
    with pytest.raises(KvExhausted):
        table.reserve(9)
    assert table.blocks == []


@pytest.mark.parametrize("start", [-1, 7, 8])
def test_writing_past_the_reserved_blocks_is_refused(start: int) -> None:
    table = KvTable(make_kv())
    table.reserve(8)
    with pytest.raises(StateError, match="outside the 8 reserved"):
        table.write(0, start, *rows(2, 1))


def test_reading_past_the_reserved_blocks_is_refused() -> None:
    table = KvTable(make_kv())
    table.reserve(4)
    with pytest.raises(StateError, match="5 positions asked for, 4 reserved"):
        table.read(0, 5)


def test_writing_no_rows_is_nothing() -> None:
    KvTable(make_kv()).write(0, 0, *rows(0, 1))


def test_rewinding_moves_the_cursor_and_frees_nothing() -> None:
    kv = make_kv()
    table = KvTable(kv)
    k, _ = put(table, 9, 1)
    assert table.rewind(2) == 9
    assert table.cursor == 2 and table.blocks == [0, 1, 2] and kv.used == 3
    assert torch.equal(table.read(0, 9)[0], k)


def test_what_lies_past_a_rewound_cursor_is_overwritten() -> None:
    table = KvTable(make_kv())
    k, _ = put(table, 9, 1)
    table.rewind(5)
    again, _ = put(table, 2, 2)
    assert torch.equal(table.read(0, 7)[0], torch.cat((k[:5], again)))


@pytest.mark.parametrize("cursor", [-1, 5])
def test_rewinding_forwards_is_refused(cursor: int) -> None:
    table = KvTable(make_kv())
    put(table, 4, 1)
    with pytest.raises(StateError, match=f"cannot rewind the cursor from 4 to {cursor}"):
        table.rewind(cursor)


def test_advancing_past_the_reserved_blocks_is_refused() -> None:
    table = KvTable(make_kv())
    table.reserve(4)
    with pytest.raises(StateError, match=r"cursor 0 \+ 5"):
        table.advance(5)


def test_releasing_a_table_tells_what_it_held_and_keeps_shared_blocks() -> None:
    kv = make_kv()
    table, other = KvTable(kv), KvTable(kv)
    put(table, 6, 1)
    other.share_from(table.blocks[:1])
    assert table.release() == (0, 1)
    assert (table.blocks, table.cursor) == ([], 0)
    assert kv.refs(0) == 1 and kv.refs(1) == 0
    assert other.release() == (0,)
    assert kv.free == 8


def test_pool_of_a_purely_recurrent_model_keeps_books_only() -> None:
    kv = make_kv(layers=0)
    table = KvTable(kv)
    assert table.reserve(6) == (0, 1)
    assert kv.bytes == 0 and table.advance(6) == 6


# ------------------------------------------------------------------------------------------------------- copy on write


def forked(table: KvTable) -> KvTable:
    child = KvTable(table.kv)
    child.share_from(table.blocks)
    child.advance(table.cursor)
    return child


def test_writing_into_a_shared_block_is_refused() -> None:
    table = KvTable(make_kv())
    put(table, 6, 1)
    child = forked(table)
    with pytest.raises(StateError, match="KV block 1 has 2 holders"):
        child.write(0, 6, *rows(1, 2))


def test_unsharing_copies_the_partial_block_and_leaves_full_ones_shared() -> None:
    table = KvTable(make_kv())
    k, v = put(table, 6, 1)
    child = forked(table)
    assert child.unshare() == (BlockCopy(1, 2, 2),)
    assert (table.blocks, child.blocks) == ([0, 1], [0, 2])
    assert [table.kv.refs(block) for block in range(3)] == [2, 1, 1]
    assert torch.equal(child.read(0, 6)[0], k) and torch.equal(child.read(1, 6)[1], -v)
    assert child.unshare() == ()


def test_branches_do_not_see_each_other() -> None:
    table = KvTable(make_kv())
    k, _ = put(table, 6, 1)
    child = forked(table)
    ours, theirs = put(table, 3, 2)[0], put(child, 3, 3)[0]
    assert torch.equal(table.read(0, 9)[0], torch.cat((k, ours)))
    assert torch.equal(child.read(0, 9)[0], torch.cat((k, theirs)))


def test_rewinding_into_a_shared_full_block_copies_it_before_writing() -> None:
    table = KvTable(make_kv())
    k, _ = put(table, 8, 1)
    child = forked(table)
    child.rewind(3)
    assert child.unshare() == (BlockCopy(0, 2, 3), BlockCopy(1, 3, 0))
    put(child, 2, 2)
    assert torch.equal(table.read(0, 8)[0], k)


def test_unsharing_below_the_cursor_keeps_everything_valid() -> None:
    table = KvTable(make_kv())
    k, _ = put(table, 8, 1)
    child = forked(table)
    assert child.unshare(3) == (BlockCopy(0, 2, 4), BlockCopy(1, 3, 4))
    assert torch.equal(child.read(0, 8)[0], k)


def test_unsharing_without_room_changes_nothing() -> None:
    table = KvTable(make_kv(blocks=2))
    put(table, 6, 1)
    child = forked(table)
    with pytest.raises(KvExhausted):
        child.unshare()
    assert child.blocks == [0, 1] and table.kv.refs(1) == 2


def test_seam_lets_a_shared_block_be_poisoned() -> None:
    kv = make_kv()
    table = KvTable(kv)
    k, _ = put(table, 6, 1)
    child = forked(table)
    kv.seams.add("kv.shared_write", lambda allowed, block: True)
    child.write(0, 4, *rows(1, 9))
    assert not torch.equal(table.read(0, 6)[0], k)


class KvMachine(RuleBasedStateMachine):
    """Against lists: each table is a list of numbers, each block a set of holders."""

    @initialize(blocks=st.integers(2, 8))
    def start(self, blocks: int) -> None:
        self.kv = PagedKv(1, 1, 1, blocks, SIZE)
        self.tables: list[tuple[KvTable, list[float]]] = []
        self.held: list[tuple[list[int], list[float]]] = []
        self.number = 0.0

    @precondition(lambda self: len(self.tables) < 4)
    @rule()
    def open(self) -> None:
        self.tables.append((KvTable(self.kv), []))

    @precondition(lambda self: self.tables)
    @rule(data=st.data(), count=st.integers(1, 7))
    def append(self, data: st.DataObject, count: int) -> None:
        table, values = data.draw(st.sampled_from(self.tables))
        before = list(table.blocks)
        try:
            table.unshare()
            table.reserve(table.cursor + count)
        except KvExhausted:
            assert table.cursor == len(values) and len(table.blocks) == len(before)
            return
        fresh = [self.number + i for i in range(count)]
        self.number += count
        k = torch.tensor(fresh).view(count, 1, 1)
        table.write(0, table.cursor, k, -k)
        table.advance(count)
        values += fresh

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def rewind(self, data: st.DataObject) -> None:
        table, values = data.draw(st.sampled_from(self.tables))
        cursor = data.draw(st.integers(0, len(values)))
        before = self.kv.free
        table.rewind(cursor)
        del values[cursor:]
        assert self.kv.free == before

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        table, values = data.draw(st.sampled_from(self.tables))
        if len(self.tables) < 4:
            child = KvTable(self.kv)
            child.share_from(table.blocks)
            child.advance(table.cursor)
            self.tables.append((child, list(values)))

    @precondition(lambda self: self.tables and len(self.held) < 3)
    @rule(data=st.data())
    def hold_prefix(self, data: st.DataObject) -> None:
        table, values = data.draw(st.sampled_from(self.tables))
        blocks = table.blocks[: self.kv.blocks_for(table.cursor)]
        self.kv.share(blocks)
        self.held.append((list(blocks), list(values)))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def drop_prefix(self, data: st.DataObject) -> None:
        blocks, _ = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        self.kv.release(blocks)

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        table, _ = self.tables.pop(data.draw(st.integers(0, len(self.tables) - 1)))
        table.release()

    @invariant()
    def references_equal_holders(self) -> None:
        holders = [0] * self.kv.blocks
        for blocks in [table.blocks for table, _ in self.tables] + [blocks for blocks, _ in self.held]:
            for block in blocks:
                holders[block] += 1
        assert [self.kv.refs(block) for block in range(self.kv.blocks)] == holders
        assert self.kv.free == holders.count(0)

    @invariant()
    def everybody_reads_what_he_wrote(self) -> None:
        for table, values in self.tables:
            k, v = table.read(0, len(values))
            assert k.flatten().tolist() == values
            assert v.flatten().tolist() == [-value for value in values]
        for blocks, values in self.held:
            k, _ = KvTable(self.kv, blocks, len(values)).read(0, len(values))
            assert k.flatten().tolist() == values


TestKvMachine = KvMachine.TestCase
TestKvMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
