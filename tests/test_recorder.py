"""Recording: the file keeps step with the run, at every level, and trouble stops nobody."""

from __future__ import annotations

from pathlib import Path

import pytest
import session_helpers as make
from fake_engine import FakeEngine

from engine.events import Event, FreeRequest, RunRound, TensorRef
from sessions.errors import NotAvailable, SessionError
from sessions.history import History
from sessions.ledger import fold
from sessions.meta import CONFIG
from sessions.recorder import written_places
from sessions.replay import replay
from sessions.store import Store
from sessions.timeline import Timeline
from sessions.view_codec import LAYOUT, ViewError, from_sections, to_sections
from sessions.views import LAYOUT_KEY


def stored(path: Path, branch: int = 0) -> list[Event]:
    with Store(path) as store:
        return store.events(1, 10**9, branch)


def test_every_round_is_acknowledged_when_its_action_ends(tmp_path: Path) -> None:
    path = tmp_path / "a.mtl"
    timeline = make.live(path)
    timeline.perform(make.new())
    assert stored(path) == timeline.events(1, timeline.last)
    for _ in range(4):
        timeline.step("round")
        assert stored(path)[-1].seq == timeline.last
    timeline.close()


def test_a_half_done_action_is_written_on_flush_and_completed_later(tmp_path: Path) -> None:
    path = tmp_path / "a.mtl"
    timeline = make.live(path)
    timeline.perform(make.new())
    timeline.perform(RunRound())
    timeline.perform(RunRound(), pause_at=lambda event: event.kind == "verify")
    assert len(stored(path)) < timeline.last
    timeline.flush()
    assert stored(path)[-1].kind == "verify"
    timeline.resume()
    with Store(path) as store:
        assert [row.status for row in store.actions()] == ["done"] * 3
        assert store.events(1, 10**9) == timeline.events(1, timeline.last)
    timeline.close()


def test_a_session_closed_inside_a_round_continues_there_on_a_branch(tmp_path: Path) -> None:
    path = tmp_path / "a.mtl"
    timeline = make.live(path)
    timeline.perform(make.new())
    timeline.perform(RunRound())
    timeline.perform(RunRound(), pause_at=lambda event: event.kind == "decision" and event.what == "accept")  # type: ignore[attr-defined]
    last = timeline.last
    timeline.close()
    again = Timeline.open(path, FakeEngine)
    assert again.last == last and again.waiting is not None
    assert again.answer("accept", 1).reason == "decision"
    assert again.mode == "BRANCH" and again.paused
    again.resume()
    accept = next(event for event in again.events(last, again.last) if event.kind == "accept")
    assert accept.accepted == 1  # type: ignore[attr-defined]
    again.close()


@pytest.mark.parametrize("level", ["events", "digests", "full"])
def test_levels(tmp_path: Path, level: str) -> None:
    path = make.recording(tmp_path / "a.mtl", level)
    events = stored(path)
    with_digests = [event for event in events if event.seq > 1 and getattr(event, "digests", ())]
    assert bool(with_digests) == (level != "events")
    with Store(path) as store:
        assert bool(store.rows("i", "SELECT count(*) FROM tensor")[0][0]) == (level == "full")
        states = [row[0] for row in store.rows("t", "SELECT state FROM event WHERE kind = 'verify_row'")]
        assert all(len(state) == (0 if level == "events" else 16) for state in states) and states


def test_level_full_holds_every_tensor_of_every_instant(tmp_path: Path) -> None:
    """Without an engine, each place ever written shows the bytes the engine held there then - through compactions."""
    path = tmp_path / "a.mtl"
    engine = FakeEngine(slots=3)
    timeline = Timeline.live(engine, Store(path, "x", level="full"))
    seen: dict[int, dict[TensorRef, bytes]] = {}
    timeline.perform(make.new("the ring holds four entries and a cursor", max_tokens=6))
    timeline.perform(make.new("the ring holds four entries and a block", max_tokens=14))
    while timeline.step("event").reason == "step":
        seen[timeline.now] = make.everything(engine)
    timeline.close()
    recording = Timeline.open(path, write=False)
    assert any(event.kind == "compact" for event in recording.events(1, recording.last))
    compared = 0
    for seq, tensors in seen.items():
        states = recording.view_at(seq).states
        for ref, raw in tensors.items():
            fact = states.get(ref.place)
            written = fact is not None and (fact.h_position if ref.part == "h" else fact.conv_position) is not None
            if written and fact is not None and fact.owner >= 0:
                assert recording.tensor(ref, seq).raw == raw, (seq, ref)
                compared += 1
    assert compared > 2000


