"""The documented functions of the expression language, over facts and over tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.events import Place
from inspector.commands import values
from inspector.commands.values import PlaceValue, Scope, Tensors, ValueProblem, kind_of
from sessions.view import PoolFact, RequestFact, RingFact

if TYPE_CHECKING:
    from inspector.commands.values import Array


@dataclass(frozen=True, slots=True)
class Function:
    """A function: its form, what it gives, how many arguments it takes; ``heavy`` ones read tensors."""

    form: str
    about: str
    low: int
    high: int
    call: Callable[..., Any]
    heavy: bool = False


def _length(scope: Scope, value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, RingFact):
        return len(value.entries)
    if isinstance(value, RequestFact):
        return len(value.tokens)
    if isinstance(value, (tuple, str)):
        return len(value)
    raise ValueProblem(f"len() takes a list, a text or a ring, not {kind_of(value)}")


def _numbers(name: str, scope: Scope, args: tuple[Any, ...]) -> list[Any]:
    items = args[0] if len(args) == 1 and isinstance(args[0], tuple) else args
    found = [values.plain(item, scope) for item in items]
    for item in found:
        if item is not None and not isinstance(item, (int, float)):
            raise ValueProblem(f"{name}() takes numbers, not {kind_of(item)}")
    return [item for item in found if item is not None]


def _least(scope: Scope, *args: Any) -> Any:
    return min(_numbers("min", scope, args), default=None)


def _most(scope: Scope, *args: Any) -> Any:
    return max(_numbers("max", scope, args), default=None)


def _sum(scope: Scope, *args: Any) -> Any:
    return sum(_numbers("sum", scope, args))


def _abs(scope: Scope, value: Any) -> Any:
    found = _numbers("abs", scope, (value,))
    return abs(found[0]) if found else None


def _int(scope: Scope, value: Any) -> int | None:
    found = _numbers("int", scope, (value,))
    try:
        return int(found[0]) if found else None
    except (OverflowError, ValueError):
        raise ValueProblem(f"{found[0]} has no integer part") from None


def _float(scope: Scope, value: Any) -> float | None:
    found = _numbers("float", scope, (value,))
    return float(found[0]) if found else None


def _truths(name: str, value: Any) -> tuple[Any, ...]:
    if isinstance(value, tuple):
        return value
    raise ValueProblem(f"{name}() takes a list, not {kind_of(value)}")


def _any(scope: Scope, value: Any) -> bool:
    return any(_truths("any", value))


def _all(scope: Scope, value: Any) -> bool:
    return all(_truths("all", value))


def _count(scope: Scope, value: Any, item: Any) -> int:
    return _truths("count", value).count(values.plain(item, scope))


def _text(scope: Scope, token: Any) -> str | None:
    found = _numbers("text", scope, (token,))
    return scope.view.texts.get(int(found[0])) if found else None


def _boundary(scope: Scope, token: Any) -> bool | None:
    found = _numbers("boundary", scope, (token,))
    return scope.view.boundaries.get(int(found[0])) if found else None


def _request(scope: Scope, number: Any) -> RequestFact:
    found = scope.view.requests.get(_whole("request", scope, number))
    if found is None:
        there = ", ".join(f"{r}" for r in sorted(scope.view.requests.keys())) or "none"
        raise ValueProblem(f"there is no request {number} now; requests: {there}")
    return found


def _whole(name: str, scope: Scope, value: Any) -> int:
    value = values.plain(value, scope)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueProblem(f"{name}() takes a whole number, not {kind_of(value)}")
    return value


def _pool(scope: Scope, name: Any) -> PoolFact:
    found = scope.view.pools.get(name) if isinstance(name, str) else None
    if found is None:
        there = ", ".join(sorted(scope.view.pools.keys())) or "none yet"
        raise ValueProblem(f'there is no pool "{name}"; pools: {there}')
    return found


def _place_of(kind: str) -> Callable[..., PlaceValue]:
    def call(scope: Scope, index: Any, req: Any = None) -> PlaceValue:
        return scope.place(kind, _whole(kind, scope, index), None if req is None else _whole(kind, scope, req))

    return call


def _place_for(kind: str) -> Callable[..., PlaceValue]:
    return lambda scope, req: scope.place(kind, 0, _whole(kind, scope, req))


def _prefix(scope: Scope, index: Any) -> PlaceValue:
    return scope.place("prefix", _whole("prefix", scope, index))


def _place(scope: Scope, text: Any) -> PlaceValue:
    try:
        return PlaceValue(Place.from_text(text), text) if isinstance(text, str) else scope.place("")
    except ValueError as error:
        raise ValueProblem(str(error)) from None


def _both(name: str, value: Any) -> list[Tensors]:
    if isinstance(value, Tensors):
        return [value]
    if isinstance(value, PlaceValue):
        if value.place is None:
            raise ValueProblem(f"{value.name} has no slot now, so it has no tensors")
        return [Tensors(value.place, part) for part in values.PARTS]
    raise ValueProblem(f"{name}() takes a place or a tensor such as live.h[0], not {kind_of(value)}")


def _arrays(name: str, scope: Scope, value: Any) -> list[Array]:
    import numpy as np

    return [array.astype(np.float64) for item in _both(name, value) for _, array in scope.arrays(item)]


def _reduce(name: str, over: Callable[[Array], float], join: Callable[[list[float]], float]) -> Callable[..., float]:
    def call(scope: Scope, value: Any) -> float:
        return join([over(array) for array in _arrays(name, scope, value)])

    return call


def _root(squares: list[float]) -> float:
    return float(sum(squares) ** 0.5)


def _rms(scope: Scope, value: Any) -> float:
    arrays = _arrays("rms", scope, value)
    count = sum(array.size for array in arrays)
    return float((sum(float((array * array).sum()) for array in arrays) / count) ** 0.5) if count else 0.0


def _mean(scope: Scope, value: Any) -> float:
    arrays = _arrays("mean", scope, value)
    count = sum(array.size for array in arrays)
    return sum(float(array.sum()) for array in arrays) / count if count else 0.0


def _nan(scope: Scope, value: Any) -> int:
    import numpy as np

    return sum(int((~np.isfinite(array)).sum()) for array in _arrays("nan", scope, value))


def _zero(scope: Scope, value: Any) -> bool:
    return not any(bool(array.any()) for array in _arrays("zero", scope, value))


def _pairs(name: str, scope: Scope, left: Any, right: Any) -> list[tuple[Array, Array]]:
    first, second = _arrays(name, scope, left), _arrays(name, scope, right)
    if [a.shape for a in first] != [b.shape for b in second]:
        raise ValueProblem(f"{name}() takes two places or tensors of the same shape")
    return list(zip(first, second, strict=True))


def _rel(scope: Scope, left: Any, right: Any) -> float:
    pairs = _pairs("rel", scope, left, right)
    error = sum(float(((a - b) ** 2).sum()) for a, b in pairs)
    size = sum(float((b * b).sum()) for _, b in pairs)
    if error == 0.0:
        return 0.0
    return float("inf") if size == 0.0 else float((error / size) ** 0.5)


def _maxdiff(scope: Scope, left: Any, right: Any) -> float:
    pairs = _pairs("maxdiff", scope, left, right)
    return max((float(abs(a - b).max()) for a, b in pairs if a.size), default=0.0)


def _digest(scope: Scope, value: Any) -> str | None:
    """From the facts when they know it (cheap, any instant), else from the bytes."""
    wanted = _both("digest", value)
    state = scope.view.states.get(wanted[0].place)
    layers = scope.view.start.recurrent_layers
    if state is not None and len(state.digests) == len(layers) and not any(item.index for item in wanted):
        known = []
        for item in wanted:
            part = values.PARTS.index(item.part)
            known += [
                pair[part] for layer, pair in zip(layers, state.digests, strict=True) if item.layer in (None, layer)
            ]
        if known:
            return "+".join(known) if len(known) == 1 else _hash("+".join(known).encode())
    if scope.tensors is None:
        return None
    found = [_hash(array.tobytes()) for item in wanted for _, array in scope.arrays(item)]
    return found[0] if len(found) == 1 else _hash("+".join(found).encode())


def _hash(data: bytes) -> str:
    import xxhash

    return str(xxhash.xxh3_64_hexdigest(data))


FUNCTIONS: dict[str, Function] = {
    "len": Function("len(list)", "number of items, characters or ring entries", 1, 1, _length),
    "abs": Function("abs(x)", "size without sign", 1, 1, _abs),
    "min": Function("min(a, b, ...) or min(list)", "the least", 1, 16, _least),
    "max": Function("max(a, b, ...) or max(list)", "the greatest", 1, 16, _most),
    "sum": Function("sum(list)", "the sum", 1, 16, _sum),
    "any": Function("any(list)", "true when one item is", 1, 1, _any),
    "all": Function("all(list)", "true when every item is", 1, 1, _all),
    "count": Function("count(list, x)", "how often x is in the list", 2, 2, _count),
    "int": Function("int(x)", "integer part", 1, 1, _int),
    "float": Function("float(x)", "as a fraction", 1, 1, _float),
    "text": Function("text(id)", "text of a token id", 1, 1, _text),
    "boundary": Function("boundary(id)", "the token ends a line or a sentence", 1, 1, _boundary),
    "request": Function("request(n)", "request number n", 1, 1, _request),
    "req": Function("req(n)", "the same as request(n)", 1, 1, _request),
    "pool": Function('pool("blocks")', "a pool by name", 1, 1, _pool),
    "live": Function("live(n)", "live state of request n", 1, 1, _place_for("live")),
    "checkpoint": Function("checkpoint(n)", "checkpoint of request n", 1, 1, _place_for("checkpoint")),
    "step": Function("step(i) or step(i, n)", "state after verify row i", 1, 2, _place_of("step")),
    "ring": Function("ring(i) or ring(i, n)", "ring slot i", 1, 2, _place_of("ring")),
    "prefix": Function("prefix(i)", "cached snapshot i", 1, 1, _prefix),
    "place": Function('place("ring:0.2")', "a place by its full name", 1, 1, _place),
    "digest": Function("digest(place or tensor)", "hash of the bytes; from the record where it knows", 1, 1, _digest),
    "norm": Function(
        "norm(tensor)", "square root of the sum of squares", 1, 1,
        _reduce("norm", lambda a: float((a * a).sum()), _root), True,
    ),
    "rms": Function("rms(tensor)", "root mean square", 1, 1, _rms, True),
    "mean": Function("mean(tensor)", "mean", 1, 1, _mean, True),
    "nan": Function("nan(tensor)", "how many elements are NaN or infinite", 1, 1, _nan, True),
    "zero": Function("zero(tensor)", "true when every element is 0", 1, 1, _zero, True),
    "rel": Function("rel(a, b)", "norm(a - b) / norm(b)", 2, 2, _rel, True),
    "maxdiff": Function("maxdiff(a, b)", "largest absolute difference", 2, 2, _maxdiff, True),
}  # fmt: skip
