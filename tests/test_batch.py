"""Scripts without a person: the same bytes every time, exit statuses, errors that name file and line."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_helpers import NEW, Cli, fake_session
from fake_engine import FakeEngine

from engine.config import EngineConfig
from inspector.cli_batch import play
from inspector.commands.debugger import Debugger
from sessions.timeline import Timeline

TOUR = f"""
# Force a partial accept, go back 40 tokens, branch with another count, roll back, compare, assert.
set findings off
{NEW}
run 12
sync
mark main
break accept if accepted < k   # partial accepts
goto start
continue
info cursors
delete
goto end
rev step 30
until decision if event.what == "accept"
accept 1
run 4
assert accepted >= 1 and outputs > 0
rollback boundary
info ring
diff live 'main
info branches
print text, ring.positions
assert request(1).outputs == outputs
"""


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


def live() -> Debugger:
    return Debugger(Timeline.live(FakeEngine(), factory=FakeEngine))


def test_the_tour_runs_and_gives_the_same_bytes_twice(capsys: pytest.CaptureFixture[str]) -> None:
    outputs = []
    for _ in range(2):
        assert play(live(), [("tour", TOUR)], echo=True) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]
    assert "> accept 1\nBRANCH 1" in outputs[0]
    assert "rolled" in outputs[0] or "rollback r1" in outputs[0]


def test_a_failed_assertion_ends_with_1_and_names_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    script = f"{NEW}\n\nassert outputs == 3\necho not reached\n"
    assert play(live(), [("s.mtls", script)]) == 1
    out, err = capsys.readouterr()
    assert "outputs = 0" in out and "not reached" not in out
    assert err == "s.mtls:3: assert outputs == 3: failed\n"


def test_keep_going_passes_over_failed_assertions_only(capsys: pytest.CaptureFixture[str]) -> None:
    script = f"{NEW}\nassert outputs == 3\necho reached\nnonsense\necho no\n"
    assert play(live(), [("s", script)], keep_going=True) == 2
    out, err = capsys.readouterr()
    assert "reached" in out and "no\n" not in out.split("reached")[1]
    assert "s:2:" in err and "s:4: nonsense" in err


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("stpe 5", 'Did you mean "step"'),
        ("step five", "whole number"),
        ("break if 1 +", "not an expression"),
        ("print cursr", 'Did you mean "cursor"'),
        ("until outputs < 0", "never so within 200 events"),
        ("continue", "limit"),
        ("verify 99", "are possible here"),
        ("goto 'nowhere", "no bookmark"),
    ],
)
def test_a_command_that_cannot_be_done_ends_with_2(line: str, part: str, capsys: pytest.CaptureFixture[str]) -> None:
    debugger = live()
    debugger.settings.limit = 200
    long = NEW.replace("max=60", "max=500")
    script = f"set findings off\n{long}\nnext\n{line}\necho not reached\n"
    assert play(debugger, [("s.mtls", script)]) == 2
    out, err = capsys.readouterr()
    assert f"s.mtls:4: {line}" in err
    assert part in out + err
    assert "not reached" not in out


def test_an_invariant_that_breaks_ends_with_1_unless_the_script_expects_it(capsys: pytest.CaptureFixture[str]) -> None:
    script = f"{NEW}\nrun 2\nfault conv_omitted\ncontinue\n"
    assert play(live(), [("s", script)]) == 1
    assert "1 finding" in capsys.readouterr().err
    assert play(live(), [("s", script + "assert finding != none\n")]) == 0
    assert play(live(), [("s", "set findings off\n" + script)]) == 0


def test_quit_ends_all_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    assert play(live(), [("a", "echo one\nquit\necho two"), ("b", "echo three")]) == 0
    assert capsys.readouterr().out == "one\n"


def test_batch_on_a_recording(cli: Cli, tmp_path: Path) -> None:
    file = fake_session(tmp_path / "s.mtl")
    script = tmp_path / "look.mtls"
    script.write_text("where\nrev next 2\ninfo slots\nassert round == 3\n")
    first = cli("batch", file, "-x", script, "-e", "print cursor", "-e", "info engine")
    assert first[0] == 0 and "recording s.mtl" in first[1] and "cursor = " in first[1]
    assert cli("batch", file, "-x", script, "-e", "print cursor", "-e", "info engine") == first
    assert str(tmp_path) not in first[1]


def test_batch_says_what_a_recording_cannot_do(cli: Cli, tmp_path: Path) -> None:
    file = fake_session(tmp_path / "s.mtl")
    status, _, err = cli("batch", file, "-e", "verify 2")
    assert status == 2 and "-e:1: verify 2" in err and "--model" in err
    status, _, err = cli("batch", file, "-e", "examine live")
    assert status == 2 and err


def test_batch_usage(cli: Cli, tmp_path: Path) -> None:
    assert cli("batch", tmp_path)[0] == 2
    status, _, err = cli("batch", "-x", tmp_path / "none")
    assert status == 3 and "cannot be read" in err
    status, _, err = cli("batch", tmp_path / "none.mtl", "-e", "where")
    assert status == 3 and "no such file" in err


def test_an_exported_session_can_be_opened_again(cli: Cli, tmp_path: Path) -> None:
    file, copy = fake_session(tmp_path / "s.mtl"), tmp_path / "t.mtl"
    status, out, _ = cli("batch", file, "-e", f'export json "{tmp_path / "e.jsonl"}"', "-e", f'record "{copy}"')
    assert status == 0 and "events" in out
    assert cli("diff", file, copy)[0] == 0
    assert cli("diff", file, tmp_path / "e.jsonl")[0] == 0
    status, _, err = cli("batch", file, "-e", f'export json "{copy}"')
    assert status == 2 and "already" in err


def test_a_script_that_cannot_be_read_is_unreadable_input(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "junk").write_bytes(b"\xff\xfe\x00")
    for script in (tmp_path / "none", tmp_path, tmp_path / "junk"):
        status, _, err = cli("batch", "-x", script)
        assert status == 3 and str(script) in err and err.count("\n") == 1


def test_an_invariant_that_is_none_is_a_usage_error(cli: Cli, tmp_path: Path) -> None:
    status, _, err = cli("check", fake_session(tmp_path / "s.mtl"), "--off", "nope")
    assert status == 2 and "no invariant 'nope'" in err


# ---------------------------------------------------------------------------------------------- what newcomers type


def test_the_tour_of_the_readme_does_what_it_says(cli: Cli, tmp_path: Path) -> None:
    readme = (Path(__file__).resolve().parent.parent / "README.md").read_text(encoding="utf-8")
    tour = readme.split("$ cat tour.txt\n")[1].split("    $ metrale-inspect")[0]
    (tmp_path / "tour.txt").write_text(tour)
    file = tmp_path / "tour.mtl"
    status, out, err = cli("batch", "-x", tmp_path / "tour.txt", "--record", file, "--echo")
    assert status == 0 and err == "" and "BRANCH 1" in out
    restored, older = out.split("> diff live ring ")[1:]
    assert "h: 6 layers, all bitwise equal" in restored and "conv: 6 layers, all bitwise equal" in restored
    assert "h: 6 layers, 6 differ" in older and "3 tokens ahead" in older
    assert out.rstrip().endswith("> assert skew == 0")
    assert cli("replay", file)[1].endswith("the same\n") and cli("check", file)[0] == 0


def test_the_count_of_a_verify_is_forced_as_its_help_says(cli: Cli, tmp_path: Path) -> None:
    from inspector.commands.groups.actions import FORCED

    script = tmp_path / "forced.txt"
    wanted = 'assert accepted == 2 and event.kind == "round_end"\nassert round == 4\n'
    script.write_text('new "What is 38 + 57?" --chat max=80\nnext 3\n' + FORCED + "\n" + wanted)
    status, out, err = cli("batch", "-x", script)
    assert (status, err) == (0, ""), (out, err)
    assert "waiting for accept: accept 1..4 rows, or go on with" in out
    # without the stop they are two rounds
    script.write_text(script.read_text().replace("  tbreak", "# tbreak"))
    status, out, err = cli("batch", "-x", script)
    assert status == 1 and "round = 5" in out


def test_the_demo_shows_boundaries_and_mixed_acceptance_early() -> None:
    from inspector.cli_screen import DEMO_REQUEST
    from inspector.opening import open_live

    debugger = open_live(None, EngineConfig())
    assert debugger.execute(DEMO_REQUEST).ok and debugger.execute("run 12").ok
    events = debugger.timeline.events(1, debugger.timeline.last)
    boundary = next(event for event in events if event.kind == "boundary")
    accepted = {event.accepted for event in events if event.kind == "accept"}  # type: ignore[attr-defined]
    assert 2 <= boundary.round <= 4 and {1, 2, 4} <= accepted
    assert debugger.execute("run 90").ok
    request = debugger.view.requests[1]
    text = "".join(debugger.view.texts[token] for token in request.tokens[-200:])
    assert request.outputs > 200 and len({text[at : at + 40] for at in range(0, 400, 40)}) == 10
    debugger.close()