def test_save_as_full_lets_the_engine_do_it_again(tmp_path: Path) -> None:
    timeline = make.two_requests(make.live())
    timeline.seek(40)
    timeline.perform(RunRound(accept=1))
    timeline.save_as(tmp_path / "a.mtl", "full")
    recording = Timeline.open(tmp_path / "a.mtl", write=False)
    for branch, seq in ((0, 30), (0, timeline.history.record.last(0)), (1, timeline.last)):
        ref = TensorRef(make.LIVE0, 1, "conv")
        assert recording.tensor(ref, seq, branch) == timeline.tensor(ref, seq, branch)
    facts_only = Timeline.open(tmp_path / "a.mtl", write=False)
    with pytest.raises(NotAvailable, match="model"):
        facts_only.save_as(tmp_path / "b.mtl", "full")
    assert not (tmp_path / "b.mtl").exists() and not list(tmp_path.glob("*.part"))


def test_save_as_writes_what_a_recording_would_have_held(tmp_path: Path) -> None:
    timeline = make.two_requests(make.live())
    timeline.mark("here", 30, "why")
    timeline.command("step")
    timeline.save_as(tmp_path / "a.mtl")
    path = make.recording(tmp_path / "b.mtl")
    with Store(tmp_path / "a.mtl") as saved, Store(path) as recorded:
        last = recorded.branches()[0].last
        assert saved.chain_at(0, last) == recorded.chain_at(0, last)
        assert saved.actions() == recorded.actions()
        assert [note.name for note in saved.notes()] == ["here"] and saved.commands() == [(0, last, "step")]
        assert saved.meta("closed") == "1"


# ----------------------------------------------------------------------------------------------------------- trouble


def test_disk_full_is_said_and_the_debugger_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "a.mtl"
    engine = FakeEngine()
    timeline = Timeline.live(engine, Store(path, "x", limit_bytes=250_000))
    timeline.perform(make.new(max_tokens=200))
    assert timeline.run(findings=False).reason == "idle"
    assert timeline.trouble is not None and "no space left" in timeline.trouble and "a.mtl" in timeline.trouble
    assert len(timeline.view.requests[1].tokens) == 208
    timeline.mark("a")
    timeline.close()
    written = stored(path)
    assert 50 < len(written) < timeline.last
    assert written == timeline.events(1, len(written))
    with Store(path) as store:
        assert store.remarks and store.actions()[-1].last == len(written)


def test_after_space_was_made_recording_catches_up(tmp_path: Path) -> None:
    path = tmp_path / "a.mtl"
    store = Store(path, "x", limit_bytes=250_000)
    timeline = Timeline.live(FakeEngine(), store)
    timeline.perform(make.new(max_tokens=200))
    timeline.run(findings=False)
    assert timeline.trouble is not None
    store.connection.execute("PRAGMA max_page_count=1000000")
    assert timeline.retry_recording() is None
    timeline.close()
    assert stored(path) == timeline.events(1, timeline.last)


# ------------------------------------------------------------------------------------------------------------- views


def test_stored_views_equal_the_fold(tmp_path: Path) -> None:
    path = tmp_path / "a.mtl"
    timeline = make.live(path)
    timeline.perform(make.new(max_tokens=150))
    timeline.run(findings=False)
    timeline.close()
    with Store(path) as store:
        assert store.meta(LAYOUT_KEY) == LAYOUT
        assert store.views(0) == [255, 511, 767, *range(1023, timeline.last + 1, 256)]
        view = from_sections(store.view_sections(0, 511))
        assert fold(store.events(512, 900), view) == fold(store.events(1, 900))
    history = History(Store(path))
    for seq in (1, 255, 256, 511, 512, 513, 1023, 1025, timeline.last):
        assert history.view(0, seq) == timeline.view_at(seq)


def test_views_of_another_layout_are_folded_instead(tmp_path: Path) -> None:
    path = tmp_path / "a.mtl"
    timeline = make.live(path)
    timeline.perform(make.new(max_tokens=150))
    timeline.run(findings=False)
    timeline.close()
    with Store(path, "a") as store:
        store.set_meta(LAYOUT_KEY, "older")
        store.connection.execute("DELETE FROM view")
    assert Timeline.open(path, write=False).view_at(700) == timeline.view_at(700)


def test_what_is_no_view_is_refused() -> None:
    whole = to_sections(make.two_requests(make.live()).view)
    for name, data in (("seq", b'"1"'), ("states", b"[[1,2]]"), ("requests", b"["), ("pools", b'{"a":1}')):
        name = name if name != "requests" else next(key for key in whole if key.startswith("request."))
        with pytest.raises(ViewError):
            from_sections({**whole, name: data})


# ------------------------------------------------------------------------------------------------------------ others


def test_opening_to_look_changes_nothing_in_the_file(tmp_path: Path) -> None:
    path = make.recording(tmp_path / "a.mtl")
    before = path.read_bytes()
    timeline = Timeline.open(path, FakeEngine)
    timeline.view_at(3)
    timeline.tensor(TensorRef(make.LIVE0, 0, "h"), 20)
    timeline.close()
    reading = Timeline.open(path, write=False)
    reading.seek(5)
    reading.mark("not stored")
    reading.close()
    assert path.read_bytes() == before and [file.name for file in tmp_path.iterdir()] == ["a.mtl"]


