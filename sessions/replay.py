"""Executing a recording again, event by event, and comparing everything it says.

A fresh engine does every recorded action of every branch again, from the start. On the machine and dtype of the
recording each fact and each state digest must be the same; elsewhere facts are compared exactly, floating-point facts
and stored tensors within a tolerance, and the report says so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from engine.events import EnginePort, Event, TensorData, TensorRef
from sessions.divergence import Comparison
from sessions.errors import DivergedError
from sessions.history import History
from sessions.keyframes import Keyframes
from sessions.machine import Machine
from sessions.opening import check_engine
from sessions.recorder import written_places
from sessions.stop import Cancel, Progress
from sessions.store import Store

TOLERANCES = {"float32": 1e-3, "float16": 1e-2, "bfloat16": 5e-2}
ENVIRONMENT = "environment"  # key of meta: what the numbers of a recording depend on beside model and settings


@dataclass(slots=True)
class ReplayReport:
    """``difference`` is None when everything agreed; ``branch`` is the one it was met on. ``events`` (the start
    included, as ``check`` counts) and ``digests`` of ``branches`` branches were met again. ``compared`` says what was
    compared. ``worst`` is the largest relative difference of a stored tensor, with its place, in tolerance mode."""

    path: str
    events: int = 0
    branches: int = 0
    digests: int = 0
    compared: str = ""
    difference: DivergedError | None = None
    branch: int = 0
    worst: float = 0.0
    worst_place: str = ""
    remarks: list[str] = field(default_factory=list)

    @property
    def same(self) -> bool:
        return self.difference is None


def replay(
    path: str | Path,
    engine: EnginePort,
    tolerance: float | None = None,
    *,
    environment: str | None = None,
    progress: Progress | None = None,
    cancel: Cancel | None = None,
) -> ReplayReport:
    """Execute a recording again on a fresh ``engine``. ``tolerance`` None: bitwise where model, dtype and device are
    those of the recording (and ``environment``, when both sides name one), otherwise the usual one of the dtype.

    Raises:
        SessionError: the file cannot be used, or belongs to another model or other settings.
        Cancelled: ``cancel`` said yes.
    """
    with Store(path, "r") as store:
        history = History(store)
        recorded, found = history.record.start, engine.start()
        check_engine(engine, recorded, path)
        # the start is an event too: check_engine has just compared it
        report = ReplayReport(str(path), events=1, remarks=list(store.remarks))
        elsewhere = [
            f"{name}: recorded {was}, here {now}"
            for name, was, now in (
                ("dtype", recorded.dtype, found.dtype),
                ("device", recorded.device, found.device),
                ("environment", store.meta(ENVIRONMENT) or environment, environment or store.meta(ENVIRONMENT)),
            )
            if was != now
        ]
        if tolerance is None and elsewhere:
            most = max(TOLERANCES.values())
            tolerance = max(TOLERANCES.get(dtype, most) for dtype in (recorded.dtype, found.dtype))
            report.remarks += elsewhere
        comparison = Comparison(store.level != "events" and recorded.digests, tolerance)
        report.compared = comparison.sentence
        machine = Machine(engine, history.record, Keyframes(), comparison)
        machine.adopt(0, 1)
        machine.keep(pinned=True)
        machine.progress = progress
        _Watch(machine, history, store, report, tolerance).walk(cancel)
        return report


class _Watch:
    """Counts what is compared, and compares stored tensors when digests cannot be."""

    def __init__(
        self, machine: Machine, history: History, store: Store, report: ReplayReport, tolerance: float | None
    ) -> None:
        self._machine, self._history, self._store = machine, history, store
        self._report, self._tolerance = report, tolerance
        machine.watch = self._event

    def walk(self, cancel: Cancel | None) -> None:
        for branch in self._history.record.branches:
            if not branch.last > max(1, branch.at):
                continue
            try:
                self._machine.goto(branch.id, branch.last, cancel)
            except DivergedError as error:
                self._report.difference, self._report.branch = error, branch.id
                return
            self._report.branches += 1
            if self._machine.running is None:
                self._machine.keep()  # a branch may leave from here

    def _event(self, branch: int, event: Event) -> None:
        if event.seq <= self._history.record.branch(branch).at:
            return  # on the way to where the branch leaves
        self._report.events += 1
        digests = getattr(event, "digests", ())
        self._report.digests += 2 * len(digests) if isinstance(digests, tuple) else 0
        if self._tolerance is None or self._store.level != "full":
            return
        owner = self._history.record.owner(branch, event.seq)
        for place, parts in written_places(event):
            for layer in self._history.record.start.recurrent_layers:
                for part in filter(None, parts.split("+")):
                    self._tensor(owner, event.seq, TensorRef(place, layer, part), self._tolerance)

    def _tensor(self, owner: int, seq: int, ref: TensorRef, tolerance: float) -> None:
        row = self._store.stored_tensor(owner, seq, str(ref.place), ref.layer, ref.part)
        if row is None or row.seq != seq:
            return
        where = f"{ref.place}, layer {ref.layer}, {ref.part}"
        apart = relative_difference(self._store.tensor_data(row), self._machine.read(ref))
        if apart > self._report.worst or not math.isfinite(apart):
            self._report.worst, self._report.worst_place = apart, f"event {seq}, {where}"
        if not apart <= tolerance:
            text = f"diverged at event {seq}, layer {ref.layer}, {ref.part}: {apart:.3g} apart, tolerance {tolerance:g}"
            raise DivergedError(seq, text, ref.layer, ref.part, f"within {tolerance:g}", f"{apart:.3g}")


def as_array(data: TensorData) -> np.ndarray[tuple[int, ...], np.dtype[np.floating]]:
    """The values as float64; bfloat16 has no numpy dtype, so its words become the upper half of a float32."""
    if data.dtype == "bfloat16":
        words = np.frombuffer(data.raw, np.uint16).astype(np.uint32) << 16
        return words.view(np.float32).astype(np.float64).reshape(data.shape)
    return np.frombuffer(data.raw, np.dtype(data.dtype)).astype(np.float64).reshape(data.shape)


def relative_difference(a: TensorData, b: TensorData) -> float:
    """Norm of the difference over the norm of the first; infinite when the shapes differ."""
    if a.shape != b.shape:
        return math.inf
    x, y = as_array(a), as_array(b)
    size = float(np.linalg.norm(x))
    apart = float(np.linalg.norm(x - y))
    return apart / size if size else apart
