"""Actions: what a person does to the engine. In the past each of them opens a branch; the parent stays as it is."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from engine.events import (
    Action,
    ForkRequest,
    FreeRequest,
    InjectToken,
    NewRequest,
    RestoreCheckpoint,
    RestoreRing,
    RollBack,
    RunRound,
    SaveRing,
    SyncSecondary,
    TakeCheckpoint,
)
from inspector.commands.errors import CommandError, UsageError
from inspector.commands.groups.common import act, answer, finish_round, run_to_decision, stop_result
from inspector.commands.parser import Words
from inspector.commands.registry import Arg, Args, Context, Registry, Result
from inspector.text import chat, plural, visible
from sessions.stop import Stop

LIVE = ("live", "past")
ON_REQUEST = ("live", "past", "request")
# Phases of a verify round in which its accept decision is still to come.
BEFORE_ACCEPT = ("begin", "decide:drafts", "draft", "verify")
# As written it works in a script and at the ':' line: help of break, verify and accept.
FORCED = '  tbreak decision if event.what == "accept"\n  verify 3\n  accept 2'
TOKENS = 'token ids (1 2 3 or 1,2,3), "a text", or a number of drafts'


def register(registry: Registry) -> None:
    registry.command(
        "verify", "act", "run a verify round, with the drafter's drafts or with given ones",
        Arg("drafts", "rest", TOKENS, optional=True),
        aliases=("v",), needs=ON_REQUEST, example="verify 2", repeats=True,
        details=(
            "verify alone lets the drafter speak; verify 2 keeps its first two drafts; verify ids 5 6 7 and "
            'verify " four entries" give the drafts by hand. The round runs to its commit, and the accept rule counts '
            "the rows. To count them yourself, stop at the question (the key v on the screen does):\n" + FORCED
        ),
    )(_verify)  # fmt: skip
    registry.command(
        "accept", "act", "confirm k rows of the verify that is open, or of the next one",
        Arg("rows", "times", "1 to K: accepted drafts + 1"),
        aliases=("a",), needs=ON_REQUEST, example="accept 2",
        details=(
            "In a verify that is open it is the answer to the question how many rows are accepted. Anywhere else, so "
            "also after a verify that has ended, it runs a whole round of its own: the drafter's drafts and this "
            "count. For other drafts, stop inside the verify first:\n" + FORCED + "\nThe accept event says forced "
            "when the count is not the rule's."
        ),
    )(_accept)  # fmt: skip
    registry.command(
        "rollback", "act", "go back to a boundary, a ring entry or a length of the outputs",
        Arg("to", "choice", "boundary, ring, length", optional=True, default="boundary",
            choices=("boundary", "ring", "length")),
        Arg("value", "count", "tokens to drop at least, ring slot, or outputs to keep", optional=True),
        aliases=("rb",), needs=ON_REQUEST, example="rollback boundary",
    )(_rollback)  # fmt: skip
    registry.command(
        "save", "act", "save live into the ring now", needs=ON_REQUEST, example="save",
    )(lambda ctx, args: _perform(ctx, SaveRing(req=ctx.debugger.request)))  # fmt: skip
    registry.command(
        "restore", "act", "copy a ring slot (or the checkpoint) to live, and nothing else",
        Arg("what", "word", "ring slot, or checkpoint"),
        Arg("rows", "count", "with checkpoint: 0, or n for the state after n verify rows", optional=True, default=0),
        needs=ON_REQUEST, example="restore 0",
        details="Cursor and outputs stay as they are, so an invariant will complain; rollback rewinds all of them.",
    )(_restore)  # fmt: skip
    registry.command(
        "checkpoint", "act", "copy live to the checkpoint",
        Arg("queued", "flag", "on the secondary stream", option=True, default=False),
        needs=ON_REQUEST, example="checkpoint",
    )(lambda ctx, args: _perform(ctx, TakeCheckpoint(req=ctx.debugger.request, queued=args["queued"])))  # fmt: skip
    registry.command(
        "sync", "act", "wait for the secondary stream", needs=LIVE, example="sync",
    )(lambda ctx, args: _perform(ctx, SyncSecondary()))  # fmt: skip
    registry.command(
        "new", "act", "start a request",
        Arg("prompt", "words", 'a "text", or ids 1 2 3'),
        Arg("max", "times", "most outputs", option=True, default=256),
        Arg("seed", "count", "seed of the sampler", option=True, default=0),
        Arg("temperature", "float", "0 is greedy", option=True, default=0.0),
        Arg("top-k", "count", "0 takes all", option=True, default=0),
        Arg("top-p", "float", "1 takes all", option=True, default=1.0),
        Arg("drafter", "choice", "mtp, lookup, none", option=True, default="", choices=("mtp", "lookup", "none")),
        Arg("session", "count", "prefix snapshots of its session may be used", option=True, default=0),
        Arg("chat", "flag", "the prompt is a user's turn: put it into the chat form", option=True, default=False),
        Arg("streaming", "flag", "outputs cannot be taken back", option=True, default=False),
        Arg("ignore-eos", "flag", "go on after an end token", option=True, default=False),
        needs=LIVE, example='new "The ring holds" max=40',
        details="The request is admitted; step, next or continue runs it. The focus goes to it.",
    )(_new)  # fmt: skip
    registry.command(
        "fork", "act", "make a second request that continues this one from here",
        Arg("seed", "count", "another seed", option=True),
        needs=ON_REQUEST, example="fork",
    )(lambda ctx, args: _perform(ctx, ForkRequest(req=ctx.debugger.request, seed=args["seed"])))  # fmt: skip
    registry.command(
        "free", "act", "end a request now and give everything back",
        Arg("request", "request", "r0; default the one in focus", optional=True),
        needs=ON_REQUEST, example="free",
    )(_free)  # fmt: skip
    registry.command(
        "inject", "act", "replace the pending token",
        Arg("token", "rest", 'an id, or a "text" of one token'),
        needs=ON_REQUEST, example="inject 5",
    )(_inject)  # fmt: skip
    registry.command(
        "run", "act", "execute whole rounds now (in the past: on a branch)",
        Arg("count", "times", "rounds", optional=True, default=1),
        needs=LIVE, example="run 3",
    )(_run)  # fmt: skip
    registry.command(
        "abandon", "act", "drop the round that is half done", needs=("live",), example="abandon",
        details="Nothing is undone: states, cursor and ring stay as the events so far left them, and an invariant may "
                "complain. To go on from before the round: goto its start and act there.",
    )(_abandon)  # fmt: skip


def _perform(ctx: Context, action: Action) -> Result:
    return stop_result(ctx, act(ctx, action))


def _prefill_first(ctx: Context) -> Stop | None:
    """Run what is left of the prompt, so that the next round can verify. None: go on; else where it was stopped."""
    debugger = ctx.debugger
    req, request = debugger.request, debugger.current()
    if request.outputs or request.status == "finished":
        return None
    ctx.say(f"{plural(request.prompt_len - request.cursor, 'token')} of the prompt first")
    while not request.outputs and request.status != "finished":
        stop = finish_round(ctx) if debugger.timeline.paused else act(ctx, RunRound(req=req))
        request = debugger.current()
        if stop.reason != "done" or stop.finding is not None:
            return stop
    return None


def _verify(ctx: Context, args: Args) -> Result:
    debugger = ctx.debugger
    given = parse_drafts(args["drafts"], debugger.timeline.tokens) if args["drafts"] else None
    waiting = debugger.timeline.waiting
    if waiting is not None and waiting.what == "drafts":
        return stop_result(ctx, finish_round(ctx) if given is None else answer(ctx, "drafts", given))
    if (stopped := _prefill_first(ctx)) is not None:
        return stop_result(ctx, stopped)
    if isinstance(given, int):
        return stop_result(ctx, run_to_decision(ctx, RunRound(req=debugger.request), "drafts", given))
    return _perform(ctx, RunRound(req=debugger.request, drafts=given, source="hand" if given else ""))


def _accept(ctx: Context, args: Args) -> Result:
    debugger = ctx.debugger
    rows = args["rows"]
    request = debugger.current()
    waiting = debugger.timeline.waiting
    if waiting is not None and waiting.what == "accept":
        _check_rows(rows, waiting.high)
        return stop_result(ctx, answer(ctx, "accept", rows))
    state = request.round
    if state.open and state.mode == "verify" and state.phase in BEFORE_ACCEPT:
        return stop_result(ctx, run_to_decision(ctx, None, "accept", rows))
    _check_rows(rows, debugger.view.start.k)
    if (stopped := _prefill_first(ctx)) is not None:
        return stop_result(ctx, stopped)
    stop = act(ctx, RunRound(req=debugger.request, accept=rows))
    done = debugger.view.requests.get(debugger.request)
    if stop.reason == "done" and done is not None:
        if done.round.mode != "verify" or not done.round.k:
            ctx.say("there was nothing to accept: no drafts were made, the round decoded one token")
        elif done.round.accepted < rows:
            ctx.say(f"{done.round.accepted} rows confirmed, not {rows}: the round had {done.round.k}, and nothing goes "
                    "past an end token or the most outputs")  # fmt: skip
    return stop_result(ctx, stop)


def _check_rows(rows: int, most: int) -> None:
    if not 1 <= rows <= most:
        raise UsageError(f"accept: 1 to {most} rows can be confirmed, not {rows}")


def _rollback(ctx: Context, args: Args) -> Result:
    to, value = args["to"], args["value"]
    if to != "boundary" and value is None:
        raise UsageError(f"rollback {to} needs a number: {'the ring slot' if to == 'ring' else 'the outputs to keep'}")
    waiting = ctx.debugger.timeline.waiting
    if waiting is not None and waiting.what == "boundary" and to == "length":
        return stop_result(ctx, answer(ctx, "boundary", value))
    return _perform(ctx, RollBack(req=ctx.debugger.request, to=to, value=value if value is not None else 1))


def _restore(ctx: Context, args: Args) -> Result:
    what = args["what"]
    if "checkpoint".startswith(what) and what[:1] == "c":
        return _perform(ctx, RestoreCheckpoint(req=ctx.debugger.request, accepted=args["rows"]))
    if not re.fullmatch(r"\d{1,6}", what):
        raise UsageError(f'restore takes a ring slot or checkpoint, not "{visible(what):.40}"')
    return _perform(ctx, RestoreRing(req=ctx.debugger.request, ring_slot=int(what)))


def _new(ctx: Context, args: Args) -> Result:
    debugger = ctx.debugger
    encode = debugger.timeline.tokens
    prompt = parse_tokens(args["prompt"], (lambda text: encode(chat(text))) if args["chat"] else encode, bare=True)
    before = set(debugger.view.requests.keys())
    stop = act(
        ctx,
        NewRequest(
            prompt=prompt, max_tokens=args["max"], seed=args["seed"], temperature=args["temperature"],
            top_k=args["top-k"], top_p=args["top-p"], streaming=args["streaming"], ignore_eos=args["ignore-eos"],
            drafter=args["drafter"], session=args["session"],
        ),
    )  # fmt: skip
    fresh = sorted(set(debugger.view.requests.keys()) - before)
    if fresh and debugger.focus.req is not None:
        debugger.set_focus(req=fresh[0])
    result = stop_result(ctx, stop)
    return Result(result.lines, result.status, result.stop, result.changed | {"focus"}, fresh[0] if fresh else None)


def _free(ctx: Context, args: Args) -> Result:
    req = ctx.debugger.request if args["request"] is None else args["request"]
    return _perform(ctx, FreeRequest(req=req))


def _inject(ctx: Context, args: Args) -> Result:
    tokens = parse_tokens(args["token"], ctx.debugger.timeline.tokens)
    if len(tokens) != 1:
        raise UsageError(f"inject takes one token, {visible(args['token']):.60} is {len(tokens)}")
    return _perform(ctx, InjectToken(req=ctx.debugger.request, token=tokens[0]))


def _run(ctx: Context, args: Args) -> Result:
    debugger = ctx.debugger
    stop = None
    for _ in range(args["count"]):
        if debugger.timeline.paused:
            stop = finish_round(ctx)
        else:
            stop = act(ctx, RunRound(req=-1))
        if stop.reason not in ("done", "finding"):
            break
    assert stop is not None
    return stop_result(ctx, stop)


def _abandon(ctx: Context, args: Args) -> Result:
    if not ctx.debugger.timeline.paused:
        raise CommandError("no round is half done here")
    for request in ctx.debugger.view.requests.values():
        if request.status == "finished" and request.slot >= 0:
            raise CommandError(f"r{request.req} has ended and is giving its slot back: let the round end (next)")
    return stop_result(ctx, ctx.debugger.timeline.abandon())


# --------------------------------------------------------------------------------------------------- token lists

Encode = Callable[[str], tuple[int, ...]]


def parse_tokens(text: str, encode: Encode, bare: bool = False) -> tuple[int, ...]:
    """Ids and quoted texts, mixed: ``1 2 3``, ``1,2,3``, ``"The ring" 5``. ``bare``: anything else is one text.

    Raises UsageError when nothing is left, and what ``encode`` raises (no tokenizer)."""
    if bare and not text.startswith('"') and not re.fullmatch(r"(ids\s+)?[\d,\s]+", text):
        ids = encode(text)
    else:
        ids = _mixed(Words(text.removeprefix("ids")), encode)
    if not ids:
        raise UsageError("at least one token is needed")
    return ids


def _mixed(words: Words, encode: Encode) -> tuple[int, ...]:
    found: list[int] = []
    while (word := words.take()) is not None:
        if word.quoted:
            found += encode(word.text)
            continue
        for part in filter(None, word.text.split(",")):
            if not re.fullmatch(r"\d{1,9}", part):
                raise UsageError(f'a token id is a whole number, not "{visible(part):.40}"; a text goes in quotes')
            found.append(int(part))
    return tuple(found)


def parse_drafts(text: str, encode: Encode) -> Any:
    """An int for a number of drafts, a tuple for given ones: ``2``; ``ids 5``; ``5 6``; ``" four entries"``."""
    if re.fullmatch(r"\d{1,4}", text):
        return int(text)
    return parse_tokens(text, encode)
