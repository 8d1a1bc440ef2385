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

    def __init__(self, title: str, choices: list[Choice], ask: str = "", about: str = "") -> None:
        super().__init__()
        self.caption = title
        self.about = about
        self.choices = choices
        self.hint = ask

    def compose(self) -> ComposeResult:
        wide = max((len(name) for name, _, _ in self.choices), default=0)
        with Vertical(classes="box") as box:
            if self.about:
                yield Label(self.about, markup=False)
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


class KeysDialog(Dialog[Answer]):
    """A question that single keys answer. Any other letter begins a word that somebody types into the wrong place: from
    there on no letter is an answer, until Enter, Escape or Backspace takes the word away."""

    ANSWERS = ""

    def __init__(self) -> None:
        super().__init__()
        self.stray = ""

    def keys_text(self) -> str:
        """The keys that answer, for the border."""
        raise NotImplementedError

    def answer(self, event: events.Key) -> None:
        """A key that may answer. To be filled in."""
        raise NotImplementedError

    def take_key(self, event: events.Key) -> None:
        letter = event.character if event.is_printable and event.character else ""
        if self.stray and event.key in ("enter", "escape"):
            self.stray = ""
        elif self.stray and event.key == "backspace":
            self.stray = self.stray[:-1]
        elif letter and (self.stray or letter not in self.ANSWERS):
            self.stray += letter
        elif not self.stray:
            self.answer(event)
            return
        box = self.query_one(".box")
        typed = visible(self.stray[-20:])
        box.border_subtitle = Content(f" {typed!r} is no answer · esc forgets it " if typed else self.keys_text())


class ConfirmDialog(KeysDialog[bool]):
    """Yes or no. Enter or y is yes."""

    ANSWERS = "ynq"

    def __init__(self, question: str) -> None:
        super().__init__()
        self.question = question

    def keys_text(self) -> str:
        return " y or enter · n or esc "

    def compose(self) -> ComposeResult:
        with Vertical(classes="box") as box:
            yield Label(self.question, markup=False, classes="strong")
        box.border_subtitle = Content(self.keys_text())

    def answer(self, event: events.Key) -> None:
        if event.key in ("y", "enter"):
            self.dismiss(True)
        elif event.key in ("n", "escape", "q"):
            self.dismiss(False)


class AcceptDialog(KeysDialog[int | None]):
    """The rows of the paused round: which drafts the model agrees with. A digit answers at once. After the decision of
    a round there is nothing to answer: the dialog offers to go back to it. Dismissed with the rows, or with minus the
    number of the event to go to."""

    # "a" opens this dialog where none is open: it does nothing here
    ANSWERS = "0123456789agq"

    def __init__(self, frame: Frame) -> None:
        super().__init__()
        self.frame = frame
        decision = frame.waiting
        waits = decision is not None and decision.what == "accept"
        self.low = decision.low if decision is not None and waits else 1
        self.high = decision.high if decision is not None and waits else max(1, frame.view.start.k)
        self.default: int | None = decision.default if decision is not None and waits else None
        rows, now = frame.verify, frame.view.seq
        decided = rows is not None and not waits and 0 < rows.decision < now
        self.over = rows is not None and decided and rows.open
        past = rows is not None and decided and (self.over or frame.mode == "HISTORY")
        self.decision = rows.decision if rows is not None and past else 0

    def compose(self) -> ComposeResult:
        with Vertical(classes="box") as box:
            for line in self._about():
                yield Label(line, markup=False)
            yield Label(" ", markup=False)
            for content in self._rows():
                yield Label(content, classes="strong")
        box.border_title = Content(" Accept ")
        box.border_subtitle = Content(self.keys_text())

    def keys_text(self) -> str:
        digits = f"{self.low}–{self.high} answers at once"
        if self.over:
            digits = f"enter goes to event {self.decision}"
        elif self.default is not None:
            digits += f" · enter takes {self.default}"
        elif self.decision:
            digits += f" · g goes to event {self.decision}"
        return f" {digits} · esc "

    def _about(self) -> tuple[str, ...]:
        rows = self.frame.verify
        if rows is None or not self.decision:
            return ("How many rows are accepted? Live becomes the state after the last of them.",)
        here = f"No round waits at event {self.frame.view.seq:,}: "
        told = f"round {rows.round} was decided at event {self.decision:,}."
        if self.over:
            return (here + told, "Enter goes to that decision; there a digit answers it.")
        return (here + told, "g goes to that decision. A digit runs the next round and accepts as many of its rows.")

    def _rows(self) -> list[Content]:
        rows, facts = self.frame.verify, self.frame.request.round if self.frame.request is not None else None
        if facts is None or rows is None or not rows.rows or not (rows.open or self.decision):
            text = "No round waits: the next one is run, and accepts as many as you say of its drafts."
            return [Content.styled(text, "dim")]
        texts = dict(rows.texts)

        def shown(token: int, unknown: str) -> str:
            return fit(token_text(texts.get(token, f"#{token}")) or "∅" if token >= 0 else unknown, 14)

        out = [Content.styled("  rows   input          the model says", "dim")]
        agreed = True
        for row, (token, pick) in enumerate(rows.rows):
            following = rows.rows[row + 1][0] if row + 1 < len(rows.rows) else -1
            verdict = "" if following < 0 or pick < 0 or not agreed else "✓ agrees" if pick == following else "✗"
            sign = "▸" if row + 1 == self.default else " "
            role = "bold" if agreed else "dim"
            out.append(
                Content.assemble(
                    (f"{sign} {row + 1:>3}    ", role), (shown(token, "not known yet"), "" if agreed else "dim"), " ",
                    (shown(pick, "not known yet"), "dim"), " ",
                    ("✗ not the draft" if verdict == "✗" else verdict,
                     "$ms-accepted" if verdict.startswith("✓") else "$ms-rejected"),
                )
            )  # fmt: skip
            agreed = agreed and (pick < 0 or following < 0 or pick == following)
        return out

    def answer(self, event: events.Key) -> None:
        if event.key in ("escape", "q"):
            self.dismiss(None)
        elif self.decision and (event.key == "g" or (self.over and event.key == "enter")):
            self.dismiss(-self.decision)
        elif not self.over and event.key.isdigit() and self.low <= int(event.key) <= self.high:
            self.dismiss(int(event.key))
        elif event.key == "enter" and self.default is not None:
            self.dismiss(self.default)
