"""What a file is, by its content, and how a debugger over it is made. Nothing here trusts a file's name."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import UserError

if TYPE_CHECKING:
    from engine.config import EngineConfig
    from engine.events import EnginePort, Start
    from inspector.commands.debugger import Debugger
    from inspector.judging.oracles import Oracles

KINDS = {
    "model": "a model (a .safetensors file, a folder, a sharded index)",
    "config": "a bare config.json",
    "session": "a session file",
    "jsonl": "events as JSON lines",
    "trace": "a scheduler trace",
}
SNIFF = 64 * 1024
_SQLITE = b"SQLite format 3\x00"
# Largest header a safetensors file may have; engine.safetensors_header checks the rest.
_HEADER_MOST = 100 << 20

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Source:
    """A file and what it is. ``path`` None is the bundled model."""

    kind: str
    path: Path | None

    @property
    def name(self) -> str:
        """How it is called in answers: the file name, never the folders of this machine."""
        return self.path.name if self.path is not None else "the bundled model"


def sniff(path: str | Path | None) -> Source:
    """What ``path`` is.

    Raises:
        UserError: not there, not readable, empty, or none of :data:`KINDS`.
    """
    if path is None:
        return Source("model", None)
    file = Path(path).expanduser()
    if file.is_dir():
        if (
            (file / "config.json").is_file()
            or any(file.glob("*.safetensors"))
            or any(file.glob("*.safetensors.index.json"))
        ):
            return Source("model", file)
        raise UserError.about(file, "a folder without config.json or .safetensors", "a model folder")
    try:
        with file.open("rb") as handle:
            head = handle.read(SNIFF)
    except FileNotFoundError:
        raise UserError(f"{file}: there is no such file or folder, and no command of this name; see --help.") from None
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}.") from None
    return Source(_kind(file, head), file)


def _kind(file: Path, head: bytes) -> str:
    if not head:
        raise UserError.about(file, "an empty file", _expected())
    if head.startswith(_SQLITE):
        return "session"
    if len(head) >= 9 and head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= _HEADER_MOST:
        return "model"
    try:
        # The last character of the piece may be cut.
        text = head.decode("utf-8", errors="strict" if len(head) < SNIFF else "ignore")
    except UnicodeDecodeError:
        text = ""
    if text.lstrip("\ufeff \t\r\n").startswith("{") and file.suffix != ".safetensors":
        return _json_kind(file, text)
    if text and "\x00" not in text and looks_like_trace(text):
        return "trace"
    if file.suffix in (".safetensors", ".index"):
        return "model"  # damaged; opening it tells how
    raise UserError.about(file, "none of these", _expected())


def _expected() -> str:
    return "; ".join(KINDS.values())


def _json_kind(file: Path, text: str) -> str:
    line = next((line for line in text.splitlines() if line.strip()), "")
    try:
        first = json.loads(line)
    except (ValueError, RecursionError):
        first = None
    if isinstance(first, dict) and ("kind" in first or first.get("format") == "metrale-events"):
        return "jsonl"
    try:
        whole = json.loads(text) if len(text) < SNIFF else None
    except (ValueError, RecursionError):
        whole = None
    if file.name.endswith(".index.json") or (isinstance(whole, dict) and "weight_map" in whole):
        return "model"
    if whole is None and '"kind"' in line[:200]:
        return "jsonl"  # a line longer than what was looked at
    if file.suffix == ".json" or whole is not None:
        return "config"
    raise UserError.about(file, "text that begins like JSON and is none", _expected())


def looks_like_trace(text: str) -> bool:
    """A line of a scheduler trace among the first: ``# scenario``, ``-- tick N``, ``name(...)``."""
    import re

    call = re.compile(r"(?:# scenario\b|-- tick \d|[a-z_][a-z0-9_]*\(.*\)(?: -> .*)?\s*$)")
    lines = [line for line in text.splitlines()[:50] if line.strip()]
    return any(call.match(line) for line in lines)


# ---------------------------------------------------------------------------------------------------------- opening


def open_engine(path: Path | None, config: EngineConfig, progress: Progress | None = None) -> EnginePort:
    """The real engine (torch is imported here). Raises UserError."""
    from engine.engine import open_engine as really

    return really(path, config, progress)


def warnings_of(engine: EnginePort) -> tuple[str, ...]:
    """What an engine says about its weights (NaN values): a sentence each, for people to read before they go on."""
    return tuple(f"warning: {text}" for text in getattr(engine, "warnings", ()))


def open_live(
    path: Path | None,
    config: EngineConfig,
    *,
    record: Path | None = None,
    level: str = "digests",
    progress: Progress | None = None,
) -> Debugger:
    """A debugger over a model, recording into ``record`` when it is given. Raises UserError, SessionError."""
    from inspector.analysis.kernel import measure
    from inspector.commands.debugger import Debugger
    from sessions.store import Store
    from sessions.timeline import Timeline

    if record is not None and record.exists():
        raise UserError(f"{record}: there is such a file already; recordings are not overwritten. Choose another name.")
    engine = open_engine(path, config, progress)
    meta = recording_meta(path, config)
    store = Store(record, "x", level=level, meta=meta) if record is not None else None
    timeline = Timeline.live(engine, store, factory=lambda: open_engine(path, config))
    timeline.meta.update(meta)
    timeline.remarks.extend(warnings_of(engine))
    timeline.oracle = default_oracle()
    measure(wide=False)  # oracles compare in every round: compiled while people wait for the model anyway
    return Debugger(timeline, name=Source("model", path).name)


