"""The museum: each room is caught by its named detector with a right verdict, its healthy run by none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from engine_helpers import loaded

from engine.engine import Engine
from engine.errors import UserError
from engine.faults import CLASSES, all_faults, find_fault
from inspector.analysis.kinds import KINDS
from inspector.judging.oracles import Oracles
from inspector.museum.build import build, config_of, path_of, play, problem, show
from inspector.museum.rooms import Room, find_room, read_room, rooms
from inspector.museum.stories import stories
from inspector.opening import open_recorded, recording_meta, sniff
from sessions.invariants import INVARIANTS, ORACLES
from sessions.replay import replay
from sessions.timeline import Timeline

# Commands that notes tell to type, but for bare judge and why.
COMMANDS = re.compile(
    r"info [a-z]+|judge (?:live|prefix|ring)[: ]\d+|decode conv|goto end|last [a-z]+ \d"
    r"|print event\.[a-z]+, event\.[a-z]+"
)
HEALTHY = {(room.healthy, room.settings): room for room in rooms().values()}


def open_room(room: Room) -> Timeline:
    config = config_of(room)

    def factory() -> Engine:
        return Engine(loaded("float32"), config)

    timeline = Timeline.live(factory(), factory=factory)
    timeline.oracle = Oracles()
    return timeline


@pytest.mark.parametrize("name", list(rooms()))
def test_a_room_is_caught_by_its_detector_and_judged_right(name: str) -> None:
    room = rooms()[name]
    visitor = play(open_room(room), room.script)
    shown = show(visitor)
    assert problem(room, shown) == ""
    assert shown.finding is not None
    for command in (f"goto @{shown.finding.seq}", *COMMANDS.findall(room.look)):
        result = visitor.execute(command)
        assert result.status in ("ok", "failed"), (command, result.lines)


def test_panes_in_notes_have_their_number_and_commands_are_looked_for() -> None:
    from inspector.tui.panes.streams import StreamsPane

    panes = {match for room in rooms().values() for match in re.findall(r"pane (\d)", room.look)}
    assert panes == {StreamsPane.NUMBER}
    found = {command.split()[0] for room in rooms().values() for command in COMMANDS.findall(room.look)}
    assert found == {"info", "judge", "decode", "goto", "print", "last"}


@pytest.mark.parametrize("room", HEALTHY.values(), ids=lambda room: room.name)
def test_without_its_fault_a_room_has_no_finding(room: Room) -> None:
    timeline = open_room(room)
    play(timeline, room.healthy)
    assert timeline.findings() == [] and timeline.view.faults == ()
    assert timeline.view.round > 2


def test_every_fault_and_every_class_has_a_room() -> None:
    assert set(rooms()) == {spec.name for spec in all_faults()}
    assert {find_fault(name).group for name in rooms()} == set(CLASSES)


def test_notes_name_what_exists() -> None:
    for room in rooms().values():
        assert set(room.detectors) <= {*INVARIANTS, *ORACLES}
        assert set(room.verdicts) <= {*KINDS, "none"}
        assert sum(line.startswith("fault ") for line in room.script) == 1
        assert f"fault {room.name}" in room.script


def test_a_room_says_so_when_it_shows_something_else() -> None:
    room = rooms()["conv-omitted"]
    quiet = show(play(open_room(room), room.healthy))
    assert "nothing was found" in problem(room, quiet)
    other = rooms()["wrong-step-index"]
    assert "found by" in problem(room, show(play(open_room(other), other.script)))


def test_conv_omitted_says_at_first_glance_how_far_conv_is_ahead() -> None:
    room = rooms()["conv-omitted"]
    timeline = open_room(room)
    shown = show(play(timeline, room.script))
    assert shown.finding is not None and shown.judgement is not None
    assert shown.finding.text.endswith("conv is 2 tokens ahead of h and KV")
    assert (shown.judgement.verdict.kind, shown.judgement.verdict.tokens) == ("stale_conv", 2)


def test_a_session_is_made_once_kept_and_replays(tmp_path: Path) -> None:
    room = rooms()["zero-draft-step"]
    config = config_of(room)

    def factory() -> Engine:
        return Engine(loaded("float32"), config)

    path = build(room, tmp_path, factory, recording_meta(None, config))
    assert list(tmp_path.iterdir()) == [path]
    assert build(room, tmp_path, factory, {}) == path
    assert path == path_of(room, tmp_path, factory().start().fingerprint)
    opened = Timeline.open(path, factory)
    assert opened.findings()[0].name in room.detectors
    assert opened.bookmarks["finding"] == opened.findings()[0].seq
    assert {note.name for note in opened.notes} >= {"story", "look", "judge"}
    opened.close()
    assert replay(path, factory()).same
    _visit(path)


def _visit(path: Path) -> None:
    """A room is opened read-only without a remark; its note is at hand; acting on it leaves the file alone."""
    before = path.read_bytes()
    visitor = open_recorded(sniff(path), "demo")
    assert visitor.timeline.remarks == []
    assert visitor.execute("goto 'finding").ok
    room = rooms()["zero-draft-step"]
    why = "\n".join(visitor.execute("why").lines)
    assert f"note: {room.happened}" in why and f"note: look: {room.look}" in why
    assert room.look in "\n".join(visitor.execute("info notes").lines)
    assert visitor.execute("rev next").ok and visitor.execute("mark mine").ok and visitor.execute("run 1").ok
    assert len(visitor.timeline.branches) == 2
    visitor.close()
    assert path.read_bytes() == before


def test_a_damaged_note_is_refused_with_its_place() -> None:
    with pytest.raises(UserError, match="no line ---"):
        read_room("x", "title: a\n")
    with pytest.raises(UserError, match="line 2: expected one of"):
        read_room("x", "title: a\nbogus: b\n---\nrun 1\n")
    with pytest.raises(UserError, match="detectors is missing"):
        read_room("x", "title: a\n---\nrun 1\n")
    with pytest.raises(UserError, match="no room 'conv-omited'"):
        find_room("conv-omited")


def test_the_stories_are_current() -> None:
    page = Path(__file__).resolve().parent.parent / "docs" / "museum.md"
    assert page.read_text(encoding="utf-8") == stories(), "run python tools/make_docs.py"
