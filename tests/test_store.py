"""The session file: what is written comes back, and nothing that was damaged, cut or forged is believed."""

from __future__ import annotations

import math
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path

import pytest
import session_helpers as make
from fake_engine import FakeEngine

from engine.events import EVENTS, Decode, Draft, Event, Place, Start, StateCopy, TensorData, TensorRef, Texts
from sessions import schema
from sessions.canonical import canonical, chain, same
from sessions.errors import SessionError
from sessions.finding import Finding
from sessions.rows import DONE, ActionRow, Branch, Note
from sessions.store import Store


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make.recording(tmp_path_factory.mktemp("master") / "master.mtl")


@pytest.fixture
def recorded(master: Path, tmp_path: Path) -> Path:
    """A closed recording of two requests, to be spoiled."""
    return Path(shutil.copy(master, tmp_path / "bug.mtl"))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "a.mtl", "x") as made:
        made.add_branch(Branch(0))
        yield made


def events_of_every_kind() -> list[Event]:
    """One event of each kind with no field at its default."""
    samples: dict[str, object] = {
        "int": 7, "str": "a\u2028\x1b[31m[/b]", "bool": True, "float": 0.1, "Place": Place("ring", 3, 2),
        "tuple[int, ...]": (3, 1, 2), "tuple[str, ...]": ("x", "\ud800 lone"), "tuple[bool, ...]": (True, False),
        "Digests": (("0a", "0b"), ("1a", "1b")),
    }  # fmt: skip
    found = []
    for seq, cls in enumerate(EVENTS.values(), 1):
        values = {field.name: samples[str(field.type)] for field in fields(cls) if field.name != "seq"}
        found.append(cls(seq=seq, **values))
    return found


# ------------------------------------------------------------------------------------------------------- round trip


def test_every_kind_of_event_comes_back_unchanged(store: Store) -> None:
    events = events_of_every_kind()
    store.append_round(0, events)
    assert store.events(1, len(events)) == events


def test_nan_and_huge_numbers_come_back(store: Store) -> None:
    events = [Decode(seq=1, margin=math.nan, req=10**30), Decode(seq=2, margin=-math.inf, token=-(10**20))]
    store.append_round(0, events)
    back = store.events(1, 2)
    assert all(same(a, b) for a, b in zip(events, back, strict=True))
    assert math.isnan(back[0].margin)  # type: ignore[attr-defined]


def test_level_events_keeps_facts_and_drops_state_digests(tmp_path: Path) -> None:
    event = Decode(seq=2, digests=(("aa", "bb"),), pick=4)
    with Store(tmp_path / "a.mtl", "x", level="events") as store:
        store.add_branch(Branch(0))
        store.append_round(0, [Start(seq=1, digests=True), event])
        assert store.events(1, 2) == [Start(seq=1, digests=True), replace(event, digests=())]


def test_canonical_form_has_one_spelling() -> None:
    assert (
        canonical(Draft(seq=3, tokens=(2, 1), source="mtp")) == '{"kind":"draft","seq":3,"source":"mtp","tokens":[2,1]}'
    )
    assert canonical(StateCopy(dst=Place("step", 1, 2))).count('"dst":"step:1.2"') == 1


def test_actions_notes_findings_and_commands_come_back(store: Store) -> None:
    row = ActionRow(0, 1, 4, DONE, make.new(), make.new(seed=3), ((2, "drafts", (1, 2)), (3, "accept", 2)))
    note = Note(0, 2, "mark", "a", "text", "me")
    finding = Finding("sync", 3, 1, "live:0", "1", "2", "why \u2713")
    store.append_round(0, [Decode(seq=n) for n in range(1, 5)], row, findings=[finding])
    store.add_note(note)
    store.add_note(replace(note, kind="note", name=""))
    store.add_command(0, 4, "verify 3")
    store.add_finding(0, replace(finding, name="second"))
    assert store.actions() == [row]
    assert store.notes() == [note, replace(note, kind="note", name="")]
    assert store.findings() == [(0, finding), (0, replace(finding, name="second"))]
    assert store.commands() == [(0, 4, "verify 3")]


