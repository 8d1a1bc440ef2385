"""Colours by meaning. A pane names a role ("accepted", "dirty"); a palette says how it looks.

Attributes (bold, underline, strike) belong to the role and are the same in every palette, so that nothing is said by
colour alone: with ``NO_COLOR`` they are all that is left.
"""

from __future__ import annotations

from dataclasses import fields

from rich.color import Color
from rich.style import Style
from textual.theme import Theme

from inspector.tui.palettes import CONTRAST, DEFAULT_THEME, INK, PALETTES, PAPER, Palette

__all__ = [
    "CONTRAST",
    "DEFAULT_THEME",
    "INK",
    "PALETTES",
    "PAPER",
    "Palette",
    "Styles",
    "mix",
    "owner_role",
    "textual_theme",
]


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
