"""Small questions: one input, a list, a yes or no, how many rows are accepted."""

from __future__ import annotations

from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Label, OptionList
from textual.widgets.option_list import Option

from inspector.tui.frame import Frame
from inspector.tui.screens.choices import Choice
from inspector.tui.text import fit, token_text, visible


def steady(field: Input) -> Input:
    """An input whose cursor does not blink: pictures of the screen must not depend on the clock."""
    field.cursor_blink = False
    return field


class AskDialog(ModalScreen[str | None]):
    """One line of text. Escape gives None."""

    CSS_PATH: ClassVar[str] = "../styles/dialogs.tcss"

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
        self.query_one(Input).focus()

    @on(Input.Submitted)
    def _done(self, message: Input.Submitted) -> None:
        self.dismiss(message.value.strip())

    def on_key(self, event: events.Key) -> None:
        if event.key == "escape":
            event.stop()
            self.dismiss(None)


class ChoiceDialog(ModalScreen[str | None]):
    """A list to choose from, and an input for what is not in it. Escape gives None."""

    CSS_PATH: ClassVar[str] = "../styles/dialogs.tcss"

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
        self.query_one(OptionList).focus()

    @on(OptionList.OptionSelected)
    def _chosen(self, message: OptionList.OptionSelected) -> None:
        self.dismiss(self.choices[message.option_index][2])

    @on(Input.Submitted)
    def _typed(self, message: Input.Submitted) -> None:
        if message.value.strip():
            self.dismiss(message.value.strip())

    def on_key(self, event: events.Key) -> None:
        if event.key == "escape":
            event.stop()
            self.dismiss(None)
        elif event.character and event.is_printable and not isinstance(self.focused, Input) and self.hint:
            # whoever types means the input
            event.stop()
            if event.character in ("j", "k"):
                moved = self.query_one(OptionList)
                moved.action_cursor_down() if event.character == "j" else moved.action_cursor_up()
                return
            field = self.query_one(Input)
            field.focus()
            field.value = event.character
            field.cursor_position = len(field.value)


class ConfirmDialog(ModalScreen[bool]):
    """Yes or no. Enter or y is yes."""

    CSS_PATH: ClassVar[str] = "../styles/dialogs.tcss"

    def __init__(self, question: str) -> None:
        super().__init__()
        self.question = question

    def compose(self) -> ComposeResult:
        with Vertical(classes="box") as box:
            yield Label(self.question, markup=False, classes="strong")
        box.border_subtitle = Content(" y or enter · n or esc ")

    def on_key(self, event: events.Key) -> None:
        if event.key in ("y", "enter"):
            event.stop()
            self.dismiss(True)
        elif event.key in ("n", "escape", "q"):
            event.stop()
            self.dismiss(False)


class AcceptDialog(ModalScreen[int | None]):
    """The rows of the paused round: which drafts the model agrees with. A digit answers at once."""

    CSS_PATH: ClassVar[str] = "../styles/dialogs.tcss"

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

    def on_key(self, event: events.Key) -> None:
        event.stop()
        if event.key.isdigit() and self.low <= int(event.key) <= self.high:
            self.dismiss(int(event.key))
        elif event.key == "enter" and self.default is not None:
            self.dismiss(self.default)
        elif event.key in ("escape", "q"):
            self.dismiss(None)
