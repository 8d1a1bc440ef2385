"""One spelling for each record, so that equal facts have equal bytes, and the digests built on it.

Canonical JSON: sorted keys, no spaces, ASCII only, floats as their shortest round-trip text; fields at their default
are left out. No wall clock is ever part of a record.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import xxhash

from engine.codec import Named, Record
from engine.codec import plain as in_json
from engine.events import Event

_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode
_FIELDS: dict[type[Any], tuple[tuple[str, Any], ...]] = {}
CHAIN_START = bytes(16)


def canonical(record: Record, digests: bool = True) -> str:
    """``record`` as canonical JSON, without its state digests when ``digests`` is False (level ``events``)."""
    cls = type(record)
    fields = _FIELDS.get(cls)
    if fields is None:
        fields = _FIELDS[cls] = tuple((f.name, f.default) for f in dataclasses.fields(cls))  # type: ignore[arg-type]
    plain: dict[str, Any] = {"kind": record.kind}
    for name, default in fields:
        value = getattr(record, name)
        if isinstance(value, Named):
            plain[name] = value.to_text()
        elif value != default and (digests or name != "digests" or value is True):
            plain[name] = value
    try:
        return _encode(plain)
    except ValueError:  # NaN or infinite
        return _encode({name: in_json(value) for name, value in plain.items()})


def canonical_json(plain: Any) -> str:
    """Plain data in the same spelling."""
    try:
        return _encode(plain)
    except ValueError:
        return _encode(_finite(plain))


def _finite(plain: Any) -> Any:
    """Plain data with the floats that JSON does not have as text."""
    if isinstance(plain, dict):
        return {name: _finite(value) for name, value in plain.items()}
    return [_finite(item) for item in plain] if isinstance(plain, (list, tuple)) else in_json(plain)


def same(a: Event, b: Event) -> bool:
    """Equal as facts; unlike ``==`` a NaN equals a NaN."""
    return a == b or (type(a) is type(b) and canonical(a) == canonical(b))


def chain(previous: bytes, payload: str) -> bytes:
    """Digest (xxh3-128) of all history up to and including ``payload``."""
    return xxhash.xxh3_128_digest(previous + payload.encode("ascii"))


def state_digest(event: Event) -> str:
    """Digest over the per-layer digests an event carries, "" when it carries none."""
    digests = getattr(event, "digests", ())
    if not digests or digests is True:  # ``Start.digests`` says whether there are any
        return ""
    return xxhash.xxh3_64_hexdigest("".join(h + conv for h, conv in digests).encode())


def check_sum(*fields: object) -> bytes:
    """Sum over the fields of a small row; a damaged row does not match it."""
    return xxhash.xxh3_64_digest("\x1f".join(map(str, fields)).encode("utf-8", "surrogatepass"))
