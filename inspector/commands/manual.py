"""Help and documentation, made from the registry: nothing here is written twice."""

from __future__ import annotations

from collections.abc import Iterator

from inspector.commands.fields import EVENT_FIELDS, TABLES
from inspector.commands.functions import FUNCTIONS
from inspector.commands.locations import FORMS
from inspector.commands.names import NAMES
from inspector.commands.places import COMPUTED
from inspector.commands.registry import NEEDS, Command, Registry
from inspector.commands.render import table

TITLES = {
    "move": "Movement",
    "act": "Actions",
    "stop": "Stops",
    "look": "Looks",
    "compare": "Comparison",
    "session": "Session",
}
PLACES = [
    ("live, live:0", "working state of the request in focus, or of slot 0"),
    ("checkpoint", "its copy from before the last verify"),
    ("step 1, step:0.1", "its state after verify row 1"),
    ("ring 2, ring:0.2", "slot 2 of its snapshot ring"),
    ("prefix 5, prefix:5", "snapshot 5 of the prefix cache"),
    ("live r1, live(1)", "of request 1"),
    ("live.h, live.conv[3]", "one part, one layer; h[3, 0] is head 0"),
    ("live @1043, live @'a", "at another instant"),
]
INSTANTS = [
    ("@1043, @1043/2", "event 1043 of this branch, of branch 2"),
    ("'a", "bookmark a"),
    ("start, end, now", "first event, last event of this branch, here"),
]

REV = [
    "rev MOVEMENT",
    "  a word before a movement, which goes back: rev step 5, rev continue. Nothing is executed or changed.",
    "  movements: {able}",
    "  the same: reverse step, reverse-step; most have a short name too (S, N, C: help step)",
    "  example: rev step 5",
]
EXPRESSIONS = [
    "names, fields (ring.next), indices (drafts[0]), + - * / // %, comparisons, and or not in, a if b else c,",
    '  lists (1, 2) and texts in quotes: accepted < k, event.what == "accept", skew != 0',
    "  what is not known is none: arithmetic with it gives none, a comparison with it is false",
    "  help names and help functions list what there is",
]


def help_lines(registry: Registry, topic: str) -> list[str]:
    """The answer of ``help TOPIC``. Raises UsageError for a topic that is not there."""
    if not topic:
        return list(_overview(registry))
    if topic == "names":
        return table(("name", "is"), [(name, item.about) for name, item in NAMES.items()])
    if topic == "functions":
        return table(("function", "gives"), [(item.form, item.about) for item in FUNCTIONS.values()])
    if topic in ("places", "place", "PLACE"):
        return table(("place", "is"), [*PLACES, *COMPUTED.items()])
    if topic in ("time", "instants", "WHEN"):
        return table(("instant", "is"), INSTANTS)
    if topic in ("rev", "reverse"):
        able = ", ".join(command.name for command in registry.commands if command.reversible)
        return [line.format(able=able) for line in REV]
    if topic in ("expressions", "expr", "EXPR"):
        return EXPRESSIONS
    if topic in ("WHERE", "locations"):
        return table(("WHERE", "stops at"), list(FORMS.items()))
    return _command(registry, registry.resolve(topic)[0])


def _overview(registry: Registry) -> Iterator[str]:
    for group, title in TITLES.items():
        yield f"{title}:"
        rows = [
            (command.name, ", ".join(command.aliases), command.help)
            for command in registry.commands
            if command.group == group
        ]
        yield from (f"  {line}" for line in table(("", "", ""), rows)[1:])
    yield "rev goes before a movement: rev step 5, rev continue. An empty line repeats the last movement."
    yield "help COMMAND tells more; so do help rev, WHERE, expressions, names, functions, places, time."


def _command(registry: Registry, command: Command) -> list[str]:
    lines = [command.usage, f"  {command.help}"]
    for arg in command.args:
        if arg.about:
            lines.append(f"  {('--' if arg.option else '') + arg.name}: {arg.about}")
    backwards = registry.rev_aliases(command)
    if command.aliases:
        lines.append(
            f"  short: {', '.join(command.aliases)}" + (f"; backwards: {', '.join(backwards)}" if backwards else "")
        )
    lines += [f"  {line}" for line in command.details.splitlines()]
    needs = [NEEDS[need] for need in sorted(command.needs - {"past"})]
    if needs:
        lines.append(f"  needs: {'; '.join(needs)}")
    if "past" in command.needs:
        lines.append("  in the past it opens a branch")
    if command.example:
        lines.append(f"  example: {command.example}")
    return lines


