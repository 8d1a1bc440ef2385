"""Words of the screen (@verify, @zoom, ...) to methods. What changes the run is always sent as a command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from engine.events import Place
from inspector.tui.frame import Frame
from inspector.tui.panes.events import EventsPane
from inspector.tui.panes.output import OutputPane
from inspector.tui.screens.choices import diff_choices, rollback_choices
from inspector.tui.screens.dialogs import AcceptDialog, AskDialog, ChoiceDialog, ConfirmDialog
from inspector.tui.screens.help import HelpScreen, pane_help
from inspector.tui.widgets.command_line import CommandLine
from inspector.tui.widgets.pane import Pane, Target

if TYPE_CHECKING:
    from inspector.tui.app import InspectorApp

MOVES: dict[str, Callable[[Pane, int], None]] = {
    "top": lambda pane, count: pane.edge(False),
    "bottom": lambda pane, count: pane.edge(True),
    "up": lambda pane, count: pane.move(-count),
    "down": lambda pane, count: pane.move(count),
    "left": lambda pane, count: pane.slide(-count),
    "right": lambda pane, count: pane.slide(count),
    "half-down": lambda pane, count: pane.page(count / 2),
    "half-up": lambda pane, count: pane.page(-count / 2),
    "page-down": lambda pane, count: pane.page(count),
    "page-up": lambda pane, count: pane.page(-count),
}
REPEATABLE = ("step", "event", "next", "chunk", "finish", "continue", "back", "forward")


class Actions:
    """Mixed into the main screen."""

    if TYPE_CHECKING:
        view: Frame
        zoomed: bool
        layout_name: str
        active: str
        app: Any
        query_one: Any

        @property
        def debugger_app(self) -> InspectorApp: ...
        @property
        def pane(self) -> Pane: ...

        def hint(self, *spans: tuple[str, str]) -> None: ...
        def open_pane(self, name: str) -> None: ...
        def place_panes(self) -> None: ...
        def fit(self, width: int, height: int) -> None: ...

    def act(self, action: str, count: int = 1) -> None:
        """Do a bound action: a word of the screen, or a command line."""
        if not action.startswith("@"):
            name = action.split()[-1]
            self.debugger_app.run_line(f"{action} {count}" if count > 1 and name in REPEATABLE else action, key=True)
            return
        word, _, rest = action[1:].partition(" ")
        move = MOVES.get(word)
        if move is not None:
            move(self.pane, count)
            return
        method = getattr(self, "do_" + word.replace("-", "_"), None)
        if method is None:
            raise LookupError(f"keymap: no screen word @{word}")
        method(rest) if rest else method()

    # --------------------------------------------------------------------------------------------------- running

    def do_pause(self) -> None:
        if self.view.running:
            self.debugger_app.interrupt()
        else:
            self.debugger_app.run_line("event", key=True)

    def do_run_to(self) -> None:
        target = self.pane.target
        if target is None:
            self.note("t runs to the row or token under the cursor: move it there first")
        elif target[0] == "event":
            seq = int(str(target[1]))
            self.debugger_app.run_line(f"goto @{seq}" if seq <= self.view.last else f"until @{seq}", key=True)
        elif target[0] == "token":
            self.go_to_token(int(str(target[1])))
        else:
            self.note("t runs to an event or a token; this is neither")

    def do_restart(self) -> None:
        self.confirm("Go back to the first event? Nothing is lost: the run stays recorded.", "restart")

    def do_scrub(self, what: str) -> None:
        kind, _, by = what.partition(" ")
        now, step = self.view.view.seq, int(by)
        if kind == "event":
            wanted = now + step
        else:
            marks = self.view.marks
            places = sorted({*marks.keyframes, *(seq for seq, _ in marks.bookmarks), *marks.findings})
            ahead = [seq for seq in places if (seq > now if step > 0 else seq < now)]
            wanted = (
                (ahead[0] if step > 0 else ahead[-1]) if ahead else (self.view.last if step > 0 else self.view.first)
            )
        wanted = max(self.view.first, min(self.view.last, wanted))
        if wanted != now:
            self.debugger_app.run_line(f"goto @{wanted}", key=True)
        elif step > 0:
            self.note("the live edge: s, i or n executes on from here")

    def do_jump_back(self) -> None:
        self.debugger_app.run_line("back", key=True)

    def do_jump_forward(self) -> None:
        self.debugger_app.run_line("forward", key=True)

    def do_slower(self) -> None:
        self.debugger_app.change_speed(faster=False)

    def do_faster(self) -> None:
        self.debugger_app.change_speed(faster=True)

    # ---------------------------------------------------------------------------------------------------- acting

    def do_verify(self) -> None:
        k = max(1, self.view.view.start.k)
        self.ask(
            "Verify",
            (f"How many drafts (0 to {k - 1}), or the words or ids to verify, such as  \"the ring\"  or  #12 #7.",
             "Enter alone lets the drafter speak. The round then waits for your accept."),
            lambda text: self.debugger_app.verify(text),
            empty=True,
        )  # fmt: skip

    def do_accept(self) -> None:
        request = self.view.request
        if request is None:
            self.note("accept needs a request")
            return
        self.app.push_screen(AcceptDialog(self.view), self._accepted)

    def _accepted(self, answer: int | None) -> None:
        if answer is not None:
            self.act_line(f"accept {answer}")

    def do_rollback(self) -> None:
        if self.view.request is None:
            self.note("rollback needs a request")
            return
        choices = rollback_choices(self.view)
        self.app.push_screen(
            ChoiceDialog("Roll back", choices, ask="or type: length N, ring SLOT, boundary N"),
            lambda line: self.act_line(f"rollback {line}") if line else None,
        )

    def do_new(self) -> None:
        self.ask(
            "New request",
            ("Its prompt, as text. Enter admits it; it runs when a slot is free.",),
            lambda text: self.act_line(f"new {quote(text)}"),
        )

    def do_save(self) -> None:
        self.act_line("save")

    def act_line(self, line: str) -> None:
        """Send a command that acts; in the past it opens a branch, which is asked for once."""
        self.debugger_app.run_line(line)

    # ----------------------------------------------------------------------------------------------------- focus

    def do_outward(self) -> None:
        self.debugger_app.move_focus("out")

    def do_inward(self) -> None:
        self.debugger_app.move_focus("in")

    def do_sibling(self, step: str) -> None:
        self.debugger_app.move_focus("next" if int(step) > 0 else "previous")

    # ----------------------------------------------------------------------------------------- stops and looking

    def do_toggle_stop(self) -> None:
        target = self.pane.target
        if target is None:
            self.line("break ")
        elif target[0] == "stop":
            self.debugger_app.run_line(f"delete {str(target[1])[1:]}", key=True)
        elif target[0] == "event":
            self.debugger_app.run_line(f"break @{target[1]}", key=True)
        elif target[0] == "token":
            self.debugger_app.run_line(f"break pos {target[1]}", key=True)
        else:
            self.debugger_app.run_line(f"break {place_words(target)}", key=True)

    def do_stops(self) -> None:
        self.debugger_app.run_line("info stops")

    def do_watches(self) -> None:
        self.debugger_app.run_line("info stops")

    def do_watch(self) -> None:
        target = self.pane.target
        if target is not None and target[0] in ("place", "tensor"):
            self.debugger_app.run_line(f"watch {place_words(target)}", key=True)
        else:
            self.line("watch ")

    def do_print(self) -> None:
        self.line("print ")

    def do_examine(self) -> None:
        target = self.pane.target
        self.debugger_app.examine(target)
        self.open_pane("examine")

    def do_diff(self) -> None:
        self.app.push_screen(
            ChoiceDialog("Compare with", diff_choices(self.view), ask="or type a base: ring 2, @1043, 'a, golden"),
            self._base_chosen,
        )

    def _base_chosen(self, base: str | None) -> None:
        if base:
            self.debugger_app.choose_base(base, self.pane.target)

    def do_last(self) -> None:
        target = self.pane.target
        self.debugger_app.run_line(f"last {place_words(target)}" if target is not None else "last live")

    def do_mark(self, name: str) -> None:
        self.debugger_app.run_line(f"mark {name}", key=True)

    def do_goto_mark(self, name: str) -> None:
        self.debugger_app.run_line(f"goto '{name}", key=True)

    # ------------------------------------------------------------------------------------------------------ panes

    def do_pane(self, number: str) -> None:
        from inspector.tui.screens.main import PANES

        self.open_pane(PANES[number])

    def do_next_pane(self) -> None:
        self._cycle(1)

    def do_previous_pane(self) -> None:
        self._cycle(-1)

    def _cycle(self, step: int) -> None:
        from inspector.tui.screens.main import PANES

        order = list(PANES.values())
        shown = order if self.zoomed or self.narrow else [name for name in order if name in self.visible_panes()]  # type: ignore[attr-defined]
        at = shown.index(self.active) if self.active in shown else 0
        self.open_pane(shown[(at + step) % len(shown)])

    def do_jump(self) -> None:
        self.hint((" jump to: ", "strong"), ("1–9, 0 ", "key"), ("the number in a pane's border", "dim"))

    def do_zoom(self) -> None:
        self.zoomed = not self.zoomed
        self.place_panes()
        self.debugger_app.looked_at(self.visible_panes())  # type: ignore[attr-defined]

    def do_layout(self) -> None:
        from inspector.tui.screens.main import LAYOUTS

        at = LAYOUTS.index(self.layout_name)
        self.set_layout(LAYOUTS[(at + 1) % len(LAYOUTS)])

    def set_layout(self, name: str) -> None:
        """Another arrangement of the panes."""
        self.layout_name = name
        self.fit(self.app.size.width, self.app.size.height)
        self.debugger_app.remember(layout=name)
        self.note(f"layout {name}")

    def do_escape(self) -> None:
        output = self.query_one(OutputPane)
        if output.has_class("open"):
            output.remove_class("open")
            self.query_one(f"#{self.active}", Pane).focus()
        elif self.zoomed:
            self.do_zoom()
        else:
            self.pane.forget_cursor()

    def do_open(self) -> None:
        target = self.pane.target
        if target is None:
            self.debugger_app.run_line("", key=True)
        else:
            self.picked(target, True)

    def picked(self, target: Target, act: bool) -> None:
        """A row was pointed at or opened."""
        kind, value = target
        if not act:
            self.debugger_app.select(target)
        elif kind == "event":
            self.debugger_app.run_line(f"goto @{value}", key=True)
        elif kind == "token":
            self.go_to_token(int(str(value)))
        elif kind == "request":
            self.debugger_app.run_line(f"focus request {value}", key=True)
        elif kind == "tensor":
            self.do_examine()
        elif kind == "place" and isinstance(value, Place) and value.kind == "ring":
            self.offer_rollback(value)
        elif kind == "place":
            self.do_last()

    def offer_rollback(self, place: Place) -> None:
        """Enter on a ring entry: roll back to it, after asking."""
        self.confirm(f"Roll back to ring slot {place.index}?", f"rollback ring {place.index}")

    def go_to_token(self, index: int) -> None:
        """To the event at which a token was written: backwards or forwards."""
        self.debugger_app.worker.go_to_token(index)

    # --------------------------------------------------------------------------------------------- line and search

    def do_command(self) -> None:
        self.line("")

    def line(self, text: str, search: bool = False) -> None:
        """Open the command line with ``text`` typed."""
        self.query_one("#mark").update("/" if search else "mtl ›")
        self.query_one(CommandLine).begin(text, search)

    def do_search(self) -> None:
        self.line("", search=True)

    def search(self, word: str) -> None:
        """Look for ``word`` in the focused pane."""
        if word and not self.pane.search(word):
            self.note(f"{self.pane.NAME}: nothing contains {word!r}")

    def do_search_next(self) -> None:
        self._again(True)

    def do_search_previous(self) -> None:
        self._again(False)

    def _again(self, forward: bool) -> None:
        if self.pane.word:
            self.pane.search(self.pane.word, forward, again=True)
        else:
            self.note("nothing searched yet: / searches")

    # ------------------------------------------------------------------------------------------- copy, export, help

    def do_copy(self) -> None:
        command = self.debugger_app.command_for(self.pane.id or "", self.pane.target)
        self.app.copy_to_clipboard(command)
        self.note(f"copied: {command}")

    def do_copy_text(self) -> None:
        self.app.copy_to_clipboard(self.pane.text())
        self.note(f"copied the text of pane {self.pane.NUMBER} {self.pane.NAME}")

    def do_export(self) -> None:
        self.app.push_screen(
            ChoiceDialog(
                "Export",
                [("picture", "this screen as SVG", "picture"), *self.debugger_app.export_choices()],
                ask="or type: picture FILE, test FILE, ...",
            ),
            lambda line: self.debugger_app.export(line) if line else None,
        )

    def do_help(self) -> None:
        self.app.push_screen(HelpScreen(pane_help(self.pane, self.debugger_app)))

    def do_palette(self) -> None:
        self.app.action_command_palette()

    def do_quit(self) -> None:
        self.debugger_app.leave()

    # --------------------------------------------------------------------------------------------------- dialogs

    def note(self, text: str) -> None:
        """One sentence in the line that tells why the debugger stands here."""
        self.debugger_app.note(text)

    def ask(self, title: str, about: tuple[str, ...], done: Callable[[str], None], empty: bool = False) -> None:
        """A dialog with one input."""

        def answered(text: str | None) -> None:
            if text is not None and (text or empty):
                done(text)

        self.app.push_screen(AskDialog(title, about), answered)

    def confirm(self, question: str, line: str) -> None:
        """Ask, then run ``line``."""
        self.app.push_screen(
            ConfirmDialog(question), lambda yes: self.debugger_app.run_line(line) if yes else None
        )  # fmt: skip


def quote(text: str) -> str:
    """``text`` as one word of a command line."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def place_words(target: Target | None) -> str:
    """A target as commands write it: ``ring:0.2``, ``live.h[4]``."""
    if target is None:
        return "live"
    kind, value = target
    if isinstance(value, Place):
        return value.to_text()
    if kind == "tensor" and isinstance(value, tuple):
        return f"live.{value[1]}[{value[0]}]"
    return str(value)


__all__ = ["Actions", "EventsPane", "place_words", "quote"]
