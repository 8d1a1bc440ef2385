"""The Textual application: starts the worker, shows its frames, sends it command lines. Opened by :func:`run_app`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual import on
from textual.binding import Binding, BindingType
from textual.filter import ANSIToTruecolor

from inspector.tui.keymaps import KEYMAPS, Keymap
from inspector.tui.messages import (
    Answered,
    EventsReady,
    FrameReady,
    Loading,
    Opened,
    OpenFailed,
    SlabReady,
    TensorsReady,
    VerifyDone,
)
from inspector.tui.palette import CommandsProvider
from inspector.tui.ports import Options
from inspector.tui.requests import Requests
from inspector.tui.routing import Routing
from inspector.tui.screens.loading import LoadingScreen
from inspector.tui.settings import Memory, settings_folder
from inspector.tui.themes import PALETTES, Styles, textual_theme
from inspector.tui.worker import Worker

if TYPE_CHECKING:
    from inspector.tui.frame import Frame
    from inspector.tui.panes.output import OutputPane
    from inspector.tui.ports import Opener
    from inspector.tui.screens.main import MainScreen

ONE_LINE = 1
MAIN = "main"


class InspectorApp(Requests, Routing):
    """The debugger's screen. ``opener`` makes the debugger in the worker thread; ``memory`` is what a second start
    remembers."""

    TITLE = "metrale-inspect"
    CSS_PATH = Path(__file__).parent / "styles" / "app.tcss"
    COMMANDS: ClassVar[set[Any]] = {CommandsProvider}
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+c", "interrupt", show=False, priority=True)]
    ENABLE_COMMAND_PALETTE = True
    ALLOW_SELECT = False

    def __init__(
        self, opener: Opener, name: str = "", options: Options | None = None, memory: Memory | None = None
    ) -> None:
        # without colour there must be no colour code at all, not shades of grey
        super().__init__(ansi_color=True if os.environ.get("NO_COLOR") is not None else None)
        # every colour here is a true one: the filter that looks for terminal colours costs a tenth of a frame
        self._filters = [line_filter for line_filter in self._filters if not isinstance(line_filter, ANSIToTruecolor)]
        self.memory = memory or Memory(None)
        self.options = options or Options()
        chosen = self.memory.settings
        self.keymap: Keymap = KEYMAPS[self.options.keymap or chosen.keymap]
        self.model_name = name
        self.frame: Frame
        self.worker = Worker(opener, self.post_message)
        self.role_styles = Styles(PALETTES[self.options.theme or chosen.theme], self.no_color)
        for palette in PALETTES.values():
            self.register_theme(textual_theme(palette))
        self.theme = self.options.theme or chosen.theme
        self._asked_branch = False
        self.reply: tuple[str, str] = ("", "")
        self.animation_level = "none"

    @property
    def history(self) -> list[str]:
        """Lines of the command line, oldest first."""
        lines: list[str] = self.memory.history
        return lines

    @property
    def registry(self) -> Any:
        """The commands, once the debugger is there."""
        debugger = self.worker.debugger
        return debugger.registry if debugger is not None else None

    @property
    def main(self) -> MainScreen:
        """The main screen. Raises LookupError while loading."""
        for screen in self.screen_stack:
            if screen.id == MAIN:
                return cast("MainScreen", screen)
        raise LookupError("the main screen is not there yet")

    @property
    def is_open(self) -> bool:
        return any(screen.id == MAIN for screen in self.screen_stack)

    # ------------------------------------------------------------------------------------------------- life cycle

    def on_mount(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Show that something is being opened, then open it."""
        self.push_screen(LoadingScreen(self.model_name))
        self.call_after_refresh(self.worker.start)

    @on(Loading)
    def _loading(self, message: Loading) -> None:
        if isinstance(self.screen, LoadingScreen):
            self.screen.report(message.what, message.share)

    @on(OpenFailed)
    def _failed(self, message: OpenFailed) -> None:
        if message.cancelled:
            self.exit(0)
        elif isinstance(self.screen, LoadingScreen):
            self.failure = message.text
            self.screen.failed(message.text)

    failure = ""

    @on(LoadingScreen.Cancelled)
    def _cancel_loading(self) -> None:
        if self.failure:
            self.exit(3, message=None)
        else:
            self.worker.interrupt()
            self.exit(0)

    @on(Opened)
    def _opened(self) -> None:
        from inspector.tui.frame import Frame
        from inspector.tui.screens.main import MainScreen

        self.frame = Frame()
        screen = MainScreen(self.frame)
        screen.layout_name = self.options.layout or self.memory.settings.layout
        self.switch_screen(screen)
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        self.looked_at(self.main.visible_panes())
        from inspector.tui.screens.words import quote

        options = self.options
        if options.prompt:
            self.worker.submit(f"new {quote(options.prompt)}", quiet=True)
        if options.script:
            self.worker.submit(f"source {quote(options.script)}")
        for line in options.commands:
            self.worker.submit(line, quiet=True)

    @on(FrameReady)
    def _frame(self, message: FrameReady) -> None:
        self.frame = message.frame
        if self.is_open and self.main.is_mounted:
            began = perf_counter()
            self.main.show(message.frame)
            self.worker.draw_seconds = 0.8 * self.worker.draw_seconds + 0.2 * (perf_counter() - began)

    @on(Answered)
    def _answered(self, message: Answered) -> None:
        if message.status == "quit":
            self.leave()
            return
        if not self.is_open:
            return
        lines = tuple(line for line in message.lines if line)
        output = cast("OutputPane", self.main.query_one("#output"))
        moved = message.quiet and message.status != "error"
        if message.reply[0]:
            self.answer(*message.reply)
        if lines and not moved:
            output.add(message.line, message.lines, message.status in ("ok", "quit"))
        if len(lines) > ONE_LINE and not moved and not self.movement(message.line):
            output.add_class("open")
            output.focus()

    @on(VerifyDone)
    def _verified(self) -> None:
        """The round that ``v`` began stands at its decision: a digit answers it at once."""
        self.holding = False
        waiting = self.frame.waiting
        if self.is_open and waiting is not None and waiting.what == "accept" and self.screen is self.main:
            self.main.do_accept()
        self.release()

    @on(TensorsReady)
    def _tensors(self, message: TensorsReady) -> None:
        if self.is_open:
            self.main.take_table(message.table)

    @on(SlabReady)
    def _slab(self, message: SlabReady) -> None:
        if self.is_open:
            self.main.take_slab(message.slab)

    @on(EventsReady)
    def _events(self, message: EventsReady) -> None:
        if self.is_open:
            self.main.take_events(message.rows)

    def action_interrupt(self) -> None:
        """ctrl+c: pause what runs; never end the session."""
        if isinstance(self.screen, LoadingScreen):
            self._cancel_loading()
        elif self.worker.busy:
            self.worker.interrupt()
        else:
            self.note("nothing runs; q quits, the session is kept")

    async def action_quit(self) -> None:
        self.leave()

    def leave(self) -> None:
        """Close the session and end."""
        self.memory.close()
        self.worker.close()
        self.exit(0)

    # --------------------------------------------------------------------------------------------------- settings

    def set_theme(self, name: str) -> None:
        """Another palette, remembered."""
        self.role_styles = Styles(PALETTES[name], self.no_color)
        self.theme = name
        if self.is_open:
            self.main.recolour(self.role_styles)
        self.remember(theme=name)

    def use_keymap(self, name: str) -> None:
        """Another keymap, remembered."""
        self.keymap = KEYMAPS[name]
        if self.is_open:
            self.main.apply_keymap()
        self.remember(keymap=name)

    def remember(self, **choices: str) -> None:
        """Keep choices for the next start."""
        self.memory.remember(**choices)