# ---------------------------------------------------------------------------------------------------- docs/commands.md


def manual(registry: Registry) -> str:
    """The whole of ``docs/commands.md``."""
    return "\n".join(_manual(registry)) + "\n"


def _manual(registry: Registry) -> Iterator[str]:
    yield from (
        "# Commands",
        "",
        "<!-- Made by tools/make_docs.py from the registry; change the commands, not this file. -->",
        "",
        "The same commands work at the `:` line of the screen, in scripts (`source`, `batch -x`) and in `batch -e`.",
        "The shortest unambiguous prefix is enough; the short names are fixed. `rev` before a movement goes back:",
        "`rev step 5`. An empty line repeats the last movement. `#` starts a comment.",
    )
    for group, title in TITLES.items():
        yield from ("", f"## {title}", "")
        for command in registry.commands:
            if command.group == group:
                yield from _entry(registry, command)
    yield from _tables()


def _entry(registry: Registry, command: Command) -> Iterator[str]:
    yield f"### `{command.usage}`"
    yield ""
    yield command.help[0].upper() + command.help[1:] + "."
    short = ", ".join(f"`{alias}`" for alias in command.aliases)
    backwards = ", ".join(f"`{alias}`" for alias in registry.rev_aliases(command))
    notes = [f"Short: {short}." if short else "", f"Backwards: `rev {command.name}`, {backwards}." if backwards else ""]
    if any(notes):
        yield from ("", " ".join(note for note in notes if note))
    if command.details:
        yield ""
        block = [line for line in command.details.splitlines() if line.startswith("  ")]
        text = [line for line in command.details.splitlines() if not line.startswith("  ")]
        if block:
            head = text[:1] if not command.details.startswith("  ") else []
            tail = text[len(head) :]
            yield from (*head, *([""] if head else []), "```text", *(line[2:] for line in block), "```")
            if tail:
                yield from ("", *tail)
        else:
            yield from text
    if command.needs - {"past"}:
        yield from ("", "Needs " + "; ".join(NEEDS[need] for need in sorted(command.needs - {"past"})) + ".")
    if command.example:
        yield from ("", "```text", command.example, "```")
    yield ""


def _tables() -> Iterator[str]:
    yield from ("## Expressions", "")
    yield from (
        "One language in `print`, `display`, `watch`, `if`, `condition`, `until` and `assert`: names, fields",
        "(`ring.next`), indices (`drafts[0]`), `+ - * / // %`, comparisons, `and or not in`, `a if b else c`, lists",
        "`(1, 2)`, texts in quotes. What is not known is `none`: arithmetic with it gives `none`, a comparison with it",
        "is false, except with the word `none` itself. There are no loops, powers, shifts or definitions, and length",
        "and depth are bounded.",
    )
    yield from ("", "### Names", "", *_rows(("name", "is"), [(f"`{n}`", item.about) for n, item in NAMES.items()]))
    yield from (
        "", "### Functions", "",
        *_rows(("function", "gives"), [(f"`{item.form}`", item.about) for item in FUNCTIONS.values()]),
    )  # fmt: skip
    for _, noun, fields in TABLES:
        shown = [(f"`{name}`", about) for name, (about, _) in fields.items()]
        yield from ("", f"### Fields of a {noun}", "", *_rows(("field", "is"), shown))
    yield from ("", "### Fields of an event", "", "A field that this kind of event does not have is `none`.", "")
    yield ", ".join(f"`{name}`" for name in sorted(EVENT_FIELDS)) + "."
    yield from ("", "## Places", "", *_rows(("place", "is"), [(f"`{form}`", about) for form, about in PLACES]))
    yield from ("", "Bases of `diff` are places, instants, and:", "")
    yield from _rows(("base", "is"), [(f"`{name}`", about) for name, about in COMPUTED.items()])
    yield from ("", "## Instants", "", *_rows(("instant", "is"), [(f"`{form}`", about) for form, about in INSTANTS]))


def _rows(head: tuple[str, ...], rows: list[tuple[str, str]]) -> list[str]:
    def line(cells: tuple[str, ...]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    return [line(head), "|" + "---|" * len(head), *(line(row) for row in rows)]
