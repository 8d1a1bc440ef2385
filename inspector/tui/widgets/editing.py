"""A key given to a widget at once, without waiting for the focus or for the widget's own queue."""

from __future__ import annotations

from textual import events
from textual.actions import parse
from textual.widget import Widget
from textual.widgets import Input


def insert(field: Input, text: str) -> None:
    """``text`` at the cursor of ``field``, in the place of what is selected there."""
    if field.selection.is_empty:
        field.insert_text_at_cursor(text)
    else:
        field.replace(text, *field.selection)


def press(widget: Widget, event: events.Key) -> None:
    """What ``widget`` does with a key: a printable one is typed into an input, any other runs the widget's binding."""
    if isinstance(widget, Input) and event.is_printable and event.character:
        insert(widget, event.character)
        return
    for binding in widget._bindings.key_to_bindings.get(event.key, []):
        _, name, arguments = parse(binding.action)
        method = getattr(widget, f"action_{name}", None)
        if method is not None:
            method(*arguments)
            return


def first_line(text: str) -> str:
    """What of a pasted text goes into one line: its first line that is not empty, nothing that is not printable."""
    line = next((line for line in text.splitlines() if line.strip()), "")
    return "".join(sign if sign.isprintable() else " " for sign in line)