def test_a_bookmark_replaces_the_older_one_of_its_name(store: Store) -> None:
    store.add_note(Note(0, 2, "mark", "a"))
    store.add_note(Note(0, 9, "mark", "a"))
    assert [note.seq for note in store.notes()] == [9]


def test_an_action_written_half_done_is_replaced_when_it_ends(store: Store) -> None:
    row = ActionRow(0, 1, 1, "open", make.new(), make.new())
    store.append_round(0, [Decode(seq=1)], row)
    store.append_round(0, [Decode(seq=2)], replace(row, last=2, status=DONE))
    assert [(found.last, found.status) for found in store.actions()] == [(2, DONE)]


# ------------------------------------------------------------------------------------------------------------ chain


def test_the_chain_covers_all_history_and_branches_continue_their_parents(store: Store) -> None:
    store.append_round(0, [Decode(seq=n, pick=n) for n in (1, 2, 3)])
    store.add_branch(Branch(1, 0, 2, "why"))
    store.append_round(1, [Decode(seq=3, pick=3)])
    expected = bytes(16)
    for n in (1, 2, 3):
        expected = chain(expected, canonical(Decode(seq=n, pick=n)))
    assert store.chain_at(0, 3) == store.chain_at(1, 3) == expected
    assert store.chain_at(0, 2) != expected


def test_reading_in_the_middle_checks_against_the_chain_before_it(store: Store) -> None:
    events = [Decode(seq=n, pick=n) for n in range(1, 20)]
    for event in events:
        store.append_round(0, [event])
    assert store.events(7, 9) == events[6:9]


# ---------------------------------------------------------------------------------------------------------- content


def image(fill: int, size: int = 300_000) -> dict[str, TensorData]:
    return {"a": TensorData("uint8", (size,), bytes([fill]) * size), "b": TensorData("bfloat16", (3,), b"123456")}


def test_images_come_back_and_equal_chunks_are_stored_once(store: Store) -> None:
    store.add_keyframe(0, 1, "start", image(1))
    once = store.rows("i", "SELECT sum(length) FROM blob")[0][0]
    store.add_keyframe(0, 9, "end", image(1))
    assert store.image(0, 9) == image(1)
    assert store.rows("i", "SELECT sum(length) FROM blob")[0][0] == once < 300_000
    with pytest.raises(KeyError):
        store.image(0, 2)


def test_replacing_a_keyframe_lets_its_chunks_go(store: Store) -> None:
    store.add_keyframe(0, 1, "mark", image(1))
    store.add_keyframe(0, 1, "mark", image(2))
    assert store.image(0, 1) == image(2)
    assert store.rows("i", "SELECT count(*) FROM blob")[0][0] == 3  # full chunk, last chunk, b


def test_a_chunk_stays_while_another_keyframe_holds_it(store: Store) -> None:
    store.add_keyframe(0, 1, "mark", image(1))
    store.add_keyframe(0, 9, "mark", image(1))
    store.add_keyframe(0, 9, "mark", image(2))
    assert store.image(0, 1) == image(1) and store.image(0, 9) == image(2)


def test_keyframes_stay_within_their_budget_and_thin_out_towards_the_past(store: Store) -> None:
    store.keyframe_bytes = 12 * 1000
    for seq in range(1, 65):
        tensor = TensorData("uint8", (1000,), seq.to_bytes(4, "big") * 250)
        store.add_keyframe(0, seq, "start" if seq == 1 else "spaced", {"a": tensor})
    kept = [row.seq for row in store.keyframes()]
    gaps = [b - a for a, b in pairwise(kept)]
    assert len(kept) == 12 and kept[0] == 1 and kept[-1] == 64
    assert gaps[-1] == 1 and max(gaps[:4]) > 2 * max(gaps[-4:])


