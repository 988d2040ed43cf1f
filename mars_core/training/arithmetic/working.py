"""Computations taken apart: "$89 - $14 = $75" becomes "$89 - $14 = $79 - $4 = $75".

A small model plans a problem well and computes it badly: a difference of two-digit numbers or a
quotient of more than one digit is more than one step of it can do. Written out digit by digit,
every step is one that it can.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from mars_core.training.arithmetic.expression import Quantity

# a computation of two numbers, or the share of one ("24 * 2 / 3"), that is not part of a longer one
COMPUTATION = re.compile(
    r"(?<![-+*/(] )(?<![\w$(.])(?P<a>\$?[\d.]+) (?P<op>[-+*/]) (?P<b>\$?[\d.]+)"
    r"(?: / (?P<over>\d+))?(?= = [$\d.]+(?P<remainder> remainder)?)"
)
TEN = 10
POWERS = {10, 100, 1000}  # that move digits only


def taken_apart(text: str) -> str:
    """The text with the steps between a computation and its result written in.

    Computations that need no step between stay as they are, and so does all else.
    """
    return COMPUTATION.sub(lambda found: " = ".join([found[0], *_between(found)]), text)


def _between(found: re.Match[str]) -> Iterator[str]:
    a, b, over = _quantity(found["a"]), _quantity(found["b"]), found["over"]
    if over:
        return _share(a, b, _quantity(over))
    if found["op"] == "/":
        return _divided(a, b, whole=found["remainder"] is not None)
    return {"+": _plus, "-": _minus, "*": _times}[found["op"]](a, b)


def _quantity(text: str) -> Quantity:
    return Quantity(Fraction(text.removeprefix("$")), text.startswith("$"))


def _places(value: Fraction) -> list[Fraction]:
    """What the digits stand for: 207.5 is 200, 7 and 0.5. All cents are one part."""
    whole, rest = divmod(value, 1)
    digits = str(whole)
    parts = [Fraction(int(d)) * TEN**i for i, d in enumerate(digits[::-1])][::-1]
    return [part for part in (*parts, rest) if part]


def _plus(a: Quantity, b: Quantity) -> Iterator[str]:
    """24 + 38 = 54 + 8; a number of one digit goes second."""
    if a.value < TEN <= b.value:
        a, b = b, a
        yield f"{a} + {b}"
    return (yield from _one_by_one(a, b, "+", 1))


def _minus(a: Quantity, b: Quantity) -> Iterator[str]:
    """89 - 14 = 79 - 4."""
    return _one_by_one(a, b, "-", -1)


def _one_by_one(a: Quantity, b: Quantity, symbol: str, sign: int) -> Iterator[str]:
    for part in _places(b.value)[:-1]:
        a, b = replace(a, value=a.value + sign * part), replace(b, value=b.value - part)
        yield f"{a} {symbol} {b}"


def _times(a: Quantity, b: Quantity) -> Iterator[str]:
    """6 * 74 = 420 + 24; of 22 * 13 the second is split."""
    if {a.value, b.value} & POWERS:
        return
    many, few = (a, b) if len(_places(a.value)) > len(_places(b.value)) else (b, a)
    parts = [Quantity(part * few.value, a.money or b.money) for part in _places(many.value)]
    if len(parts) > 1:
        yield " + ".join(map(str, parts))


def _divided(a: Quantity, b: Quantity, whole: bool = False) -> Iterator[str]:
    """194 / 8 = 20 + 34 / 8 = 24 + 2 / 8; 280 / 20 = 28 / 2. whole: with a remainder."""
    while not whole and b.value % TEN == 0 and a.value % TEN == 0 and b.value not in POWERS:
        a, b = replace(a, value=a.value / TEN), replace(b, value=b.value / TEN)
        yield f"{a} / {b}"
    if b.value in POWERS:
        return
    money = a.money and not b.money
    done = Fraction(0)
    parts = _places(Fraction(a.value // b.value))
    # the last step is the rest's, or that of the last digit where nothing is left
    for part in parts if a.value % b.value and not whole else parts[:-1]:
        done += part
        rest = replace(a, value=a.value - done * b.value)
        yield f"{Quantity(done, money)} + {rest} / {b}"


def _share(a: Quantity, top: Quantity, over: Quantity) -> Iterator[str]:
    """24 * 2 / 3 = 48 / 3 = 10 + 18 / 3; $260 * 25 / 100 = $52 + $13."""
    if over.value != 100:
        product = replace(a, value=a.value * top.value)
        yield f"{product} / {over}"
        yield from _divided(product, over)
    elif len(parts := _places(top.value)) > 1:
        yield " + ".join(str(replace(a, value=a.value * part / 100)) for part in parts)
    elif a.value % TEN == 0:
        tenth = replace(a, value=a.value / TEN)
        if top.value % TEN == 0:
            yield f"{tenth} * {top.value / TEN}"
            yield from _times(tenth, Quantity(top.value / TEN))
        else:
            yield f"{tenth} * {top} / {TEN}"
