"""Reading a session file. Nothing is believed before its digest, sum or form has been checked."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import xxhash

from engine.codec import CodecError
from engine.events import Event, TensorData, action_from_dict, event_from_dict
from sessions import images
from sessions.canonical import CHAIN_START, chain, check_sum
from sessions.errors import SessionError
from sessions.finding import Finding
from sessions.rows import CANCELLED, DEEPEST, DONE, OPEN, ActionRow, Answer, Branch, KeyframeRow, Note, TensorRow
from sessions.store_file import StoreFile

CHECKED = 512  # events that are checked at once


class StoreReader(StoreFile):
    """Rows as records. Every method raises SessionError for damaged content."""

    def branches(self) -> list[Branch]:
        """All branches, parents before children, each with the last event written."""
        found: list[Branch] = []
        depth = [0]
        closed = self.meta("closed"), self.meta("ends")
        written = self.written()
        if closed == ("1", self.meta("ends")):  # nobody wrote in between
            self._whole(written)
        last = {branch: seq for branch, (seq, _) in written.items()}
        for number, parent, at, reason, total in self.rows(
            "iiitb", "SELECT id, parent, at, reason, sum FROM branch ORDER BY id"
        ):
            self._summed(total, f"branch {number}", number, parent, at, reason)
            if number != len(found) or not (parent == -1 and at == 0 if number == 0 else 0 <= parent < number):
                raise self.damaged(f"branch {number}")
            if number:
                depth.append(depth[parent] + 1)
                if not 1 <= at <= found[parent].last or depth[number] > DEEPEST:
                    raise self.damaged(f"branch {number}, which leaves branch {parent} at event {at}")
            found.append(Branch(number, parent, at, reason, last.get(number, at)))
        if last and max(last) >= len(found):
            raise self.damaged(f"branch {len(found)}, whose events are there")
        return found

    def _whole(self, written: Mapping[int, tuple[int, bytes]]) -> None:
        """A file that was closed must end where it was closed."""
        ends = self.meta("ends")
        if ends is None:  # closed by a program that did not write it down
            return
        found = {branch: [seq, digest.hex()] for branch, (seq, digest) in written.items()}
        for branch, (seq, digest) in self._record(ends, _ends, "meta ends").items():
            if found.pop(branch, None) != [seq, digest]:
                last = written[branch][0] if branch in written else 0
                raise self.damaged(f"branch {branch} ends at event {last}, it was closed at {seq}")
        if found:
            raise self.damaged(f"branch {min(found)}, which was not there when the file was closed")

    def check_chain(self) -> None:
        """Read every event without decoding it. Raises SessionError at the first whose chained digest is wrong."""
        for branch in self.branches():
            previous, expected = self.chain_before(branch.id, branch.at + 1), branch.at
            for low in range(branch.at + 1, branch.last + 1, CHECKED):
                sql = "SELECT seq, payload, chain FROM event WHERE branch = ? AND seq BETWEEN ? AND ? ORDER BY seq"
                for seq, payload, digest in self.rows("itb", sql, branch.id, low, min(branch.last, low + CHECKED - 1)):
                    expected += 1
                    if seq != expected or not payload.isascii() or chain(previous, payload) != digest:
                        raise self.damaged(f"event {expected} of branch {branch.id}")
                    previous = digest
            if expected != branch.last:
                raise self.damaged(f"event {expected + 1} of branch {branch.id} is missing")

    def check_events(self) -> None:
        """Read every event of every branch. Raises SessionError at the first damaged one."""
        for branch in self.branches():
            for low in range(branch.at + 1, branch.last + 1, CHECKED):
                self.events(low, min(branch.last, low + CHECKED - 1), branch.id)

    def events(self, lo: int, hi: int, branch: int = 0) -> list[Event]:
        """Events ``lo``..``hi`` (both included) written on ``branch`` itself, checked against the chained digest."""
        sql = "SELECT seq, payload, chain FROM event WHERE branch = ? AND seq BETWEEN ? AND ? ORDER BY seq"
        rows, found = self.rows("itb", sql, branch, lo, hi), list[Event]()
        previous = self.chain_before(branch, rows[0][0]) if rows else CHAIN_START
        for expected, (seq, payload, digest) in enumerate(rows, rows[0][0] if rows else lo):
            if seq != expected or not payload.isascii() or chain(previous, payload) != digest:
                raise self.damaged(f"event {expected} of branch {branch}")
            event: Event = self._record(payload, event_from_dict, f"event {seq}")
            if event.seq != seq:
                raise self.damaged(f"event {seq} of branch {branch}")
            found.append(event)
            previous = digest
        return found

    def chain_before(self, branch: int, seq: int) -> bytes:
        """Chained digest up to the event before ``seq`` on ``branch``."""
        while branch >= 0:
            for (digest,) in self.rows("b", "SELECT chain FROM event WHERE branch = ? AND seq = ?", branch, seq - 1):
                return digest  # type: ignore[no-any-return]
            left = self.rows("ii", "SELECT parent, at FROM branch WHERE id = ?", branch)
            if not left or left[0][1] < seq - 1 or left[0][0] >= branch:
                break
            branch = left[0][0]
        return CHAIN_START

    def chain_at(self, branch: int, seq: int) -> bytes:
        """Digest of all history up to and including event ``seq``; equal chains mean equal histories."""
        return self.chain_before(branch, seq + 1)

    def actions(self) -> list[ActionRow]:
        """Actions in order of branch and first event."""
        found = []
        sql = "SELECT branch, first, last, status, asked, taken, answers, sum FROM action ORDER BY branch, first"
        for branch, first, last, status, asked, taken, answers, total in self.rows("iiittttb", sql):
            what = f"action at event {first}"
            self._summed(total, what, branch, first, last, status, asked, taken, answers)
            if status not in (DONE, OPEN, CANCELLED):
                raise self.damaged(what)
            asked, taken = (self._record(text, action_from_dict, what) for text in (asked, taken))
            given = self._record(answers, _answers, what)
            found.append(ActionRow(branch, first, last, status, asked, taken, given))
        return found

    def keyframes(self) -> list[KeyframeRow]:
        """Keyframes without their images."""
        rows = self.rows("iiti", "SELECT branch, seq, kind, bytes FROM keyframe ORDER BY branch, seq")
        return [KeyframeRow(*row) for row in rows]

    def image(self, branch: int, seq: int) -> dict[str, TensorData]:
        """The engine image of a keyframe. Raises KeyError when there is none."""
        sql = "SELECT name, dtype, shape, hashes, sum FROM part WHERE branch = ? AND seq = ? ORDER BY name"
        packed = {}
        for name, dtype, shape, hashes, total in self.rows("tttbb", sql, branch, seq):
            self._summed(total, f"keyframe {seq}", branch, seq, name, dtype, shape, hashes)
            packed[name] = images.Piece(dtype, self._shape(shape), hashes)
        if not packed:
            raise KeyError((branch, seq))
        try:
            return images.unpack(packed, self.blob)
        except SessionError:
            raise
        except ValueError as error:
            raise self.damaged(f"keyframe {seq}: {error}") from None

    def stored_tensor(self, branch: int, hi: int, place: str, layer: int, part: str) -> TensorRow | None:
        """The latest stored version of a tensor at or before event ``hi`` of ``branch`` itself."""
        sql = (
            "SELECT seq, dtype, shape, hash FROM tensor WHERE branch = ? AND place = ? AND layer = ? AND part = ? "
            "AND seq <= ? ORDER BY seq DESC LIMIT 1"
        )
        for seq, dtype, shape, digest in self.rows("ittb", sql, branch, place, layer, part, hi):
            return TensorRow(seq, dtype, self._shape(shape), digest)
        return None

    def tensor_data(self, row: TensorRow) -> TensorData:
        """The bytes of a stored tensor."""
        raw = self.blob(row.hash)
        try:
            size = images.byte_count(row.dtype, row.shape)
        except ValueError as error:
            raise self.damaged(str(error)) from None
        if size != len(raw):
            raise self.damaged(f"tensor at event {row.seq}: {len(raw)} bytes for {row.dtype} {row.shape}")
        return TensorData(row.dtype, row.shape, raw)

    def blob(self, digest: bytes) -> bytes:
        """Content by its hash (xxh3-128), which is checked."""
        for codec, length, data in self.rows("tib", "SELECT codec, length, bytes FROM blob WHERE hash = ?", digest):
            raw: bytes = data
            if codec == "zlib":
                try:  # one byte more than announced at most: a bomb is not unpacked
                    raw = zlib.decompressobj().decompress(data, max(0, length) + 1)
                except zlib.error:
                    raise self.damaged(f"blob {digest.hex()}") from None
            if len(raw) != length or xxhash.xxh3_128_digest(raw) != digest:
                raise self.damaged(f"blob {digest.hex()}")
            return raw
        raise self.damaged(f"blob {digest.hex()} is missing")

    def notes(self) -> list[Note]:
        """Bookmarks and remarks in the order they were made."""
        found = []
        sql = "SELECT branch, seq, kind, name, text, author, sum FROM note ORDER BY id"
        for *fields, total in self.rows("iittttb", sql):
            self._summed(total, f"note at event {fields[1]}", *fields)
            found.append(Note(*fields))
        return found

    def findings(self) -> list[tuple[int, Finding]]:
        """(branch, finding) in order of branch and event."""
        found = []
        sql = "SELECT branch, seq, ordinal, payload, sum FROM finding ORDER BY branch, seq, ordinal"
        for branch, seq, ordinal, payload, total in self.rows("iiitb", sql):
            self._summed(total, f"finding at event {seq}", branch, seq, ordinal, payload)
            found.append((branch, self._record(payload, _finding, f"finding at event {seq}")))
        return found

    def commands(self) -> list[tuple[int, int, str]]:
        """(branch, event, text) of everything typed, in order."""
        found = []
        for *fields, total in self.rows("iitb", "SELECT branch, seq, text, sum FROM command ORDER BY id"):
            self._summed(total, f"command {fields[2]!r:.40}", *fields)
            found.append((fields[0], fields[1], fields[2]))
        return found

    def views(self, branch: int) -> list[int]:
        """Events of ``branch`` whose ledger view is stored, ascending."""
        return [seq for (seq,) in self.rows("i", "SELECT DISTINCT seq FROM view WHERE branch = ? ORDER BY seq", branch)]

    def view_sections(self, branch: int, seq: int) -> dict[str, bytes]:
        """The sections of a stored ledger view (see ``sessions.view_codec``)."""
        rows = self.rows("tb", "SELECT section, hash FROM view WHERE branch = ? AND seq = ?", branch, seq)
        return {section: self.blob(digest) for section, digest in rows}

    def _shape(self, text: str) -> tuple[int, ...]:
        sizes = text.split("x") if text else []
        if len(sizes) > 16 or not all(size.isdecimal() and len(size) < 12 for size in sizes):
            raise self.damaged(f"shape {text!r:.40}")
        return tuple(map(int, sizes))

    def _summed(self, total: bytes, what: str, *fields: object) -> None:
        if total != check_sum(*fields):
            raise self.damaged(what)

    def _record(self, text: str, convert: Any, what: str) -> Any:
        try:
            return convert(json.loads(text))
        except (CodecError, TypeError, ValueError, RecursionError) as error:
            raise self.damaged(f"{what}: {error}") from None


def _answers(plain: Any) -> tuple[Answer, ...]:
    found = []
    for seq, what, value in plain:
        tokens = value if isinstance(value, list) else [value]
        if type(seq) is not int or type(what) is not str or any(type(token) is not int for token in tokens):
            raise ValueError("answers of another form")
        found.append((seq, what, tuple(value) if isinstance(value, list) else value))
    return tuple(found)


def _ends(plain: Any) -> dict[int, tuple[int, str]]:
    if type(plain) is not dict:
        raise ValueError("ends of another form")
    ends = {}
    for branch, end in plain.items():
        if not (branch.isascii() and branch.isdecimal()) or type(end) is not list or [*map(type, end)] != [int, str]:
            raise ValueError("ends of another form")
        ends[int(branch)] = (end[0], end[1])
    return ends


def _finding(plain: dict[str, Any]) -> Finding:
    finding = Finding(**plain)
    if not all(isinstance(getattr(finding, name), kind) for name, kind in FINDING_FIELDS.items()):
        raise ValueError("a field of another type")
    return finding


FINDING_FIELDS = {
    "name": str, "seq": int, "req": int, "where": str, "expected": str, "found": str, "text": str
}  # fmt: skip


def shape_text(shape: Sequence[int]) -> str:
    """``(2, 3)`` as ``2x3``."""
    return "x".join(map(str, shape))