def test_stored_tensors_follow_a_compaction(store: Store) -> None:
    ref, data = TensorRef(Place("ring", 3, 1), 5, "h"), TensorData("float32", (2,), b"12345678")
    store.append_round(0, [Decode(seq=1)], tensors=[(1, ref, data)])
    store.append_round(0, [Decode(seq=2)], moved=[(2, 3, 0)])
    row = store.stored_tensor(0, 2, "ring:0.1", 5, "h")
    assert row is not None and store.tensor_data(row) == data
    assert store.stored_tensor(0, 1, "ring:0.1", 5, "h") is None
    assert store.stored_tensor(0, 2, "ring:0.1", 5, "conv") is None


# --------------------------------------------------------------------------------------------------- files and locks


def test_a_closed_file_is_one_plain_file(tmp_path: Path) -> None:
    path = make.recording(tmp_path / "a.mtl")
    assert os.listdir(tmp_path) == ["a.mtl"]
    with Store(path) as store:
        assert store.remarks == [] and store.meta("closed") == "1"


def test_create_refuses_an_existing_file_and_replace_refuses_what_is_no_session(recorded: Path, tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="expected a new name"):
        Store(recorded, "x")
    Store(recorded, "w").close()
    other = tmp_path / "notes.txt"
    other.write_text("dear diary")
    with pytest.raises(SessionError, match="dear"):
        Store(other, "w")
    assert other.read_text() == "dear diary"
    with pytest.raises(SessionError, match="folder"):
        Store(tmp_path / "no" / "a.mtl", "x")


def test_pack_makes_one_closed_file_with_the_same_content(recorded: Path, tmp_path: Path) -> None:
    with Store(recorded) as store:
        store.pack(tmp_path / "b.mtl")
        with Store(tmp_path / "b.mtl") as copy:
            last = store.branches()[0].last
            assert copy.chain_at(0, last) == store.chain_at(0, last)
            assert copy.actions() == store.actions() and copy.keyframes() == store.keyframes()
        with pytest.raises(SessionError, match="new name"):
            store.pack(tmp_path / "b.mtl")
    assert sorted(os.listdir(tmp_path)) == ["b.mtl", "bug.mtl"]


def test_an_unclosed_file_opens_with_a_remark_and_every_acknowledged_round(tmp_path: Path) -> None:
    store = Store(tmp_path / "a.mtl", "x")
    store.begin_recording()
    store.add_branch(Branch(0))
    store.append_round(0, [Decode(seq=1), Decode(seq=2)])
    store.abandon()
    with Store(tmp_path / "a.mtl") as again:
        assert again.remarks == ["was not closed properly; every acknowledged round is here"]
        assert len(again.events(1, 9)) == 2


def test_a_reader_sees_acknowledged_rounds_while_another_process_records(tmp_path: Path) -> None:
    with recorder_process(tmp_path / "a.mtl"):
        with Store(tmp_path / "a.mtl") as reader:
            assert len(reader.events(1, 9)) == 2
        with pytest.raises(SessionError, match="locked by another process"):
            Store(tmp_path / "a.mtl", "a")


