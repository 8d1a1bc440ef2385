"""Folds of what happens to a request: admission, rounds, outputs, accepts, rollbacks, the end."""

from __future__ import annotations

from typing import Any

from engine.events import (
    Accept,
    Boundary,
    Decision,
    Draft,
    Emit,
    Event,
    Fault,
    Finish,
    Fork,
    Option,
    Request,
    Rollback,
    RoundBegin,
    RoundEnd,
    Texts,
    Thinking,
    Trouble,
    Unknown,
    Watchdog,
)
from sessions import places
from sessions.books import Books, Fold
from sessions.evolve import evolve
from sessions.view import RequestFact, RoundFact, rows_upto

LONGEST = 1 << 22
"""Tokens of one request at most; a record that claims more is not followed further."""
WIDEST = 1 << 10
MARKS = {"plain": ".", "accepted": "a", "bonus": "b", "inject": "i"}


def texts(books: Books, event: Texts) -> None:
    books.texts = books.texts.update(dict(zip(event.ids, event.texts, strict=False)))
    books.boundaries = books.boundaries.update(dict(zip(event.ids, event.boundary, strict=False)))


def request(books: Books, event: Request) -> None:
    length = max(min(event.prompt_len, LONGEST), len(event.prompt))
    unknown = length - len(event.prompt)
    fact = RequestFact(
        event.req,
        prompt_len=length,
        tokens=event.prompt + (-1,) * unknown,
        marks="p" * length,
        think=" " * length,
        streaming=event.streaming,
        parent=event.parent,
        max_tokens=event.max_tokens,
        session=event.session,
    )
    books.put_request(fact)
    books.count("requests")


def fork(books: Books, event: Fork) -> None:
    child, parent = books.request(event.req), books.requests.get(event.parent)
    tokens = child.tokens[: child.prompt_len] + event.outputs
    changes: dict[str, Any] = {"tokens": tokens, "cursor": event.cursor, "parent": event.parent}
    changes["marks"] = child.marks[: child.prompt_len] + "." * len(event.outputs)
    changes["think"] = child.think[: child.prompt_len] + " " * len(event.outputs)
    if parent is not None:
        changes.update(thinking=parent.thinking, rollbacks=parent.rollbacks, chunks=parent.chunks, rows=parent.rows)
        if len(parent.tokens) == len(tokens):
            changes.update(marks=parent.marks, think=parent.think)
    books.put_request(evolve(child, **changes))
    books.count("forks")


# --------------------------------------------------------------------------------------------------------- rounds


def round_begin(books: Books, event: RoundBegin) -> None:
    if books.lingering:
        books.leaked = books.leaked + books.lingering
        books.lingering = ()
    books.count(f"rounds.{event.mode}")
    if event.req < 0:
        return
    old = books.request(event.req)
    fact = RoundFact(event.round, event.mode, first=event.seq, open=True, phase="begin", base=old.cursor)
    books.put_request(evolve(old, round=fact, rejected=()))


def round_end(books: Books, event: RoundEnd) -> None:
    old = books.requests.get(event.req)
    if old is not None:
        books.put_request(evolve(old, round=evolve(old.round, open=False, phase="end")))


def decision(books: Books, event: Decision) -> None:
    old = books.request(event.req)
    changes: dict[str, Any] = {"phase": f"decide:{event.what}"}
    if event.what == "boundary":
        changes["boundary"] = event.default
    books.put_request(evolve(old, round=evolve(old.round, **changes)))


def draft(books: Books, event: Draft) -> None:
    old = books.request(event.req)
    fact = evolve(old.round, drafts=event.tokens, source=event.source, phase="draft")
    books.put_request(evolve(old, round=fact, drafted=old.drafted + len(event.tokens)))
    books.count("drafted", len(event.tokens))


