"""Sums without a story: the single computations that the lines of a solution are made of.

A small model sets up a problem well before it multiplies well. A solution holds a handful of
computations among its words; here a row holds nothing else.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

SUMS = 10  # in a row
LEAST, MOST = 2, 12  # small factors and divisors
WORDINGS = ("Work these out.", "Solve these sums.", "How much is each of these?", "Compute:")


def sum_rows(seed: int, n: int) -> list[dict[str, Any]]:
    """n chat rows, each with SUMS sums asked and solved."""
    rng = random.Random(f"sums {seed}")
    return [_row(rng) for _ in range(n)]


def _row(rng: random.Random) -> dict[str, Any]:
    sums = [rng.choice(KINDS)(rng) for _ in range(SUMS)]
    asked = "\n".join([rng.choice(WORDINGS), *(left for left, _ in sums)])
    solved = "\n".join(f"{left} = {right}" for left, right in sums)
    return {
        "messages": [
            {"role": "user", "content": asked},
            {"role": "assistant", "content": solved},
        ],
        "finished": True,
        "kind": "sums",
    }


def _number(rng: random.Random) -> int:
    """Small ones, larger ones and round ones."""
    low, high, step = rng.choice(((2, 30, 1), (10, 100, 1), (100, 400, 1), (10, 500, 5)))
    return rng.randrange(low, high, step)


def _times(rng: random.Random) -> tuple[str, str]:
    few, many = rng.randint(LEAST, MOST), _number(rng)
    return f"{few} * {many}", str(few * many)


def _priced(rng: random.Random) -> tuple[str, str]:
    few, many = rng.randint(LEAST, MOST), _number(rng)
    return f"{few} * ${many}", f"${few * many}"


def _plus(rng: random.Random) -> tuple[str, str]:
    first, second = _number(rng), _number(rng)
    return f"{first} + {second}", str(first + second)


def _minus(rng: random.Random) -> tuple[str, str]:
    less, more = sorted((_number(rng), _number(rng)))
    return f"{more} - {less}", str(more - less)


def _divided(rng: random.Random) -> tuple[str, str]:
    divisor, quotient = rng.randint(LEAST, MOST), _number(rng)
    return f"{divisor * quotient} / {divisor}", str(quotient)


def _remainder(rng: random.Random) -> tuple[str, str]:
    divisor, number = rng.randint(LEAST + 1, MOST), _number(rng)
    return f"{number} / {divisor}", f"{number // divisor} remainder {number % divisor}"


def _percent(rng: random.Random) -> tuple[str, str]:
    percent, number = rng.randrange(5, 100, 5), rng.randrange(20, 420, 20)
    return f"${number} * {percent} / 100", f"${number * percent // 100}"


KINDS: tuple[Callable[[random.Random], tuple[str, str]], ...] = (
    _times,
    _priced,
    _plus,
    _minus,
    _divided,
    _remainder,
    _percent,
)
