"""Words that run, act and move the focus. What changes the run is always sent as a command line."""

from __future__ import annotations

from inspector.tui.screens.choices import rollback_choices, rollback_remark
from inspector.tui.screens.dialogs import AcceptDialog, ChoiceDialog
from inspector.tui.screens.parts import ScreenPart
from inspector.tui.screens.words import quote


class Acting(ScreenPart):
    """Mixed into the main screen."""

    # --------------------------------------------------------------------------------------------------- running

    def do_pause(self) -> None:
        if self.debugger_app.worker.busy:
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
            (f"How many drafts (0 to {k - 1}), or the words or ids to verify, such as  \"the ring\"  or  ids 12 7.",
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
        if answer is not None and answer < 0:
            self.debugger_app.run_line(f"goto @{-answer}", key=True)
        elif answer is not None:
            self.act_line(f"accept {answer}")

    def do_rollback(self) -> None:
        if self.view.request is None:
            self.note("rollback needs a request")
            return
        choices = rollback_choices(self.view)
        self.app.push_screen(
            ChoiceDialog(
                "Roll back", choices, ask="or type: length N, ring SLOT, boundary N", about=rollback_remark(self.view)
            ),
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
