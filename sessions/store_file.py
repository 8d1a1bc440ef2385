"""Opening, locking and closing a session file.

Created in rollback-journal mode, so that header and tables are whole from the first moment; switched to WAL while
recording (or kept on the rollback journal where WAL does not work, with a remark); back to one plain file on close.
A writer holds an advisory lock; readers may look at the same time. A file that was not closed opens with a remark and
with every round that was acknowledged.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from sessions import schema
from sessions.canonical import check_sum
from sessions.errors import DamagedError, SessionError

if sys.platform != "win32":
    import fcntl

TYPES = {"i": int, "t": str, "b": bytes}
LEVELS = ("events", "digests", "full")
QUICK_CHECK_LIMIT = 32 << 20  # bytes; larger files are checked as they are read, by chain and content hash
PAGE_BYTES = 8192


class StoreFile:
    """An open session file. ``mode``: "x" create, "w" create in place of an older session, "a" add to, "r" read.

    ``remarks`` are sentences for people (not closed properly, no WAL here, read from a copy). ``limit_bytes`` bounds
    the file; ``timeout`` is how many seconds to wait for another process; ``vfs`` names an SQLite VFS, such as
    ``unix-dotfile`` for file systems without locks.

    Raises:
        SessionError: the file cannot be used; nothing is left behind.
    """

    def __init__(
        self,
        path: str | Path,
        mode: str = "r",
        *,
        level: str = "digests",
        meta: Mapping[str, str] | None = None,
        limit_bytes: int | None = None,
        timeout: float = 2.0,
        vfs: str | None = None,
    ) -> None:
        if level not in LEVELS:
            raise ValueError(f"level: expected one of {', '.join(LEVELS)}, found {level!r}")
        self.path, self.mode, self.remarks = Path(path), mode, list[str]()
        self._timeout, self._vfs, self._recording, self._limit = timeout, vfs, False, limit_bytes
        self._lock: int | None = None
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        self._connection: sqlite3.Connection | None = None
        self._tails: dict[int, tuple[int, bytes]] = {}  # last event written to each branch, its chained digest
        created = mode in ("x", "w")
        if created:
            self._make_room(mode)
        else:
            schema.check_header(self.path)
        with self._told(), contextlib.ExitStack() as undo:
            undo.callback(self._drop)
            if mode != "r":
                self._take_lock()
            if created:
                undo.callback(self._remove)
            self._connection = self._connect(created)
            if created:
                self._create(level, dict(meta or {}))
            self._trust()
            undo.pop_all()
        self.level = self.meta("level") or "digests"
        if not created and self.meta("closed") != "1":
            self.remarks.append("was not closed properly; every acknowledged round is here")

    # -------------------------------------------------------------------------------------------------- opening

    def _make_room(self, mode: str) -> None:
        if not self.path.parent.is_dir():
            raise SessionError(self.path, "no such folder", "a folder that exists", "Create it first.")
        if self.path.exists():
            if mode == "x":
                raise SessionError(self.path, "a file", "a new name", "Choose another name or remove the file.")
            schema.check_header(self.path)  # never replace anything but a session
            self._take_lock()
            self._drop()
        self._remove()

    def _remove(self) -> None:
        for suffix in ("", "-wal", "-shm", "-journal"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)

    def _take_lock(self) -> None:
        if sys.platform == "win32":  # no advisory lock there; the database's own locks remain
            return
        try:
            self._lock = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            remedy = "Choose another place, or open it to read only."
            raise SessionError(self.path, error.strerror or str(error), "to write here", remedy) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            self._lock = None
            raise self._locked() from None
        except OSError:  # a file system without locks
            self.remarks.append("this file system has no locks; let no second program write the file")

    def _locked(self) -> SessionError:
        remedy = "Close the other program, or open a copy made with `pack`."
        return SessionError(self.path, "a file locked by another process", "to be its only writer", remedy)

    def _connect(self, created: bool) -> sqlite3.Connection:
        if self.mode != "r":
            return self._attach(self.path, "rwc" if created else "rw")
        wal = Path(f"{self.path}-wal")
        unfinished = wal.exists() and wal.stat().st_size > 0
        if _writable(self.path.parent) and _writable(self.path):
            return self._attach(self.path, "ro")
        if not unfinished:
            return self._attach(self.path, "ro", immutable=True)
        # SQLite must write to recover a log, and here it may not: recover a copy.
        self._copy = tempfile.TemporaryDirectory(prefix="metrale-session-")
        copy = Path(self._copy.name) / self.path.name
        shutil.copyfile(self.path, copy)
        shutil.copyfile(wal, f"{copy}-wal")
        self.remarks.append("the folder is read-only and the file was not closed: read from a temporary copy")
        return self._attach(copy, "rw")

    def _attach(self, path: Path, mode: str, immutable: bool = False) -> sqlite3.Connection:
        options = f"mode={mode}" + ("&immutable=1" if immutable else "") + (f"&vfs={self._vfs}" if self._vfs else "")
        connection = sqlite3.connect(
            f"file:{quote(str(path.absolute()))}?{options}",
            uri=True, timeout=self._timeout, isolation_level=None, check_same_thread=False, cached_statements=64,
        )  # fmt: skip
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, schema.LENGTH_LIMIT)
        for pragma in ("trusted_schema=OFF", "cell_size_check=ON", f"page_size={PAGE_BYTES}", "synchronous=NORMAL"):
            connection.execute(f"PRAGMA {pragma}")
        if self._limit is not None:
            connection.execute(f"PRAGMA max_page_count={max(1, self._limit // PAGE_BYTES)}")
        return connection

    def _create(self, level: str, meta: dict[str, str]) -> None:
        self.connection.execute(f"PRAGMA application_id={schema.APPLICATION_ID}")
        self.connection.execute(f"PRAGMA user_version={schema.FORMAT}")
        with self.transaction():
            for statement in schema.create_statements():
                self.connection.execute(statement)
            for key, value in {**meta, "level": level, "closed": "0"}.items():
                self._put_meta(key, value)

    def _trust(self) -> None:
        schema.check_schema(self.connection, self.path)
        if self.path.stat().st_size <= QUICK_CHECK_LIMIT:
            verdict = self.connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if verdict != "ok":
                raise SessionError(self.path, f"a damaged database ({verdict:.120})", "an intact one", schema.REMEDY)

    # ----------------------------------------------------------------------------------------------- recording

    def begin_recording(self) -> None:
        """Switch to WAL and mark the file as open."""
        if self._recording:
            return
        with self._told():
            try:
                journal = self.connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
            except sqlite3.OperationalError as error:
                if "locked" in str(error):
                    raise
                journal = str(error)
            if journal != "wal":
                self.connection.execute("PRAGMA journal_mode=DELETE")
                self.remarks.append(f"no write-ahead log here ({journal}): slower, with a rollback journal")
            self.set_meta("closed", "0")
            self._recording = True

    def close(self) -> None:
        """Mark the file closed and leave one plain file. Safe to call twice."""
        connection = self._connection
        if connection is None:
            return
        try:
            if self.mode != "r":
                with self._told():
                    if self.meta("closed") != "1":
                        self.mark_closed()
                    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                    connection.execute("PRAGMA journal_mode=DELETE")
        finally:
            self._drop()

    def mark_closed(self) -> None:
        """Write down where every branch ends, and that nothing is missing."""
        ends = {branch: [seq, digest.hex()] for branch, (seq, digest) in self.written().items()}
        with self.transaction():
            self._put_meta("ends", json.dumps(ends))
            self._put_meta("closed", "1")

    def written(self) -> dict[int, tuple[int, bytes]]:
        """Last event written on each branch itself, and the chained digest there."""
        lasts = self.rows("ii", "SELECT branch, max(seq) FROM event GROUP BY branch")
        return {
            branch: (seq, self.rows("b", "SELECT chain FROM event WHERE branch = ? AND seq = ?", branch, seq)[0][0])
            for branch, seq in lasts
        }

    def abandon(self) -> None:
        """Let go of the file without marking it closed."""
        self._drop()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        if self._lock is not None:  # after the connection: closing any descriptor would drop its locks
            os.close(self._lock)
            self._lock = None
        if self._copy is not None:
            self._copy.cleanup()
            self._copy = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------------------------------------- plumbing

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Database errors become SessionErrors that name the file."""
        try:
            yield
        except sqlite3.OperationalError as error:
            text = str(error)
            if "locked" in text or "busy" in text:
                raise self._locked() from error
            if "decode" in text:  # sqlite quotes the bytes
                raise DamagedError(self.path, "text that is not UTF-8", "an intact database", schema.REMEDY) from error
            if "full" in text:
                remedy = "Free some space; recording can go on with what is still in memory."
                raise SessionError(self.path, "no space left", "room to write", remedy) from error
            if "disk I/O" in text:
                remedy = "Look at the disk, and at limits on the size of files; acknowledged rounds are whole."
                raise SessionError(self.path, "an input/output error", "to read and write here", remedy) from error
            raise SessionError(
                self.path, f"a file that cannot be used ({text})", "to open it", schema.REMEDY
            ) from error
        except (sqlite3.Error, UnicodeError) as error:
            raise DamagedError(self.path, f"a damaged database ({error})", "an intact one", schema.REMEDY) from error

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing.

        Raises:
            SessionError: disk full, locked or damaged; nothing of the transaction is in the file.
        """
        with self._told():
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.connection.execute("COMMIT")
            except BaseException:
                if self.connection.in_transaction:  # SQLite may have rolled back by itself
                    self.connection.execute("ROLLBACK")
                raise

    @property
    def connection(self) -> sqlite3.Connection:
        """Raises SessionError when the file was closed."""
        if self._connection is None:
            raise SessionError(self.path, "a file that was closed", "an open one", "Open it again.")
        return self._connection

    def rows(self, types: str, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """All rows of a query, whose columns must be of ``types``: i integer, t text, b bytes.

        Raises:
            SessionError: they are not, or the file is damaged.
        """
        with self._told():
            found = self.connection.execute(sql, values).fetchall()
        expected = [TYPES[letter] for letter in types]
        for row in found:
            if list(map(type, row)) != expected:
                raise self.damaged(f"a row of another form in {sql.split(' FROM ')[-1].split(' ')[0]}")
        return found

    def damaged(self, what: str) -> SessionError:
        """The error for content that does not match its own digest or form."""
        return DamagedError(self.path, f"damaged content ({what})", "what was written", schema.REMEDY)

    # ----------------------------------------------------------------------------------------------------- meta

    def meta(self, key: str) -> str | None:
        """A value of the meta table. Raises SessionError when the row is damaged."""
        for value, total in self.rows("tb", "SELECT value, sum FROM meta WHERE key = ?", key):
            if total != check_sum(key, value):
                raise self.damaged(f"meta {key}")
            return value  # type: ignore[no-any-return]
        return None

    def all_meta(self) -> dict[str, str]:
        return {key: self.meta(key) or "" for (key,) in self.rows("t", "SELECT key FROM meta ORDER BY key")}

    def set_meta(self, key: str, value: str) -> None:
        with self.transaction():
            self._put_meta(key, value)

    def _put_meta(self, key: str, value: str) -> None:
        self.connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?, ?)", (key, value, check_sum(key, value)))


def _writable(path: Path) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)
