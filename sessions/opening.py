"""Opening what people give: a session file, JSON lines or a scheduler trace, told apart by content."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from pathlib import Path

from engine.events import EnginePort, Event, Start
from sessions.errors import SessionError
from sessions.history import History
from sessions.invariants import Checker
from sessions.recorder import Recorder
from sessions.schema import MAGIC
from sessions.store import Store

HEAD = 4096
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
        SessionError: not one of ours, or damaged.
    """
    kind = sniff(path)
    if kind == "session":
        return open_session(path, write)
    history = History.of(_importer(kind)(path), checker)
    if not history.record.last(0):
        raise SessionError(path, "no events", "at least one", "Check that this is the right file.")
    return Opened("trace", history, None, None, {}, [])


def open_session(path: Path, write: bool) -> Opened:
    """A session file, writable when that is wanted and possible."""
    remarks: list[str] = []
    if write:
        try:
            store = Store(path, "a")
        except (SessionError, OSError) as error:
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


def sniff(path: Path) -> str:
    """session, jsonl or trace, by the first bytes.

    Raises:
        SessionError: none of them.
    """
    try:
        with path.open("rb") as file:
            head = file.read(HEAD)
    except OSError as error:
        raise SessionError(path, error.strerror or str(error), "a file", "Check the name.") from None
    if head.startswith(MAGIC):
        return "session"
    text = head.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    if text.startswith("{"):
        return "jsonl"
    if text.startswith(("# scenario", "-- tick", "#")):
        return "trace"
    found = "an empty file" if not head else f"{head[:16]!r} at its start"
    expected = "a session file, JSON lines of events, or a scheduler trace"
    raise SessionError(path, found, expected, "Check that this is the right file.")


def _importer(kind: str) -> Callable[[Path], Iterable[Event]]:
    if kind == "jsonl":
        from sessions.importers import jsonl

        return jsonl.read_events  # type: ignore[no-any-return]
    from sessions.importers import metrale_trace

    return metrale_trace.read_events  # type: ignore[no-any-return]


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
