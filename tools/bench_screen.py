"""How fast the screen is: python tools/bench_screen.py [MODEL] [--steps N] [--json FILE].

Figures are milliseconds, median and 99th percentile, on the open model (the bundled one by default):

    step        one step of the engine, all panes in sight at 200x60: taking the frame, laying it out, painting it
                (processor time of the screen's thread; all others are wall time)
    key         a cursor key while the engine runs freely: from the key event to the painted frame
    pause       space while the engine runs freely: until the paused frame is painted
    running     events per second of a freely running engine, with the screen against without it
    scroll      scrubbing and scrolling in a short and in a long session
    recording   scrubbing through the facts of a recording of 100 and of 100,000 events
    start       first paint and the way back to the prompt, of a fresh process in a pseudo terminal

Painting goes through Textual's compositor into the bytes a terminal would get.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import pty
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from inspector.tui.app import InspectorApp
from inspector.tui.messages import FrameReady
from inspector.tui.opener import opener_for
from inspector.tui.ports import Options

WIDE = (200, 60)
PROMPT = "Once upon a time"


def spread(values: Iterable[float]) -> dict[str, float]:
    """Median and 99th percentile in milliseconds."""
    ordered = sorted(1000 * value for value in values)
    last = ordered[min(len(ordered) - 1, round(0.99 * (len(ordered) - 1)))]
    return {"median_ms": round(statistics.median(ordered), 2), "p99_ms": round(last, 2), "count": len(ordered)}


def paint(app: InspectorApp) -> int:
    """What Textual does at the end of a frame, up to the bytes for the terminal. Returns their number."""
    screen = app.screen
    compositor = screen._compositor
    dirty = set(screen._dirty_widgets)
    for widget in screen.walk_children(with_self=True):
        if widget._repaint_required:
            widget._repaint_required = False
            dirty.add(widget)
    compositor.update_widgets(dirty)
    screen._dirty_widgets.clear()
    update = compositor.render_update(screen_stack=app._background_screens, simplify=True)
    return len(update.render_segments(app.console)) if update is not None else 0


class Bench:
    """One app over one model, driven from inside."""

    def __init__(self, app: InspectorApp, pilot: Any) -> None:
        self.app, self.pilot = app, pilot

    async def rest(self) -> None:
        """Until the worker is idle and the screen has drawn."""
        loop = asyncio.get_running_loop()
        for _ in range(2):
            done = asyncio.Event()
            self.app.worker.at_rest(lambda done=done: loop.call_soon_threadsafe(done.set))
            await done.wait()
            await self.pilot.pause()

    async def line(self, text: str) -> None:
        self.app.run_line(text, key=True)
        await self.rest()

    async def steps(self, count: int) -> dict[str, Any]:
        """Screen time of a token step and of a round."""
        out = {}
        for name, line in (("token step", "step"), ("round", "next"), ("event", "event")):
            times, sizes = [], []
            for _ in range(count):
                frames: list[Any] = []
                send = self.app.worker._send

                def keep(message: Any, frames: list[Any] = frames, send: Callable[[Any], None] = send) -> None:
                    # the frame is measured here, so the app must not draw it first
                    if isinstance(message, FrameReady):
                        frames.append(message.frame)
                    else:
                        send(message)

                self.app.worker._send = keep  # type: ignore[method-assign]
                self.app.worker.submit(line, quiet=True)
                await self.rest()
                self.app.worker._send = send  # type: ignore[method-assign]
                paint(self.app)
                began = time.thread_time()
                self.app.frame = frames[-1]
                self.app.main.show(frames[-1])
                sizes.append(paint(self.app))
                times.append(time.thread_time() - began)
            out[name] = {**spread(times), "bytes": round(statistics.median(sizes))}
        return out

    async def keys(self, count: int) -> dict[str, Any]:
        """A cursor key while the engine runs."""
        self.app.main.open_pane("events")
        await self.rest()
        self.app.worker.submit("continue", quiet=True)
        times = []
        for number in range(count):
            began = time.perf_counter()
            self.app.main.act("@up" if number % 2 else "@down")
            paint(self.app)
            times.append(time.perf_counter() - began)
            await asyncio.sleep(0.01)
        pauses = []
        began = time.perf_counter()
        self.app.interrupt()
        await self.rest()
        pauses.append(time.perf_counter() - began)
        return {"key": spread(times), "pause": spread(pauses)}

    async def run_freely(self, events: int) -> float:
        """Events per second with the screen."""
        first = self.app.worker.opened_debugger.timeline.now
        began = time.perf_counter()
        self.app.worker.submit(f"until @{first + events}", quiet=True)
        await self.rest()
        return (self.app.worker.opened_debugger.timeline.now - first) / (time.perf_counter() - began)

    async def scroll(self, count: int) -> dict[str, float]:
        """Scrubbing through what is recorded, a keyframe's distance at a time."""
        last = self.app.frame.last
        times = []
        for number in range(count):
            began = time.perf_counter()
            self.app.run_line(f"goto @{max(1, (number * 7919) % last)}", key=True)
            await self.rest()
            times.append(time.perf_counter() - began)
        return {**spread(times), "events": last}


