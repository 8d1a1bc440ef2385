"""The command line: ``metrale-inspect``. Each group of commands is a module of its own, named in :data:`MODULES`.

``metrale-inspect FILE`` opens the screen: a first argument that is no command is a file. Data goes to standard output,
remarks to standard error. Exit status: 0 holds, 1 a check or comparison failed, 2 usage, 3 unreadable input.

Nothing heavy is imported here: ``--help`` needs neither torch nor Textual.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

# A module with ``register(app)``; to add a group, name it here.
MODULES = [
    "inspector.cli_screen",
    "inspector.cli_info",
    "inspector.cli_run",
    "inspector.cli_batch",
    "inspector.cli_files",
]
DEFAULT = "open"
FAILED, USAGE, UNREADABLE, INTERRUPTED = 1, 2, 3, 130
GROUP_OPTIONS = ("--help", "-h", "--version")


class Commands(TyperGroup):
    """Sends a first argument that is no command to :data:`DEFAULT`, and turns errors of people into one paragraph."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in GROUP_OPTIONS):
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            _complain("interrupted")
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            # Whoever read our output has seen enough; closing it quietly is what every tool does.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except _user_errors() as error:
            _complain(str(error.args[0] if isinstance(error, KeyError) and error.args else error))
            raise typer.Exit(UNREADABLE) from None


def _user_errors() -> tuple[type[Exception], ...]:
    """Errors that input can cause. EngineRefusal, UserError, SessionError and the importers' errors are ValueErrors."""
    return (ValueError, LookupError, OSError, MemoryError)


def _complain(text: str) -> None:
    sys.stdout.flush()
    sys.stderr.write(f"metrale-inspect: {' '.join(text.split())}\n")


def build_app() -> typer.Typer:
    """The application with the commands of every group."""
    app = typer.Typer(
        cls=Commands,
        name="metrale-inspect",
        help=(
            "A time-travelling debugger for the recurrent state of hybrid language models.\n\n"
            "metrale-inspect [MODEL|SESSION|TRACE] opens the screen on a file, or on the bundled model."
        ),
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for name in MODULES:
        importlib.import_module(name).register(app)
    return app


def _options(
    version: bool = typer.Option(
        False, "--version", help="Show the version and leave.", callback=lambda on: _version(on), is_eager=True
    ),
) -> None:
    """"""


def _version(on: bool) -> None:
    if on:
        from importlib.metadata import PackageNotFoundError
        from importlib.metadata import version as installed

        try:
            number = installed("metrale-inspect")
        except PackageNotFoundError:
            number = "not installed"
        sys.stdout.write(f"metrale-inspect {number}\n")
        raise typer.Exit


def main() -> None:
    """Entry point of the console script."""
    build_app()(prog_name="metrale-inspect")


if __name__ == "__main__":
    main()
