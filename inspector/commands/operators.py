"""What operators, indices and slices of the expression language do with values."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from inspector.commands.values import PlaceValue, Tensors, ValueProblem, kind_of
from inspector.text import suggest

MAX_WHOLE = 2**63
MAX_TEXT = 10_000
MAX_LIST = 100_000

ARITHMETIC: dict[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
}
ORDER: dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], bool]]] = {
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
}


def arithmetic(sign: str, operate: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    if left is None or right is None:
        return None
    if sign == "+" and isinstance(left, str) and isinstance(right, str) and len(left) + len(right) <= MAX_TEXT:
        return left + right
    if sign == "+" and isinstance(left, tuple) and isinstance(right, tuple) and len(left) + len(right) <= MAX_LIST:
        return left + right
    if not isinstance(left, (int, float)) or not isinstance(right, (int, float)):
        raise ValueProblem(f'"{sign}" needs two numbers, found {kind_of(left)} and {kind_of(right)}')
    try:
        result = operate(left, right)
    except ZeroDivisionError:
        raise ValueProblem(f"division by zero: {left} {sign} {right}") from None
    except OverflowError:
        raise ValueProblem("the number is too large") from None
    if isinstance(result, int) and abs(result) >= MAX_WHOLE:
        raise ValueProblem("the number is too large")
    return result


def holds(op: ast.cmpop, left: Any, right: Any, asks_none: bool) -> bool:
    if isinstance(op, (ast.Is, ast.IsNot)) and not asks_none:
        raise ValueProblem('"is" compares with none only; use == for values')
    if asks_none:
        same = left is None and right is None
        if isinstance(op, (ast.Eq, ast.Is)):
            return same
        if isinstance(op, (ast.NotEq, ast.IsNot)):
            return not same
        return False
    if left is None or right is None:
        return False
    if isinstance(op, ast.Eq):
        return bool(left == right)
    if isinstance(op, ast.NotEq):
        return bool(left != right)
    if isinstance(op, (ast.In, ast.NotIn)):
        if not isinstance(right, (tuple, str)) or (isinstance(right, str) and not isinstance(left, str)):
            raise ValueProblem(
                f'"in" looks into a list, or for a text in a text, not {kind_of(left)} in {kind_of(right)}'
            )
        return (left in right) is isinstance(op, ast.In)
    sign, order = ORDER[type(op)]
    numbers = isinstance(left, (int, float)) and isinstance(right, (int, float))
    if numbers or (type(left) is type(right) and isinstance(left, (str, tuple))):
        try:
            return bool(order(left, right))
        except TypeError:
            pass
    raise ValueProblem(f'"{sign}" cannot order {kind_of(left)} and {kind_of(right)}')


def entry(base: Any, index: Any) -> Any:
    """``base[index]``: an item of a list, a character, an entry of a map, a layer of a tensor, an index inside it."""
    if base is None or index is None:
        return None
    if isinstance(base, Tensors):
        numbers = index if isinstance(index, tuple) else (index,)
        if not numbers or not all(isinstance(n, int) and not isinstance(n, bool) for n in numbers):
            raise ValueProblem(
                "a tensor is indexed by whole numbers: h[layer], h[layer, head], h[layer][head, row, col]"
            )
        if base.layer is None:
            return Tensors(base.place, base.part, numbers[0], tuple(numbers[1:]))
        return Tensors(base.place, base.part, base.layer, base.index + numbers)
    if isinstance(base, (tuple, str)):
        if isinstance(index, bool) or not isinstance(index, int):
            raise ValueProblem(f"an index is a whole number, not {kind_of(index)}")
        if not -len(base) <= index < len(base):
            return None
        return base[index]
    get = getattr(base, "get", None)
    if get is None or not isinstance(index, (str, int)):
        raise ValueProblem(f"{kind_of(base)} has no entries")
    found = get(index)
    if found is None and index not in base:
        keys = [str(key) for key in sorted(base)]
        if keys and isinstance(index, str) and any(isinstance(value, int) for value in base.values()):
            return 0
        raise ValueProblem(
            f'there is no "{index}" here.{suggest(str(index), keys)} There is: {", ".join(keys) or "nothing"}'
        )
    return found


def cut(base: Any, low: Any, high: Any) -> Any:
    if base is None:
        return None
    if not isinstance(base, (tuple, str)):
        raise ValueProblem(f"{kind_of(base)} cannot be cut")
    for bound in (low, high):
        if bound is not None and (isinstance(bound, bool) or not isinstance(bound, int)):
            raise ValueProblem("the bounds of a slice are whole numbers")
    return base[low:high]


def truth(value: Any) -> bool:
    """A place counts as true when it has a slot; everything else as in Python."""
    if isinstance(value, PlaceValue):
        return value.place is not None
    return bool(value)
