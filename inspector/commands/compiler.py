"""From a white list of ``ast`` nodes to closures over a scope. What is not listed here is not in the language."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from inspector.commands.errors import ExpressionError
from inspector.commands.fields import ATTRIBUTES, EVENT_FIELDS, attribute
from inspector.commands.functions import FUNCTIONS
from inspector.commands.names import NAMES, WORDS, unknown_name
from inspector.commands.operators import ARITHMETIC, MAX_WHOLE, arithmetic, cut, entry, holds, truth
from inspector.commands.values import Scope, ValueProblem, kind_of, plain
from inspector.text import suggest

Code = Callable[[Scope], Any]

_NOT_PART: dict[type[ast.AST], str] = {
    ast.Lambda: "functions cannot be defined",
    ast.Pow: "powers are not part of the language",
    ast.LShift: "shifts are not part of the language",
    ast.RShift: "shifts are not part of the language",
    ast.ListComp: "loops are not part of the language",
    ast.GeneratorExp: "loops are not part of the language",
    ast.SetComp: "loops are not part of the language",
    ast.DictComp: "loops are not part of the language",
    ast.NamedExpr: "values cannot be assigned",
    ast.JoinedStr: "formatted texts are not part of the language",
    ast.Dict: "maps are not part of the language",
    ast.Set: "sets are not part of the language",
    ast.Starred: "stars are not part of the language",
    ast.Await: "await is not part of the language",
    ast.Yield: "yield is not part of the language",
}


class Compiler:
    """Compiles one expression. Raises ExpressionError for everything that is not of the language."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.names: set[str] = set()
        self.heavy = False

    # ------------------------------------------------------------------------------------------------- structure

    def code(self, node: ast.expr) -> Code:
        method = getattr(self, "_" + type(node).__name__.lower(), None)
        if method is None:
            raise self.error(node, _NOT_PART.get(type(node), f"{type(node).__name__} is not part of the language"))
        made: Code = method(node)
        return made

    def column(self, node: ast.AST) -> int:
        offset = getattr(node, "col_offset", 0)
        return len(self.source.encode()[:offset].decode(errors="replace"))

    def error(self, node: ast.AST, what: str) -> ExpressionError:
        return ExpressionError(what, self.source, self.column(node))

    def part(self, node: ast.expr) -> str:
        return ast.get_source_segment(self.source, node) or ast.unparse(node)

    def sides(self, node: ast.expr) -> list[tuple[str, Code]]:
        if isinstance(node, ast.BoolOp):
            return [side for value in node.values for side in self.sides(value)]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return self.sides(node.operand)
        if isinstance(node, ast.Compare):
            operands = [node.left, *node.comparators]
            return [(self.part(item), self.code(item)) for item in operands if not _literal(item)]
        return [] if _literal(node) else [(self.part(node), self.code(node))]

    # ---------------------------------------------------------------------------------------------------- leaves

    def _constant(self, node: ast.Constant) -> Code:
        value = node.value
        if not isinstance(value, (bool, int, float, str)) and value is not None:
            raise self.error(node, f"{type(value).__name__} values are not part of the language")
        if isinstance(value, int) and abs(value) >= MAX_WHOLE:
            raise self.error(node, "the number is too large")
        return lambda scope: value

    def _name(self, node: ast.Name) -> Code:
        if node.id in WORDS:
            word = WORDS[node.id]
            return lambda scope: word
        name = NAMES.get(node.id)
        if name is None:
            if node.id in FUNCTIONS:
                raise self.error(node, f"{node.id} is a function: {FUNCTIONS[node.id].form}")
            raise self.error(node, unknown_name(node.id))
        self.names.add(node.id)
        return self.guard(node, name.read)

    def guard(self, node: ast.AST, code: Code) -> Code:
        """``code``, with the place of ``node`` added to whatever it cannot do."""
        source, column = self.source, self.column(node)

        def guarded(scope: Scope) -> Any:
            try:
                return code(scope)
            except ValueProblem as error:
                raise ExpressionError(str(error), source, column) from None

        return guarded

    def _tuple(self, node: ast.Tuple | ast.List) -> Code:
        items = [self.code(item) for item in node.elts]
        return lambda scope: tuple(plain(item(scope), scope) for item in items)

    _list = _tuple

    # ------------------------------------------------------------------------------------- fields, indices, calls

    def _attribute(self, node: ast.Attribute) -> Code:
        base, name = self.code(node.value), node.attr
        keyed = isinstance(node.value, ast.Name) and node.value.id in ("pools", "counters")
        if isinstance(node.value, ast.Name) and node.value.id == "event" and name not in EVENT_FIELDS:
            raise self.error(node, f'no event has a field "{name}".{suggest(name, EVENT_FIELDS)}')
        if not keyed and name not in ATTRIBUTES:
            raise self.error(node, f'there is no field "{name}".{suggest(name, ATTRIBUTES)}')
        if name in ("h", "conv"):
            self.heavy = True
        if keyed:
            return self.guard(node, lambda scope: entry(base(scope), name))
        return self.guard(node, lambda scope: attribute(base(scope), name, scope))

    def _subscript(self, node: ast.Subscript) -> Code:
        base = self.code(node.value)
        if isinstance(node.slice, ast.Slice):
            bounds = [self.code(b) if b is not None else None for b in (node.slice.lower, node.slice.upper)]
            if node.slice.step is not None:
                raise self.error(node.slice, "a slice has no step here")
            low, high = bounds
            return self.guard(
                node,
                lambda scope: cut(base(scope), low(scope) if low else None, high(scope) if high else None),
            )
        index = self.code(node.slice)
        return self.guard(node, lambda scope: entry(base(scope), plain(index(scope), scope)))

    def _call(self, node: ast.Call) -> Code:
        if not isinstance(node.func, ast.Name):
            raise self.error(node, "only the functions of the language can be called")
        function = FUNCTIONS.get(node.func.id)
        if function is None:
            hint = "it is a name, not a function" if node.func.id in NAMES else suggest(node.func.id, FUNCTIONS).strip()
            raise self.error(node, f'there is no function "{node.func.id}". {hint}'.rstrip())
        if node.keywords:
            raise self.error(node, "arguments are given by place, not by name")
        if not function.low <= len(node.args) <= function.high:
            raise self.error(node, f"{node.func.id} is called as {function.form}")
        args = [self.code(arg) for arg in node.args]
        call = function.call
        self.names.add(node.func.id)
        if function.heavy:
            self.heavy = True
        return self.guard(node, lambda scope: call(scope, *(arg(scope) for arg in args)))

    # ------------------------------------------------------------------------------------------------- operators

    def _boolop(self, node: ast.BoolOp) -> Code:
        values = [self.code(value) for value in node.values]
        if isinstance(node.op, ast.And):
            return lambda scope: all(truth(value(scope)) for value in values)
        return lambda scope: any(truth(value(scope)) for value in values)

    def _ifexp(self, node: ast.IfExp) -> Code:
        test, yes, no = self.code(node.test), self.code(node.body), self.code(node.orelse)
        return lambda scope: yes(scope) if truth(test(scope)) else no(scope)

    def _unaryop(self, node: ast.UnaryOp) -> Code:
        value = self.code(node.operand)
        if isinstance(node.op, ast.Not):
            return lambda scope: not truth(value(scope))
        if not isinstance(node.op, (ast.USub, ast.UAdd)):
            raise self.error(node, "bit operations are not part of the language")
        negate = isinstance(node.op, ast.USub)

        def sign(scope: Scope) -> Any:
            number = plain(value(scope), scope)
            if number is None:
                return None
            if not isinstance(number, (int, float)):
                raise ValueProblem(f"a sign needs a number, not {kind_of(number)}")
            return -number if negate else +number

        return self.guard(node, sign)

    def _binop(self, node: ast.BinOp) -> Code:
        known = ARITHMETIC.get(type(node.op))
        if known is None:
            raise self.error(node, _NOT_PART.get(type(node.op), "bit operations are not part of the language"))
        sign, operate = known
        left, right = self.code(node.left), self.code(node.right)

        def compute(scope: Scope) -> Any:
            return arithmetic(sign, operate, plain(left(scope), scope), plain(right(scope), scope))

        return self.guard(node, compute)

    def _compare(self, node: ast.Compare) -> Code:
        operands = [self.code(item) for item in (node.left, *node.comparators)]
        # A comparison with the word none asks whether something is there; any other one with none is false.
        words = [
            (isinstance(item, ast.Constant) and item.value is None)
            or (isinstance(item, ast.Name) and item.id == "none")
            for item in (node.left, *node.comparators)
        ]
        ops = list(node.ops)

        def compare(scope: Scope) -> bool:
            left = plain(operands[0](scope), scope)
            for i, op in enumerate(ops):
                right = plain(operands[i + 1](scope), scope)
                if not holds(op, left, right, words[i] or words[i + 1]):
                    return False
                left = right
            return True

        return self.guard(node, compare)


def _literal(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) or (isinstance(node, ast.Name) and node.id in WORDS)
