"""Pictures of the screen at three sizes. A changed picture is looked at before it is accepted
(``pytest tests/test_tui_snapshots.py --snapshot-update``)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import tui_samples as samples
from tui_shown import Shown

from inspector.tui.frame import Frame

SIZES = [(80, 24), (120, 40), (200, 60)]
STATES: dict[str, Callable[[], Frame]] = {
    "live": samples.live_frame,
    "dirty": samples.dirty_frame,
    "finding_in_history": samples.broken_frame,
    "branch": samples.branch_frame,
    "empty": samples.empty_frame,
    "hostile": samples.hostile_frame,
}
Compare = Callable[..., bool]


async def fill(pilot: Any) -> None:
    await pilot.pause()
    pilot.app.fill()
    await pilot.pause()


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("state", STATES)
def test_picture(snap_compare: Compare, state: str, size: tuple[int, int]) -> None:
    app = Shown(STATES[state](), wrong=state == "finding_in_history")
    assert snap_compare(app, terminal_size=size, run_before=fill)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_picture_without_colour(snap_compare: Compare, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert snap_compare(Shown(samples.broken_frame(), wrong=True), terminal_size=size, run_before=fill)


@pytest.mark.parametrize("theme", ["paper", "contrast"])
def test_picture_of_a_theme(snap_compare: Compare, theme: str) -> None:
    assert snap_compare(Shown(samples.live_frame(), theme=theme), terminal_size=(120, 40), run_before=fill)


@pytest.mark.parametrize(
    ("name", "keys"), [("accept", ["a"]), ("rollback", ["R"]), ("verify", ["v"]), ("help", ["question_mark"])]
)
def test_picture_of_a_dialog(snap_compare: Compare, name: str, keys: list[str]) -> None:
    frame = samples.dirty_frame() if name == "accept" else samples.live_frame()

    async def press(pilot: Any) -> None:
        await fill(pilot)
        await pilot.press(*keys)

    assert snap_compare(Shown(frame), terminal_size=(120, 40), run_before=press)


def test_no_colour_code_is_written_without_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def colours() -> set[object]:
        app = Shown(samples.broken_frame(), wrong=True)
        async with app.run_test(size=(120, 40)) as pilot:
            await fill(pilot)
            strips = app.screen._compositor.render_strips()
            styles = [segment.style for strip in strips for segment in strip if segment.style is not None]
            return {
                colour.name for style in styles for colour in (style.color, style.bgcolor) if colour is not None
            }  # fmt: skip

    assert asyncio.run(colours()) <= {"default"}
