"""The command line: ``metrale-inspect``. Each group of commands is a module of its own, named in
:data:`COMMANDS`.

``metrale-inspect FILE`` opens the screen: a first argument that is no command is a file. Data goes to standard output,
remarks to standard error. Exit status: 0 holds, 1 a check or comparison failed, 2 usage, 3 unreadable input.

Nothing heavy is imported here: ``--help`` needs neither torch nor Textual.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from typing import Any

import typer
import typer.main
from typer.core import TyperGroup

from sessions.errors import DivergedError

# Command, its module (with ``register(app)`` or a function of the command's name), one line of help.
# To add a group: a module and its lines here.
# Only the module of the command that is called gets imported.
COMMANDS = (
    (
        "open",
        "inspector.cli_screen",
        "Open the screen; the same as no command at all.",
    ),
    ("info", "inspector.cli_info", "Architecture and memory of a model, from its headers alone."),
    ("run", "inspector.cli_run", "Run a model on a prompt; print its text or its events."),
    ("record", "inspector.cli_run", "Run a model on a prompt and record a session file."),
    ("replay", "inspector.cli_files", "Execute a recording again and compare every event and digest."),
    ("batch", "inspector.cli_batch", "Run debugger commands from a script or the command line."),
    ("check", "inspector.cli_files", "Look at every invariant over a recording."),
    ("diff", "inspector.cli_files", "The first event, layer and place in which two recordings differ."),
    ("dump", "inspector.cli_files", "Write the events of a recording as JSON lines."),
    ("pack", "inspector.cli_files", "Write a clean, closed copy of a session file."),
    ("export", "inspector.cli_files", "Write a recording as JSON lines, Chrome trace, tensors or a test."),
    ("judge", "inspector.cli_judge", "Say what kind of difference two files of states show, and why."),
    ("faults", "inspector.cli_faults", "Run the fault gallery: who catches each fault, when, with which verdict."),
    ("museum", "inspector.cli_museum", "Recorded sessions of famous faults, with their stories."),
    ("serve", "inspector.cli_screen", "Show the screen in a browser."),
)
DEFAULT = "open"
FAILED, USAGE, UNREADABLE, INTERRUPTED = 1, 2, 3, 130
GROUP_OPTIONS = ("--help", "-h", "--version")


class Commands(TyperGroup):
    """Loads the module of a command when it is called, sends a first argument that is no command to :data:`DEFAULT`,
    and turns errors of people into one paragraph."""

    modules: Mapping[str, str] = {name: module for name, module, _ in COMMANDS}

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.modules)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        module = self.modules.get(cmd_name)
        if module is None:
            return None
        app = typer.Typer(**APP_OPTIONS)
        app.callback()(lambda: None)
        loaded = importlib.import_module(module)
        if hasattr(loaded, "register"):
            loaded.register(app)
        else:
            app.command(cmd_name)(getattr(loaded, cmd_name))
        return typer.main.get_group(app).commands.get(cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, _, about in COMMANDS])

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.modules and args[0] not in GROUP_OPTIONS):
            args = [DEFAULT, *args]
        return list(super().parse_args(ctx, args))

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            _complain("interrupted")
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            # Whoever read our output has seen enough; closing it quietly is what every tool does.
            _drop_output()
            raise typer.Exit(0) from None
        except DivergedError as error:
            _complain(str(error))
            raise typer.Exit(FAILED) from None
        except RuntimeError as error:
            # The device ran out of memory: a matter of --slots, --ring and --kv-tokens, not a defect.
            if type(error).__name__ != "OutOfMemoryError":
                raise
            _complain(f"{error} Fewer --slots, --ring, --drafts or --kv-tokens need less.")
            raise typer.Exit(UNREADABLE) from None
        except _user_errors() as error:
            _complain(_words(error))
            raise typer.Exit(UNREADABLE) from None


def _user_errors() -> tuple[type[Exception], ...]:
    """Errors that input can cause. EngineRefusal, UserError, SessionError and the importers' errors are ValueErrors."""
    return (ValueError, LookupError, OSError, MemoryError)


def _words(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is None and error.strerror:  # files we open have names
        return f"{OUTPUT}: {error.strerror}. Write to another place, or free some space."
    return str(error.args[0] if isinstance(error, KeyError) and error.args else error)


def _complain(text: str) -> None:
    from inspector.text import visible

    try:
        sys.stdout.flush()
    except OSError as error:
        text = _words(error)
    if text.startswith(OUTPUT):
        _drop_output()
    sys.stderr.write(f"metrale-inspect: {visible(' '.join(text.split()))}\n")


def _drop_output() -> None:
    """What is still to be written to standard output goes nowhere: nobody can take it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


OUTPUT = "standard output"
APP_OPTIONS: dict[str, Any] = {
    "add_completion": False,
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}


def build_app() -> typer.Typer:
    """The application with all commands."""
    app = typer.Typer(
        cls=Commands,
        name="metrale-inspect",
        help=(
            "A time-travelling debugger for the recurrent state of hybrid language models.\n\n"
            "metrale-inspect [MODEL|SESSION|TRACE] opens the screen on a file, or on the bundled model."
        ),
        **APP_OPTIONS,
    )
    app.callback()(_options)
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
    if sys.stdout is None:  # closed by whoever called
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    build_app()(prog_name="metrale-inspect")


if __name__ == "__main__":
    main()
