"""A screen that shows one hand-made frame, without a worker."""

from __future__ import annotations

import tui_samples as samples

from inspector.tui.app import InspectorApp
from inspector.tui.frame import Frame
from inspector.tui.panes.examine import ExaminePane
from inspector.tui.panes.tensors import TensorsPane
from inspector.tui.ports import Options
from inspector.tui.screens.main import MainScreen


class Shown(InspectorApp):
    """Shows ``frame``; the worker is never started."""

    def __init__(self, frame: Frame, wrong: bool = False, **options: object) -> None:
        super().__init__(_never, "demo", Options(**options))  # type: ignore[arg-type]
        self.frame = frame
        self.wrong = wrong

    def begin(self) -> None:
        self.push_screen(MainScreen(self.frame))

    def fill(self) -> None:
        """Give the tensor panes something to show."""
        if self.frame.request is not None:
            self.main.query_one(TensorsPane).take(samples.tensor_table(wrong=self.wrong))
            self.main.query_one(ExaminePane).take(samples.small_slab())


def _never(progress: object, cancelled: object) -> object:
    raise AssertionError("nothing is opened here")
