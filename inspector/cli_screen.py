"""``metrale-inspect [FILE]``: the screen."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from inspector import cli_options as options
from inspector.cli_options import engine_config, remark

# What the bundled model does when nobody asks it anything: verses. The prompt ends just before a sentence does, so the
# first boundary comes in the third round; some drafts are accepted whole, some not at all.
DEMO_REQUEST = (
    'new "Genesis 1\\n1 In the beginning God created the heaven and the earth.\\n2 And the earth was without form, '
    'and void; and darkness was upon the face of the" max=400 temperature=0.4 seed=3'
)


SERVE = (
    "Show the screen in a browser, on this machine only by default. Every page that is opened is a session of its own; "
    "whoever reaches the address can use it. ctrl+c ends it. Needs the extra serve."
)


def register(app: typer.Typer) -> None:
    app.command("open", help="Open the screen on a model, a session or a trace (the same as without a command).")(_open)
    app.command("serve", help=SERVE)(_serve)


def _open(
    file: Annotated[
        Path | None, typer.Argument(metavar="[MODEL|SESSION|TRACE]", help="By content; the bundled model without it.")
    ] = None,
    prompt: Annotated[str, typer.Option("--prompt", help="Start a request with this text.")] = "",
    model: options.OtherModel = None,
    record: Annotated[Path | None, typer.Option("--record", help="Record the session into this file.")] = None,
    script: Annotated[Path | None, typer.Option("-x", "--script", help="Commands to run first.")] = None,
    drafts: options.Drafts = 3,
    ring: options.Ring = None,
    slots: options.Slots = 4,
    verify: options.Verify = "exact",
    rollback_mode: options.RollbackMode = "snapshot",
    drafter: options.Drafter = "mtp",
    kv_tokens: options.KvTokens = 4096,
    device: options.Device = "auto",
    dtype: options.Dtype = None,
    threads: options.Threads = None,
    loop_watchdog: options.LoopWatchdog = False,
    keymap: Annotated[str, typer.Option("--keymap", help="gdb, vim or pudb.")] = "",
    theme: Annotated[str, typer.Option("--theme", help="Name of a theme.")] = "",
) -> None:
    engine = {
        "drafts": drafts, "ring": ring, "slots": slots, "verify": verify, "rollback": rollback_mode,
        "drafter": drafter, "kv_tokens": kv_tokens, "device": device, "dtype": dtype, "threads": threads,
        "loop_watchdog": loop_watchdog,
    }  # fmt: skip
    engine_config(**engine)
    from inspector.opening import sniff

    sniff(file)
    # a driver of its own, such as that of textual-serve, needs no terminal
    if not (sys.stdin.isatty() and sys.stdout.isatty()) and "TEXTUAL_DRIVER" not in os.environ:
        remark(
            "metrale-inspect: the screen needs a terminal, and input or output is none. For scripts there are batch, "
            "run, replay, check and dump; see --help."
        )
        raise typer.Exit(2)
    from inspector.tui.app import run_app
    from inspector.tui.ports import Options

    idle = file is None and not prompt and script is None
    chosen: dict[str, Any] = {
        "prompt": prompt, "drafts": drafts, "ring": ring, "slots": slots, "record": str(record or ""),
        "keymap": keymap, "theme": theme, "script": str(script or ""), "model": model or "", "engine": engine,
        "commands": (DEMO_REQUEST,) if idle else (),
    }  # fmt: skip
    raise typer.Exit(run_app(str(file) if file is not None else None, Options(**chosen)))


def _serve(
    file: Annotated[Path | None, typer.Argument(metavar="[MODEL|SESSION|TRACE]", help="What the screen opens.")] = None,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; anything else than this machine is your risk.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Port to listen on.")] = 8000,
) -> None:
    try:
        from textual_serve.server import Server
    except ImportError:
        remark('metrale-inspect: serve needs the extra "serve": pip install "metrale-inspect[serve]"')
        raise typer.Exit(2) from None
    import shlex

    if file is not None:
        from inspector.opening import sniff

        sniff(file)
    command = [sys.executable, "-m", "inspector.cli", *([str(file)] if file is not None else [])]
    Server(shlex.join(command), host=host, port=port, title="metrale-inspect").serve()
