"""Pane 1: the tokens of the focused request, how each came to be, the drafts of the round, and where states stand."""

from __future__ import annotations

from collections.abc import Callable

from engine.events import Place
from inspector.tui.frame import Frame
from inspector.tui.text import Line, Span, token_text, width
from inspector.tui.themes import owner_role
from inspector.tui.widgets.token_strip import LEAST, Cell, TokenStrip
from sessions.view import RequestFact

WIDEST = 16
ROLES = {"p": "prompt", ".": "plain", "a": "accepted", "b": "bonus", "i": "inject"}


def anchors(frame: Frame, request: RequestFact) -> dict[int, list[str]]:
    """Token index to the states whose last absorbed token it is: position p stands under token p - 1."""
    out: dict[int, list[str]] = {}
    view, slot = frame.view, request.slot
    live = view.live(request.req)
    if live is not None:
        places = {"h": live.h_position, "conv": live.conv_position, "kv": request.cursor}
        if len(set(places.values())) == 1:
            out.setdefault(request.cursor - 1, []).append("▲")
        else:
            for name, position in places.items():
                if position is not None:
                    out.setdefault(position - 1, []).append(f"▲{name}")
    for entry in request.ring.entries:
        state = view.states.get(Place("ring", slot, entry.ring_slot))
        position = None if state is None else state.h_position or state.conv_position
        if state is not None and position is not None:
            sign = "" if state.position is not None else "!"
            out.setdefault(position - 1, []).append(f"◆{entry.ring_slot}{sign}")
    check = view.states.get(Place("checkpoint", slot))
    if check is not None and check.position is not None and request.round.open:
        out.setdefault(check.position - 1, []).append("ck")
    return out


def first_draft(frame: Frame, request: RequestFact) -> int:
    """Index at which the first draft of the round stands, or would stand. Until the commit no token of the round is
    out; after it the cursor is the pending token's index plus the accepted rows."""
    live = frame.view.live(request.req)
    accepted, count = request.round.accepted, len(request.tokens)
    # a commit that only waits on the secondary stream has happened as far as tokens go
    before_commit = request.round.open and live is not None and live.dirty and not live.queued
    if not accepted or before_commit:
        return count
    at = request.cursor - accepted + 1
    return at if count - accepted <= at <= count else count


