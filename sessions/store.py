"""The session file: one transaction per round, every acknowledged round survives a kill.

with Store("bug.mtl", "x") as store: ...     # create
Store("bug.mtl")                             # read, also from a read-only folder
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import xxhash

from engine.events import Event, Place, TensorData, TensorRef
from sessions import images
from sessions.canonical import canonical, canonical_json, chain, check_sum, state_digest
from sessions.errors import SessionError
from sessions.finding import Finding
from sessions.rows import ActionRow, Branch, Note
from sessions.spacing import crowded
from sessions.store_reader import StoreReader, shape_text

__all__ = ["SessionError", "Store"]

KEYFRAME_BYTES = 256 << 20


class Store(StoreReader):
    """Writing. Each public method is one transaction; when it returns, what it wrote is acknowledged."""

    keyframe_bytes = KEYFRAME_BYTES

    def add_branch(self, branch: Branch) -> None:
        """A new line of history; the main line is branch 0."""
        fields = (branch.id, branch.parent, branch.at, branch.reason)
        with self.transaction():
            self.connection.execute("INSERT INTO branch VALUES (?, ?, ?, ?, ?)", (*fields, check_sum(*fields)))

    def append_round(
        self,
        branch: int,
        events: Sequence[Event],
        action: ActionRow | None = None,
        *,
        findings: Iterable[Finding] = (),
        tensors: Iterable[tuple[int, TensorRef, TensorData]] = (),
        moved: Iterable[tuple[int, int, int]] = (),
    ) -> None:
        """The events of one action (they follow what ``branch`` holds), what was asked and taken, what was found, and
        at level ``full`` the tensors written: (event, which, bytes). ``moved``: (event, from slot, to slot).

        Raises:
            SessionError: nothing was written.
        """
        digests, chained, rows = self.level != "events", b"", list[tuple[object, ...]]()
        with self.transaction():
            if events:
                chained = self._chain_tail(branch, events[0].seq)
                for event in events:
                    payload = canonical(event, digests)
                    chained = chain(chained, payload)
                    columns = map(_column, (event.req, event.round, getattr(event, "position", -1)))
                    state = state_digest(event) if digests else ""
                    rows.append((branch, event.seq, event.kind, *columns, payload, state, chained))
                self.connection.executemany("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
            if action is not None:
                self._put_action(action)
            for ordinal, finding in enumerate(findings):
                self._put_finding(branch, finding, ordinal)
            for seq, ref, data in tensors:
                digest = self._keep(data.raw)
                self._put_tensor(
                    branch, ref.place, ref.layer, ref.part, seq, data.dtype, shape_text(data.shape), digest
                )
            for seq, src, dst in moved:
                self._move_tensors(branch, seq, src, dst)

        if events:
            self._tails[branch] = events[-1].seq, chained

    def _chain_tail(self, branch: int, seq: int) -> bytes:
        """Chained digest before event ``seq``; of what was just written it is known without a query."""
        tail = self._tails.get(branch)
        return tail[1] if tail is not None and tail[0] == seq - 1 else self.chain_before(branch, seq)

    def _put_action(self, action: ActionRow) -> None:
        fields = (
            action.branch, action.first, action.last, action.status, canonical(action.asked), canonical(action.taken),
            canonical_json(action.answers),
        )  # fmt: skip
        self.connection.execute("DELETE FROM action WHERE branch = ? AND first = ?", fields[:2])
        self.connection.execute(
            "INSERT INTO action (branch, first, last, status, asked, taken, answers, sum) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (*fields, check_sum(*fields)),
        )

    def _put_tensor(self, branch: int, place: Place, *fields: object) -> None:
        layer, part, seq, dtype, shape, digest = fields
        self.connection.execute(
            "INSERT OR REPLACE INTO tensor VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (branch, str(place), layer, part, seq, dtype, shape, digest),
        )

    def _move_tensors(self, branch: int, seq: int, src: int, dst: int) -> None:
        """A compaction: what was stored for slot ``src`` is at slot ``dst`` from ``seq`` on."""
        latest = self.rows(
            "titittb",
            "SELECT place, layer, part, max(seq), dtype, shape, hash FROM tensor WHERE branch = ? AND seq <= ? "
            "GROUP BY place, layer, part", branch, seq,
        )  # fmt: skip
        for place, layer, part, _, dtype, shape, digest in latest:
            old = Place.from_text(place)
            if old.slot == src:
                new = Place(old.kind, dst, old.index)
                self._put_tensor(branch, new, layer, part, seq, dtype, shape, digest)

    def add_keyframe(self, branch: int, seq: int, kind: str, image: Mapping[str, TensorData], cost: int = 0) -> None:
        """An engine image after event ``seq``; older ones give way when all together exceed ``keyframe_bytes``."""
        size = sum(len(tensor.raw) for tensor in image.values())
        with self.transaction():
            self._drop_keyframe(branch, seq)
            packed = images.pack(image, lambda digest, chunk: self._keep_as(digest, chunk))
            row = (branch, seq, kind, size, cost)
            self.connection.execute("INSERT INTO keyframe VALUES (?, ?, ?, ?, ?)", row)
            for name, piece in packed.items():
                fields = (branch, seq, name, piece.dtype, shape_text(piece.shape), piece.hashes)
                self.connection.execute("INSERT INTO part VALUES (?, ?, ?, ?, ?, ?, ?)", (*fields, check_sum(*fields)))
        self._thin(seq)

    def _thin(self, present: int) -> None:
        """Keep keyframes within their budget, spaced exponentially away from ``present``."""
        total = self.rows("i", "SELECT coalesce(sum(length), 0) FROM blob")[0][0]
        while total > self.keyframe_bytes:
            loose = sorted((row for row in self.keyframes() if row.kind == "spaced"), key=lambda row: row.seq)
            if not loose:
                return
            victim = loose[crowded([row.seq for row in loose], present)]
            with self.transaction():
                self._drop_keyframe(victim.branch, victim.seq)
            total = self.rows("i", "SELECT coalesce(sum(length), 0) FROM blob")[0][0]

    def _drop_keyframe(self, branch: int, seq: int) -> None:
        for (hashes,) in self.rows("b", "SELECT hashes FROM part WHERE branch = ? AND seq = ?", branch, seq):
            for at in range(0, len(hashes), images.HASH):
                self._unkeep(hashes[at : at + images.HASH])
        for table in ("part", "keyframe"):
            self.connection.execute(f"DELETE FROM {table} WHERE branch = ? AND seq = ?", (branch, seq))

    def add_view(self, branch: int, seq: int, sections: Mapping[str, bytes]) -> None:
        """A ledger view, so that seeking needs no fold from the start. Equal sections are stored once."""
        with self.transaction():
            for section, data in sections.items():
                digest = xxhash.xxh3_128_digest(data)
                self._keep_as(digest, memoryview(data), codec="zlib")
                self.connection.execute(
                    "INSERT OR REPLACE INTO view VALUES (?, ?, ?, ?)", (branch, seq, section, digest)
                )

    def add_finding(self, branch: int, finding: Finding) -> None:
        """A finding made after its event was written."""
        sql = "SELECT count(*) FROM finding WHERE branch = ? AND seq = ?"
        with self.transaction():
            self._put_finding(branch, finding, self.rows("i", sql, branch, finding.seq)[0][0])

    def _put_finding(self, branch: int, finding: Finding, ordinal: int) -> None:
        fields = (branch, finding.seq, ordinal, canonical_json(asdict(finding)))
        self.connection.execute("INSERT INTO finding VALUES (?, ?, ?, ?, ?)", (*fields, check_sum(*fields)))

    def add_note(self, note: Note) -> None:
        """A remark, or a bookmark in place of an older one of that name."""
        fields = (note.branch, note.seq, note.kind, note.name, note.text, note.author)
        with self.transaction():
            if note.kind == "mark":
                self.connection.execute("DELETE FROM note WHERE kind = 'mark' AND name = ?", (note.name,))
            self.connection.execute(
                "INSERT INTO note (branch, seq, kind, name, text, author, sum) VALUES (?, ?, ?, ?, ?, ?, ?)",
                (*fields, check_sum(*fields)),
            )

    def drop_mark(self, name: str) -> None:
        with self.transaction():
            self.connection.execute("DELETE FROM note WHERE kind = 'mark' AND name = ?", (name,))

    def add_command(self, branch: int, seq: int, text: str) -> None:
        """What the user typed at event ``seq``."""
        fields = (branch, seq, text)
        with self.transaction():
            self.connection.execute(
                "INSERT INTO command (branch, seq, text, sum) VALUES (?, ?, ?, ?)", (*fields, check_sum(*fields))
            )

    def pack(self, path: str | Path) -> None:
        """One clean, closed file with the same content. Raises SessionError when ``path`` exists, or this file is
        damaged."""
        target = Path(path)
        if target.exists():
            raise SessionError(target, "a file", "a new name", "Choose another name or remove the file.")
        self.check_events()
        part = target.with_name(target.name + ".part")
        part.unlink(missing_ok=True)
        try:
            try:
                self.connection.execute("VACUUM INTO ?", (str(part),))
            except sqlite3.OperationalError as error:
                raise SessionError(target, f"no way to write it ({error})", "room for a copy", "Free some space, or "
                                   "choose another place.") from error  # fmt: skip
            with Store(part, "a", timeout=self._timeout) as copy:
                copy.mark_closed()
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)

    # -------------------------------------------------------------------------------------------------- content

    def _keep(self, raw: bytes) -> bytes:
        digest = xxhash.xxh3_128_digest(raw)
        self._keep_as(digest, memoryview(raw))
        return digest

    def _keep_as(self, digest: bytes, chunk: memoryview, codec: str = "raw") -> None:
        known = self.connection.execute("UPDATE blob SET refs = refs + 1 WHERE hash = ?", (digest,)).rowcount
        if not known:
            data = zlib.compress(chunk, 1) if codec == "zlib" else chunk
            self.connection.execute("INSERT INTO blob VALUES (?, ?, ?, 1, ?)", (digest, codec, len(chunk), data))

    def _unkeep(self, digest: bytes) -> None:
        self.connection.execute("UPDATE blob SET refs = refs - 1 WHERE hash = ?", (digest,))
        self.connection.execute("DELETE FROM blob WHERE hash = ? AND refs <= 0", (digest,))


def _column(value: int) -> int:
    """A number as SQLite can hold it; the payload has the exact one."""
    return max(-(1 << 63), min(value, (1 << 63) - 1))
