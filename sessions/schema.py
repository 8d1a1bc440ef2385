"""The session file: an SQLite database. Its tables, and the checks made before any of it is trusted.

``sqlite3 FILE`` opens it without this program. Blobs are content-addressed (xxh3-128); events carry a chained digest;
small rows carry a sum. Tensors are raw little-endian bytes with a dtype name, bf16 as 16-bit words.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from sessions.errors import SessionError

APPLICATION_ID = 0x4D544C53  # "MTLS"
FORMAT = 1
MAGIC = b"SQLite format 3\x00"
LENGTH_LIMIT = 1 << 28  # one value of a file from outside may not be larger

TABLES = {
    "meta": "key TEXT PRIMARY KEY, value TEXT NOT NULL, sum BLOB NOT NULL",
    "branch": "id INTEGER PRIMARY KEY, parent INTEGER NOT NULL, at INTEGER NOT NULL, reason TEXT NOT NULL, "
    "sum BLOB NOT NULL",
    "event": "branch INTEGER NOT NULL, seq INTEGER NOT NULL, kind TEXT NOT NULL, req INTEGER NOT NULL, "
    "round INTEGER NOT NULL, position INTEGER NOT NULL, payload TEXT NOT NULL, state TEXT NOT NULL, "
    "chain BLOB NOT NULL, PRIMARY KEY (branch, seq)",
    "action": "id INTEGER PRIMARY KEY, branch INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, "
    "status TEXT NOT NULL, asked TEXT NOT NULL, taken TEXT NOT NULL, answers TEXT NOT NULL, sum BLOB NOT NULL",
    "keyframe": "branch INTEGER NOT NULL, seq INTEGER NOT NULL, kind TEXT NOT NULL, bytes INTEGER NOT NULL, "
    "cost INTEGER NOT NULL, PRIMARY KEY (branch, seq)",
    "part": "branch INTEGER NOT NULL, seq INTEGER NOT NULL, name TEXT NOT NULL, dtype TEXT NOT NULL, "
    "shape TEXT NOT NULL, hashes BLOB NOT NULL, sum BLOB NOT NULL, PRIMARY KEY (branch, seq, name)",
    "tensor": "branch INTEGER NOT NULL, place TEXT NOT NULL, layer INTEGER NOT NULL, part TEXT NOT NULL, "
    "seq INTEGER NOT NULL, dtype TEXT NOT NULL, shape TEXT NOT NULL, hash BLOB NOT NULL, "
    "PRIMARY KEY (branch, place, layer, part, seq)",
    "blob": "hash BLOB PRIMARY KEY, codec TEXT NOT NULL, length INTEGER NOT NULL, refs INTEGER NOT NULL, "
    "bytes BLOB NOT NULL",
    "view": "branch INTEGER NOT NULL, seq INTEGER NOT NULL, section TEXT NOT NULL, hash BLOB NOT NULL, "
    "PRIMARY KEY (branch, seq, section)",
    "note": "id INTEGER PRIMARY KEY, branch INTEGER NOT NULL, seq INTEGER NOT NULL, kind TEXT NOT NULL, "
    "name TEXT NOT NULL, text TEXT NOT NULL, author TEXT NOT NULL, sum BLOB NOT NULL",
    "finding": "branch INTEGER NOT NULL, seq INTEGER NOT NULL, ordinal INTEGER NOT NULL, payload TEXT NOT NULL, "
    "sum BLOB NOT NULL, PRIMARY KEY (branch, seq, ordinal)",
    "command": "id INTEGER PRIMARY KEY, branch INTEGER NOT NULL, seq INTEGER NOT NULL, text TEXT NOT NULL, "
    "sum BLOB NOT NULL",
}
ROWID_TABLES = ("blob", "branch", "action", "note", "command")
REMEDY = "Open another copy; if the original program still runs, let it write the file again with `pack`."


def create_statements() -> list[str]:
    return [
        f"CREATE TABLE {name} ({columns}) STRICT" + ("" if name in ROWID_TABLES else ", WITHOUT ROWID")
        for name, columns in TABLES.items()
    ]


def check_header(path: Path) -> None:
    """Look at the first 100 bytes and the size.

    Raises:
        SessionError: no file, not a database, another program's, another format version, or cut off.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            header = file.read(100)
    except OSError as error:
        raise SessionError(path, error.strerror or str(error), "a session file", "Check the name.") from None
    if len(header) < 100 or header[:16] != MAGIC:
        found = "an empty file" if not header else f"{header[:16]!r} at its start"
        raise SessionError(path, found, "a session file (an SQLite database)", "Check that this is the right file.")
    application, version = int.from_bytes(header[68:72], "big"), int.from_bytes(header[60:64], "big")
    if application != APPLICATION_ID:
        found = f"a database of another program (application id {application:#010x})"
        raise SessionError(path, found, f"application id {APPLICATION_ID:#010x}", "Check that this is the right file.")
    if version != FORMAT:
        age, remedy = ("a later", "Use a newer metrale-inspect.") if version > FORMAT else (
            "an earlier", "Open it with the program that wrote it and export it as JSON lines."
        )  # fmt: skip
        raise SessionError(path, f"{age} format, version {version}", f"version {FORMAT}", remedy)
    page = int.from_bytes(header[16:18], "big")
    wanted = (65536 if page == 1 else page) * int.from_bytes(header[28:32], "big")
    # A disk that fills up can stop SQLite while it moves its log into the file; then the log still has all pages.
    log = Path(f"{path}-wal")
    if size < wanted and not (log.is_file() and log.stat().st_size):
        raise SessionError(path, f"a file cut off at {size} bytes", f"{wanted} bytes as its header says", REMEDY)


def check_schema(connection: sqlite3.Connection, path: Path) -> None:
    """The tables must be ours to the letter: no trigger, view or other surprise.

    Raises:
        SessionError: they are not.
    """
    rows = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name").fetchall()
    found, expected = {row[0] for row in rows}, set(create_statements())
    if found != expected:
        odd = sorted(found ^ expected)[0]
        raise SessionError(path, f"a table that differs: {odd!r:.120}", f"the tables of format {FORMAT}", REMEDY)
