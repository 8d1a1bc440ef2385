"""Words that look: stops, panes, search, copy, export, help."""

from __future__ import annotations

from engine.events import Place
from inspector.tui.panes.events import EventsPane
from inspector.tui.panes.output import OutputPane
from inspector.tui.screens.choices import diff_choices, rollback_remark
from inspector.tui.screens.dialogs import ChoiceDialog
from inspector.tui.screens.help import HelpScreen, pane_help
from inspector.tui.screens.parts import ScreenPart
from inspector.tui.screens.words import place_words
from inspector.tui.widgets.pane import Pane, Target


class Looking(ScreenPart):
    """Mixed into the main screen."""

    # ----------------------------------------------------------------------------------------- stops and looking

    def do_toggle_stop(self) -> None:
        target = self.pane.target
        if target is None:
            self.line("break ")
        elif target[0] == "stop":
            self.debugger_app.run_line(f"delete {str(target[1])[1:]}", key=True)
        elif target[0] == "event":
            kinds = {row.seq: row.kind for row in (*self.view.events, *self.query_one(EventsPane).window)}
            self.debugger_app.run_line(f"break {kinds.get(int(str(target[1])), f'@{target[1]}')}", key=True)
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
        shown = order if self.zoomed or self.narrow else [name for name in order if name in self.visible_panes()]
        at = shown.index(self.active) if self.active in shown else 0
        self.open_pane(shown[(at + step) % len(shown)])

    def do_jump(self) -> None:
        self.hint((" jump to: ", "strong"), ("1–9, 0 ", "key"), ("the number in a pane's border", "dim"))

    def do_zoom(self) -> None:
        self.zoomed = not self.zoomed
        self.place_panes()
        self.call_after_refresh(self._arranged)

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
        elif kind == "branch":
            self.debugger_app.run_line(f"branch {value}", key=True)
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
        question = f"Roll back to ring slot {place.index}? {rollback_remark(self.view)}".rstrip()
        self.confirm(question, f"rollback ring {place.index}")

    # --------------------------------------------------------------------------------------------- line and search

    def do_command(self) -> None:
        self.line("")

    def do_search(self) -> None:
        self.line("", search=True)

    def search(self, word: str) -> None:
        """Look for ``word`` in the focused pane."""
        if word:
            self._tell_match(word, self.pane.search(word))

    def _tell_match(self, word: str, found: bool) -> None:
        if not found:
            self.note(f"{self.pane.NAME}: nothing contains {word!r}")
            return
        number, count = self.pane.match_count()
        self.note(f"{word!r}: {number} of {count}   . next   , previous")

    def do_search_next(self) -> None:
        self._again(True)

    def do_search_previous(self) -> None:
        self._again(False)

    def _again(self, forward: bool) -> None:
        if self.pane.word:
            self._tell_match(self.pane.word, self.pane.search(self.pane.word, forward, again=True))
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
