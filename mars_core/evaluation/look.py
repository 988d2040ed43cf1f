"""A short look at a trained model: what masks gain and what stays right, in the time given.

Every prompt is answered one token per forward and at each tau, so that the settings are compared on
the same prompts, however many there is time for.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mars_core.about import describe_device, library_versions, model_facts
from mars_core.answers import Answer, answer_with, encode_all
from mars_core.cache import Session
from mars_core.chat import Turn
from mars_core.config import DecodeConfig
from mars_core.evaluation.arithmetic import benchmark_problems
from mars_core.evaluation.bootstrap import Interval, mean_interval, ratio_interval
from mars_core.evaluation.prompts import load_prompts
from mars_core.models.load import LoadedModel
from mars_core.training.arithmetic import is_right
from mars_core.training.repetition import is_looping

TAUS = (0.95, 0.8)
MAX_PROMPTS = 80  # of each kind


@dataclass(frozen=True, slots=True)
class Asked:
    """A prompt. kind: "arithmetic" or "everyday". expected: the right number, if there is one."""

    kind: str
    messages: Sequence[Turn]
    expected: str | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """How the prompts of one kind were answered at one setting (tau None: one token per forward).

    right: share of right answers, where that can be told. same: share of answers equal to those
    with one token per forward. looping: share that got stuck.
    """

    kind: str
    tau: float | None
    n: int
    tokens_per_forward: Interval
    right: Interval | None
    same: float
    looping: float


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen, and everything its numbers depend on."""

    about: dict[str, Any]
    rows: list[Seen]


def look(
    loaded: LoadedModel,
    seconds: float,
    *,
    max_new_tokens: int = 128,
    report: Callable[[], None] = lambda: None,
    clock: Callable[[], float] = time.monotonic,
) -> Look:
    """Answer prompts for about `seconds`, one at least, and say how it went.

    report: called after each of them.
    """
    end = clock() + seconds
    found: list[tuple[Asked, list[Answer]]] = []
    configs = [
        DecodeConfig(mode="one", max_new_tokens=max_new_tokens, alternatives=0),
        *(
            DecodeConfig(
                tau=tau,
                block_size=loaded.block_size or DecodeConfig().block_size,
                max_new_tokens=max_new_tokens,
                alternatives=0,
            )
            for tau in TAUS
        ),
    ]
    session = Session(loaded.model, loaded.context_length)
    for asked in prompts():
        (ids,) = encode_all(loaded, [asked.messages])
        found.append((asked, [answer_with(loaded, session, ids, config) for config in configs]))
        report()
        if clock() >= end:
            break
    about = {
        "model": model_facts(loaded),
        "dtype": loaded.dtype_name,
        "device": describe_device(loaded),
        "versions": library_versions(),
        "settings": [asdict(config) for config in configs],
    }
    return Look(about, summary(found))


def prompts() -> Iterator[Asked]:
    """Arithmetic with unseen numbers and everyday questions in turn."""
    problems = benchmark_problems("numbers", MAX_PROMPTS)
    for problem, prompt in zip(problems, load_prompts("everyday"), strict=False):
        yield Asked("arithmetic", [Turn("user", problem.question)], problem.answer)
        yield Asked("everyday", prompt.first)


def summary(found: Sequence[tuple[Asked, Sequence[Answer]]]) -> list[Seen]:
    """Per kind and setting; the settings are one token per forward, then TAUS."""
    kinds = dict.fromkeys(asked.kind for asked, _ in found)
    return [
        seen(kind, tau, [(a, answers[0], answers[i]) for a, answers in found if a.kind == kind])
        for kind, (i, tau) in itertools.product(kinds, enumerate((None, *TAUS)))
    ]


def seen(kind: str, tau: float | None, found: Sequence[tuple[Asked, Answer, Answer]]) -> Seen:
    """One line of it. found: what was asked, the answer of one token per forward, and this one."""
    right = [is_right(a.text, asked.expected) for asked, _, a in found if asked.expected]
    return Seen(
        kind=kind,
        tau=tau,
        n=len(found),
        tokens_per_forward=ratio_interval(
            [a.tokens for _, _, a in found], [a.forwards for _, _, a in found]
        ),
        right=mean_interval(right) if right else None,
        same=sum(one.text == a.text for _, one, a in found) / len(found),
        looping=sum(is_looping(a.text) for _, _, a in found) / len(found),
    )


def table(result: Look) -> str:
    """For a terminal, its conditions first."""
    about = result.about
    lines = [
        f"{about['model']['name']}, {about['dtype']}, {about['device']}; at most "
        f"{about['settings'][0]['max_new_tokens']} tokens; 95 % intervals by bootstrap",
        "prompts          tau    n  tokens per forward    right %  same as one by one %  looping %",
    ]
    for row in result.rows:
        gain, right = row.tokens_per_forward, row.right
        lines.append(
            f"{row.kind:12} {'one' if row.tau is None else row.tau:>7}  {row.n:3}  "
            f"{gain.value:5.2f} [{gain.low:.2f}, {gain.high:.2f}]  "
            f"{'-' if right is None else f'{100 * right.value:.0f}':>7}  "
            f"{100 * row.same:20.0f}  {100 * row.looping:9.0f}"
        )
    return "\n".join(lines)
