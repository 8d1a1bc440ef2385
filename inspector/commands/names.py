"""The documented names of the expression language. Nothing but these and the functions can be named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from inspector.commands import fields
from inspector.commands.functions import FUNCTIONS
from inspector.commands.values import Scope
from inspector.text import suggest


@dataclass(frozen=True, slots=True)
class Name:
    """A word of the language: what it means, how it is read."""

    about: str
    read: Callable[[Scope], Any]


def _of_current(name: str) -> Callable[[Scope], Any]:
    get = fields.REQUEST[name][1]

    def read(scope: Scope) -> Any:
        request = scope.request()
        return None if request is None else get(request, scope)

    return read


def _findings(scope: Scope) -> tuple[str, ...]:
    found = scope.findings(scope.view) if scope.findings is not None else ()
    return tuple(finding.name for finding in found)


def _finding(scope: Scope) -> str | None:
    found = scope.findings(scope.view) if scope.findings is not None else ()
    here = [finding.name for finding in found if finding.seq == scope.view.seq]
    return here[-1] if here else None


def _extra(name: str) -> Callable[[Scope], Any]:
    return lambda scope: scope.extras.get(name)


NAMES: dict[str, Name] = {
    "now": Name("number of the current event", lambda s: s.view.seq),
    "seq": Name("the same as now", lambda s: s.view.seq),
    "round": Name("number of the current round", lambda s: s.view.round),
    "event": Name("the current event: event.kind and every field it has", lambda s: s.event),
    "req": Name("the current request", lambda s: s.request()),
    "requests": Name("numbers of all requests", lambda s: tuple(sorted(s.view.requests.keys()))),
    "live": Name("the live state of the current request", lambda s: s.place("live")),
    "checkpoint": Name("the pre-verify copy of the current request", lambda s: s.place("checkpoint")),
    "pools": Name("pools.slots, pools.blocks, pools.prefix, pools.ring", lambda s: s.view.pools),
    "counters": Name('counters["name"]: what the run counted so far', lambda s: s.view.counters),
    "queued": Name("copies that wait on the secondary stream", lambda s: s.view.queued),
    "prefixes": Name("prefix slots in use", lambda s: tuple(sorted(s.view.prefixes.keys()))),
    "faults": Name("faults that are switched on", lambda s: s.view.faults),
    "troubles": Name("troubles the engine or the trace reported", lambda s: s.view.troubles),
    "findings": Name("names of the invariants broken up to now", _findings),
    "finding": Name("name of the invariant that broke at this event, or none", _finding),
    "hits": Name("in a condition: how often the stop's place was met, this time included", _extra("hits")),
    "old": Name("in the condition of a watch: the value before", _extra("old")),
    "new": Name("in the condition of a watch: the value now", _extra("new")),
    **{
        name: Name(fields.REQUEST[name][0] + " (of the current request)", _of_current(name))
        for name in fields.REQUEST
        if name != "id"
    },
}

WORDS: dict[str, Any] = {"none": None, "true": True, "false": False}


def unknown_name(name: str) -> str:
    """The sentence for a name that is not of the language."""
    return f'there is no name "{name}".{suggest(name, (*NAMES, *FUNCTIONS, *WORDS))} "help names" lists them'
