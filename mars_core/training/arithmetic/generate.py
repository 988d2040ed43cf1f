"""Streams of problems: for training, and for the benchmark what training has never seen."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice
from typing import Any

from mars_core.training.arithmetic import comparing, grouping, money, rates, shares, timing
from mars_core.training.arithmetic.template import Problem, Split, Template, draw

TEMPLATES: list[Template] = [
    template
    for module in (money, rates, shares, grouping, comparing, timing)
    for template in module.TEMPLATES
]
# repetitions in a row after which a template is taken to have no further problems
TRIES = 1000


def problems(seed: int, split: Split = "train") -> Iterator[Problem]:
    """An endless stream without repetitions; the same seed gives the same problems.

    split: "train"; "numbers", templates of training with numbers that training never draws in
    their place; "templates", whole templates that training does not have. Templates take turns,
    in another order every round.
    """
    rng = random.Random(f"{split} {seed}")
    chosen = [template for template in TEMPLATES if template.held_out == (split == "templates")]
    seen: set[str] = set()
    while True:
        for template in rng.sample(chosen, len(chosen)):
            yield new_problem(template, split, rng, seen)


def new_problem(template: Template, split: Split, rng: random.Random, seen: set[str]) -> Problem:
    """A problem whose question is not in `seen` yet; it is added."""
    for _ in range(TRIES):
        problem = draw(template, split, rng)
        if problem.question not in seen:
            seen.add(problem.question)
            return problem
    raise AssertionError(f"{template.name} has too few problems for this many")


def training_examples(seed: int, n: int) -> list[dict[str, Any]]:
    """n problems of the training split as chat rows, with the template's name."""
    return [chat_row(problem) for problem in islice(problems(seed), n)]


def chat_row(problem: Problem) -> dict[str, Any]:
    """A problem and its solution as one turn each."""
    return {
        "messages": [
            {"role": "user", "content": problem.question},
            {"role": "assistant", "content": problem.solution},
        ],
        "finished": True,
        "kind": "arithmetic",
        "template": problem.template,
    }
