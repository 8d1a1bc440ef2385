"""Events as JSON lines: what is written is read again, and what is not an event is refused in words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from event_helpers import healthy
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import events as ev
from engine.events import Event
from sessions.importers import FormatError, jsonl, load, name_of
from sessions.invariants import check_all

DOCS = Path(__file__).parent.parent / "docs" / "event-format.md"


def write(path: Path, *lines: str, end: str = "\n") -> Path:
    path.write_text("\n".join(lines) + end, encoding="utf-8")
    return path


def test_a_run_survives_the_file(tmp_path: Path) -> None:
    events = healthy().events
    path = write(tmp_path / "run.jsonl", jsonl.HEADER, *(jsonl.line(event) for event in events))
    assert load(path) == events
    assert name_of(path) == "jsonl"


def test_the_header_is_optional_and_blank_lines_are_skipped(tmp_path: Path) -> None:
    path = write(tmp_path / "run.jsonl", "", '{"kind":"start","slots":2}', "  ", '{"kind":"claim","req":1,"slot":0}')
    assert load(path) == [ev.Start(seq=1, slots=2), ev.Claim(seq=2, req=1, slot=0)]


def test_a_start_is_made_up_and_events_are_numbered_anew(tmp_path: Path) -> None:
    path = write(tmp_path / "run.jsonl", '{"kind":"claim","req":1,"slot":0,"seq":50}', '{"kind":"sync","seq":7}')
    assert load(path) == [ev.Start(seq=1, source="jsonl"), ev.Claim(seq=2, req=1, slot=0), ev.Sync(seq=3)]


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"kind":"start"}\r\n{"kind":"sync"}\r\n')
    assert [event.kind for event in load(path)] == ["start", "sync"]


def test_two_runs_in_one_file_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "run.jsonl", '{"kind":"start"}', '{"kind":"sync"}', '{"kind":"start"}', '{"kind":"sync"}')
    with pytest.raises(FormatError, match=r"line 3.*a second start event"):
        load(path)


GOOD = '{"kind":"claim","req":1,"slot":0}'


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"kind":"nonsense"}', "unknown kind 'nonsense'"),
        ('{"kind":"claim","slott":0}', "claim: unknown field 'slott'"),
        ('{"kind":"claim","slot":"0"}', "claim.slot: expected int, found str '0'"),
        ('{"kind":"claim","slot":true}', "claim.slot: expected int, found bool"),
        ('{"kind":"copy","src":"live:x","dst":"live:0"}', "copy.src: expected a place such as live:0"),
        ('{"kind":"prefill","tokens":[1,"a"]}', "prefill.tokens"),
        ("[1,2]", "expected an object"),
        ("{", "a JSON object"),
        ('{"kind":"start"} trailing', "a JSON object"),
        ("[" * 100_000, "a JSON object"),
        ('{"format":"metrale-events","version":2}', "format 'metrale-events' version 1"),
        ('{"format":"else"}', "format 'metrale-events' version 1"),
    ],
)
def test_a_line_that_is_no_event_names_line_and_field(line: str, said: str, tmp_path: Path) -> None:
    path = write(tmp_path / "run.jsonl", GOOD, GOOD, line, GOOD)
    with pytest.raises(FormatError) as caught:
        load(path)
    assert caught.value.line == 3
    assert said in str(caught.value) and "run.jsonl, line 3" in str(caught.value)


def test_a_cut_off_last_line_is_reported(tmp_path: Path) -> None:
    path = write(tmp_path / "run.jsonl", GOOD, GOOD, '{"kind":"cla', end="")
    events = load(path)
    assert [event.kind for event in events] == ["start", "claim", "claim", "trouble"]
    assert isinstance(events[-1], ev.Trouble) and events[-1].place == "line 3"


def test_a_file_of_one_broken_line_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="line 1"):
        load(write(tmp_path / "run.jsonl", '{"kind":"cla', end=""))


def test_empty_and_foreign_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"")
    with pytest.raises(FormatError, match="expected"):
        load(path)
    with pytest.raises(FormatError, match="an empty file"):
        jsonl.load(path)
    path.write_bytes(b'{"kind":"start"}\n{"kind":"\xff"}\n')
    with pytest.raises(FormatError, match="line 2: found byte 0xff"):
        load(path)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "missing.jsonl")


def documented(heading: str) -> list[str]:
    """Indented JSON lines below a heading of the page."""
    text = DOCS.read_text(encoding="utf-8").split(heading)[1].split("\n## ")[0]
    return [line.strip() for line in text.splitlines() if line.startswith("    {")]


def test_the_documented_example_gives_the_documented_findings(tmp_path: Path) -> None:
    path = write(tmp_path / "run.jsonl", *documented("## The smallest useful file"))
    events = load(path)
    found = check_all(events)
    assert [finding.name for finding in found] == ["step-index", "positions-agree"]
    assert events[found[0].seq - 1].kind == "commit" and events[found[1].seq - 1].kind == "round_end"
    right = [line.replace("step:0.2", "step:0.1") for line in documented("## The smallest useful file")]
    assert check_all(load(write(tmp_path / "right.jsonl", *right))) == []


def test_the_documented_kinds_and_fields_exist() -> None:
    table = DOCS.read_text(encoding="utf-8").split("| kind | fields | meaning |")[1].split("\n\n")[0]
    for row in table.splitlines()[2:]:
        kinds = [name.strip(" `") for name in row.split("|")[1].split(",")]
        fields = {field for kind in kinds for field in ev.EVENTS[kind].__dataclass_fields__}
        told = row.split("|")[2].replace(" or ", ",")
        assert {name.strip() for name in told.split(",")} <= fields, row


@given(st.binary(max_size=200))
@settings(max_examples=150, deadline=None)
def test_arbitrary_bytes_are_events_or_a_format_error(data: bytes) -> None:
    lines = data.decode("utf-8", "replace").split("\n")
    try:
        events: list[Event] = list(jsonl.read(lines))
    except FormatError as error:
        assert error.line >= 1
    else:
        assert [event.seq for event in events] == list(range(1, len(events) + 1))


def test_lines_are_canonical() -> None:
    line = jsonl.line(ev.Accept(seq=4, req=1, slot=0, accepted=2, k=4, emitted=(5, 6)))
    assert line == json.dumps(json.loads(line), sort_keys=True, separators=(",", ":"))
    assert json.loads(line)["emitted"] == [5, 6]