def test_a_file_held_exclusively_is_reported_as_locked(recorded: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(recorded, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(SessionError, match="locked by another process"):
            Store(recorded, timeout=0.05)


RECORDER = """
import sys
from engine.events import Decode
from sessions.rows import Branch
from sessions.store import Store
store = Store(sys.argv[1], "x")
store.begin_recording()
store.add_branch(Branch(0))
store.append_round(0, [Decode(seq=1), Decode(seq=2)])
print("ready", flush=True)
sys.stdin.read()
store.close()
"""


@contextmanager
def recorder_process(path: Path) -> Iterator[None]:
    with subprocess.Popen(
        [sys.executable, "-c", RECORDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        cwd=Path(__file__).parent.parent,
    ) as process:  # fmt: skip
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == "ready\n"
        yield
        process.stdin.close()
        assert process.wait() == 0


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """The folder without write permission, also for root: as another user then."""
    for parent in [folder, *folder.parents]:
        if parent.stat().st_uid == os.geteuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    folder.chmod(0o555)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
        folder.chmod(0o755)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that another user may enter."""
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_a_recording_in_a_read_only_folder_can_be_read(open_folder: Path) -> None:
    path = make.recording(open_folder / "a.mtl")
    with read_only(open_folder), Store(path) as store:
        assert store.events(1, 5)[0].kind == "start"
        assert os.listdir(open_folder) == ["a.mtl"]


def test_an_unclosed_recording_in_a_read_only_folder_is_read_from_a_copy(open_folder: Path) -> None:
    path = unfinished(open_folder)
    with read_only(path.parent), Store(path) as again:
        assert len(again.events(1, 9)) == 2
        assert any("temporary copy" in remark for remark in again.remarks)


def unfinished(folder: Path) -> Path:
    """A session whose writer was killed: file and log as they lay on the disk."""
    folder = folder / "killed"
    folder.mkdir(mode=0o755)
    store = Store(folder / "live.mtl", "x")
    store.begin_recording()
    store.add_branch(Branch(0))
    store.append_round(0, [Decode(seq=1), Decode(seq=2)])
    for suffix in ("", "-wal"):
        (folder / f"a.mtl{suffix}").write_bytes((folder / f"live.mtl{suffix}").read_bytes())
    store.close()
    return folder / "a.mtl"


def test_where_the_log_does_not_work_a_rollback_journal_is_used_and_said(tmp_path: Path) -> None:
    with Store(tmp_path / "a.mtl", "x", vfs="unix-dotfile") as store:
        store.begin_recording()
        store.add_branch(Branch(0))
        store.append_round(0, [Decode(seq=1)])
        assert any("no write-ahead log here" in remark for remark in store.remarks)
    with Store(tmp_path / "a.mtl") as again:
        assert len(again.events(1, 1)) == 1


def test_disk_full_writes_nothing_of_the_round_and_leaves_the_file_whole(tmp_path: Path) -> None:
    store = Store(tmp_path / "a.mtl", "x", limit_bytes=400_000)
    store.begin_recording()
    store.add_branch(Branch(0))
    seq, text = 0, Texts(texts=("x" * 5000,))
    with pytest.raises(SessionError, match="no space left"):
        while True:
            store.append_round(0, [replace(text, seq=seq + n) for n in (1, 2, 3)])
            seq += 3
    assert seq > 9
    store.abandon()
    with Store(tmp_path / "a.mtl") as again:
        assert [event.seq for event in again.events(1, 10**6)] == list(range(1, seq + 1))


# -------------------------------------------------------------------------------------------------------- bad input


def rewrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def other_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (a)")


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (lambda path: path.write_bytes(b""), "an empty file"),
    "text": (lambda path: path.write_text("hello " * 50), "hello"),
    "header only": (lambda path: path.write_bytes(path.read_bytes()[:100]), "cut off at 100 bytes"),
    "truncated": (lambda path: os.truncate(path, path.stat().st_size - 5000), "cut off"),
    "half": (lambda path: os.truncate(path, path.stat().st_size // 2), "cut off"),
    "other program": (lambda path: (path.unlink(), other_database(path)), "another program"),
    "later version": (lambda path: rewrite(path, 60, (99).to_bytes(4, "big")), "a later format, version 99"),
    "earlier version": (lambda path: rewrite(path, 60, (0).to_bytes(4, "big")), "an earlier format, version 0"),
    "missing": (lambda path: path.unlink(), "No such file"),
    "folder": (lambda path: (path.unlink(), path.mkdir()), "directory"),
    "zeroed schema": (lambda path: rewrite(path, 100, bytes(2000)), "damaged|cannot be used"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_refused_with_a_sentence_that_names_them(recorded: Path, tmp_path: Path, name: str) -> None:
    spoil, text = BAD[name]
    spoil(recorded)
    for mode in ("r", "a"):
        with pytest.raises(SessionError, match=text) as caught:
            Store(recorded, mode)
        assert "bug.mtl: found" in str(caught.value) and "expected" in str(caught.value)


def read_all(path: Path) -> list[object]:
    with Store(path) as store:
        found: list[object] = [store.branches(), store.events(1, 10**9), store.actions(), store.notes()]
        found += [store.findings(), store.commands(), store.all_meta(), store.keyframes()]
        found += [store.image(row.branch, row.seq) for row in store.keyframes()]
        found += [store.view_sections(0, seq) for seq in store.views(0)]
        return found


def test_a_file_overwritten_in_the_middle_is_never_believed(tmp_path: Path) -> None:
    path = make.recording(tmp_path / "a.mtl", level="full")
    whole, expected = path.read_bytes(), read_all(path)
    chance, refused = random.Random(5), 0
    for _ in range(120):
        at = chance.randrange(100, len(whole) - 64)
        spoiled = bytearray(whole)
        spoiled[at : at + 64] = chance.randbytes(64)
        path.write_bytes(bytes(spoiled))
        try:
            assert read_all(path) == expected  # free space, or columns that nothing is read from
        except SessionError:
            refused += 1
    assert refused > 60


def execute(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


FORGED: dict[str, str] = {
    "a trigger": "CREATE TRIGGER t AFTER INSERT ON note BEGIN DELETE FROM event; END",
    "a view": "CREATE VIEW v AS SELECT 1",
    "an index": "CREATE INDEX i ON event (kind)",
    "a column": "ALTER TABLE note ADD COLUMN more TEXT",
    "an event changed": "UPDATE event SET payload = replace(payload, '\"req\":1', '\"req\":2') WHERE kind = 'emit'",
    "an event taken out": "DELETE FROM event WHERE seq = 9",
    "an action changed": "UPDATE action SET taken = asked || ' ' WHERE first = 2",
    "a blob changed": "UPDATE blob SET bytes = zeroblob(length) WHERE codec = 'raw'",
    "a blob gone": "DELETE FROM blob",
    "a bomb": "UPDATE blob SET codec = 'zlib', length = 10",
    "a shape": "UPDATE part SET shape = '99999999999x99999999999'",
    "a meta value": "UPDATE meta SET value = 'full' WHERE key = 'level'",
    "a branch of itself": "UPDATE branch SET parent = 0 WHERE id = 0",
    "a number of another kind": "UPDATE branch SET at = 1 WHERE id = 0",
}


@pytest.mark.parametrize("what", FORGED)
def test_forged_content_is_refused(recorded: Path, tmp_path: Path, what: str) -> None:
    read_all(recorded)
    execute(recorded, FORGED[what])
    with pytest.raises(SessionError):
        read_all(recorded)


def test_a_blob_that_unpacks_to_more_than_it_says_is_not_unpacked(recorded: Path, tmp_path: Path) -> None:
    import zlib

    import xxhash

    data = zlib.compress(bytes(50 << 20))
    with closing(sqlite3.connect(recorded, isolation_level=None)) as connection:
        digest = xxhash.xxh3_128_digest(bytes(10))
        connection.execute("INSERT INTO blob VALUES (?, 'zlib', 10, 1, ?)", (digest, data))
    with Store(recorded) as store, pytest.raises(SessionError, match="damaged"):
        store.blob(digest)


def test_an_engine_continues_from_a_stored_image_exactly(recorded: Path) -> None:
    with Store(recorded) as store:
        engine = FakeEngine()
        engine.load(store.image(0, 1))
        assert store.keyframes()[0].kind == "start" and store.keyframes()[-1].kind == "end"
        for row in store.actions():
            assert list(engine.perform(row.taken)) == store.events(row.first, row.last)
        last = store.keyframes()[-1]
        assert engine.save() == store.image(0, last.seq)
        assert schema.FORMAT == 1
