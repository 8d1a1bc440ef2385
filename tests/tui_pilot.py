"""A screen over the fake engine, driven by keys; waits for the worker's messages, never for the clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fake_engine import FakeEngine
from textual.pilot import Pilot

from inspector.commands.debugger import Debugger
from inspector.tui.app import InspectorApp
from inspector.tui.frame import Frame
from inspector.tui.ports import Options
from inspector.tui.screens.main import MainScreen
from inspector.tui.settings import Memory
from sessions.timeline import Timeline

PROMPT = 'new "a b c d e f" max=40'


def fake_debugger(**engine: object) -> Debugger:
    """A debugger over a fresh fake engine."""

    def factory() -> FakeEngine:
        return FakeEngine(**engine)  # type: ignore[arg-type]

    return Debugger(Timeline.live(factory(), factory=factory), name="fake")


class Driver:
    """The app, its pilot, and what a person would do."""

    def __init__(self, app: InspectorApp, pilot: Pilot[int]) -> None:
        self.app = app
        self.pilot = pilot

    @property
    def frame(self) -> Frame:
        return self.app.frame

    @property
    def screen(self) -> MainScreen:
        return self.app.main

    async def settle(self) -> None:
        """Until the worker has nothing left to do and the screen has drawn what it posted."""
        loop = asyncio.get_running_loop()
        for _ in range(2):
            rested = asyncio.Event()
            self.app.worker.at_rest(lambda rested=rested: loop.call_soon_threadsafe(rested.set))
            await rested.wait()
            await self.pilot.pause()

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.settle()

    async def type(self, text: str) -> None:
        """A command line, entered."""
        await self.pilot.press("colon")
        await self.pilot.press(*(NAMES.get(char, char) for char in text))
        await self.pilot.press("enter")
        await self.settle()


NAMES = {" ": "space"}


@asynccontextmanager
async def screen(
    *lines: str,
    size: tuple[int, int] = (120, 40),
    options: Options | None = None,
    memory: Memory | None = None,
    make: Callable[[], Debugger] | None = None,
    **engine: object,
) -> AsyncIterator[Driver]:
    """An open screen, after ``lines`` were run."""

    def opener(progress: object, cancelled: object) -> Debugger:
        debugger = make() if make is not None else fake_debugger(**engine)
        for line in lines:
            debugger.execute(line)
        return debugger

    app = InspectorApp(opener, "fake", options, memory)
    async with app.run_test(size=size) as pilot:
        driver = Driver(app, pilot)
        while not app.is_open:
            await pilot.pause()
        await driver.settle()
        yield driver
        app.worker.close()
