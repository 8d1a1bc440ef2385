"""The standard scenario: whatever a fault of the gallery needs to act happens in it, in every mode.

Several requests share the pools; rounds are natural, forced to a partial accept, without drafts, or with fewer drafts
than the verify is wide; requests are rolled back to ring entries and go on over many boundaries; a slot is reused;
prompts continue cached ones at block boundaries, off them, past decoded tokens, and by a single token. Between the
rounds things meet that rarely do: a rollback, the end of the same request, and the move of a survivor while a commit
is queued, and a plain decode of one request right after the verify of another.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from engine.events import Action, FreeRequest, NewRequest, RollBack, RunRound

if TYPE_CHECKING:
    from sessions.timeline import Timeline
    from sessions.view import RequestFact

TEXTS = (
    "<|im_start|>user\nWhat is 38 + 57?<|im_end|>\n<|im_start|>assistant\n",
    "Once upon a time",
    "<|im_start|>user\nTell me about the sea.<|im_end|>\n<|im_start|>assistant\n",
)
ROUNDS = 30
SETTINGS: dict[str, Any] = {
    "slots": 4, "kv_tokens": 2048, "prefix_slots": 6, "prefill_chunk": 32, "ring": 4, "device": "cpu", "threads": 1,
}  # fmt: skip


def scenario(timeline: Timeline, seed: int = 0, rounds: int = ROUNDS) -> Iterator[Action]:
    """Actions, one after another; each is to be performed before the next is asked for."""
    chance = random.Random(seed)
    vocab = timeline.start.vocab
    text = TEXTS[seed % len(TEXTS)]
    long = tuple(chance.randrange(100, vocab) for _ in range(58))
    yield _new(timeline.tokens(text))
    yield _new(long)
    for number in range(rounds):
        for req in timeline.runnable():
            request = timeline.view.requests[req]
            yield _round(chance, number, request, vocab)
        yield from _between(timeline, chance, number, long)


def _new(prompt: tuple[int, ...]) -> NewRequest:
    return NewRequest(prompt=prompt, ignore_eos=True, max_tokens=300)


def _round(chance: random.Random, number: int, request: RequestFact, vocab: int) -> RunRound:
    kind = number % 6
    if not request.outputs:
        return RunRound(req=request.req)
    if kind == 4:
        return RunRound(req=request.req, drafts=())
    if kind == 3:  # narrower than the verify can be
        return RunRound(req=request.req, drafts=(chance.randrange(vocab),), accept=1)
    if kind in (1, 5):
        return RunRound(req=request.req, accept=chance.randint(1, 4))
    return RunRound(req=request.req)


def _between(timeline: Timeline, chance: random.Random, number: int, long: tuple[int, ...]) -> Iterator[Action]:
    view = timeline.view
    first = view.requests.get(1)
    yield from _meeting(timeline, number, long)
    if number in (9, 14, 21) and first is not None:
        entries = first.ring.entries
        if len(entries) >= 2:
            yield RollBack(req=1, to="length", value=entries[-2 if len(entries) < 4 else -3].token_position)
    if number == 8:
        yield _new((*long, *(chance.randrange(100) for _ in range(3))))
    if number == 16 and 2 in view.requests and view.requests[2].slot >= 0:
        yield FreeRequest(req=2)
    if number == 17:
        yield _new(tuple(chance.randrange(100, 200) for _ in range(9)))
    if number == 24 and first is not None and len(timeline.runnable()) < view.start.slots:
        yield _new((*first.tokens, 7, 8))


def _meeting(timeline: Timeline, number: int, long: tuple[int, ...]) -> Iterator[Action]:
    """A commit is queued by the round just before, and nobody has waited for it."""
    running = timeline.runnable()
    if number in (10, 23) and 1 in running:
        yield RunRound(req=1, accept=2)
        entries = timeline.view.requests[1].ring.entries
        if len(entries) >= 2:
            yield RollBack(req=1, to="length", value=entries[-2].token_position)
    if number == 12 and {1, 2} <= set(running):
        yield RunRound(req=1, accept=3)
        yield RunRound(req=2, accept=1)
        yield RunRound(req=1, drafts=())
    if number == 18 and len(running) < timeline.view.start.slots:
        yield _new((*long, 5))
    if number == 20 and len(running) == timeline.view.start.slots:
        last = max(running)
        yield RunRound(req=last, accept=1)
        yield FreeRequest(req=last)
    if number == 22 and len(running) >= 3:
        by_slot = sorted(running, key=lambda req: timeline.view.requests[req].slot)
        yield RunRound(req=by_slot[-1], accept=1)
        yield FreeRequest(req=by_slot[1])
