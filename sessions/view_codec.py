"""Ledger views as plain bytes, so that a recording can be opened in its middle without folding from the start.

A view is written in sections, one for each field and one for each request, because most sections are equal from one
stored view to the next and the file keeps equal content once. ``changed`` is not written: a stored view is a base to
fold from, not one to look at. ``LAYOUT`` names the fields; a file written with another layout is folded instead.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from immutables import Map

from engine.codec import CodecError, Named, Record, from_dict, to_dict
from engine.events import EVENTS, Event
from sessions.view import LedgerView

Convert = Callable[[Any], Any]
SKIPPED = ("changed",)
REQUEST = "request."


class ViewError(ValueError):
    """Sections that do not make a view."""


def _layout(cls: type[Any], seen: set[type[Any]]) -> list[str]:
    seen.add(cls)
    lines = [f"{cls.__name__}:{','.join(field.name for field in dataclasses.fields(cls))}"]
    pending = list(typing.get_type_hints(cls).values())
    while pending:
        hint = pending.pop()
        pending += typing.get_args(hint)
        plain = isinstance(hint, type) and dataclasses.is_dataclass(hint) and not issubclass(hint, (Record, Named))
        if plain and hint not in seen:
            lines += _layout(hint, seen)
    return lines


LAYOUT = f"{zlib.crc32(';'.join(sorted(_layout(LedgerView, set()))).encode()):08x}"


def to_sections(view: LedgerView) -> dict[str, bytes]:
    """``view`` as sections of canonical JSON."""
    sections: dict[str, bytes] = {}
    for field in dataclasses.fields(view):
        value = getattr(view, field.name)
        if field.name == "requests":
            sections |= {f"{REQUEST}{req}": _bytes(fact) for req, fact in value.items()}
        elif field.name not in SKIPPED:
            sections[field.name] = _bytes(value)
    return sections


def from_sections(sections: Mapping[str, bytes]) -> LedgerView:
    """Inverse of :func:`to_sections`. Raises ViewError."""
    hints = _hints(LedgerView)
    fact = _reader(typing.get_args(hints["requests"])[1])
    try:
        fields = {
            name: _reader(hints[name])(json.loads(data))
            for name, data in sections.items()
            if not name.startswith(REQUEST) and name in hints
        }
        requests = {
            int(name[len(REQUEST) :]): fact(json.loads(data))
            for name, data in sections.items()
            if name.startswith(REQUEST)
        }
        return LedgerView(**fields, requests=Map(requests))
    except (CodecError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise ViewError(f"not a ledger view: {error}") from None


def _bytes(value: Any) -> bytes:
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":")).encode("ascii")


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (int, float, str)):
        return value
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Map):
        return [[_plain(key), _plain(item)] for key, item in sorted(value.items())]
    if isinstance(value, Named):
        return value.to_text()
    if isinstance(value, Record):
        return to_dict(value)
    return [_plain(getattr(value, name)) for name, _ in _readers(value.__class__)]


@functools.cache
def _hints(cls: Any) -> dict[str, Any]:
    return typing.get_type_hints(cls)


@functools.cache
def _readers(cls: Any) -> tuple[tuple[str, Convert], ...]:
    hints = _hints(cls)
    return tuple((field.name, _reader(hints[field.name])) for field in dataclasses.fields(cls))


@functools.cache
def _reader(hint: Any) -> Convert:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        inner = _reader(next(arg for arg in args if arg is not type(None)))
        return lambda raw: None if raw is None else inner(raw)
    if origin is tuple and len(args) == 2 and args[1] is Ellipsis:
        item = _reader(args[0])
        return lambda raw: tuple([item(entry) for entry in _listed(raw)])
    if origin is tuple:
        each = [_reader(arg) for arg in args]
        return lambda raw: tuple(read(entry) for read, entry in zip(each, _listed(raw), strict=True))
    if origin is Map:
        key, item = _reader(args[0]), _reader(args[1])
        return lambda raw: Map({key(k): item(v) for k, v in _listed(raw)})
    if hint in (int, float, str, bool):
        return functools.partial(_exact, hint)
    if issubclass(hint, Named):
        return lambda raw: hint.from_text(_exact(str, raw))
    if issubclass(hint, Event):
        return lambda raw: from_dict(raw, EVENTS)
    return lambda raw: _record(hint, _readers(hint), _listed(raw))


def _record(cls: type[Any], readers: tuple[tuple[str, Convert], ...], raw: list[Any]) -> Any:
    return cls(*[read(entry) for (_, read), entry in zip(readers, raw, strict=True)])


def _listed(raw: Any) -> list[Any]:
    if not isinstance(raw, list):
        raise ValueError(f"expected a list, found {type(raw).__name__}")
    return raw


def _exact(expected: type, raw: Any) -> Any:
    if type(raw) is not expected:
        raise ValueError(f"expected {expected.__name__}, found {raw!r:.40}")
    return raw
