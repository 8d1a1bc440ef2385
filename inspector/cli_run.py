"""``run`` and ``record``: a model writes text; what happens can be seen as events or kept as a session."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from inspector import cli_options as options
from inspector.cli_options import engine_config, loading_bar, remark

if TYPE_CHECKING:
    from engine.config import EngineConfig
    from engine.events import EnginePort, Event, NewRequest

Prompt = Annotated[str, typer.Option("--prompt", help='The text to continue; "-" reads it from standard input.')]


def register(app: typer.Typer) -> None:
    app.command("run", help="Run a model on a prompt and print what it writes, or its events.")(_run)
    app.command("record", help="Run a model on a prompt and record everything into a session file.")(_record)


def _run(
    model: options.ModelFile = None,
    prompt: Prompt = "",
    chat: options.Chat = False,
    max_tokens: options.MaxTokens = 128,
    drafts: options.Drafts = 3,
    ring: options.Ring = None,
    slots: options.Slots = 4,
    verify: options.Verify = "exact",
    rollback_mode: options.RollbackMode = "snapshot",
    drafter: options.Drafter = "mtp",
    temperature: options.Temperature = 0.0,
    seed: options.Seed = 0,
    kv_tokens: options.KvTokens = 4096,
    device: options.Device = "auto",
    dtype: options.Dtype = None,
    threads: options.Threads = None,
    loop_watchdog: options.LoopWatchdog = False,
    events: Annotated[
        bool, typer.Option("--events", help="Write every event as a JSON line instead of the text.")
    ] = False,
) -> None:
    config = engine_config(
        drafts=drafts, ring=ring, slots=slots, verify=verify, rollback=rollback_mode, drafter=drafter, seed=seed,
        kv_tokens=kv_tokens, device=device, dtype=dtype, threads=threads, loop_watchdog=loop_watchdog,
    )  # fmt: skip
    text = read_prompt(prompt, chat)
    engine = _open(model, config)
    request = _request(engine, text, max_tokens, seed, temperature)
    if events:
        for event in _everything(engine, request):
            sys.stdout.write(json_line(event) + "\n")
        sys.stdout.flush()
        return
    _tell(Totals(), engine, request, text)


def _record(
    file: Annotated[Path, typer.Argument(metavar="SESSION", help="The session file to write; it must not exist.")],
    model: Annotated[Path | None, typer.Option("--model", help="The model; the bundled one without it.")] = None,
    prompt: Prompt = "",
    chat: options.Chat = False,
    max_tokens: options.MaxTokens = 128,
    drafts: options.Drafts = 3,
    ring: options.Ring = None,
    slots: options.Slots = 4,
    verify: options.Verify = "exact",
    rollback_mode: options.RollbackMode = "snapshot",
    drafter: options.Drafter = "mtp",
    temperature: options.Temperature = 0.0,
    seed: options.Seed = 0,
    kv_tokens: options.KvTokens = 4096,
    device: options.Device = "auto",
    dtype: options.Dtype = None,
    threads: options.Threads = None,
    loop_watchdog: options.LoopWatchdog = False,
    level: Annotated[str, typer.Option("--level", help="events, digests or full (with tensors).")] = "digests",
) -> None:
    from engine.events import RunRound
    from inspector.opening import open_live
    from inspector.text import byte_size, plural

    if level not in ("events", "digests", "full"):
        raise typer.BadParameter(f"--level: found {level!r}, expected events, digests or full")
    config = engine_config(
        drafts=drafts, ring=ring, slots=slots, verify=verify, rollback=rollback_mode, drafter=drafter, seed=seed,
        kv_tokens=kv_tokens, device=device, dtype=dtype, threads=threads, loop_watchdog=loop_watchdog,
    )  # fmt: skip
    text = read_prompt(prompt, chat)
    debugger = open_live(model, config, record=file, level=level, progress=loading_bar())
    timeline = debugger.timeline
    for line in timeline.remarks:
        remark(line)
    try:
        tokens = timeline.tokens(text) if not _ids(text) else _ids(text)
        stop = timeline.perform(_new(tokens, max_tokens, seed, temperature))
        while stop.reason in ("done", "finding", "stop", "decision") and timeline.runnable():
            stop = timeline.resume() if timeline.paused else timeline.perform(RunRound())
        if stop.reason in ("refused", "error"):
            raise ValueError(stop.text)
        events, found, trouble = timeline.last, len(timeline.findings()), timeline.trouble
    finally:
        begun = timeline.last > 1
        debugger.close()
        if not begun:  # refused: a session without a request is of no use
            file.unlink(missing_ok=True)
    if trouble:
        remark(f"metrale-inspect: {trouble} The model went on to event {events}; the file ends earlier.")
        raise typer.Exit(1)
    remark(f"{file}: {plural(events, 'event')}, {plural(found, 'finding')}, {byte_size(file.stat().st_size)}")
    if found:
        raise typer.Exit(1)


# ------------------------------------------------------------------------------------------------------------- parts


def read_prompt(prompt: str, chat: bool = False) -> str:
    """The prompt, or standard input for "-". Raises BadParameter when there is none."""
    from inspector import text as texts

    text = sys.stdin.read() if prompt == "-" else prompt
    if not text:
        raise typer.BadParameter('a prompt is needed: --prompt "..." (or --prompt - for standard input)')
    return texts.chat(text) if chat else text


def _ids(text: str) -> tuple[int, ...]:
    """``ids: 1,2,3`` is a prompt of token ids, for models without a tokenizer."""
    if not text.startswith("ids:"):
        return ()
    parts = text.removeprefix("ids:").replace(",", " ").split()
    if not parts or not all(part.isdecimal() and len(part) < 10 for part in parts):
        raise typer.BadParameter('token ids are written "ids: 1,2,3"')
    return tuple(int(part) for part in parts)


def _open(model: Path | None, config: EngineConfig) -> EnginePort:
    from inspector.opening import open_engine, sniff, warnings_of

    source = sniff(model)
    if source.kind != "model":
        raise ValueError(
            f"{model}: found {source.kind}, expected a model with weights. Recordings are opened with replay."
        )
    engine = open_engine(source.path, config, loading_bar())
    for line in warnings_of(engine):
        remark(line)
    return engine


def _new(tokens: tuple[int, ...], max_tokens: int, seed: int, temperature: float) -> NewRequest:
    from engine.events import NewRequest

    return NewRequest(prompt=tokens, max_tokens=max_tokens, seed=seed, temperature=temperature)


def _request(engine: EnginePort, text: str, max_tokens: int, seed: int, temperature: float) -> NewRequest:
    return _new(_ids(text) or engine.tokens(text), max_tokens, seed, temperature)


def _everything(engine: EnginePort, request: NewRequest) -> Iterator[Event]:
    """The start, the request, then rounds until nothing is left to run."""
    from engine.events import RunRound

    yield engine.start()
    yield from engine.perform(request)
    while engine.runnable():
        yield from engine.perform(RunRound())


def json_line(event: Event) -> str:
    """One event as one line of JSON, always the same for the same event."""
    from engine.events import to_dict

    return json.dumps(to_dict(event), separators=(",", ":"), ensure_ascii=True)


class Totals:
    """What is said at the end."""

    def __init__(self) -> None:
        self.outputs = self.rounds = self.drafted = self.accepted = self.rollbacks = 0
        self.finish = ""


def _tell(totals: Totals, engine: EnginePort, request: NewRequest, prompt: str) -> None:
    """Stream the text to standard output; progress and remarks go to standard error."""
    from engine.events import Accept, Decode, Draft, Emit, Finish, Prefill, Rollback, Texts, Trouble
    from inspector.text import visible

    texts: dict[int, str] = {}
    show = sys.stderr.isatty()
    for event in _everything(engine, request):
        if isinstance(event, Texts):
            texts.update(zip(event.ids, event.texts, strict=False))
        elif isinstance(event, Prefill) and show:
            sys.stderr.write(
                f"\rprefill {event.cursor} of {len(request.prompt)} tokens  " + ("\r\x1b[K" if event.last else "")
            )
            sys.stderr.flush()
        elif isinstance(event, Emit):
            totals.outputs += 1
            sys.stdout.write(readable(texts.get(event.token, f"<{event.token}> ")))
            sys.stdout.flush()
        elif isinstance(event, Draft):
            totals.drafted += len(event.tokens)
        elif isinstance(event, Accept):
            totals.rounds += 1
            totals.accepted += event.accepted - 1
        elif isinstance(event, Decode):
            totals.rounds += 1
        elif isinstance(event, Rollback) and event.outcome == "rolled_back":
            totals.rollbacks += 1
            totals.outputs -= event.dropped
            sys.stdout.flush()
            remark(f"\n[rolled back to output {event.keep_len}: the last {event.dropped} tokens are taken back]")
        elif isinstance(event, Trouble):
            remark(visible(event.text))
        elif isinstance(event, Finish):
            totals.finish = event.reason
    sys.stdout.write("\n")
    sys.stdout.flush()
    accepted = f", {totals.accepted} of {totals.drafted} drafts accepted" if totals.drafted else ""
    remark(f"[{totals.outputs} tokens in {totals.rounds} rounds{accepted}; ended: {totals.finish or 'not'}]")


def readable(text: str) -> str:
    """Model text for a terminal: line ends and tabs act, every other control character is made visible."""
    from inspector.text import visible

    return "".join(char if char in "\n\t" else visible(char) for char in text)
