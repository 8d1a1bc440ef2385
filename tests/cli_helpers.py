"""The command line in this process, and recordings to try it on."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from fake_engine import FakeEngine

from inspector.cli import build_app
from inspector.commands.debugger import Debugger
from sessions.timeline import Timeline

NEW = 'new "the ring holds four entries." max=60 --ignore-eos'


class Cli:
    """``status, out, err`` of a call."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *args: object) -> tuple[int, str, str]:
        self._capsys.readouterr()
        status: object = 0
        try:
            build_app()(args=[str(arg) for arg in args], prog_name="metrale-inspect")
        except SystemExit as leaving:
            status = leaving.code
        out, err = self._capsys.readouterr()
        assert isinstance(status, int) or status is None
        assert "Traceback" not in err
        return status or 0, out, err


def fake_session(path: Path, lines: Iterable[str] = (NEW, "run 5"), **options: object) -> Path:
    """A session file of the fake engine after some commands."""
    debugger = Debugger(Timeline.live(FakeEngine(**options), factory=lambda: FakeEngine(**options)))  # type: ignore[arg-type]
    for line in ("set findings off", *lines):
        result = debugger.execute(line)
        assert result.ok, (line, result.lines)
    debugger.timeline.save_as(path)
    debugger.close()
    return path