def without_screen(model: str | None, options: Options, events: int) -> float:
    """Events per second of the same engine, headless."""
    debugger = opener_for(model, options)(lambda what, share: None, lambda: False)
    debugger.execute(f'new "{PROMPT}" --max 100000 --ignore-eos')
    debugger.execute("next")
    first = debugger.timeline.now
    began = time.perf_counter()
    debugger.execute(f"until @{first + events}")
    rate = (debugger.timeline.now - first) / (time.perf_counter() - began)
    debugger.close()
    return rate


async def inside(model: str | None, options: Options, count: int, events: int) -> dict[str, Any]:
    """All figures that need no fresh process."""
    app = InspectorApp(opener_for(model, options), "bench", options)
    async with app.run_test(size=WIDE) as pilot:
        bench = Bench(app, pilot)
        while not app.is_open:
            await pilot.pause()
        await bench.rest()
        await bench.line(f'new "{PROMPT}" --max 100000 --ignore-eos')
        await bench.line("next")
        out: dict[str, Any] = {"step": await bench.steps(count)}
        out["scroll short"] = await bench.scroll(count // 2)
        await bench.line("goto end")
        out["running"] = {"with screen": round(await bench.run_freely(events))}
        out["scroll long"] = await bench.scroll(count // 2)
        await bench.line("goto end")
        out |= await bench.keys(count)
        app.worker.close()
    return out


async def recording(events: int, count: int) -> dict[str, Any]:
    """Scrubbing through the facts of a recording of about ``events`` events, at 200x60."""
    from bench_sessions import speculative_run

    from sessions.exporters import jsonl
    from sessions.history import History

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "long.jsonl"
        jsonl.write(History.of(islice(speculative_run(events), events), None), path)
        app = InspectorApp(opener_for(str(path), Options()), "bench", Options())
        async with app.run_test(size=WIDE) as pilot:
            bench = Bench(app, pilot)
            while not app.is_open:
                await pilot.pause()
            await bench.rest()
            await bench.line("goto end")
            figures = await bench.scroll(count)
            app.worker.close()
    return figures


def fresh_process(model: str | None, count: int) -> dict[str, Any]:
    """First paint, and from q to the prompt, in a pseudo terminal."""
    code = "import sys; from inspector.tui.app import run_app; sys.exit(run_app(sys.argv[1] if sys.argv[1:] else None))"
    paints, leaves = [], []
    for _ in range(count):
        leader, follower = pty.openpty()
        env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
        arguments = [sys.executable, "-c", code, *([model] if model else [])]
        began = time.perf_counter()
        root = Path(__file__).parent.parent
        child = subprocess.Popen(arguments, stdin=follower, stdout=follower, stderr=follower, env=env, cwd=root)
        os.close(follower)
        seen = b""
        while b"metrale-inspect" not in seen and child.poll() is None:
            seen += _read(leader, 1.0)
        paints.append(time.perf_counter() - began)
        while b"tokens" not in seen and child.poll() is None:
            seen += _read(leader, 1.0)
        began = time.perf_counter()
        os.write(leader, b"q")
        while child.poll() is None:
            _read(leader, 0.01)
        leaves.append(time.perf_counter() - began)
        os.close(leader)
    return {"first paint": spread(paints), "leave": spread(leaves)}


def _read(handle: int, wait: float) -> bytes:
    ready, _, _ = select.select([handle], [], [], wait)
    if not ready:
        return b""
    try:
        return os.read(handle, 65536)
    except OSError:
        return b""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--events", type=int, default=3000)
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json")
    given = parser.parse_args()
    options = Options(engine={"device": given.device, "threads": given.threads, "kv_tokens": 16384})
    figures = asyncio.run(inside(given.model, options, given.steps, given.events))
    for events in (100, 100_000):
        figures[f"recording of {events}"] = asyncio.run(recording(events, given.steps))
    alone = without_screen(given.model, options, given.events)
    figures["running"] |= {"without": round(alone), "cost": round(1 - figures["running"]["with screen"] / alone, 3)}
    figures["start"] = fresh_process(given.model, given.starts)
    text = json.dumps(figures, indent=2)
    print(text)
    if given.json:
        Path(given.json).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
