"""Options that several commands share, written once, and what becomes of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from engine.config import EngineConfig

ModelFile = Annotated[
    Path | None, typer.Argument(metavar="[MODEL]", help="A checkpoint file, folder or index; bundled without it.")
]  # fmt: skip
Drafts = Annotated[
    int, typer.Option("--drafts", min=0, max=64, help="Draft tokens per round; the verify width K is one more.")
]
Ring = Annotated[
    int | None, typer.Option("--ring", min=0, help="Snapshot ring slots per sequence; by policy without it.")
]
Slots = Annotated[int, typer.Option("--slots", min=1, help="Sequences that can run at once.")]
Verify = Annotated[
    str, typer.Option("--verify", help="exact (row by row, bitwise equal to decoding) or batched (K rows at once).")
]
RollbackMode = Annotated[str, typer.Option("--rollback-mode", help="snapshot or replay.")]
Drafter = Annotated[str, typer.Option("--drafter", help="mtp, lookup or none.")]
KvTokens = Annotated[
    int, typer.Option("--kv-tokens", min=1, help="Size of the KV pool in tokens, all sequences together.")
]
PrefixSlots = Annotated[
    int, typer.Option("--prefix-slots", min=0, help="Snapshots the prefix cache can hold; 0 turns it off.")
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of the sampler.")]
Temperature = Annotated[float, typer.Option("--temperature", min=0.0, help="0 is greedy.")]
MaxTokens = Annotated[int, typer.Option("--max-tokens", min=1, help="Most tokens to generate.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")]
Dtype = Annotated[str | None, typer.Option("--dtype", help="float32, bfloat16 or float16; as stored without it.")]
Threads = Annotated[int | None, typer.Option("--threads", min=1, help="Threads torch may use.")]
LoopWatchdog = Annotated[bool, typer.Option("--loop-watchdog", help="Let loop detectors roll back to a boundary.")]
OtherModel = Annotated[
    str | None, typer.Option("--model", help='The model a recording is run with; "demo" is the bundled one.')
]


Chat = Annotated[bool, typer.Option("--chat", help="The prompt is a user's turn: put it into the chat form.")]


def engine_config(**given: Any) -> EngineConfig:
    """An EngineConfig from options by their field names; None leaves the default of an optional one.

    Raises:
        typer.BadParameter: a value out of range (exit status 2)."""
    from engine.config import EngineConfig
    from engine.errors import UserError

    try:
        return EngineConfig(**given)
    except UserError as error:
        raise typer.BadParameter(str(error)) from None


def remark(text: str) -> None:
    """A line for people, on standard error."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def loading_bar(what: str = "loading") -> Any:
    """A progress callback (bytes done, bytes total) that draws on standard error when that is a terminal, else None."""
    if not sys.stderr.isatty():
        return None
    from inspector.text import byte_size

    def draw(done: int, total: int) -> None:
        share = done / total if total else 1.0
        full = int(24 * share)
        line = f"\r{what} [{'#' * full}{'.' * (24 - full)}] {share:4.0%} {byte_size(done)} of {byte_size(total)}  "
        sys.stderr.write(line)
        if done >= total:
            sys.stderr.write("\r" + " " * len(line) + "\r")
        sys.stderr.flush()

    return draw
