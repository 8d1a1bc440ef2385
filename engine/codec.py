"""Plain data to JSON and back, for the frozen dataclasses that cross the port.

A record becomes ``{"kind": ..., field: value, ...}``; fields that hold their default are left out, so lines stay short
and old readers meet few unknown names. Reading checks every field against its declared type: input may be hostile.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

R = TypeVar("R", bound="Record")
Convert = Callable[[Any], Any]


class CodecError(ValueError):
    """A record that does not have the announced form; the text names kind, field, found and expected."""


class Record:
    """Base of everything that crosses the port. Subclasses are frozen dataclasses with a class variable ``kind``."""

    __slots__ = ()
    kind: ClassVar[str] = ""


class Named:
    """Base of values that are written as one string: ``to_text`` and ``from_text``."""

    __slots__ = ()

    def to_text(self) -> str:
        raise NotImplementedError


def plain(value: Any) -> Any:
    """A field as JSON holds it. JSON has no NaN and no infinity: they become "nan", "inf" and "-inf"."""
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value.to_text() if isinstance(value, Named) else value


_FIELDS: dict[type[Any], tuple[tuple[str, Any, Convert], ...]] = {}


def _fields(cls: type[Any]) -> tuple[tuple[str, Any, Convert], ...]:
    found = _FIELDS.get(cls)
    if found is None:
        hints = typing.get_type_hints(cls)
        found = tuple((field.name, field.default, _reader(hints[field.name])) for field in dataclasses.fields(cls))
        _FIELDS[cls] = found
    return found


def to_dict(record: Record) -> dict[str, Any]:
    """``record`` as plain data (dict, list, str, int, float, bool, None)."""
    out: dict[str, Any] = {"kind": record.kind}
    for name, default, _ in _fields(type(record)):
        value = getattr(record, name)
        if value != default or isinstance(value, Named):
            out[name] = plain(value)
    return out


def from_dict(data: Mapping[str, Any], kinds: Mapping[str, type[R]]) -> R:
    """The record described by ``data``.

    Raises:
        CodecError: unknown kind, unknown field, missing field, or a value of another type.
    """
    if not isinstance(data, Mapping):
        raise CodecError(f"expected an object with a 'kind', found {type(data).__name__}")
    kind = data.get("kind")
    cls = kinds.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise CodecError(f"unknown kind {kind!r}")
    known = {name: read for name, _, read in _fields(cls)}
    values: dict[str, Any] = {}
    for name, raw in data.items():
        if name == "kind":
            continue
        read = known.get(name)
        if read is None:
            raise CodecError(f"{kind}: unknown field {name!r}")
        try:
            values[name] = read(raw)
        except (TypeError, ValueError) as error:
            raise CodecError(f"{kind}.{name}: {error}") from None
    try:
        return cls(**values)
    except TypeError as error:
        raise CodecError(f"{kind}: {error}") from None


def _reader(hint: Any) -> Convert:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        inner = _reader(next(arg for arg in args if arg is not type(None)))
        return lambda raw: None if raw is None else inner(raw)
    if origin is tuple:
        if len(args) == 2 and args[1] is Ellipsis:
            item = _reader(args[0])
            return lambda raw: tuple(item(entry) for entry in _listed(raw))
        readers = [_reader(arg) for arg in args]
        return lambda raw: _fixed(raw, readers)
    if hint is float:
        return _number
    if hint in (int, str, bool):
        return functools.partial(_exact, hint)
    parse = getattr(hint, "from_text", None)
    if parse is not None:
        return lambda raw: parse(_exact(str, raw))
    raise TypeError(f"no JSON form for {hint!r}")


def _listed(raw: Any) -> list[Any] | tuple[Any, ...]:
    if not isinstance(raw, (list, tuple)):
        raise ValueError(f"expected a list, found {type(raw).__name__}")
    return raw


def _fixed(raw: Any, readers: list[Convert]) -> tuple[Any, ...]:
    items = _listed(raw)
    if len(items) != len(readers):
        raise ValueError(f"expected {len(readers)} items, found {len(items)}")
    return tuple(read(item) for read, item in zip(readers, items, strict=True))


def _number(raw: Any) -> float:
    if raw in ("nan", "inf", "-inf"):
        return float(raw)
    if isinstance(raw, bool) or not isinstance(raw, (int, float)):
        raise ValueError(f"expected a number, found {type(raw).__name__}")
    return float(raw)


def _exact(expected: type, raw: Any) -> Any:
    if type(raw) is not expected:
        raise ValueError(f"expected {expected.__name__}, found {type(raw).__name__} {raw!r:.60}")
    return raw