def test_meta_reaches_whoever_opens_the_file(tmp_path: Path) -> None:
    store = Store(tmp_path / "a.mtl", "x", meta={CONFIG: '{"slots":2}'})
    Timeline.live(FakeEngine(), store).close()
    assert Timeline.open(tmp_path / "a.mtl").meta[CONFIG] == '{"slots":2}'


def test_written_places_names_what_an_event_wrote() -> None:
    timeline = make.two_requests(make.live(slots=3))
    for event in timeline.events(1, timeline.last):
        before, after = timeline.view_at(event.seq - 1), timeline.view_at(event.seq)
        changed = {
            (place, part)
            for place, fact in after.states.items()
            for part, writer in (("h", fact.h_writer), ("conv", fact.conv_writer))
            if writer == event.seq and event.kind not in ("compact", "claim")
        }
        told = {(place, part) for place, parts in written_places(event) for part in parts.split("+") if part}
        assert changed == told, event
        assert before.seq == event.seq - 1


def test_an_imported_trace_can_be_saved_as_a_session(tmp_path: Path) -> None:
    trace = Timeline.open(Path(__file__).parent / "data" / "ngram.trace")
    trace.note("kept")
    trace.save_as(tmp_path / "a.mtl")
    saved = Timeline.open(tmp_path / "a.mtl", write=False)
    assert saved.events(1, saved.last) == trace.events(1, trace.last)
    assert saved.findings() == trace.findings() != [] and saved.notes == trace.notes


def test_a_branch_out_of_a_half_done_round_has_its_parent_in_the_file(tmp_path: Path) -> None:
    """The round of the parent is still open, so nothing of it was acknowledged when the branch left it."""
    path = tmp_path / "a.mtl"
    timeline = make.live(path)
    timeline.perform(make.new())
    timeline.perform(RunRound())
    timeline.perform(RunRound(), pause_at=lambda event: event.kind == "verify")
    timeline.step("event", 2, back=True)
    timeline.perform(RunRound())
    events = timeline.events(1, timeline.last)
    timeline.close()
    recording = Timeline.open(path, write=False)
    recording.checkout(1)
    assert recording.events(1, recording.last) == events
    assert replay(path, FakeEngine()).difference is None


def test_level_full_shows_what_a_half_done_round_has_just_written(tmp_path: Path) -> None:
    engine = FakeEngine()
    timeline = Timeline.live(engine, Store(tmp_path / "a.mtl", "x", level="full"))
    timeline.perform(make.new())
    timeline.step("round")
    kinds = set()
    for _ in range(12):
        timeline.step("event")
        for ref in (TensorRef(make.LIVE0, 0, "h"), TensorRef(make.LIVE0, 0, "conv")):
            assert timeline.tensor(ref).raw == engine.read(ref).raw
        kinds.add(timeline.event(timeline.now).kind)
    assert kinds & {"decode", "verify_row"}
    timeline.close()


def test_what_a_half_done_round_wrote_is_not_stored_with_another_branch(tmp_path: Path) -> None:
    path = tmp_path / "a.mtl"
    timeline = make.live(path, "full")
    timeline.perform(make.new())
    timeline.perform(RunRound())
    before = timeline.now
    timeline.perform(RunRound(), pause_at=lambda event: event.kind == "verify")
    timeline.seek(before)
    timeline.perform(FreeRequest(req=1))
    timeline.perform(make.new("another"))
    timeline.perform(RunRound())
    written = {
        (event.seq, str(place))
        for event in timeline.events(before + 1, timeline.last)
        for place, parts in written_places(event)
        if parts
    }
    timeline.close()
    with Store(path) as store:
        rows = set(store.rows("it", "SELECT DISTINCT seq, place FROM tensor WHERE branch = 1"))
    assert rows == written


def test_a_disk_that_fills_while_the_log_is_moved_leaves_a_file_that_opens(tmp_path: Path) -> None:
    """SQLite has written the first page, which tells the new size, and got no room for the others: the log has them."""
    path, cut = tmp_path / "a.mtl", tmp_path / "cut.mtl"
    timeline = make.live(path)
    timeline.perform(make.new(max_tokens=200))
    timeline.run(findings=False)
    events = timeline.events(1, timeline.last)
    before = path.read_bytes()
    log = Path(f"{path}-wal").read_bytes()
    timeline.close()
    after = path.read_bytes()
    assert len(before) < len(after) and log
    cut.write_bytes(after[:100] + before[100:])
    with pytest.raises(SessionError, match="cut off"):
        Store(cut)
    Path(f"{cut}-wal").write_bytes(log)
    assert stored(cut) == events


def test_pack_names_the_file_it_could_not_write(tmp_path: Path) -> None:
    path = make.recording(tmp_path / "a.mtl")
    with Store(path) as store, pytest.raises(SessionError, match=r"no/such/b\.mtl: found no way to write it"):
        store.pack(tmp_path / "no" / "such" / "b.mtl")
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.mtl"]
