"""Commands as data. One registry feeds the ':' line, keys, palette, help, documentation, scripts and batch.

A group is a module with ``def register(registry)``; it declares its commands with ``registry.command(...)`` on
functions ``run(ctx, args)``. Nothing else has to be touched: help, completion and the documentation follow.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from inspector.commands.errors import UsageError
from inspector.text import suggest

if TYPE_CHECKING:
    from inspector.commands.debugger import Debugger
    from sessions.timeline import Stop

GROUPS = ("move", "act", "stop", "look", "compare", "session")
NEEDS = {
    "live": "an engine that can act (a model; a recording needs --model, a trace never has one)",
    "model": "an engine or stored tensors",
    "request": "a request",
    "past": "nothing; in the past it opens a branch",
}


@dataclass(frozen=True, slots=True)
class Result:
    """What a command answered. ``status``: ok; error (could not be done); failed (a check did not hold); quit.

    ``stop`` is where a movement ended. ``changed`` names what a screen should draw again: now, stops, displays,
    focus, marks, branch, settings. ``data`` carries the values behind the lines (a diff, a tensor) for panes. ``error``
    is the sentence of a command that is not ok; it is among the lines too. ``damaged``: it is not ok because the open
    file is damaged there.
    """

    lines: tuple[str, ...] = ()
    status: str = "ok"
    stop: Stop | None = None
    changed: frozenset[str] = frozenset()
    data: object = None
    error: str = ""
    damaged: bool = False

    @property
    def ok(self) -> bool:
        return self.status in ("ok", "quit")


@dataclass(frozen=True, slots=True)
class Arg:
    """One argument. ``type`` is a key of ``inspector.commands.arguments.TYPES``. ``option`` ones are written
    ``--name value`` or ``name=value``, the others by place. ``choices`` complete it, and bind it when ``closed``."""

    name: str
    type: str = "word"
    about: str = ""
    optional: bool = False
    repeated: bool = False
    option: bool = False
    default: Any = None
    choices: tuple[str, ...] | Callable[[Debugger], Iterable[str]] = ()
    closed: bool = True

    @property
    def form(self) -> str:
        """As it is written in a usage line."""
        shown = self.name.upper()
        if self.option:
            return f"[--{self.name}]" if self.type == "flag" else f"[--{self.name} {shown}]"
        if isinstance(self.choices, tuple) and self.choices and self.closed:
            shown = "|".join(self.choices)
        shown += " ..." if self.repeated else ""
        return f"[{shown}]" if self.optional else shown


Args = Mapping[str, Any]
Run = Callable[["Context", Args], Result | None]


@dataclass(frozen=True, slots=True)
class Command:
    """A command. ``help`` is one line, ``details`` more; ``example`` is a line that works as written. ``reversible``
    ones take ``rev``; ``repeats`` ones are run again by an empty line."""

    name: str
    group: str
    help: str
    run: Run
    args: tuple[Arg, ...] = ()
    aliases: tuple[str, ...] = ()
    needs: frozenset[str] = frozenset()
    example: str = ""
    details: str = ""
    reversible: bool = False
    repeats: bool = False

    @property
    def usage(self) -> str:
        return " ".join([self.name, *(arg.form for arg in self.args)])


@dataclass(slots=True)
class Context:
    """What a running command has: the debugger, whether it goes backwards, and lines to answer with. ``branch`` is the
    line of history it began on, ``acted`` that it did something to an engine."""

    debugger: Debugger
    command: Command
    rev: bool = False
    line: str = ""
    branch: int = 0
    acted: bool = False
    lines: list[str] = field(default_factory=list)

    def say(self, *lines: str) -> None:
        self.lines.extend(lines)

    def result(
        self,
        status: str = "ok",
        stop: Stop | None = None,
        changed: Iterable[str] = (),
        data: object = None,
        error: str = "",
    ) -> Result:
        return Result(tuple(self.lines), status, stop, frozenset(changed), data, error)


class Registry:
    """All commands by name and alias."""

    def __init__(self) -> None:
        self._commands: dict[str, Command] = {}
        self._aliases: dict[str, tuple[str, bool]] = {}

    def command(
        self,
        name: str,
        group: str,
        help: str,
        *args: Arg,
        aliases: Iterable[str] = (),
        rev_aliases: Iterable[str] = (),
        needs: Iterable[str] = (),
        example: str = "",
        details: str = "",
        reversible: bool = False,
        repeats: bool = False,
    ) -> Callable[[Run], Run]:
        """Decorator that adds a command. ``rev_aliases`` mean ``rev NAME``."""

        def add(run: Run) -> Run:
            self.add(
                Command(
                    name, group, help, run, tuple(args), tuple(aliases), frozenset(needs), example, details,
                    reversible, repeats,
                ),
                rev_aliases,
            )  # fmt: skip
            return run

        return add

    def add(self, command: Command, rev_aliases: Iterable[str] = ()) -> None:
        """Raises ValueError when a name is taken, a group or a need is unknown, or an argument cannot be reached."""
        if command.group not in GROUPS or not command.needs <= set(NEEDS):
            raise ValueError(f"{command.name}: unknown group or need")
        for alias, rev in [*((a, False) for a in (command.name, *command.aliases)), *((a, True) for a in rev_aliases)]:
            if alias in self._aliases:
                raise ValueError(f"{command.name}: {alias!r} already means {self._aliases[alias][0]}")
            self._aliases[alias] = (command.name, rev)
        places = [arg for arg in command.args if not arg.option]
        if any(arg.repeated for arg in places[:-1]) or any(
            first.optional and not second.optional for first, second in itertools.pairwise(places)
        ):
            raise ValueError(f"{command.name}: arguments after an optional or repeated one cannot be reached")
        self._commands[command.name] = command

    @property
    def commands(self) -> list[Command]:
        """In the order of their groups, then as registered."""
        return sorted(self._commands.values(), key=lambda command: GROUPS.index(command.group))

    @property
    def words(self) -> list[str]:
        """Every name and alias."""
        return list(self._aliases)

    def rev_aliases(self, command: Command) -> list[str]:
        return [alias for alias, (name, rev) in self._aliases.items() if rev and name == command.name]

    def get(self, name: str) -> Command:
        return self._commands[name]

    def resolve(self, word: str) -> tuple[Command, bool]:
        """The command for a name, an alias or the shortest unambiguous prefix, and whether it goes backwards.

        Raises:
            UsageError: nothing begins so (with a suggestion), or several do (with their names).
        """
        known = self._aliases.get(word)
        if known is not None:
            return self._commands[known[0]], known[1]
        near = {name for name in self._commands if name.startswith(word)}
        reverse = {name for name in self._commands.values() if f"reverse-{name.name}".startswith(word)}
        if not near and word.startswith("reverse-"):
            able = [command for command in reverse if command.reversible]
            if len(able) == 1:
                return able[0], True
            near = {f"reverse-{command.name}" for command in able}
        if len(near) == 1:
            return self._commands[near.pop()], False
        if near:
            raise UsageError(f'"{word}" could be {", ".join(sorted(near))}')
        raise UsageError(
            f'there is no command "{word}".{suggest(word, [w for w in self.words if len(w) > 2])} "help" lists them'
        )
