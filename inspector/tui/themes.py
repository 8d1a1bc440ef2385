"""Colours by meaning. A pane names a role ("accepted", "dirty"); a palette says how it looks.

Attributes (bold, underline, strike) belong to the role and are the same in every palette, so that nothing is said by
colour alone: with ``NO_COLOR`` they are all that is left.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from rich.color import Color
from rich.style import Style
from textual.theme import Theme

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

# role -> (palette field of the text, palette field of the ground or "", attributes)
_ROLES: dict[str, tuple[str, str, str]] = {
    "": ("text", "", ""),
    "text": ("text", "", ""),
    "strong": ("text", "", "bold"),
    "dim": ("dim", "", ""),
    "faint": ("faint", "", ""),
    "rule": ("rule", "", ""),
    "rule-live": ("rule", "", ""),
    "rule-history": ("rule", "", ""),
    "rule-branch": ("rule", "", ""),
    "focus-live": ("accent", "", ""),
    "focus-history": ("history", "", ""),
    "focus-branch": ("branch", "", ""),
    "title": ("text", "", "bold"),
    "number": ("accent", "", "bold"),
    "key": ("accent", "", "bold"),
    "accent": ("accent", "", ""),
    "head": ("faint", "", ""),
    "live": ("live", "", ""),
    "history": ("history", "", ""),
    "branch": ("branch", "", ""),
    "badge-live": ("ground", "live", "bold"),
    "badge-history": ("ground", "history", "bold"),
    "badge-branch": ("ground", "branch", "bold"),
    "badge-bad": ("ground", "bad", "bold"),
    "badge-dirty": ("ground", "dirty", "bold"),
    "badge-good": ("ground", "live", "bold"),
    "prompt": ("dim", "", ""),
    "plain": ("text", "", ""),
    "accepted": ("accepted", "", ""),
    "bonus": ("bonus", "", ""),
    "rejected": ("rejected", "", "strike"),
    "reject": ("rejected", "", ""),
    "draft": ("draft", "", "italic"),
    "inject": ("dirty", "", "bold"),
    "boundary": ("boundary", "", "underline"),
    "think": ("dim", "", "italic"),
    "dirty": ("dirty", "", "bold"),
    "bad": ("bad", "", "bold"),
    "warn": ("history", "", ""),
    "good": ("live", "", ""),
    "changed": ("changed", "", "bold"),
    "h": ("h", "", ""),
    "conv": ("conv", "", ""),
    "kv": ("kv", "", ""),
    "now": ("ground", "accent", "bold"),
    "cursor": ("ground", "accent", "bold"),
    "found": ("ground", "changed", ""),
    "dense": ("text", "", ""),
}

# what stands back when there is no colour
_BACK = frozenset({"dim", "faint", "head", "rule", "rule-live", "prompt"})

# modifiers that may follow a role after a dot: "accepted.row" is an accepted token on the selected row
_MODIFIERS: dict[str, tuple[str, str]] = {
    "row": ("raised", ""),
    "bold": ("", "bold"),
    "rev": ("", "reverse"),
    "line": ("", "underline"),
    "off": ("", "not bold not strike not italic"),
}


class Styles:
    """Role names to Rich styles for one palette; combined roles are worked out once. ``mono``: no colour at all, a
    ground becomes reverse video and what stands back becomes dim."""

    def __init__(self, palette: Palette, mono: bool = False) -> None:
        self.palette = palette
        self.mono = mono
        self._known: dict[str, Style] = {}
        self.base = Style(color=palette.text, bgcolor=palette.panel)

    def __call__(self, role: str) -> Style:
        """The style of ``role``, ``role.modifier`` or ``owner.N``. Unknown roles look like plain text."""
        found = self._known.get(role)
        if found is None:
            found = self._known[role] = self._make(role)
        return found

    def _make(self, role: str) -> Style:
        return self._plain(role) if self.mono else self._coloured(role)

    def _plain(self, role: str) -> Style:
        name, *modifiers = role.split(".")
        _, ground, attributes = _ROLES.get(name, ("", "", "bold" if name == "owner" else ""))
        words = [attributes, "reverse" if ground else "", "dim" if name in _BACK else ""]
        words += ["reverse" if modifier == "row" else _MODIFIERS.get(modifier, ("", ""))[1] for modifier in modifiers]
        return Style.parse(" ".join(word for word in words if word) or "none")

    def _coloured(self, role: str) -> Style:
        name, *modifiers = role.split(".")
        style = self.base
        if name in ("rule-history", "rule-branch"):
            # a pane border is the mode's colour, held back so that the text stays in front
            tint = mix((self.palette.rule, getattr(self.palette, name[5:])), 0.5)
            style += Style(color=Color.from_rgb(*tint))
        elif name == "owner":
            owners = self.palette.owners
            style += Style(color=owners[int(modifiers.pop(0)) % len(owners)], bold=True)
        else:
            ink, ground, attributes = _ROLES.get(name, _ROLES[""])
            style += Style(
                color=getattr(self.palette, ink),
                bgcolor=getattr(self.palette, ground) if ground else None,
            ) + Style.parse(attributes or "none")
        for modifier in modifiers:
            ground, attributes = _MODIFIERS[modifier]
            style += Style(bgcolor=getattr(self.palette, ground) if ground else None)
            style += Style.parse(attributes or "none")
        return style


def owner_role(req: int) -> str:
    """Role of a request: its colour; its name (``r2``) is always written beside it."""
    return f"owner.{req % 6}" if req >= 0 else "faint"


def textual_theme(palette: Palette) -> Theme:
    """The palette as a Textual theme; every colour is a CSS variable of the same name (``$ms-accepted``)."""
    variables = {
        f"ms-{field.name}": value
        for field in fields(palette)
        if isinstance(value := getattr(palette, field.name), str) and value.startswith("#")
    }
    return Theme(
        name=palette.name,
        primary=palette.accent,
        secondary=palette.branch,
        warning=palette.history,
        error=palette.bad,
        success=palette.live,
        accent=palette.accent,
        foreground=palette.text,
        background=palette.ground,
        surface=palette.panel,
        panel=palette.raised,
        dark=palette.dark,
        variables={
            **variables,
            "scrollbar": palette.rule,
            "scrollbar-background": palette.panel,
            "block-cursor-background": palette.accent,
            "block-cursor-foreground": palette.ground,
            "input-cursor-background": palette.accent,
            "input-cursor-foreground": palette.ground,
            "input-selection-background": palette.raised,
            "border": palette.accent,
        },
    )


def mix(colours: tuple[str, ...], share: float) -> tuple[int, int, int]:
    """The colour at ``share`` (0..1) of a ramp of evenly spaced ``colours``."""
    place = min(max(share, 0.0), 1.0) * (len(colours) - 1)
    low = min(int(place), len(colours) - 2)
    part = place - low
    a, b = Color.parse(colours[low]).get_truecolor(), Color.parse(colours[low + 1]).get_truecolor()
    red, green, blue = (round(x + (y - x) * part) for x, y in zip(a, b, strict=True))
    return red, green, blue
