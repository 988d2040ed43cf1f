"""The arithmetic benchmark: word problems that training has never seen, with real accuracy.

Two kinds: `numbers`, the templates of training with numbers that training never draws in their
place, and `templates`, whole templates that training does not have. See
`mars_core.training.arithmetic`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any, Literal

from mars_core.about import conditions
from mars_core.chat import Turn
from mars_core.config import DecodeConfig, check_choice, check_range
from mars_core.errors import MarsError
from mars_core.evaluation.answering import Answerer, answerer
from mars_core.evaluation.bootstrap import Interval, mean_interval, ratio_interval, spread
from mars_core.models.load import LoadedModel
from mars_core.training.arithmetic import Problem, answer_of, is_right, problems

Kind = Literal["numbers", "templates"]


@dataclass(frozen=True, slots=True)
class ArithmeticConfig:
    """Which problems, and how they are answered.

    n: problems; the templates take turns. batch_size: rows answered together in mode "one".
    """

    kind: Kind = "numbers"
    n: int = 512
    seed: int = 0
    batch_size: int = 48
    decode: DecodeConfig = field(default_factory=lambda: DecodeConfig(max_new_tokens=256))

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, Kind)
        check_range("n", self.n, 1, 100_000, whole=True)
        check_range("batch size", self.batch_size, 1, 4096, whole=True)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One problem. said: the number that was read out of the answer, None where there is none."""

    template: str
    steps: int
    question: str
    expected: str
    text: str
    said: str | None
    right: bool
    finished: bool
    tokens: int
    forwards: int


@dataclass(frozen=True, slots=True)
class Score:
    """Several problems together. stated: the share of answers with a number to be read."""

    n: int
    accuracy: Interval
    tokens_per_forward: Interval
    stated: float
    finished: float


@dataclass(frozen=True, slots=True)
class ArithmeticResult:
    """What was measured, and everything needed to measure it again."""

    about: dict[str, Any]
    score: Score
    templates: dict[str, Score]
    steps: dict[int, Score]
    outcomes: list[Outcome]


def benchmark_problems(kind: Kind, n: int, seed: int = 0) -> list[Problem]:
    """The first n problems of the benchmark; the same for everybody."""
    return list(islice(problems(seed, kind), n))


def measure(
    loaded: LoadedModel,
    config: ArithmeticConfig,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> ArithmeticResult:
    """Let a model answer the benchmark. report: called with how many problems are done."""
    answer = answerer(loaded, config.decode, config.batch_size)
    chosen = benchmark_problems(config.kind, config.n, config.seed)
    about = {**conditions(loaded), "settings": asdict(config)}
    return summarise(run(answer, chosen, report), about)


def run(
    answer: Answerer,
    chosen: Sequence[Problem],
    report: Callable[[int, int], None] = lambda done, total: None,
) -> list[Outcome]:
    """The outcome of every problem, in their order."""
    asked = [[Turn(role="user", content=problem.question)] for problem in chosen]
    outcomes: dict[int, Outcome] = {}
    for index, given in answer(asked):
        problem = chosen[index]
        said = answer_of(given.text)
        outcomes[index] = Outcome(
            template=problem.template,
            steps=problem.steps,
            question=problem.question,
            expected=problem.answer,
            text=given.text,
            said=None if said is None else str(said),
            right=is_right(given.text, problem.answer),
            finished=given.finished,
            tokens=given.tokens,
            forwards=given.forwards,
        )
        report(len(outcomes), len(chosen))
    return [outcomes[index] for index in range(len(chosen))]


def summarise(outcomes: Sequence[Outcome], about: dict[str, Any]) -> ArithmeticResult:
    """Scores of all, by template and by number of steps."""
    names = sorted({outcome.template for outcome in outcomes})
    lengths = sorted({outcome.steps for outcome in outcomes})
    return ArithmeticResult(
        about=about,
        score=score(outcomes),
        templates={name: score([o for o in outcomes if o.template == name]) for name in names},
        steps={steps: score([o for o in outcomes if o.steps == steps]) for steps in lengths},
        outcomes=list(outcomes),
    )


def score(outcomes: Sequence[Outcome]) -> Score:
    """Accuracy and tokens per forward with their intervals."""
    count = len(outcomes)
    return Score(
        n=count,
        accuracy=mean_interval([outcome.right for outcome in outcomes]),
        tokens_per_forward=ratio_interval(
            [outcome.tokens for outcome in outcomes], [outcome.forwards for outcome in outcomes]
        ),
        stated=sum(outcome.said is not None for outcome in outcomes) / count,
        finished=sum(outcome.finished for outcome in outcomes) / count,
    )


def accuracy_difference(first: ArithmeticResult, second: ArithmeticResult) -> Interval:
    """Accuracy of `second` minus that of `first` on the same problems, paired."""
    pairs = list(zip(first.outcomes, second.outcomes, strict=False))
    same = all(a.question == b.question for a, b in pairs)
    if not same or len(first.outcomes) != len(second.outcomes):
        raise MarsError("the two results are not of the same problems: they cannot be paired")
    return mean_interval([b.right - a.right for a, b in pairs])


def table(result: ArithmeticResult) -> str:
    """The result for a terminal, its conditions first."""
    about = result.about
    settings = about["settings"]
    decode = settings["decode"]
    how = "one token per forward" if decode["mode"] == "one" else f"tau {decode['tau']}"
    lines = [
        f"{about['model']['name']} ({about['model']['weights']}), {about['dtype']}, "
        f"{about['device']}",
        f"arithmetic, {KINDS[settings['kind']]}, n = {result.score.n}, seed {settings['seed']}, "
        f"{how}, at most {decode['max_new_tokens']} tokens; 95 % intervals by bootstrap",
        "",
        f"{'':28}     n  right %                tokens per forward     stated %  finished %",
        line("all", result.score),
        *(line(f"{steps} steps", found) for steps, found in result.steps.items()),
        *(line(name, found) for name, found in result.templates.items()),
    ]
    return "\n".join(lines)


KINDS = {
    "numbers": "known templates with numbers unseen in their place",
    "templates": "templates unseen in training",
}


def line(name: str, found: Score) -> str:
    """One row of the table."""
    return (
        f"{name:28} {found.n:5}  {spread(found.accuracy, 100, 1):21}  "
        f"{spread(found.tokens_per_forward, 1, 2):21}  {100 * found.stated:8.1f}  "
        f"{100 * found.finished:10.1f}"
    )