def run_app(source: str | None, options: Options | None = None) -> int:
    """Open ``source`` (a model, a session file, a trace; None: the bundled model) on the screen.

    Returns the exit status: 0; 2 without a terminal or with an unknown theme or keymap; 3 when the source cannot be
    opened (its text goes to stderr). When torch was loaded and the session is closed the process ends here: taking the
    interpreter down with it takes seconds that a person would wait at the prompt.
    """
    options = options or Options()
    problem = _problem(options)
    if problem:
        print(f"metrale-inspect: {problem}", file=sys.stderr)
        return 2
    from inspector.tui.opener import opener_for

    # exported by some shells, and then older than the terminal: its own size counts
    for stale in ("COLUMNS", "LINES"):
        os.environ.pop(stale, None)
    name = Path(source).name if source else "bundled model"
    app = InspectorApp(opener_for(source, options), name, options, Memory(settings_folder()))
    status = app.run() or 0
    closed = app.worker.close()
    if app.failure:
        print(f"metrale-inspect: {app.failure}", file=sys.stderr)
        status = 3
    if closed and "torch" in sys.modules:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return status


def _problem(options: Options) -> str:
    """Why the screen cannot be opened, "" when it can."""
    if options.theme and options.theme not in PALETTES:
        return f"there is no theme {options.theme!r}; themes: {', '.join(PALETTES)}"
    if options.keymap and options.keymap not in KEYMAPS:
        return f"there is no keymap {options.keymap!r}; keymaps: {', '.join(KEYMAPS)}"
    # Textual draws on standard error, so that one counts too; a driver named from outside (a browser) needs none
    terminals = (sys.stdin, sys.stdout, sys.stderr)
    if "TEXTUAL_DRIVER" not in os.environ and not all(stream.isatty() for stream in terminals):
        return (
            "the screen needs a terminal, and input or output is none here. "
            'Use "metrale-inspect batch -x FILE", "run" or "check" instead.'
        )
    return ""


__all__: Sequence[str] = ("InspectorApp", "run_app")