def accept(books: Books, event: Accept) -> None:
    old = books.request(event.req)
    drafts = max(0, min(event.accepted, WIDEST) - 1)
    depth = old.accepted_by_depth + (0,) * (drafts - len(old.accepted_by_depth))
    depth = tuple(count + (index < drafts) for index, count in enumerate(depth))
    fact = evolve(old.round, accepted=event.accepted, k=event.k, phase="accept")
    rejected = old.round.drafts[drafts:]
    rows, base = old.rows, old.round.base
    if old.round.batched and base >= 0 and event.accepted > 0:
        rows = (*rows, (base, base + event.accepted, *rejected))
    books.put_request(
        evolve(
            old,
            round=fact,
            rejected=rejected,
            rows=rows,
            accepted_rows=old.accepted_rows + event.accepted,
            accepted_by_depth=depth,
        )
    )
    books.count("verifies")
    books.count("accepted", drafts)
    for index in range(1, drafts + 1):
        books.count(f"accepted.{index}")
    live = books.states.get(places.live(event.slot))
    if live is not None and live.dirty and event.accepted >= event.k:
        books.put(evolve(live, dirty=False))


# -------------------------------------------------------------------------------------------------------- outputs


def emit(books: Books, event: Emit) -> None:
    old = books.request(event.req)
    at, have = old.prompt_len + max(0, min(event.index, LONGEST)), len(old.tokens)
    gap = max(0, at - have)
    letter = MARKS.get(event.mark, ".")
    inside = "t" if old.thinking else " "
    if at == have:
        tokens, marks, think = (*old.tokens, event.token), old.marks + letter, old.think + inside
    else:
        tokens = old.tokens[:at] + (-1,) * gap + (event.token,)
        marks = old.marks[:at] + "." * gap + letter
        think = old.think[:at] + inside * (gap + 1)
    fact = evolve(old.round, phase="emit")
    books.put_request(evolve(old, tokens=tokens, marks=marks, think=think, round=fact))
    books.count("outputs")


def boundary(books: Books, event: Boundary) -> None:
    old = books.request(event.req)
    at = old.prompt_len + event.output_len - 1
    if 0 <= at < len(old.marks):
        letter = "N" if old.marks[at] == "." else old.marks[at].upper()
        books.put_request(evolve(old, marks=old.marks[:at] + letter + old.marks[at + 1 :]))
    books.count("boundaries")


def thinking(books: Books, event: Thinking) -> None:
    old = books.request(event.req)
    think = old.think[:-1] + ("t" if event.inside else " ") if old.think else ""
    books.put_request(evolve(old, thinking=event.inside, think=think))


def watchdog(books: Books, event: Watchdog) -> None:
    old = books.request(event.req)
    books.put_request(evolve(old, round=evolve(old.round, min_keep=event.min_keep)))
    books.count(f"watchdog.{event.name}")


def rollback(books: Books, event: Rollback) -> None:
    books.count(f"rollback.{event.outcome}")
    if event.outcome != "rolled_back":
        return
    old = books.request(event.req)
    end = old.prompt_len + event.keep_len
    think = old.think[:end]
    books.put_request(
        evolve(
            old,
            tokens=old.tokens[:end],
            marks=old.marks[:end],
            think=think,
            thinking=think.endswith("t"),
            rejected=(),
            rows=rows_upto(old.rows, old.tokens, end - 1),
            rollbacks=old.rollbacks + 1,
            last_rollback=event.seq,
            round=evolve(old.round, phase="rollback"),
        )
    )


def finish(books: Books, event: Finish) -> None:
    old = books.request(event.req)
    books.settle(evolve(old, status="finished", finish=event.reason, guard=event.guard))
    books.count(f"finish.{event.reason}")


# --------------------------------------------------------------------------------------------------------- others


def fault(books: Books, event: Fault) -> None:
    others = tuple(name for name in books.faults if name != event.name)
    books.faults = (*others, event.name) if event.on else others


def option(books: Books, event: Option) -> None:
    books.count("options")


def trouble(books: Books, event: Trouble) -> None:
    books.troubles += 1


def unknown(books: Books, event: Unknown) -> None:
    books.count("unknown")


def nothing(books: Books, event: Event) -> None:
    """An event that changes no fact."""


FOLDS: dict[str, Fold] = {
    "texts": texts,
    "request": request,
    "fork": fork,
    "round": round_begin,
    "round_end": round_end,
    "decision": decision,
    "draft": draft,
    "accept": accept,
    "emit": emit,
    "boundary": boundary,
    "thinking": thinking,
    "watchdog": watchdog,
    "rollback": rollback,
    "finish": finish,
    "fault": fault,
    "option": option,
    "trouble": trouble,
    "unknown": unknown,
}
