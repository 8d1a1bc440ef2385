"""What a file is, by its content, and how a debugger over it is made. Nothing here trusts a file's name."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import UserError

if TYPE_CHECKING:
    from engine.config import EngineConfig
    from engine.events import EnginePort
    from inspector.commands.debugger import Debugger

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
    if text.lstrip("\ufeff \t\r\n").startswith("{"):
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
    if isinstance(first, dict) and "kind" in first:
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


def open_live(
    path: Path | None,
    config: EngineConfig,
    *,
    record: Path | None = None,
    level: str = "digests",
    progress: Progress | None = None,
) -> Debugger:
    """A debugger over a model, recording into ``record`` when it is given."""
    from inspector.commands.debugger import Debugger
    from sessions.timeline import Timeline

    engine = open_engine(path, config, progress)
    store = None
    if record is not None:
        from sessions.store import Store

        store = Store(record, "x", level=level)
    timeline = Timeline.live(engine, store, factory=lambda: open_engine(path, config))
    return Debugger(timeline, name=Source("model", path).name)


def open_recorded(
    source: Source, model: Path | str | None = None, config: EngineConfig | None = None, *, write: bool = True
) -> Debugger:
    """A debugger over a session, JSON lines or a trace. With ``model`` ("" is the bundled one) tensors of any instant
    can be had and the past can be acted in."""
    from inspector.commands.debugger import Debugger
    from sessions.timeline import Timeline

    assert source.path is not None
    factory: Callable[[], EnginePort] | None = None
    if model is not None:
        from engine.config import EngineConfig

        path = Path(model) if model else None
        settings = config or EngineConfig()
        factory = lambda: open_engine(path, settings)  # noqa: E731
    return Debugger(Timeline.open(source.path, factory, write=write), name=source.name)
