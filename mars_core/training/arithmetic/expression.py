"""Arithmetic as it is written down: an expression over named quantities, worked out exactly.

"total * part" over total = 24 apples and part = two thirds reads "24 * 2 / 3" and is 16. Values are
fractions, so nothing is rounded; money is a quantity that is written with a dollar sign.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number. money: in dollars.

    text: how it is said, where not as a number: "two thirds", "20%". Such a share of something is
    written as a multiplication and a division by `over`: 24 * 2 / 3.
    """

    value: Fraction
    money: bool = False
    text: str = ""
    over: int = 0

    def __str__(self) -> str:
        return self.text or f"{'$' if self.money else ''}{self.number}"

    @property
    def number(self) -> str:
        """The bare number: whole, with cents, or with as many decimals as it has (2.5)."""
        if self.value.denominator == 1:
            return str(self.value.numerator)
        if self.money:
            return f"{float(self.value):.2f}"
        return f"{float(self.value):.4f}".rstrip("0")


@dataclass(frozen=True, slots=True)
class Term:
    """A worked-out part of an expression. written: with its numbers. rank: how tightly it binds."""

    written: str
    quantity: Quantity
    rank: int = 3


OPERATORS: dict[type[ast.operator], tuple[str, int, Callable[..., Fraction]]] = {
    ast.Add: ("+", 1, operator.add),
    ast.Sub: ("-", 1, operator.sub),
    ast.Mult: ("*", 2, operator.mul),
    ast.Div: ("/", 2, operator.truediv),
    ast.FloorDiv: ("/", 2, lambda a, b: Fraction(a // b)),
}
RELATIONS: dict[type[ast.cmpop], Callable[[Fraction, Fraction], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.NotEq: operator.ne,
}


@cache
def parsed(source: str) -> ast.expr:
    return ast.parse(source, mode="eval").body


def evaluate(source: str, known: Mapping[str, Quantity]) -> Quantity:
    """The value of an expression such as "boxes * per - given"."""
    return work_out(parsed(source), known).quantity


def holds(source: str, known: Mapping[str, Quantity]) -> bool:
    """Whether a comparison such as "boxes * per > given" is true; "%" gives a remainder."""
    node = parsed(source)
    assert isinstance(node, ast.Compare), source
    left = work_out(node.left, known).quantity.value
    (relation,), (right,) = node.ops, node.comparators
    return RELATIONS[type(relation)](left, work_out(right, known).quantity.value)


def equation(source: str, known: Mapping[str, Quantity]) -> str:
    """The expression with its numbers and its result: "4 * $3 = $12", "47 / 6 = 7 remainder 5"."""
    node = parsed(source)
    term = work_out(node, known)
    line = f"{term.written} = {term.quantity}"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv):
        dividend, money = (whole := work_out(node.left, known).quantity).value, whole.money
        divisor = work_out(node.right, known).quantity.value
        line += f" remainder {Quantity(dividend % divisor, money)}"
    return line


def work_out(node: ast.expr, known: Mapping[str, Quantity]) -> Term:
    match node:
        case ast.Name():
            quantity = known[node.id]
            return Term(str(quantity), quantity)
        case ast.Constant():
            quantity = Quantity(Fraction(node.value))  # type: ignore[arg-type]
            return Term(str(quantity), quantity)
        case ast.BinOp() if type(node.op) in OPERATORS or isinstance(node.op, ast.Mod):
            return combine(node.op, work_out(node.left, known), work_out(node.right, known))
    raise ValueError(f"unknown arithmetic: {ast.unparse(node)}")


def combine(op: ast.operator, left: Term, right: Term) -> Term:
    """Two terms and what stands between them, with brackets where they are needed."""
    a, b = left.quantity, right.quantity
    if isinstance(op, ast.Mod):
        return Term("", Quantity(a.value % b.value))
    symbol, rank, function = OPERATORS[type(op)]
    money = a.money != b.money if rank == 2 else a.money
    quantity = Quantity(function(a.value, b.value), money)
    first = left.written if left.rank >= rank else f"({left.written})"
    if b.over:
        top = b.value * b.over
        times = "" if top == 1 else f" * {top}"
        return Term(f"{first}{times} / {b.over}", quantity, rank)
    second = right.written if right.rank > rank else f"({right.written})"
    return Term(f"{first} {symbol} {second}", quantity, rank)