class TokensPane(TokenStrip):
    """Tokens of the focused request."""

    NUMBER = "1"
    NAME = "tokens"
    LABELS = ("pos", "token", "mark", "draft", "state")
    EMPTY = (
        ("No request yet.  ", "dim"), ("A", "key"), (" starts one: type its prompt, then ", "dim"), ("s", "key"),
        (" steps a token, ", "dim"), ("n", "key"), (" a round, ", "dim"), ("c", "key"), (" runs.", "dim"),
    )  # fmt: skip
    SUMMARY = "every token of the focused request, how it came to be, and where its states stand"
    HELP_TEXT = """\
pos     index of the token; prompt tokens are dim
token   its text; a middle dot is a leading space; ▸ marks the pending token, the next input
mark    p prompt   . plain   a accepted draft   b bonus or correction   i injected
        upper case: the token is a boundary (ends a line or a sentence) outside thinking
draft   drafts of the running or last round: ✓ accepted  ✗ rejected  ? not decided yet
state   ▲ live stands here (kv, h and conv together, or each by name when they differ)
        ◆n ring slot n   ck the pre-verify checkpoint
A bar closes each speculative round. Click a token, or put the cursor on it and press Enter, to go to the event at
which it was written; t runs to it, forwards or backwards. / searches text."""

    def labels(self, height: int) -> tuple[str, ...]:
        """Where states stand is worth more than the drafts of a round that is over, or the marks while one is open."""
        if height != len(self.LABELS) - 1:
            return super().labels(height)
        request = self.view.request
        undecided = request is not None and bool(request.round.drafts) and not request.round.accepted
        return ("pos", "token", "draft" if undecided else "mark", "state")

    def border(self) -> tuple[Line, Line]:
        request = self.view.request
        if request is None:
            return (), ()
        title: list[Span] = [(f"r{request.req}", owner_role(request.req))]
        title.append((f"  {len(request.tokens)} tokens, {request.prompt_len} prompt", "dim"))
        if request.thinking:
            title.append(("  thinking", "think"))
        live = self.view.view.live(request.req)
        if live is not None and live.dirty:
            why = (
                "the commit waits on the secondary stream"
                if live.queued
                else "live has absorbed drafts not accepted yet"
            )
            note: Line = ((" DIRTY ", "badge-dirty"), (f" {why}", "dirty"))
        elif request.round.k > 1 and request.round.accepted:
            accepted = request.round.accepted
            note = ((f"{accepted} of {request.round.k}", "accepted"), (" rows accepted", "dim"))
        else:
            note = ()
        return tuple(title), note

    def cells(self, labels: int) -> tuple[int, Callable[[int], Cell]]:
        request = self.view.request
        if request is None:
            return 0, lambda index: Cell(index, (), 0)
        facts = request.round
        drafts = facts.drafts if facts.mode == "verify" and request.last_rollback <= facts.first else ()
        at = first_draft(self.view, request)
        count = max(len(request.tokens), at + len(drafts) if drafts else 0)
        shown = self.labels(labels)
        where = anchors(self.view, request) if "state" in shown else {}
        count = max([count, *(index + 1 for index in where)])
        texts = dict(self.view.verify.texts) if self.view.verify is not None else {}
        texts.update(self.view.view.texts)

        def make(index: int) -> Cell:
            lines = [(str(index), "faint"), *self._token(request, index)]
            draft: Span = ("", "")
            if drafts and at <= index < at + len(drafts):
                draft = self._draft(request, texts.get(drafts[index - at], f"#{drafts[index - at]}"), index - at)
            states = where.get(index, ())
            lines += [draft, ("".join(states), self._state_role(states))]
            kept = tuple(line for name, line in zip(self.LABELS, lines, strict=True) if name in shown)
            size = min(WIDEST, max(LEAST, *(width(text) for text, _ in kept)))
            return Cell(index, kept, size, self._ends_round(request, index))

        return count, make

    def _token(self, request: RequestFact, index: int) -> tuple[Span, Span]:
        if index >= len(request.tokens):
            return ("", ""), ("", "")
        token = request.tokens[index]
        known = self.view.view.texts.get(token, f"#{token}" if token >= 0 else "?")
        text = token_text(known) or "∅"
        letter = request.marks[index] if index < len(request.marks) else "."
        role = ROLES.get(letter.lower(), "plain")
        if request.think[index : index + 1] == "t":
            role = "think"
        mark: Span = (letter, "boundary" if letter.isupper() else role)
        if letter == "." or letter == "p":
            mark = (letter, "faint")
        if index == len(request.tokens) - 1 and request.outputs:
            text = "▸" + text
            role += ".bold"
        return (text, role), mark

    def _draft(self, request: RequestFact, text: str, number: int) -> Span:
        facts = request.round
        shown = token_text(text) or "∅"
        if not facts.accepted:
            return shown + "?", "draft"
        return (shown + "✓", "accepted") if number < facts.accepted - 1 else (shown + "✗", "rejected")

    def _state_role(self, states: list[str] | tuple[str, ...]) -> str:
        request = self.view.request
        live = self.view.view.live(request.req) if request is not None else None
        dirty = live is not None and live.dirty
        if any(state.startswith("▲") and len(state) > 1 for state in states):
            return "dirty" if dirty else "bad"
        if "▲" in states and dirty:
            return "dirty"
        return "live" if "▲" in states else "accent"

    def _ends_round(self, request: RequestFact, index: int) -> bool:
        if index >= len(request.tokens):
            return False
        letter = request.marks[index : index + 1]
        return letter in ("b", "B") or index == request.prompt_len - 1
