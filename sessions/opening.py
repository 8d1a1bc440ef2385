"""Opening what people give: a session file, JSON lines or a scheduler trace, told apart by content."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from engine.events import EnginePort, Event, Start, Unknown
from sessions import importers
from sessions.errors import SessionError
from sessions.history import History
from sessions.invariants import Checker
from sessions.recorder import Recorder
from sessions.schema import MAGIC
from sessions.store import Store

MUST_AGREE = (
    "fingerprint", "layers", "recurrent_layers", "h_shape", "conv_shape", "vocab", "slots", "ring_depth", "k",
    "prefix_slots", "blocks", "block_size", "verify_mode", "rollback_mode",
)  # fmt: skip


@dataclass(slots=True)
class Opened:
    """What a timeline starts from. ``source``: live, recording or trace."""

    source: str
    history: History
    store: Store | None
    recorder: Recorder | None
    meta: dict[str, str]
    remarks: list[str]


def open_source(path: Path, checker: Checker, write: bool) -> Opened:
    """Open by content.

    Raises:
        SessionError: a session that cannot be used.
        FormatError: neither a session nor a trace or JSON lines that can be read.
    """
    if is_session(path):
        return open_session(path, write)
    events = importers.load(path)
    return Opened("trace", History.of(events, checker), None, None, {}, [*_not_understood(events)])


def _not_understood(events: Sequence[Event]) -> Iterator[str]:
    """A sentence about the calls that became no event of state memory; headings and marks of ticks are no calls."""
    kept = sum(isinstance(event, Unknown) and not event.text.startswith(("-- ", "# ")) for event in events)
    if kept == 1:
        yield "1 call of the trace has no meaning for state memory and is kept as unknown"
    elif kept:
        yield f"{kept:,} calls of the trace have no meaning for state memory and are kept as unknown"


def open_session(path: Path, write: bool) -> Opened:
    """A session file, writable when that is wanted and possible."""
    remarks: list[str] = []
    if write:
        try:
            store = Store(path, "a")
        except SessionError as error:
            store = Store(path, "r")  # says what is wrong when it is not only the writing
            reason = "another process writes it" if "locked" in str(error) else "it cannot be written"
            remarks.append(f"opened read-only: {reason}")
    else:
        store = Store(path, "r")
    try:
        history = History(store)
        recorder = Recorder(store, history) if store.mode == "a" else None
        return Opened("recording", history, store, recorder, store.all_meta(), store.remarks + remarks)
    except SessionError:
        store.abandon()
        raise


def is_session(path: Path) -> bool:
    """Whether the file begins like a session file.

    Raises:
        SessionError: it cannot be read at all.
    """
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise SessionError(path, error.strerror or str(error), "a file", "Check the name.") from None


def check_engine(engine: EnginePort, recorded: Start, path: object) -> None:
    """Whether an engine can execute a record again.

    Raises:
        SessionError: another model, or a setting that shapes memory differs.
    """
    found = engine.start()
    for field in fields(Start):
        if field.name in MUST_AGREE and getattr(found, field.name) != getattr(recorded, field.name):
            here, there = getattr(found, field.name), getattr(recorded, field.name)
            what = "another model" if field.name == "fingerprint" else f"an engine with {field.name} {here}"
            name = (
                f"{recorded.model} (fingerprint {recorded.fingerprint})" if field.name == "fingerprint" else f"{there}"
            )
            remedy = "Open it with the model and settings it was recorded with; facts can be seen without a model."
            raise SessionError(path, f"{what}: {found.model} {found.fingerprint}", name, remedy)
