"""What the worker tells the screen. A message that a newer one of its kind makes useless is dropped by the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.message import Message

if TYPE_CHECKING:
    from inspector.tui.frame import EventRow, Frame, Slab, TensorTable


class Replaceable(Message):
    """Only the latest of its kind matters."""

    def can_replace(self, message: Message) -> bool:
        return type(message) is type(self)


class FrameReady(Replaceable):
    """A new instant to draw."""

    def __init__(self, frame: Frame) -> None:
        super().__init__()
        self.frame = frame


class TensorsReady(Replaceable):
    """Statistics of the state tensors."""

    def __init__(self, table: TensorTable | None) -> None:
        super().__init__()
        self.table = table


class SlabReady(Replaceable):
    """A tensor to look into, for examine pane ``pane``."""

    def __init__(self, slab: Slab | None) -> None:
        super().__init__()
        self.slab = slab


class EventsReady(Replaceable):
    """Event rows that were asked for."""

    def __init__(self, rows: tuple[EventRow, ...]) -> None:
        super().__init__()
        self.rows = rows


class Answered(Message):
    """A command is done: what was typed, its lines, its status. ``reply`` is one sentence and its kind when the command
    moved nowhere: it is shown whatever else the stop line has to tell."""

    def __init__(
        self,
        line: str,
        lines: tuple[str, ...],
        status: str,
        quiet: bool = False,
        reply: tuple[str, str] = ("", ""),
    ) -> None:
        super().__init__()
        self.reply = reply
        self.line = line
        self.lines = lines
        self.status = status
        self.quiet = quiet


class VerifyDone(Message):
    """The verify round that the screen asked for has come to its decision, or has ended otherwise."""


class Loading(Replaceable):
    """Opening goes on: ``what`` is being done, ``share`` from 0 to 1 (negative: unknown)."""

    def __init__(self, what: str, share: float) -> None:
        super().__init__()
        self.what = what
        self.share = share


class Opened(Message):
    """The debugger is there."""


class OpenFailed(Message):
    """Opening failed, or was cancelled."""

    def __init__(self, text: str, cancelled: bool = False) -> None:
        super().__init__()
        self.text = text
        self.cancelled = cancelled
