"""One line for each event, in words: what the event list, ``where``, ``last`` and stops show."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from engine import events as ev
from engine.events import Event, to_dict
from inspector.text import byte_size, plural, quoted, shorten, visible
from sessions.view import LedgerView

SHOWN_TOKENS = 8


class Texts(Mapping[int, str]):
    """Texts of tokens, looked up when they are asked for; nothing to count or to go through."""

    def __init__(self, known: Callable[[int], str | None]) -> None:
        self._known = known

    def __getitem__(self, token: int) -> str:
        text = self._known(token)
        if text is None:
            raise KeyError(token)
        return text

    def __iter__(self) -> Iterator[int]:
        return iter(())

    def __len__(self) -> int:
        return 0


def token_text(view: LedgerView, token: int) -> str:
    """``"text"`` of an id, or ``<id>`` when the run never told its text."""
    if token < 0:
        return "?"
    text = view.texts.get(token)
    return f"<{token}>" if text is None else quoted(text, 40)


def token_list(view: LedgerView, tokens: tuple[int, ...], limit: int = SHOWN_TOKENS) -> str:
    """The texts of some ids, the first ``limit`` of them."""
    shown = " ".join(token_text(view, token) for token in tokens[:limit])
    return shown + (f" and {len(tokens) - limit:,} more" if len(tokens) > limit else "") if tokens else "none"


def _numbers(values: tuple[int, ...], limit: int = 12) -> str:
    if not values:
        return "none"
    consecutive = len(values) > 2 and all(b == a + 1 for a, b in itertools.pairwise(values))
    if consecutive:
        return f"{values[0]}..{values[-1]}"
    return " ".join(map(str, values[:limit])) + (f" and {len(values) - limit:,} more" if len(values) > limit else "")


def _copy(event: ev.StateCopy) -> str:
    if not event.parts:
        return "nothing to move"
    moved = f"{event.src} -> {event.dst}, {event.parts}, {byte_size(event.bytes)}"
    if not event.bytes:
        moved += " (nothing was moved!)"
    where = "" if event.landed else ", queued on the secondary stream"
    return moved + where + (f", position {event.position}" if event.position >= 0 else "")


def _start(e: ev.Start, v: LedgerView) -> str:
    return (
        f"{visible(e.model) or e.source}: {plural(len(e.recurrent_layers), 'recurrent layer')} of {e.layers}, "
        f"{plural(e.slots, 'slot')}, ring {e.ring_depth}, K {e.k}, {e.verify_mode} verify, {e.rollback_mode} rollback"
    )


def _prefix_hit(e: ev.PrefixHit, v: LedgerView) -> str:
    return f"{e.tokens} of {e.matched} known tokens skipped: {_copy(e)}"


def _rollback(e: ev.Rollback, v: LedgerView) -> str:
    if e.outcome != "rolled_back":
        return f"{e.outcome}" + (f": {visible(e.reason)}" if e.reason else "")
    return (
        f"to {plural(e.keep_len, 'output')}, {e.dropped} dropped, cursor {e.cursor}, pending {token_text(v, e.pending)}"
    )


def _accept(e: ev.Accept, v: LedgerView) -> str:
    forced = f" (forced; the rule gives {e.natural})" if e.forced else ""
    return f"{e.accepted} of {e.k} rows{forced}: {token_list(v, e.emitted)}"


def _decision(e: ev.Decision, v: LedgerView) -> str:
    return f"{e.what}: {e.low}..{e.high}, goes on with {e.default}"


def _row(e: ev.VerifyRow, v: LedgerView) -> str:
    kept = f", {e.step_parts} kept as step {e.row}" if e.step_parts else ""
    return (
        f"row {e.row}: {token_text(v, e.token)} in, {token_text(v, e.pick)} out, margin {e.margin:.4g}, "
        f"position {e.position}{kept}"
    )


def _new(e: ev.Request, v: LedgerView) -> str:
    born = f"forked from r{e.parent}, " if e.parent >= 0 else ""
    return f"{born}prompt of {plural(e.prompt_len, 'token')}, at most {e.max_tokens} outputs, seed {e.seed}"


_WORDS: dict[type[Event], Callable[[Any, LedgerView], str]] = {
    ev.Start: _start,
    ev.Texts: lambda e, v: f"texts of {plural(len(e.ids), 'token')}",
    ev.Request: _new,
    ev.Fork: lambda e, v: f"continues r{e.parent} at cursor {e.cursor}",
    ev.Claim: lambda e, v: f"slot {e.slot}, epoch {e.epoch}",
    ev.Release: lambda e, v: f"slot {e.slot}, epoch {e.epoch}",
    ev.Compact: lambda e, v: f"slot {e.src} -> {e.dst}, epoch {e.epoch}, {byte_size(e.bytes)}",
    ev.Zero: lambda e, v: f"{e.place}, {e.parts}, {byte_size(e.bytes)}",
    ev.KvAlloc: lambda e, v: f"{plural(len(e.blocks), 'block')}: {_numbers(e.blocks)}",
    ev.KvShare: lambda e, v: f"{plural(len(e.blocks), 'block')} with {e.tokens} tokens: {_numbers(e.blocks)}",
    ev.KvCopy: lambda e, v: f"block {e.src} -> {e.dst}, {e.tokens} tokens",
    ev.KvHold: lambda e, v: f"prefix {e.index} holds blocks {_numbers(e.blocks)}",
    ev.KvDrop: lambda e, v: f"prefix {e.index} gives up blocks {_numbers(e.blocks)}",
    ev.KvRewind: lambda e, v: f"cursor {e.before} -> {e.cursor}",
    ev.KvFree: lambda e, v: f"{plural(len(e.blocks), 'block')}: {_numbers(e.blocks)}",
    ev.RoundBegin: lambda e, v: e.mode,
    ev.RoundEnd: lambda e, v: "",
    ev.Prefill: lambda e, v: (
        f"chunk {e.chunk}: {plural(e.count, 'token')} from {e.start}, cursor {e.cursor}, position {e.position}"
        + (", the last" if e.last else "")
    ),
    ev.Decode: lambda e, v: (
        f"{token_text(v, e.token)} in, {token_text(v, e.pick)} out, margin {e.margin:.4g}, cursor {e.cursor}, "
        f"position {e.position}"
    ),
    ev.Decision: _decision,
    ev.Draft: lambda e, v: f"{e.source}: {token_list(v, e.tokens)}",
    ev.VerifyRow: _row,
    ev.Verify: lambda e, v: f"{e.k} rows absorbed ({e.mode}), live is dirty, cursor {e.cursor}, position {e.position}",
    ev.Accept: _accept,
    ev.ReplayRow: lambda e, v: f"row {e.row} into {e.place}: {token_text(v, e.token)}, position {e.position}",
    ev.Commit: lambda e, v: f"{e.accepted} of {e.k} rows: {_copy(e)}",
    ev.RingSave: lambda e, v: f"after {plural(e.token_position, 'output')}: {_copy(e)}",
    ev.RingRestore: lambda e, v: f"after {plural(e.token_position, 'output')}: {_copy(e)}",
    ev.PrefixSave: lambda e, v: f"{e.origin}, {e.tokens} tokens: {_copy(e)}",
    ev.PrefixHit: _prefix_hit,
    ev.Landed: lambda e, v: f"copy {e.copy}: {e.src} -> {e.dst}, {e.parts or 'nothing'}, {byte_size(e.bytes)}",
    ev.Sync: lambda e, v: f"{e.stream} stream, {plural(e.count, 'copy', 'copies')} landed",
    ev.RingRecord: lambda e, v: f"slot {e.ring_slot} for {plural(e.token_position, 'output')}, next {e.next_slot}",
    ev.RingEvict: lambda e, v: f"slot {e.ring_slot}, it held {plural(e.token_position, 'output')}",
    ev.RingTruncate: lambda e, v: f"kept up to {e.keep_len}, dropped {_numbers(e.dropped)}, next {e.next_slot}",
    ev.PrefixMiss: lambda e, v: visible(e.reason) + f", {e.matched} tokens known",
    ev.PrefixEvict: lambda e, v: f"prefix {e.index}, {e.tokens} tokens: {visible(e.reason)}",
    ev.Emit: lambda e, v: f"{token_text(v, e.token)} as output {e.index} ({e.mark})",
    ev.Boundary: lambda e, v: f"{token_text(v, e.token)} after {plural(e.output_len, 'output')}",
    ev.Thinking: lambda e, v: "begins" if e.inside else "ends",
    ev.Watchdog: lambda e, v: f"{e.name} asks to drop at least {e.min_keep}: {visible(e.detail)}",
    ev.Rollback: _rollback,
    ev.Finish: lambda e, v: e.reason + (f", ended by {e.guard}" if e.guard else ""),
    ev.Fault: lambda e, v: f"{visible(e.name)} {'on' if e.on else 'off'}",
    ev.Option: lambda e, v: f"{visible(e.name)} = {visible(e.value)}",
    ev.Trouble: lambda e, v: visible(e.text) + (f" ({visible(e.place)})" if e.place else ""),
    ev.Unknown: lambda e, v: f"line {e.line}: {visible(e.text)}",
}


def body(event: Event, view: LedgerView) -> str:
    """What the event says, without number, kind and request."""
    words = _WORDS.get(type(event))
    if words is not None:
        return words(event, view)
    if isinstance(event, ev.StateCopy):
        return _copy(event)
    rest = (f"{key}={value}" for key, value in to_dict(event).items() if key not in ("kind", "seq", "round", "req"))
    return visible(shorten(" ".join(rest), 200))


def describe(event: Event, view: LedgerView) -> str:
    """``1043 rollback r2  to 41 outputs, ...``; ``view`` gives the token texts."""
    who = f" r{event.req}" if event.req >= 0 else ""
    return f"{event.seq} {event.kind}{who}  {body(event, view)}".rstrip()
