"""Palettes as data: every colour by what it means."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_THEME = "ink"


@dataclass(frozen=True, slots=True)
class Palette:
    """Colours of one theme, as #rrggbb."""

    name: str
    dark: bool
    ground: str
    panel: str
    raised: str
    rule: str
    text: str
    dim: str
    faint: str
    accent: str
    live: str
    history: str
    branch: str
    accepted: str
    bonus: str
    rejected: str
    draft: str
    boundary: str
    dirty: str
    bad: str
    changed: str
    h: str
    conv: str
    kv: str
    owners: tuple[str, ...]
    cold: str
    zero: str
    warm: str
    ramp: tuple[str, ...]
    nan: str


INK = Palette(
    name="ink",
    dark=True,
    ground="#0c0f16",
    panel="#11151e",
    raised="#1b2130",
    rule="#2c3446",
    text="#d7dce8",
    dim="#8791a8",
    faint="#535d74",
    accent="#7fb0ff",
    live="#5ad6a8",
    history="#f0bd5a",
    branch="#c99bff",
    accepted="#86d99a",
    bonus="#74c7f5",
    rejected="#ff8089",
    draft="#b9a3ff",
    boundary="#ffd37a",
    dirty="#ffa05c",
    bad="#ff5f70",
    changed="#ffe39a",
    h="#74c7f5",
    conv="#f0a3d6",
    kv="#97dd8e",
    owners=("#7fb0ff", "#86d99a", "#f0a3d6", "#ffd37a", "#66dcd0", "#ff9f7d"),
    cold="#4aa3ff",
    zero="#141926",
    warm="#ff8a5c",
    ramp=("#141926", "#2a2f5c", "#5b3f8c", "#a84a86", "#ec6f66", "#ffc46b", "#fff6c9"),
    nan="#ff00ff",
)

PAPER = Palette(
    name="paper",
    dark=False,
    ground="#f4f1ea",
    panel="#fbf9f4",
    raised="#e9e4d8",
    rule="#cfc8b8",
    text="#23262e",
    dim="#636a78",
    faint="#a19f98",
    accent="#1d5fc4",
    live="#0c7f5a",
    history="#9a6200",
    branch="#7a3cc2",
    accepted="#1d7d3c",
    bonus="#0b6fa8",
    rejected="#c12a3d",
    draft="#6a48c7",
    boundary="#8f6400",
    dirty="#b85300",
    bad="#c8102e",
    changed="#8a6a00",
    h="#0b6fa8",
    conv="#a83283",
    kv="#2d7d2a",
    owners=("#1d5fc4", "#1d7d3c", "#a83283", "#8f6400", "#0c7f80", "#b85300"),
    cold="#1c63c9",
    zero="#f3efe6",
    warm="#c9481c",
    ramp=("#f3efe6", "#f6d9a8", "#f0a26f", "#d9626a", "#9c3f86", "#5a2f86", "#1f1b4d"),
    nan="#ff00ff",
)

CONTRAST = Palette(
    name="contrast",
    dark=True,
    ground="#000000",
    panel="#000000",
    raised="#2a2a2a",
    rule="#8a8a8a",
    text="#ffffff",
    dim="#d0d0d0",
    faint="#9a9a9a",
    accent="#ffff00",
    live="#00ff9c",
    history="#ffd000",
    branch="#ff9cff",
    accepted="#00ff5f",
    bonus="#5fd7ff",
    rejected="#ff6b6b",
    draft="#d7afff",
    boundary="#ffff5f",
    dirty="#ffaf00",
    bad="#ff4040",
    changed="#ffff00",
    h="#5fd7ff",
    conv="#ff9cff",
    kv="#5fff5f",
    owners=("#5fafff", "#5fff5f", "#ff9cff", "#ffff5f", "#00ffff", "#ffaf5f"),
    cold="#3f9fff",
    zero="#000000",
    warm="#ff7f2f",
    ramp=("#000000", "#3a2a8a", "#8a2aaa", "#d0409a", "#ff7050", "#ffd040", "#ffffff"),
    nan="#ff00ff",
)

PALETTES: dict[str, Palette] = {palette.name: palette for palette in (INK, PAPER, CONTRAST)}
