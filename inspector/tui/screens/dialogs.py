"""Small questions: one input, a list, a yes or no, how many rows are accepted."""

from __future__ import annotations

from typing import ClassVar, TypeVar

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Label, OptionList
from textual.widgets.option_list import Option

from inspector.tui.frame import Frame
from inspector.tui.routing import Ready
from inspector.tui.screens.choices import Choice
from inspector.tui.text import fit, token_text, visible
from inspector.tui.widgets.editing import first_line, insert, press


def steady(field: Input) -> Input:
    """An input whose cursor does not blink: pictures of the screen must not depend on the clock."""
    field.cursor_blink = False
    return field


Answer = TypeVar("Answer")


class Dialog(ModalScreen[Answer]):
    """A question whose keys are handed to it in order, from the first one on (see ``routing``)."""

    CSS_PATH: ClassVar[str] = "../styles/dialogs.tcss"

    def __init__(self) -> None:
        super().__init__()
        self.ready = False

    def on_mount(self) -> None:
        self.ready = True
        self.app.post_message(Ready())

    def take_key(self, event: events.Key) -> None:
        """One key. To be filled in."""
        raise NotImplementedError

    def take_paste(self, text: str) -> None:
        """Pasted text goes into the input, where there is one."""
        for field in self.query(Input):
            self.set_focus(field)
            insert(field, first_line(text))


class AskDialog(Dialog[str | None]):
    """One line of text. Escape gives None."""

    def __init__(self, title: str, about: tuple[str, ...], value: str = "") -> None:
        super().__init__()
        self.caption = title
        self.about = about
        self.value = value

    def compose(self) -> ComposeResult:
        with Vertical(classes="box") as box:
            for text in self.about:
                yield Label(text, markup=False)
            yield steady(Input(self.value, compact=True))
        box.border_title = Content(f" {self.caption} ")
        box.border_subtitle = Content(" enter · esc ")

    def on_mount(self) -> None:
        self.set_focus(self.query_one(Input))
        super().on_mount()

    def take_key(self, event: events.Key) -> None:
        field = self.query_one(Input)
        if event.key == "escape":
            self.dismiss(None)
        elif event.key == "enter":
            self.dismiss(field.value.strip())
        else:
            press(field, event)


class ChoiceDialog(Dialog[str | None]):
    """A list to choose from, and an input for what is not in it. Escape gives None."""

    def __init__(self, title: str, choices: list[Choice], ask: str = "") -> None:
        super().__init__()
        self.caption = title
        self.choices = choices
        self.hint = ask

    def compose(self) -> ComposeResult:
        wide = max((len(name) for name, _, _ in self.choices), default=0)
        with Vertical(classes="box") as box:
            yield OptionList(
                *(
                    Option(Content.assemble((fit(visible(name), wide + 3), "bold"), (visible(about), "dim")))
                    for name, about, _ in self.choices
                )
            )
            if self.hint:
                yield steady(Input(placeholder=self.hint, compact=True))
        box.border_title = Content(f" {self.caption} ")
        box.border_subtitle = Content(" enter · tab to type · esc ")

    def on_mount(self) -> None:
        self.set_focus(self.query_one(OptionList))
        super().on_mount()

    @on(OptionList.OptionSelected)
    def _chosen(self, message: OptionList.OptionSelected) -> None:
        self.dismiss(self.choices[message.option_index][2])

    def take_key(self, event: events.Key) -> None:
        options = self.query_one(OptionList)
        fields = [*self.query(Input)]
        typing = isinstance(self.focused, Input)
        if event.key == "escape":
            self.dismiss(None)
        elif event.key in ("tab", "shift+tab") and fields:
            self.set_focus(options if typing else fields[0])
        elif event.key == "enter":
            self._enter(fields[0].value.strip() if typing else "", options.highlighted, typing)
        elif typing:
            press(fields[0], event)
        elif event.character in ("j", "k"):
            options.action_cursor_down() if event.character == "j" else options.action_cursor_up()
        elif event.is_printable and fields:
            # whoever types means the input
            self.set_focus(fields[0])
            press(fields[0], event)
        else:
            press(options, event)

    def _enter(self, text: str, place: int | None, typing: bool) -> None:
        if typing and text:
            self.dismiss(text)
        elif not typing and self.choices:
            self.dismiss(self.choices[place or 0][2])


class ConfirmDialog(Dialog[bool]):
    """Yes or no. Enter or y is yes."""

    def __init__(self, question: str) -> None:
        super().__init__()
        self.question = question

    def compose(self) -> ComposeResult:
        with Vertical(classes="box") as box:
            yield Label(self.question, markup=False, classes="strong")
        box.border_subtitle = Content(" y or enter · n or esc ")

    def take_key(self, event: events.Key) -> None:
        if event.key in ("y", "enter"):
            self.dismiss(True)
        elif event.key in ("n", "escape", "q"):
            self.dismiss(False)


class AcceptDialog(Dialog[int | None]):
    """The rows of the paused round: which drafts the model agrees with. A digit answers at once."""

    def __init__(self, frame: Frame) -> None:
        super().__init__()
        self.frame = frame
        decision = frame.waiting
        waits = decision is not None and decision.what == "accept"
        self.low = decision.low if decision is not None and waits else 1
        self.high = decision.high if decision is not None and waits else max(1, frame.view.start.k)
        self.default: int | None = decision.default if decision is not None and waits else None

    def compose(self) -> ComposeResult:
        with Vertical(classes="box") as box:
            yield Label("How many rows are accepted? Live becomes the state after the last of them.", markup=False)
            yield Label(" ", markup=False)
            for line in self._rows():
                yield Label(line, classes="strong")
        box.border_title = Content(" Accept ")
        enter = f" · enter takes {self.default}" if self.default is not None else ""
        box.border_subtitle = Content(f" {self.low}–{self.high} answers at once{enter} · esc ")

    def _rows(self) -> list[Content]:
        request = self.frame.request
        if request is None:
            return []
        texts = self.frame.view.texts

        def shown(token: int) -> str:
            return fit(token_text(texts.get(token, f"#{token}")), 14)

        facts = request.round
        if not facts.open or not facts.drafts:
            text = "No round waits: the next one is run, and accepts as many as you say of its drafts."
            return [Content.styled(text, "dim")]
        inputs = (request.pending, *facts.drafts)
        out = [Content.styled("  rows   input          the model says", "dim")]
        for row, token in enumerate(inputs):
            pick = facts.picks[row] if row < len(facts.picks) else -1
            following = inputs[row + 1] if row + 1 < len(inputs) else None
            verdict = "" if following is None else "✓ agrees" if pick == following else "✗ not the draft"
            sign = "▸" if row + 1 == self.default else " "
            out.append(
                Content.assemble(
                    (f"{sign} {row + 1:>3}    ", "bold"), shown(token), " ",
                    (shown(pick) if pick >= 0 else fit("", 14), "dim"), " ",
                    (verdict, "$ms-accepted" if verdict.startswith("✓") else "$ms-rejected"),
                )
            )  # fmt: skip
        return out

    def take_key(self, event: events.Key) -> None:
        if event.key.isdigit() and self.low <= int(event.key) <= self.high:
            self.dismiss(int(event.key))
        elif event.key == "enter" and self.default is not None:
            self.dismiss(self.default)
        elif event.key in ("escape", "q"):
            self.dismiss(None)
