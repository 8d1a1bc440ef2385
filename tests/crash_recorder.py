"""Kills recorders: ``python crash_recorder.py FOLDER COUNT SEED``.

Each child records a session of the fake engine and acknowledges every event number it was told is in the file. The
parent reads a random number of acknowledgements, kills it with SIGKILL wherever it is then, and prints one line for
each: file, last acknowledged event.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import session_helpers as make


def record(path: Path, seed: int, acknowledged: int) -> None:
    timeline = make.live(path, level=random.Random(seed).choice(("events", "digests", "full")), slots=3)
    recorder = timeline._recorder
    assert recorder is not None
    timeline.perform(make.new(max_tokens=2000, seed=seed))
    while True:
        timeline.step("round")
        if seed % 3 == 0 and timeline.last % 5 == 0:
            timeline.mark("here")
        assert recorder.trouble is None
        os.write(acknowledged, f"{recorder.written(0)}\n".encode())


def main(folder: Path, count: int, seed: int) -> None:
    chance = random.Random(seed)
    for number in range(count):
        path, (reading, writing) = folder / f"{number}.mtl", os.pipe()
        child = os.fork()
        if child == 0:
            record(path, number, writing)
            os._exit(1)
        os.close(writing)
        last, wanted = 0, chance.randrange(1, 16)
        with os.fdopen(reading) as lines:
            for _ in range(wanted):
                last = int(lines.readline())
            os.kill(child, signal.SIGKILL)
            for line in lines:  # what it could still say before it died was acknowledged too
                last = int(line) if line.endswith("\n") else last
        os.waitpid(child, 0)
        print(path.name, last, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
