"""The main screen: where panes stand, who gets frames, which key does what. Nothing is decided here: keys become
command lines, frames become pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Horizontal
from textual.screen import Screen
from textual.widgets import Static

from inspector.tui.frame import EventRow, Frame, Slab, TensorTable
from inspector.tui.keymaps import footer_groups
from inspector.tui.keys import Keys, spell
from inspector.tui.panes.blocks import BlocksPane
from inspector.tui.panes.cursors import CursorsPane
from inspector.tui.panes.events import EventsPane
from inspector.tui.panes.examine import ExaminePane
from inspector.tui.panes.output import OutputPane
from inspector.tui.panes.ring import RingPane
from inspector.tui.panes.slots import SlotsPane
from inspector.tui.panes.stops import StopsPane
from inspector.tui.panes.streams import StreamsPane
from inspector.tui.panes.tensors import TensorsPane
from inspector.tui.panes.tokens import TokensPane
from inspector.tui.routing import Ready
from inspector.tui.screens.actions import Actions
from inspector.tui.screens.line import OpenLine
from inspector.tui.themes import Styles
from inspector.tui.widgets.bars import CursorsBar, KeysBar, LineBar, StatusBar, StopBar, TimelineBar
from inspector.tui.widgets.command_line import CommandLine
from inspector.tui.widgets.pane import Pane
from inspector.tui.widgets.tabs import TabsBar

if TYPE_CHECKING:
    from inspector.tui.app import InspectorApp

PANES: dict[str, str] = {
    "1": "tokens",
    "2": "ring",
    "3": "slots",
    "4": "cursors",
    "5": "tensors",
    "6": "examine",
    "7": "stops",
    "8": "events",
    "9": "streams",
    "0": "blocks",
}
LAYOUTS = ("overview", "round", "tensors", "pools")
NARROW_WIDTH, NARROW_HEIGHT = 100, 32
WIDE_WIDTH, WIDE_HEIGHT = 160, 48
TINY_HEIGHT = 16
LEAST_WIDTH, LEAST_HEIGHT = 40, 10


class MainScreen(Actions, OpenLine, Screen[None]):
    """All panes around one frame."""

    CSS_PATH: ClassVar[str] = "../styles/main.tcss"
    BINDINGS: ClassVar[list[BindingType]] = []
    AUTO_FOCUS = ""
    ESCAPE_TO_MINIMIZE = False

    def __init__(self, frame: Frame | None = None) -> None:
        super().__init__(id="main")
        self.view = frame or Frame()
        self.layout_name = "overview"
        self.active = "tokens"
        self.zoomed = False
        self.extra = ""
        self.tab = "slots"
        self.typing = False
        self.ready = False
        self.keys: Keys

    @property
    def debugger_app(self) -> InspectorApp:
        return cast("InspectorApp", self.app)

    def compose(self) -> ComposeResult:
        yield StatusBar(id="status")
        yield TokensPane(id="tokens")
        yield TabsBar(id="tabs")
        with Container(id="board"):
            yield RingPane(id="ring")
            yield SlotsPane(id="slots")
            yield CursorsPane(id="cursors")
            yield TensorsPane(id="tensors")
            yield ExaminePane(id="examine")
            yield StopsPane(id="stops")
            yield EventsPane(id="events")
            yield StreamsPane(id="streams")
            yield BlocksPane(id="blocks")
        yield CursorsBar(id="cursorline")
        yield OutputPane(id="output")
        yield TimelineBar(id="timeline")
        yield StopBar(id="stop")
        with Horizontal(id="prompt"):
            yield Static("mtl ›", id="mark", markup=False)
            yield CommandLine(self.debugger_app.history, self.debugger_app.complete, id="line")
        yield KeysBar(id="keys")
        yield Static("make me larger (80x24)", id="small", markup=False)

    def on_mount(self) -> None:
        self.keys = Keys(self.debugger_app.keymap)
        # the line takes the focus by its key only, so that Tab walks the panes
        self.query_one(CommandLine).can_focus = False
        self.recolour(self.debugger_app.role_styles)
        self.fit(self.size.width, self.size.height)
        self.apply_keymap()
        self.show(self.debugger_app.frame)
        self.query_one("#tokens", Pane).focus()
        self.ready = True
        self.app.post_message(Ready())

    # ---------------------------------------------------------------------------------------------------- drawing

    def show(self, frame: Frame) -> None:
        """Draw a frame."""
        if frame.mode != self.view.mode:
            # borders carry the mode: every pane is another picture
            for pane in self.query(Pane):
                pane._lines = []
        found = frame.stop_kind == "finding" and bool(frame.findings) and frame.view.seq != self.view.view.seq
        self.view = frame
        for pane in self.query(Pane):
            pane.show(frame)
        if found and self.narrow and not self.zoomed:
            # tabs show one pane: the one that tells what broke
            self.open_pane("stops")
        for bar in self.query(LineBar):
            bar.show(frame)

    def show_reply(self, reply: tuple[str, str]) -> None:
        """The answer to the last action (text and kind), or nothing any more."""
        bar = self.query_one(StopBar)
        bar.reply = reply
        bar.redraw()

    def take_table(self, table: TensorTable | None) -> None:
        """Statistics of the state tensors, from the worker."""
        self.query_one(TensorsPane).take(table)

    def take_slab(self, slab: Slab | None) -> None:
        """The tensor that is looked into, from the worker."""
        self.query_one(ExaminePane).take(slab)

    def take_events(self, rows: tuple[EventRow, ...]) -> None:
        """Event rows that were asked for."""
        self.query_one(EventsPane).take(rows)

    def recolour(self, styles: Styles) -> None:
        """Another palette for everything."""
        for pane in self.query(Pane):
            pane.recolour(styles)
        for bar in self.query(LineBar):
            bar.recolour(styles)

    def apply_keymap(self) -> None:
        """Footer and key state of the app's keymap."""
        self.keys = Keys(self.debugger_app.keymap)
        bar = self.query_one(KeysBar)
        bar.groups = footer_groups(self.debugger_app.keymap, self.size.width)
        bar.redraw()

    def hint(self, *spans: tuple[str, str]) -> None:
        """Replace the footer until :meth:`hint` is called without anything."""
        bar = self.query_one(KeysBar)
        bar.hint = spans
        bar.redraw()

    # ----------------------------------------------------------------------------------------------------- layout

    def on_resize(self, event: events.Resize) -> None:
        self.fit(event.size.width, event.size.height)
        if self.is_mounted:
            self.apply_keymap()
            self.call_after_refresh(self._arranged)

    def _arranged(self) -> None:
        """Other panes are in sight now; one that was hidden by a tiny terminal lost the focus and gets it back."""
        self.debugger_app.looked_at(self.visible_panes())
        if self.focused is None and (pane := self.query_one(f"#{self.active}", Pane)).display:
            pane.focus()

    @property
    def narrow(self) -> bool:
        return self.has_class("narrow")

    def fit(self, width: int, height: int) -> None:
        """Choose the arrangement for a terminal size: tabs, overview, or everything."""
        narrow = width < NARROW_WIDTH or height < NARROW_HEIGHT
        overview = self.layout_name == "overview" and not narrow
        self.set_class(narrow, "narrow")
        self.set_class(overview and width >= WIDE_WIDTH and height >= WIDE_HEIGHT, "wide")
        self.set_class(height < TINY_HEIGHT, "tiny")
        self.set_class(width < LEAST_WIDTH or height < LEAST_HEIGHT, "too-small")
        for name in LAYOUTS[1:]:
            self.set_class(self.layout_name == name and not narrow, f"layout-{name}")
        self.place_panes()

    def place_panes(self) -> None:
        """Show the panes that the layout, the tab, the zoom and the extra view ask for."""
        zoom = self.zoomed
        self.set_class(zoom and self.active != "tokens", "zoomed")
        self.set_class(zoom and self.active == "tokens", "zoom-tokens")
        plain = not (self.narrow or self.has_class("wide"))
        for name in ("streams", "blocks"):
            self.set_class(plain and self.extra == name and self.layout_name == "overview", f"extra-{name}")
        if self.active != "tokens":
            self.tab = self.active
        tab = self.tab
        for name in list(PANES.values())[1:]:
            self.query_one(f"#{name}").set_class(name == tab, "active")
        tabs = self.query_one(TabsBar)
        tabs.active = next(number for number, name in PANES.items() if name == tab)
        tabs.redraw()

    def open_pane(self, name: str) -> None:
        """Bring a pane to the front and give it the focus."""
        self.active = name
        if name in ("streams", "blocks"):
            self.extra = name
        elif name == "stops":
            self.extra = ""
        pane = self.query_one(f"#{name}", Pane)
        if self.zoomed and name == "tokens":
            self.zoomed = True
        self.place_panes()
        pane.focus()
        self.call_after_refresh(self._arranged)

    def visible_panes(self) -> frozenset[str]:
        """Names of the panes that can be seen now."""
        board = self.query_one("#board").display
        return frozenset(
            name for name in PANES.values() if self.query_one(f"#{name}").display and (board or name == "tokens")
        )

    @property
    def pane(self) -> Pane:
        """The pane that keys act on: the drawer of answers while it has the focus, else the active one."""
        focused = self.focused
        return focused if isinstance(focused, OutputPane) else self.query_one(f"#{self.active}", Pane)

    # ------------------------------------------------------------------------------------------------------- keys

    def take_key(self, event: events.Key) -> None:
        """A key: of the command line while it is open, else of the keymap."""
        if self.typing:
            self.type_key(event)
            return
        outcome = self.keys.feed(spell(event.key, event.character))
        if outcome.action:
            self.hint()
            self.act(outcome.action, outcome.count)
        elif outcome.awaiting:
            self.hint((f" {outcome.awaiting} ", "key"), ("…  next key, or escape", "dim"))
        else:
            self.hint()

    @on(Pane.Picked)
    def _picked(self, message: Pane.Picked) -> None:
        self.picked(message.target, message.act)

    @on(TabsBar.Chosen)
    def _tab(self, message: TabsBar.Chosen) -> None:
        self.open_pane(PANES[message.number])

    @on(TimelineBar.Scrubbed)
    def _scrubbed(self, message: TimelineBar.Scrubbed) -> None:
        self.debugger_app.run_line(f"goto @{message.seq}")

    @on(EventsPane.Wanted)
    def _wanted(self, message: EventsPane.Wanted) -> None:
        self.debugger_app.want_events(message.low, message.high)

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        if self.typing and event.widget is not self.query_one(CommandLine):
            # a pane asked for the focus before the line was opened, and gets it only now
            self.set_focus(self.query_one(CommandLine))
        elif event.widget is self.focused and isinstance(event.widget, Pane) and event.widget.id in PANES.values():
            self.active = event.widget.id or self.active

    def on_click(self, event: events.Click) -> None:
        if self.typing and not isinstance(event.widget, CommandLine):
            self.leave_line()
