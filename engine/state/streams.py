"""Two streams for state copies: the default one, in order with the model, and a secondary one that must be waited for.

On CUDA both are real: work on the secondary stream starts after what the default stream had queued by then, and a
waiting default stream waits for an event on the device, not on the host. On CPU the secondary stream is a queue that
runs only when somebody synchronises: the slowest stream a correct program may meet. Whoever forgets to wait reads the
old bytes every time, and whoever overwrites a source too early spoils the copy every time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")
Job = Callable[[], None]

DEFAULT, SECONDARY = "default", "secondary"


class Streams(Generic[T]):
    """Streams of one device; ``T`` is what callers tag their work with."""

    def __init__(self, device: torch.device | str) -> None:
        self.device = torch.device(device)
        self._queue: list[tuple[T, Job]] = []
        self._cuda = _CudaSecondary(self.device) if self.device.type == "cuda" else None

    @property
    def pending(self) -> tuple[T, ...]:
        """Tags of secondary work nobody waited for yet, oldest first."""
        return tuple(tag for tag, _ in self._queue)

    def run(self, job: Job, stream: str, tag: T) -> bool:
        """Run ``job`` in order on ``stream``; True when it has landed for readers on the default stream.

        Raises ValueError for an unknown stream."""
        if stream == DEFAULT:
            job()
            return True
        if stream != SECONDARY:
            raise ValueError(f"streams are {DEFAULT} and {SECONDARY}, not {stream!r}")
        if self._cuda is not None:
            self._cuda.run(job)
        self._queue.append((tag, job))
        return False

    def copy(self, dst: Tensor, src: Tensor, stream: str, tag: T) -> bool:
        """Copy ``src`` to ``dst`` on ``stream``; True when it has landed."""

        def job() -> None:
            dst.copy_(src, non_blocking=True)

        return self.run(job, stream, tag)

    def sync_secondary(self) -> list[T]:
        """Let the default stream wait for all secondary work; the tags that landed, oldest first."""
        queue, self._queue = self._queue, []
        if self._cuda is not None:
            self._cuda.wait()
        else:
            for _, job in queue:
                job()
        return [tag for tag, _ in queue]

    def drop(self) -> None:
        """Forget secondary work nobody waited for (its bytes are about to be replaced)."""
        if self._cuda is not None:
            self._cuda.wait()
        self._queue = []

    def synchronize(self) -> None:
        """Let the host wait until the default stream is done."""
        if self._cuda is not None:
            torch.cuda.current_stream(self.device).synchronize()


class _CudaSecondary:
    """The real secondary stream and the event its last work recorded."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]

    def run(self, job: Job) -> None:
        # sources were produced on the default stream; engines rely on the host having waited, an event is cheaper
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            job()
            self._event.record(self._stream)

    def wait(self) -> None:
        torch.cuda.current_stream(self._device).wait_event(self._event)
