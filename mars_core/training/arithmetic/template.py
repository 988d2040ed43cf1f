"""A word problem as data: what is drawn, how it is told, and the steps that solve it."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Literal, NamedTuple

from mars_core.training.arithmetic.expression import Quantity, equation, evaluate, holds
from mars_core.training.arithmetic.language import Person, Scene

Topic = Literal["money", "rates", "shares", "grouping", "comparing", "time"]
Split = Literal["train", "numbers", "templates"]

# shorter lists have no numbers to spare for the benchmark
MIN_FOR_BAND = 6
BAND_SHARE = 5
LARGEST = 2000
TRIES = 5000

SHARES = {
    "half": (1, 2),
    "a third": (1, 3),
    "two thirds": (2, 3),
    "a quarter": (1, 4),
    "three quarters": (3, 4),
    "a fifth": (1, 5),
    "two fifths": (2, 5),
}


class Choices(NamedTuple):
    """Quantities to draw from. banded: a band of them is kept for the benchmark."""

    values: tuple[Quantity, ...]
    banded: bool

    def band(self, place: str) -> frozenset[Quantity]:
        """The values in a row that training never draws at `place` ("template.number").

        About a fifth of them, somewhere else in every place, so that each number is met in
        training, only not in every role.
        """
        count = len(self.values)
        if not self.banded or count < MIN_FOR_BAND:
            return frozenset()
        width = max(1, count // BAND_SHARE)
        start = zlib.crc32(place.encode()) % (count - width + 1)
        return frozenset(self.values[start : start + width])


def whole(low: int, high: int, step: int = 1) -> Choices:
    """The whole numbers from low to high."""
    return Choices(tuple(Quantity(Fraction(n)) for n in range(low, high + 1, step)), True)


def dollars(low: int, high: int, step: int = 1) -> Choices:
    """Whole dollars from low to high."""
    return Choices(tuple(Quantity(Fraction(n), True) for n in range(low, high + 1, step)), True)


def cents(low: int, high: int, step: int) -> Choices:
    """Prices from low to high, given in cents."""
    return Choices(
        tuple(Quantity(Fraction(n, 100), True) for n in range(low, high + 1, step)), True
    )


def halves(low: int, high: int) -> Choices:
    """1.5, 2.5, ... between low and high."""
    return Choices(tuple(Quantity(Fraction(2 * n + 1, 2)) for n in range(low, high)), True)


def one_of(*numbers: int) -> Choices:
    """A few whole numbers, none of them held out."""
    return Choices(tuple(Quantity(Fraction(n)) for n in numbers), False)


def bills(*numbers: int) -> Choices:
    """A few sums of money, none of them held out."""
    return Choices(tuple(Quantity(Fraction(n), True) for n in numbers), False)


def percent(*numbers: int) -> Choices:
    """Percentages of something."""
    return Choices(tuple(Quantity(Fraction(n, 100), False, f"{n}%", 100) for n in numbers), False)


def share(*names: str) -> Choices:
    """Fractions of something, from the names of SHARES."""
    return Choices(
        tuple(
            Quantity(Fraction(top, over), False, name, over)
            for name in names
            for top, over in [SHARES[name]]
        ),
        False,
    )


class Step(NamedTuple):
    """One line of a solution: `name` is worked out as `expression`, told in one of some ways."""

    name: str
    expression: str
    tellings: tuple[str, ...]


def step(assignment: str, *tellings: str) -> Step:
    """A step from "total = boxes * per" and the sentences that can tell it."""
    name, _, expression = assignment.partition(" = ")
    return Step(name, expression, tellings)


@dataclass(frozen=True, slots=True)
class Template:
    """A kind of problem.

    story: sentences, each with several wordings. ask: wordings of the question. steps: the last
    one gives the answer. where: comparisons that must hold. decimals: places that a number other
    than money may have. held_out: for the benchmark alone. The slots of all texts are explained
    in `language`.
    """

    name: str
    topic: Topic
    numbers: Mapping[str, Choices]
    story: Sequence[Sequence[str]]
    ask: Sequence[str]
    steps: Sequence[Step]
    words: Mapping[str, Sequence[str]] = field(default_factory=dict)
    where: Sequence[str] = ()
    decimals: int = 0
    held_out: bool = False

    def bands(self) -> dict[str, frozenset[Quantity]]:
        """The values that training never draws, by number."""
        return {name: choices.band(f"{self.name}.{name}") for name, choices in self.numbers.items()}


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem, its written-out solution and its answer.

    numbers: what was drawn. steps: lines of working. answer: as the solution's last line has it.
    """

    template: str
    topic: Topic
    question: str
    solution: str
    answer: str
    steps: int
    numbers: Mapping[str, Quantity]


def draw(template: Template, split: Split, rng: random.Random) -> Problem:
    """A problem of the template.

    split: "train" draws no number from its band, "numbers" at least one, "templates" any.
    """
    known, drawn = draw_numbers(template, split, rng)
    person, other = rng.sample(PEOPLE, 2)
    nouns = {name: rng.choice(words) for name, words in template.words.items()}
    scene = Scene(person, other, nouns, known)
    parts = [rng.choice(wordings) for wordings in (*template.story, template.ask)]
    question = " ".join(map(scene.tell, parts))
    lines = list(tell_steps(template, scene, rng))
    answer = known[template.steps[-1].name].number
    solution = "\n".join([*lines, f"The answer is {answer}."])
    return Problem(template.name, template.topic, question, solution, answer, len(lines), drawn)


def draw_numbers(
    template: Template, split: Split, rng: random.Random
) -> tuple[dict[str, Quantity], dict[str, Quantity]]:
    """All quantities, those worked out in the steps included, and those drawn."""
    bands = template.bands()
    for _ in range(TRIES):
        drawn = {name: rng.choice(choices.values) for name, choices in template.numbers.items()}
        held = any(drawn[name] in band for name, band in bands.items())
        if (split == "train" and held) or (split == "numbers" and not held):
            continue
        known = dict(drawn)
        for name, expression, _ in template.steps:
            known[name] = evaluate(expression, known)
            if not natural(known[name], template.decimals):
                break
        else:
            if all(holds(condition, known) for condition in template.where):
                return known, drawn
    raise AssertionError(f"{template.name} has too narrow conditions for {split}")


def natural(quantity: Quantity, decimals: int) -> bool:
    """Whether a number may stand in a problem: positive, not huge, and exact in few places."""
    places = 2 if quantity.money else decimals
    return 0 < quantity.value <= LARGEST and (quantity.value * 10**places).denominator == 1


def tell_steps(template: Template, scene: Scene, rng: random.Random) -> Iterator[str]:
    """The lines of working."""
    for name, expression, tellings in template.steps:
        line = equation(expression, scene.numbers)
        told = replace(scene, equation=line, result=scene.numbers[name])
        yield told.tell(rng.choice(tellings))


PEOPLE = [
    *(Person(name, "she") for name in (
        "Mia", "Ana", "Sofia", "Emma", "Lucy", "Nora", "Priya", "Zoe", "Clara", "Ruth", "Leila",
        "Hana", "Grace", "Ivy", "Maya", "Elena", "Amara", "Julia", "Rosa", "Yuki", "Alice", "Dina",
    )),
    *(Person(name, "he") for name in (
        "Ben", "Omar", "Leo", "Sam", "Jack", "Ravi", "Tom", "Luis", "Noah", "Felix", "Ivan",
        "Kenji", "Max", "Oscar", "Daniel", "Hugo", "Ali", "Peter", "Marco", "Theo", "David", "Carl",
    )),
]  # fmt: skip