def open_recorded(
    source: Source, model: str | None = None, config: EngineConfig | None = None, *, write: bool = True
) -> Debugger:
    """A debugger over a session, JSON lines or a trace.

    A session is run again with the settings it was recorded with, on ``model`` (a path, or one of :data:`BUNDLED`).
    Without ``model`` the bundled one is taken when the recording is of it; else there are facts and stored tensors
    only. A room of the museum is never written. Of ``config`` only :data:`FREE` is used."""
    from inspector.commands.debugger import Debugger
    from sessions.meta import MUSEUM
    from sessions.timeline import Timeline

    assert source.path is not None
    factory: Callable[[], EnginePort] | None = None
    if source.kind == "session":
        start, meta = recorded_start(source.path)
        write = write and MUSEUM not in meta  # what visitors do in a room is theirs alone
        if model is None and is_bundled(start.fingerprint):
            model = ""
        if model is not None:
            path = None if model in BUNDLED else Path(model)
            chosen = {name: getattr(config, name) for name in FREE} if config is not None else {}
            settings = recorded_config(start, meta, **chosen)
            factory = lambda: open_engine(path, settings)  # noqa: E731
    timeline = Timeline.open(source.path, factory, write=write)
    timeline.oracle = default_oracle()
    return Debugger(timeline, name=source.name)


def default_oracle() -> Oracles:
    """The oracles that are on wherever something runs; each keeps quiet where it does not apply."""
    from inspector.judging.oracles import Oracles

    return Oracles()


BUNDLED = ("", "demo", "bundled")


def is_bundled(fingerprint: str) -> bool:
    """Whether a recording is of the bundled model; reads its header only."""
    from engine.checkpoint import inspect_checkpoint
    from engine.demo import demo_path

    return demo_path().is_file() and inspect_checkpoint(demo_path()).fingerprint == fingerprint


# ------------------------------------------------------------------------------- settings that go with a recording

# What a person may choose anew for a recording; everything else shapes what it says.
FREE = ("device", "threads", "dtype")


def recording_meta(path: Path | None, config: EngineConfig) -> dict[str, str]:
    """What a recording keeps beside its events, so that it can be run again as it was."""
    from sessions.meta import CONFIG, ENVIRONMENT, MODEL

    settings = {name: value for name, value in dataclasses.asdict(config).items() if name not in FREE}
    return {
        MODEL: str(path) if path is not None else "",
        CONFIG: json.dumps(settings, sort_keys=True),
        ENVIRONMENT: environment(config),
    }


def environment(config: EngineConfig) -> str:
    """What floating-point results depend on beside model and settings. Imports torch."""
    import platform

    import torch

    threads = config.threads or torch.get_num_threads()
    return f"torch {torch.__version__}, {platform.machine()}, {threads} threads"


def recorded_start(path: Path) -> tuple[Start, dict[str, str]]:
    """The first event of a session file and its meta table. Raises SessionError."""
    from engine.events import Start
    from sessions.errors import SessionError
    from sessions.store import Store

    with Store(path, "r") as store:
        events = store.events(1, 1)
        if not events or not isinstance(events[0], Start):
            raise SessionError(path, "a session without its first event", "a run", "It was given up before it began.")
        return events[0], store.all_meta()


def recorded_config(start: Start, meta: dict[str, str], **overrides: Any) -> EngineConfig:
    """The settings a session was recorded with: from its meta table, or as far as its first event tells them.

    Raises UserError when the meta table holds something else."""
    from engine.config import EngineConfig
    from sessions.meta import CONFIG

    settings: dict[str, Any] = {
        "drafts": start.k - 1, "ring": start.ring_depth, "slots": start.slots, "block_size": start.block_size,
        "kv_tokens": start.blocks * start.block_size, "prefix_slots": start.prefix_slots,
        "prefix_caching": start.prefix_slots > 0, "verify": start.verify_mode, "rollback": start.rollback_mode,
        "digests": start.digests,
    }  # fmt: skip
    fields = {field.name: field for field in dataclasses.fields(EngineConfig)}
    try:
        stored = json.loads(meta.get(CONFIG, "{}"))
    except (ValueError, RecursionError):
        stored = None
    if not isinstance(stored, dict):
        raise UserError.about("the session's engine settings", "no JSON object", "the settings it was recorded with")
    kinds = (str, int, float, bool, type(None))
    settings |= {name: value for name, value in stored.items() if name in fields and isinstance(value, kinds)}
    # The first event is the authority on what shapes the pools; the depth may have come from the policy.
    settings["ring"] = start.ring_depth
    settings |= {
        "dtype": start.dtype or None,
        **{name: value for name, value in overrides.items() if value is not None},
    }
    try:
        return EngineConfig(**settings)
    except TypeError as error:
        raise UserError(f"the session's engine settings cannot be used: {error}.") from None
