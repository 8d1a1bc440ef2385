"""What the screen asks of the worker, in words of people: run a line, move the focus, examine, export."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inspector.tui.focusing import focus_line
from inspector.tui.keymaps import KEYMAPS
from inspector.tui.themes import PALETTES

if TYPE_CHECKING:
    from inspector.tui.frame import Frame
    from inspector.tui.ports import DebuggerPort
    from inspector.tui.screens.main import MainScreen
    from inspector.tui.widgets.pane import Target
    from inspector.tui.worker import Worker

SPEEDS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 500.0, 0.0)
FAR = ("continue", "until", "finish", "run")
SCREEN_COMMANDS = ("theme", "keymap", "layout", "speed")
LAYOUT_NAMES = ("overview", "round", "tensors", "pools")


class Requests:
    """Mixed into the app."""

    if TYPE_CHECKING:
        frame: Frame
        worker: Worker

        @property
        def main(self) -> MainScreen: ...
        @property
        def is_open(self) -> bool: ...

        memory: Any

        @property
        def registry(self) -> Any: ...

        _asked_branch: bool
        holding: bool
        reply: tuple[str, str]

        def set_theme(self, name: str) -> None: ...
        def use_keymap(self, name: str) -> None: ...

        push_screen: Any

    # ------------------------------------------------------------------------------------------------------- lines

    def run_line(self, line: str, key: bool = False) -> None:
        """Run a command line. An action in the past opens a branch: that is asked for once."""
        if not key and line:
            self.memory.typed(line)
        if self._own(line):
            return
        if self.worker.busy and self._goes_far(self.worker.line):
            self.note(f"{self.worker.line} is running: space pauses it first")
            return
        if self._in_the_past and not self._asked_branch and self._acts(line):
            self._ask_branch(line, lambda: self.worker.submit(line, quiet=key))
            return
        self.worker.submit(line, quiet=key)

    def verify(self, drafts: str) -> None:
        """A verify round that waits at its accept decision. What is typed until then is meant for that decision."""

        def go() -> None:
            self.holding = True
            self.worker.verify(drafts)

        if self._in_the_past and not self._asked_branch:
            self._ask_branch("verify", go)
        else:
            go()

    @property
    def _in_the_past(self) -> bool:
        """Whether later events exist that an action here would leave: at the end of a recording there are none."""
        return self.frame.mode == "HISTORY" and self.frame.view.seq < self.frame.last

    def _ask_branch(self, line: str, go: Callable[[], None]) -> None:
        def answered(yes: bool | None) -> None:
            if yes:
                self._asked_branch = True
                go()

        from inspector.tui.screens.dialogs import ConfirmDialog

        question = f"{line.split()[0]} at event {self.frame.view.seq} acts in the past: it opens a branch there. "
        self.push_screen(ConfirmDialog(question + "What is recorded stays as it is. Open a branch?"), answered)

    def _command(self, line: str) -> Any:
        """The registry's command for a line, or None."""
        words = line.split()
        if words[:1] in (["rev"], ["reverse"]):
            words = words[1:]
        if not words or self.registry is None:
            return None
        try:
            return self.registry.resolve(words[0])[0]
        except ValueError:
            return None

    def _goes_far(self, line: str) -> bool:
        """Whether a running line may go on for long: what is typed meanwhile would surprise later."""
        command = self._command(line)
        return command is not None and command.name in FAR

    def _acts(self, line: str) -> bool:
        command = self._command(line)
        return command is not None and "past" in command.needs

    def movement(self, line: str) -> bool:
        """Whether a line moves or acts: its answer is the new frame."""
        command = self._command(line)
        return not line or (command is not None and command.group in ("move", "act"))

    def _own(self, line: str) -> bool:
        """Commands about the screen itself."""
        word, _, rest = line.strip().partition(" ")
        rest = rest.strip()
        if word == "theme" and rest in PALETTES:
            self.set_theme(rest)
        elif word == "keymap" and rest in KEYMAPS:
            self.use_keymap(rest)
        elif word == "layout" and rest in LAYOUT_NAMES:
            self.main.set_layout(rest)
        elif word == "speed":
            self._set_speed(rest)
        elif word in ("theme", "keymap", "layout"):
            known: Iterable[str] = PALETTES if word == "theme" else KEYMAPS if word == "keymap" else LAYOUT_NAMES
            self.note(f"{word} is one of {', '.join(known)}")
        else:
            return False
        return True

    def from_palette(self, action: str) -> None:
        """An entry of the palette was chosen."""
        if action.startswith("=") or (action.startswith(":") and not action.endswith(" ")):
            self.run_line(action[1:])
        elif action.startswith(":"):
            self.main.line(action[1:])
        else:
            self.main.act(action)

    async def complete(self, line: str) -> Sequence[str]:
        """Whole lines that ``line`` could become."""
        head, space, rest = line.partition(" ")
        own: dict[str, Sequence[str]] = {"theme": tuple(PALETTES), "keymap": tuple(KEYMAPS), "layout": LAYOUT_NAMES}
        if space and head in own:
            return [f"{head} {choice}" for choice in own[head] if choice.startswith(rest)]
        found = await self.worker.complete(line)
        if not space:
            found = sorted({*found, *(word for word in SCREEN_COMMANDS if word.startswith(line))})
        return found

    # ----------------------------------------------------------------------------------------------------- running

    def interrupt(self) -> None:
        """Pause at the next event."""
        self.worker.interrupt()

    def change_speed(self, faster: bool) -> None:
        """One step slower or faster; 0 is unlimited."""
        at = SPEEDS.index(self.worker.speed) if self.worker.speed in SPEEDS else len(SPEEDS) - 1
        at = max(0, min(len(SPEEDS) - 1, at + (1 if faster else -1)))
        self._apply_speed(SPEEDS[at])

    def _set_speed(self, text: str) -> None:
        try:
            value = 0.0 if text in ("", "max", "off") else float(text)
        except ValueError:
            value = -1.0
        if not 0 <= value < 1e6:
            self.note("speed is a number of events a second, or max")
            return
        self._apply_speed(value)

    def _apply_speed(self, value: float) -> None:
        self.worker.speed = value
        self.note(f"running at most {value:g} events a second" if value else "running without a speed limit")

    # ------------------------------------------------------------------------------------------------------- focus

    def move_focus(self, how: str) -> None:
        """Inward, outward, to the next or the previous request, layer or head."""
        line = focus_line(self.frame, how)
        if line:
            self.worker.submit(line, quiet=True)

    def select(self, target: Target) -> None:
        """A row was pointed at: its place becomes the one that the tensor pane reads."""
        kind, value = target
        if kind == "place":
            self.worker.do(lambda debugger: setattr(self.worker.tensors, "place", value))
            self.worker.refresh()
        elif kind == "tensor" and isinstance(value, tuple):
            layer, part = value
            self.worker.do(lambda debugger: self.worker.tensors.look_into(part))
            self.worker.submit(f"focus layer {layer}", quiet=True)

    def looked_at(self, panes: frozenset[str]) -> None:
        """Which panes are in sight: tensors are read for those only."""
        if self.worker.debugger is not None:
            self.worker.do(lambda debugger: setattr(self.worker.tensors, "wanted", panes))

    def want_events(self, low: int, high: int) -> None:
        self.worker.want_events(low, high)

    def examine(self, target: Target | None) -> None:
        """Look into a tensor, or into the first layer of a place."""
        if (target is not None and target[0] == "place") or (target is not None and target[0] == "tensor"):
            self.select(target)
        else:
            self.worker.refresh()

    def choose_base(self, base: str, target: Target | None) -> None:
        """Compare live (or the selected place) with a base, in panes 5 and 6 and in words."""
        place: Any = target[1] if target is not None and target[0] == "place" else None
        if base == "twin":
            self.run_line(f"diff {place or 'live'} {base}")
            return

        def change(debugger: DebuggerPort) -> None:
            # the base itself was pointed at: then live is what is compared with it
            self.worker.tensors.compare(base, None if str(place or "").replace(":", " ") == base else place)

        self.worker.do(change)
        self.worker.refresh()
        self.worker.submit(f"diff {place or 'live'} {base}", quiet=True)

    # ------------------------------------------------------------------------------------------------ copy, export

    def command_for(self, pane: str, target: Target | None) -> str:
        """The command line that shows what a pane shows, here and now."""
        from inspector.tui.screens.words import place_words

        at = f"goto @{self.frame.view.seq}"
        look = {
            "ring": "info ring",
            "slots": "info slots",
            "cursors": "info cursors",
            "stops": "info stops",
            "events": "info events",
            "tokens": "info tokens",
            "streams": "info streams",
            "blocks": "info blocks",
        }.get(pane, "")
        if target is not None and target[0] == "event":
            return f"goto @{target[1]}"
        if target is not None and target[0] in ("place", "tensor"):
            look = f"print {place_words(target)}" if pane != "tensors" else f"examine {place_words(target)}"
        return look or at

    def export_choices(self) -> list[tuple[str, str, str]]:
        """What the registry's export offers."""
        command = self.registry.get("export") if self.registry is not None and "export" in self.registry.words else None
        kinds = command.args[0].choices if command is not None and command.args else ()
        return [(kind, "", f"{kind} ") for kind in kinds] if isinstance(kinds, tuple) else []

    def export(self, choice: str) -> None:
        """A picture is made here; everything else is a command."""
        word, _, name = choice.strip().partition(" ")
        if word == "picture":
            self._save_picture(name.strip() or f"metrale-inspect-{self.frame.view.seq}.svg")
        elif name:
            self.run_line(f"export {choice}")
        else:
            self.main.line(f"export {word} ")

    def _save_picture(self, name: str) -> None:
        from inspector.tui.pictures import steady_svg

        path = Path(name).expanduser()
        try:
            picture = self.export_screenshot(title="metrale-inspect")  # type: ignore[attr-defined]
            path.write_text(steady_svg(picture), encoding="utf-8")
        except OSError as error:
            self.note(f"{name} cannot be written: {error.strerror or error}")
        else:
            self.note(f"picture written: {path}")

    def note(self, text: str) -> None:
        """A sentence in the stop line, until the next stop."""
        self.frame = replace(self.frame, stop=text, stop_kind="note")
        self.reply = (text, "note")
        if self.is_open:
            self.main.show(self.frame)
            self.main.show_reply(self.reply)

    def answer(self, text: str, kind: str) -> None:
        """The answer to what was done last: it has the stop line until the next key."""
        self.reply = (text, kind)
        if self.is_open:
            self.main.show_reply(self.reply)

    def forget_reply(self) -> None:
        """A key was pressed: the stop line tells again why the debugger stands here."""
        if self.reply[0]:
            self.answer("", "")
