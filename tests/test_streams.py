"""The secondary stream: visible and repeatable lateness on CPU, real streams on CUDA."""

from __future__ import annotations

import pytest
import torch

from engine.state.streams import Streams

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")


@pytest.fixture
def streams() -> Streams[str]:
    return Streams("cpu")


def test_default_copies_are_there_at_once(streams: Streams[str]) -> None:
    dst = torch.zeros(4)
    assert streams.copy(dst, torch.ones(4), "default", "a")
    assert dst.tolist() == [1.0] * 4
    assert streams.pending == ()


def test_reader_that_forgets_to_wait_sees_the_old_bytes_every_time(streams: Streams[str]) -> None:
    for round_number in range(50):
        dst = torch.full((4,), -1.0)
        assert not streams.copy(dst, torch.full((4,), float(round_number)), "secondary", "late")
        assert dst.tolist() == [-1.0] * 4
    assert len(streams.pending) == 50


def test_reader_that_waits_never_sees_the_old_bytes(streams: Streams[str]) -> None:
    for round_number in range(50):
        dst = torch.full((4,), -1.0)
        streams.copy(dst, torch.full((4,), float(round_number)), "secondary", "late")
        assert streams.sync_secondary() == ["late"]
        assert dst.tolist() == [float(round_number)] * 4
    assert streams.pending == ()


def test_secondary_copies_land_in_order(streams: Streams[str]) -> None:
    a, b, c = torch.ones(2), torch.zeros(2), torch.zeros(2)
    streams.copy(b, a, "secondary", "a to b")
    streams.copy(c, b, "secondary", "b to c")
    assert streams.pending == ("a to b", "b to c")
    assert streams.sync_secondary() == ["a to b", "b to c"]
    assert c.tolist() == [1.0, 1.0]


def test_source_overwritten_before_the_copy_runs_spoils_it(streams: Streams[str]) -> None:
    src, dst = torch.ones(2), torch.zeros(2)
    streams.copy(dst, src, "secondary", "late")
    src.fill_(7.0)
    streams.sync_secondary()
    assert dst.tolist() == [7.0, 7.0]


def test_dropped_work_never_lands(streams: Streams[str]) -> None:
    dst = torch.zeros(2)
    streams.copy(dst, torch.ones(2), "secondary", "late")
    streams.drop()
    assert streams.sync_secondary() == []
    assert dst.tolist() == [0.0, 0.0]


def test_waiting_for_nothing_lands_nothing(streams: Streams[str]) -> None:
    assert streams.sync_secondary() == []


def test_unknown_stream_is_refused(streams: Streams[str]) -> None:
    with pytest.raises(ValueError, match="default and secondary, not 'third'"):
        streams.copy(torch.zeros(1), torch.zeros(1), "third", "x")


@pytest.mark.cuda
@needs_cuda
def test_cuda_default_stream_sees_secondary_copies_after_the_wait() -> None:
    streams: Streams[int] = Streams("cuda")
    size = 1 << 24
    dst, src = torch.zeros(size, device="cuda"), torch.zeros(size, device="cuda")
    for value in range(1, 20):
        src.fill_(float(value))
        streams.copy(dst, src, "secondary", value)
        assert streams.pending == (value,)
        assert streams.sync_secondary() == [value]
        seen = dst.clone()
        assert bool((seen == float(value)).all())


@pytest.mark.cuda
@needs_cuda
def test_cuda_secondary_copies_start_after_what_the_default_stream_had_queued() -> None:
    streams: Streams[int] = Streams("cuda")
    src = torch.zeros(1 << 24, device="cuda")
    dst = torch.zeros_like(src)
    for value in range(1, 20):
        for _ in range(20):
            src.add_(1.0)
        streams.copy(dst, src, "secondary", value)
        streams.sync_secondary()
        assert bool((dst == value * 20.0).all())


@pytest.mark.cuda
@needs_cuda
def test_cuda_secondary_copies_run_on_another_stream() -> None:
    streams: Streams[int] = Streams("cuda")
    seen: list[int] = []
    streams.run(lambda: seen.append(torch.cuda.current_stream().cuda_stream), "secondary", 1)
    streams.sync_secondary()
    assert seen != [torch.cuda.current_stream().cuda_stream]
