"""``batch``: commands from a file or the command line, on a model, a session or a trace."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from inspector import cli_options as options
from inspector.cli_options import engine_config, loading_bar, remark

if TYPE_CHECKING:
    from inspector.commands.debugger import Debugger


def register(app: typer.Typer) -> None:
    app.command("batch", help="Run debugger commands and print their answers: the same script gives the same output.")(
        _batch
    )


def _batch(
    file: Annotated[
        Path | None, typer.Argument(metavar="[MODEL|SESSION|TRACE]", help="By content; the bundled model without it.")
    ] = None,
    scripts: Annotated[
        list[Path] | None, typer.Option("-x", "--script", help="A file with one command a line; may be given again.")
    ] = None,
    commands: Annotated[
        list[str] | None, typer.Option("-e", "--execute", help="A command; may be given again; after the scripts.")
    ] = None,
    prompt: Annotated[str, typer.Option("--prompt", help="Start a request with this text first.")] = "",
    chat: options.Chat = False,
    max_tokens: options.MaxTokens = 128,
    model: options.OtherModel = None,
    record: Annotated[Path | None, typer.Option("--record", help="Record the session into this file.")] = None,
    echo: Annotated[bool, typer.Option("--echo", help="Print each command before its answer.")] = False,
    keep_going: Annotated[bool, typer.Option("--keep-going", help="Do not end at a failed assertion.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Events after which a movement gives up.")] = 1_000_000,
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
) -> None:
    from inspector.commands.errors import CommandError
    from inspector.commands.groups.session import read_script
    from inspector.opening import open_live, open_recorded, sniff

    if not scripts and not commands:
        raise typer.BadParameter("nothing to do: give -x FILE or -e COMMAND")
    try:
        texts = [(path.name, read_script(path)) for path in scripts or ()]
    except CommandError as error:
        raise ValueError(str(error)) from None  # unreadable input
    config = engine_config(
        drafts=drafts, ring=ring, slots=slots, verify=verify, rollback=rollback_mode, drafter=drafter,
        kv_tokens=kv_tokens, device=device, dtype=dtype, threads=threads, loop_watchdog=loop_watchdog,
    )  # fmt: skip
    source = sniff(file)
    if source.kind == "config":
        raise ValueError(
            f"{file}: found a bare config.json, expected weights too. info is for planning without weights."
        )
    if source.kind == "model":
        debugger = open_live(source.path, config, record=record, progress=loading_bar())
    else:
        debugger = open_recorded(source, model, config)
    for line in debugger.timeline.remarks:
        remark(line)
    debugger.settings.limit = limit
    if prompt:
        from inspector.text import quoted

        texts.insert(0, ("--prompt", f"new {quoted(prompt)} max={max_tokens}" + (" --chat" if chat else "")))
    if commands:
        texts.append(("-e", "\n".join(commands)))
    try:
        status = play(debugger, texts, echo, keep_going)
    finally:
        debugger.close()
    raise typer.Exit(status)


def play(debugger: Debugger, texts: list[tuple[str, str]], echo: bool = False, keep_going: bool = False) -> int:
    """Run scripts in order, answers to standard output. Exit status: 0; 1 a check failed, or an invariant broke that
    no assertion expected; 2 a command could not be carried out (its file and line go to standard error); 3 the open
    file is damaged."""
    from inspector.text import plural, visible

    status, known = 0, debugger.all_findings()
    for name, text in texts:
        lines = iter(debugger.source(text, name, keep_going=keep_going))
        for number, command, result in lines:
            if echo:
                sys.stdout.write(f"> {visible(command)}\n")
            sys.stdout.write("".join(f"{line}\n" for line in result.lines if line != result.error))
            sys.stdout.flush()
            if result.ok:
                continue
            remark(f"{visible(name)}:{number}: {visible(command)}: {result.error or 'failed'}")
            if result.damaged:
                return 3
            if result.status != "failed":
                return 2
            status = 1
            if not keep_going:
                return status
        if debugger.cancelled:
            raise KeyboardInterrupt
        if debugger.finished:
            break
    fresh = len(debugger.all_findings() - known)
    if fresh and debugger.settings.findings and not debugger.expected:
        remark(f'{plural(fresh, "finding")}: info findings lists them, assert finding == "NAME" expects them')
        return 1
    return status
