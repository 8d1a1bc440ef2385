"""Keymaps as data: a key (or a sequence of keys) and what it does.

What it does is a command line of the registry ("rev step") or a word of the screen, written with @ ("@zoom"). ``{}``
stands for the character that the last key of a sequence was; ``*`` in a sequence is any printable character.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

DEFAULT_KEYMAP = "gdb"


@dataclass(frozen=True, slots=True)
class Keymap:
    """``bindings``: keys, separated by spaces, to action. ``counts``: digits before a key multiply it."""

    name: str
    about: str
    bindings: Mapping[str, str]
    counts: bool = False


# word of the screen -> what it does, for help and palette
WORDS: dict[str, str] = {
    "@pause": "pause while running; otherwise step one event",
    "@run-to": "run to the row or token under the cursor, forwards or backwards",
    "@outward": "focus outward: head, layer, request",
    "@inward": "focus inward: request, layer, head",
    "@sibling -1": "previous request, layer or head",
    "@sibling 1": "next request, layer or head",
    "@restart": "go back to the first event (asks)",
    "@verify": "verify: choose how many drafts, or type words or ids",
    "@accept": "decide how many rows are accepted",
    "@rollback": "roll back to a ring entry, a boundary or a length",
    "@new": "new request with a typed prompt",
    "@save": "save live into the ring now",
    "@toggle-stop": "set or clear a stop at what the cursor is on",
    "@stops": "list and edit stops",
    "@watch": "watch what the cursor is on",
    "@watches": "list watches",
    "@print": "print an expression",
    "@examine": "examine the tensor under the cursor",
    "@diff": "choose the base and compare",
    "@last": "who wrote the selected place last",
    "@jump-back": "jump list: back",
    "@jump-forward": "jump list: forward",
    "@scrub event -1": "one recorded event back",
    "@scrub event 1": "one recorded event forward, never past the live edge",
    "@scrub mark -1": "previous keyframe, bookmark or finding",
    "@scrub mark 1": "next keyframe, bookmark or finding",
    "@top": "first row of the pane",
    "@bottom": "last row of the pane",
    "@left": "left",
    "@right": "right",
    "@down": "down",
    "@up": "up",
    "@half-down": "half a page down",
    "@half-up": "half a page up",
    "@page-down": "a page down",
    "@page-up": "a page up",
    "@search": "search this pane",
    "@search-previous": "previous match",
    "@search-next": "next match",
    "@next-pane": "next pane",
    "@previous-pane": "previous pane",
    "@jump": "jump to a pane by its number",
    "@zoom": "maximise this pane, or back",
    "@layout": "next layout",
    "@escape": "back: dialog, search, zoom, cursor",
    "@open": "open the selected thing; nothing selected: repeat the last command",
    "@command": "command line",
    "@copy": "copy the command that reproduces this view",
    "@copy-text": "copy the text of this pane",
    "@export": "export: picture, test, tensors, trace",
    "@help": "help for the focused pane",
    "@palette": "all commands",
    "@slower": "run slower",
    "@faster": "run faster",
    "@quit": "quit",
}

_MOVE = {
    "s": "step",
    "i": "event",
    "n": "next",
    "o": "chunk",
    "f": "finish",
    "c": "continue",
}

_COMMON: dict[str, str] = {
    "space": "@pause",
    "t": "@run-to",
    "u": "@outward",
    "d": "@inward",
    "(": "@sibling -1",
    ")": "@sibling 1",
    "r": "@restart",
    "v": "@verify",
    "a": "@accept",
    "R": "@rollback",
    "A": "@new",
    "b": "@toggle-stop",
    "w": "@watch",
    "W": "@watches",
    "p": "@print",
    "x": "@examine",
    "D": "@diff",
    "L": "@last",
    "m *": "@mark {}",
    "' *": "@goto-mark {}",
    "<": "@jump-back",
    "ctrl+o": "@jump-back",
    ">": "@jump-forward",
    "[": "@scrub event -1",
    "]": "@scrub event 1",
    "{": "@scrub mark -1",
    "}": "@scrub mark 1",
    "G": "@bottom",
    "h": "@left",
    "j": "@down",
    "k": "@up",
    "l": "@right",
    "left": "@left",
    "down": "@down",
    "up": "@up",
    "right": "@right",
    "ctrl+d": "@half-down",
    "ctrl+u": "@half-up",
    "pagedown": "@page-down",
    "pageup": "@page-up",
    "home": "@top",
    "end": "@bottom",
    "/": "@search",
    ",": "@search-previous",
    ".": "@search-next",
    "tab": "@next-pane",
    "shift+tab": "@previous-pane",
    "`": "@jump",
    "z": "@zoom",
    "=": "@layout",
    "escape": "@escape",
    "enter": "@open",
    ":": "@command",
    "y": "@copy",
    "Y": "@copy-text",
    "E": "@export",
    "?": "@help",
    "f1": "@help",
    "ctrl+p": "@palette",
    "-": "@slower",
    "+": "@faster",
    "q": "@quit",
}

_PANES = {number: f"@pane {number}" for number in "1234567890"}
_BACK = {key.upper(): f"rev {command}" for key, command in _MOVE.items()}

GDB = Keymap(
    "gdb",
    "lower case goes forward, shift goes backward (gdb's SingleKey mode)",
    {**_MOVE, **_BACK, **_COMMON, **_PANES, "g": "@top", "B": "@stops"},
)

VIM = Keymap(
    "vim",
    "digits are counts, panes are reached with ctrl+w and a number or hjkl, g g is the top; steps as in gdb",
    {
        **_MOVE,
        **_BACK,
        **_COMMON,
        "g g": "@top",
        "B": "@stops",
        "$": "@bottom",
        "^": "@top",
        "ctrl+f": "@page-down",
        "ctrl+b": "@page-up",
        **{f"ctrl+w {number}": f"@pane {number}" for number in "1234567890"},
        "ctrl+w w": "@next-pane",
        "ctrl+w j": "@next-pane",
        "ctrl+w l": "@next-pane",
        "ctrl+w k": "@previous-pane",
        "ctrl+w h": "@previous-pane",
        "ctrl+w o": "@zoom",
        "Z Z": "@quit",
    },
    counts=True,
)

PUDB = Keymap(
    "pudb",
    "V variables, S slots, B stops, C tokens take the focus; - before a step goes backward",
    {
        **_MOVE,
        **{f"- {key}": f"rev {command}" for key, command in _MOVE.items()},
        **{key: action for key, action in _COMMON.items() if key not in ("-", "+")},
        **_PANES,
        "g": "@top",
        "V": "@pane 5",
        "S": "@pane 3",
        "B": "@pane 7",
        "C": "@pane 1",
        "!": "@command",
        "M": "@stops",
    },
)

KEYMAPS: dict[str, Keymap] = {keymap.name: keymap for keymap in (GDB, VIM, PUDB)}

# the footer: groups of (actions shown together, word)
FOOTER: tuple[tuple[tuple[tuple[str, ...], str], ...], ...] = (
    (
        (("step", "rev step"), "token"),
        (("event", "rev event"), "event"),
        (("next", "rev next"), "round"),
        (("continue", "rev continue"), "run"),
        (("chunk", "rev chunk"), "chunk"),
        (("finish", "rev finish"), "request"),
    ),
    ((("@verify",), "verify"), (("@accept",), "accept"), (("@rollback",), "rollback"), (("@diff",), "diff")),
    ((("@command",), "cmd"), (("@zoom",), "zoom"), (("@help",), "help"), (("@quit",), "quit")),
)
FOOTER_MIDDLE = (FOOTER[0][:4], *FOOTER[1:])
# the same for 80 columns: the words that matter most
FOOTER_SHORT: tuple[tuple[tuple[tuple[str, ...], str], ...], ...] = (
    (
        (("step", "rev step"), "tok"),
        (("event", "rev event"), "ev"),
        (("next", "rev next"), "rnd"),
        (("continue", "rev continue"), "run"),
    ),
    ((("@verify",), "verify"), (("@accept",), "acc"), (("@rollback",), "roll")),
    ((("@command",), "cmd"), (("@help",), "help"), (("@quit",), "quit")),
)


def keys_for(keymap: Keymap, action: str) -> str:
    """The first keys bound to an action, written for people; empty when none is."""
    for keys, bound in keymap.bindings.items():
        if bound == action:
            return keys.replace(" ", "") if keys != "space" else "space"
    return ""


def footer_groups(keymap: Keymap, width: int) -> tuple[tuple[tuple[str, str], ...], ...]:
    """The footer of a keymap for a terminal of ``width`` cells: groups of (keys, word)."""
    chosen = FOOTER_SHORT if width < 100 else FOOTER if width >= 140 else FOOTER_MIDDLE
    out = []
    for group in chosen:
        pairs = []
        for actions, word in group:
            keys = "/".join(found for action in actions if (found := keys_for(keymap, action)))
            if keys:
                pairs.append((keys, word))
        out.append(tuple(pairs))
    return tuple(out)
