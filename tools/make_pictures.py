"""The pictures of the README, drawn by the program itself: python tools/make_pictures.py [--out docs/pictures] [MODEL].

Each is one scene: keys and command lines as a person would type them, at one terminal size, then the screen as SVG.
Deterministic: the same model and the same keys give the same picture.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from inspector.cli_screen import DEMO_REQUEST
from inspector.tui.app import InspectorApp
from inspector.tui.opener import opener_for
from inspector.tui.pictures import steady_svg
from inspector.tui.ports import Options


@dataclass(frozen=True, slots=True)
class Scene:
    """``steps`` are keys; one that begins with a colon is a command line."""

    name: str
    size: tuple[int, int]
    steps: tuple[str, ...]
    theme: str = "ink"


WARM_UP = (f":{DEMO_REQUEST}", *["n"] * 24)
SCENES = (
    Scene("overview", (120, 40), (*WARM_UP, "n", "n")),
    Scene("dirty", (120, 40), (*WARM_UP, "v", "enter", "escape")),
    Scene("accept", (120, 40), (*WARM_UP, "v", "enter")),
    Scene("wide", (200, 60), (*WARM_UP, "n", "D", "enter")),
    Scene("narrow", (80, 24), (*WARM_UP, "8")),
    Scene("history", (120, 40), (*WARM_UP, ":break boundary", ":mark here", "N", "N", "N", "N")),
    Scene("finding", (120, 40), (*WARM_UP, ":fault conv-omitted", "c")),
    Scene("light", (120, 40), (*WARM_UP, "n", "5"), theme="paper"),
    Scene("examine", (120, 40), (*WARM_UP, "n", "5", "j", "j", "x", "z")),
)


async def settle(app: InspectorApp, pilot: Any) -> None:
    """Until the worker is idle and everything is drawn."""
    loop = asyncio.get_running_loop()
    for _ in range(2):
        done = asyncio.Event()
        app.worker.at_rest(lambda done=done: loop.call_soon_threadsafe(done.set))
        await done.wait()
        await pilot.pause()


async def draw(scene: Scene, model: str | None) -> str:
    """The SVG of a scene."""
    options = Options(theme=scene.theme, engine={"device": "cpu", "threads": 1})
    app = InspectorApp(opener_for(model, options), "model", options)
    async with app.run_test(size=scene.size) as pilot:
        while not app.is_open:
            if app.failure:
                raise SystemExit(app.failure)
            await pilot.pause()
        await settle(app, pilot)
        for step in scene.steps:
            if step.startswith(":"):
                app.run_line(step[1:], key=True)
            else:
                await pilot.press(step)
            await settle(app, pilot)
        picture = app.export_screenshot(title="metrale-inspect")
        app.worker.close()
    return picture


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--out", type=Path, default=Path("docs/pictures"))
    parser.add_argument("--only", nargs="*", default=[])
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for scene in SCENES:
        if given.only and scene.name not in given.only:
            continue
        path = given.out / f"{scene.name}.svg"
        path.write_text(steady_svg(asyncio.run(draw(scene, given.model))), encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()
