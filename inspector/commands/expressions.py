"""The expression language: one small, safe language for breakpoints, watches, conditions, print and assertions.

Text is parsed by ``ast`` and only a white list of nodes is compiled, into closures over a :class:`Scope`: names of
``inspector.commands.names``, fields, indices, arithmetic, comparisons, ``and or not in``, ``a if b else c``. There are
no calls but the listed functions, no powers, no shifts, nothing that loops. Length, depth, node count and the size of
whole numbers are bounded, so an expression always ends quickly and cannot fill the memory.
"""

from __future__ import annotations

import ast
import warnings
from typing import Any

from inspector.commands.compiler import Code, Compiler
from inspector.commands.errors import ExpressionError
from inspector.commands.operators import truth
from inspector.commands.showing import show
from inspector.commands.values import Scope, ValueProblem, plain

MAX_LENGTH = 1000
MAX_DEPTH = 60
MAX_NODES = 400


class Expression:
    """A compiled expression: ``value(scope)``, ``true(scope)``, ``sides(scope)``.

    ``names`` are the words it uses; ``heavy`` tells that it reads tensors.
    """

    __slots__ = ("_code", "_sides", "heavy", "names", "source")

    def __init__(self, source: str, code: Code, sides: list[tuple[str, Code]], names: frozenset[str], heavy: bool):
        self.source, self._code, self._sides, self.names, self.heavy = source, code, sides, names, heavy

    def value(self, scope: Scope) -> Any:
        """Raises ExpressionError: division by zero, a kind of value that does not fit, tensors that are not there."""
        return self._code(scope)

    def plain(self, scope: Scope) -> Any:
        """The value as a number, text, truth value, list or fact that can be compared with an earlier one."""
        try:
            return plain(self._code(scope), scope)
        except ValueProblem as error:
            raise ExpressionError(str(error), self.source) from None

    def true(self, scope: Scope) -> bool:
        return truth(self._code(scope))

    def show(self, scope: Scope) -> str:
        """The value as one line."""
        try:
            return show(self._code(scope), scope)
        except ValueProblem as error:
            raise ExpressionError(str(error), self.source) from None

    def sides(self, scope: Scope) -> list[tuple[str, str]]:
        """(source, value) of both sides of the comparisons at the top, for the report of a failed assertion."""
        return [(source, _shown(code, scope)) for source, code in self._sides]


def _shown(code: Code, scope: Scope) -> str:
    try:
        return show(code(scope), scope)
    except ValueError as error:
        return f"({error})"


def compile_expression(source: str) -> Expression:
    """Parse and check ``source``.

    Raises:
        ExpressionError: too long, too deep, not of the language, or a name that is not there (with a suggestion).
    """
    source = source.strip()
    if not source:
        raise ExpressionError("an expression is missing", source)
    if len(source) > MAX_LENGTH:
        raise ExpressionError(f"an expression has at most {MAX_LENGTH} characters, this one {len(source)}", source)
    _check_brackets(source)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source, mode="eval")
    except SyntaxError as error:
        column = min(max((error.offset or 1) - 1, 0), max(len(source) - 1, 0))
        raise ExpressionError(f"not an expression: {error.msg}", source, column) from None
    except (ValueError, RecursionError, MemoryError):
        raise ExpressionError("not an expression", source) from None
    _check_size(tree, source)
    compiler = Compiler(source)
    code = compiler.code(tree.body)
    return Expression(source, code, compiler.sides(tree.body), frozenset(compiler.names), compiler.heavy)


def _check_brackets(source: str) -> None:
    """Before ``ast`` sees it: its own limit on nesting is far higher, and its errors are not sentences."""
    depth = 0
    for column, char in enumerate(source):
        if char in "([{":
            depth += 1
            if depth > MAX_DEPTH:
                raise ExpressionError(f"nested deeper than {MAX_DEPTH}", source, column)
        elif char in ")]}":
            depth -= 1


def _check_size(tree: ast.AST, source: str) -> None:
    level: list[ast.AST] = [tree]
    depth = count = 0
    while level:
        depth += 1
        count += len(level)
        if depth > MAX_DEPTH or count > MAX_NODES:
            raise ExpressionError(f"too large: at most {MAX_DEPTH} levels and {MAX_NODES} terms", source)
        level = [child for node in level for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
