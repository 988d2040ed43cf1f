"""Reading the answer out of a solution."""

from __future__ import annotations

import re
from decimal import Decimal

# "The answer is $1,250.50." and what models make of it: bold, "approximately", a colon
STATED = re.compile(
    r"\banswer\s+is[^\w-]{0,6}(?:approximately|about|exactly)?[^\w-]{0,6}"
    r"(?P<number>-?\$?\d[\d,]*(?:\.\d+)?)",
    re.IGNORECASE,
)


def answer_of(text: str) -> Decimal | None:
    """The number of the last "The answer is N" in `text`; None where there is none."""
    stated = [match["number"] for match in STATED.finditer(text)]
    return Decimal(stated[-1].replace(",", "").replace("$", "")) if stated else None


def is_right(text: str, answer: str) -> bool:
    """Whether `text` ends with the right answer: 12.5, 12.50 and $12.50 are the same."""
    return answer_of(text) == Decimal(answer)
