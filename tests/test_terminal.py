"""The whole program once in a real terminal: a pseudo-terminal, an emulator that draws what comes out of it, and keys
typed into it. Every wait is for a text on the screen; the limit only ends a run that hangs."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pyte
import pytest

COLUMNS, LINES = 120, 40
LIMIT = 60.0


class Terminal:
    """``metrale-inspect`` in a pseudo-terminal of 120x40."""

    def __init__(self, home: Path, *arguments: str) -> None:
        self.screen = pyte.Screen(COLUMNS, LINES)
        self._stream = pyte.ByteStream(self.screen)
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        environment = {
            **os.environ,
            "TERM": "xterm-256color",
            "METRALE_INSPECT_HOME": str(home),
            "TEXTUAL_ANIMATIONS": "none",
        }
        environment.pop("NO_COLOR", None)
        program = [sys.executable, "-c", "from inspector.cli import main; main()", *arguments]
        self.process = subprocess.Popen(
            program, stdin=slave, stdout=slave, stderr=slave, env=environment, cwd=home, start_new_session=True
        )
        os.close(slave)

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.screen.display)

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def wait(self, *words: str, absent: str = "") -> str:
        """Until all of ``words`` are on the screen and ``absent`` is not; the screen then."""
        while not (all(word in self.text for word in words) and not (absent and absent in self.text)):
            ready, _, _ = select.select([self._master], [], [], LIMIT)
            assert ready, f"{words} did not come:\n{self.text}"
            try:
                self._stream.feed(os.read(self._master, 1 << 16))
            except OSError:
                raise AssertionError(f"the program ended before {words} came:\n{self.text}") from None
        return self.text

    def end(self) -> int:
        """The exit status, once the program has left."""
        while True:
            try:
                if not os.read(self._master, 1 << 16):
                    break
            except OSError:
                break
        return self.process.wait(LIMIT)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._master)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    made = Terminal(tmp_path)
    yield made
    made.close()


def test_step_verify_accept_rollback_diff_and_quit(terminal: Terminal, tmp_path: Path) -> None:
    terminal.wait("LIVE", "snapshot ring", "slots and owners", "r1")
    terminal.type("nnnnnn")
    terminal.wait("round 6", "round_end")
    terminal.type("v\r")
    terminal.wait("DIRTY", "How many rows")
    terminal.type("2")
    terminal.wait("verify 2/4", "step 1 queued", "DIRTY")
    terminal.type("R\r")
    terminal.wait("rollback r1", absent="DIRTY")
    terminal.type("NN")
    terminal.wait("HISTORY", absent=" LIVE ")
    terminal.type(":diff live ring 0\r")
    terminal.wait("L00.h", "ring:0.0")
    terminal.type("\x1b")
    terminal.type(":record kept.mtl\r")
    terminal.wait("kept.mtl")
    terminal.type("q")
    assert terminal.end() == 0
    done = subprocess.run(
        [sys.executable, "-c", "from inspector.cli import main; main()", "replay", str(tmp_path / "kept.mtl")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().endswith("the same")
