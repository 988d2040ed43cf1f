"""Perplexity of given answers: what fine-tuning did to a model's own way of speaking.

One forward over each conversation, as one-token decoding would be fed; only the last answer counts,
and its end where the model that gave it ended it itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from mars_core.about import conditions
from mars_core.evaluation.bootstrap import Interval, ratio_interval, spread
from mars_core.models.load import LoadedModel
from mars_core.training.data import Limits, load_data
from mars_core.training.objective import Example
from mars_core.training.settings import Source


@dataclass(frozen=True, slots=True)
class PerplexityResult:
    """Answers of one file under one or two models.

    n: answers. tokens: of them, ends counted. perplexity: one interval per model, in their order.
    ratio: of the second to the first, paired by answer; None where there is one model.
    """

    about: list[dict[str, Any]]
    file: str
    n: int
    tokens: int
    perplexity: list[Interval]
    ratio: Interval | None


def measure(
    models: Sequence[Callable[[], LoadedModel]],
    file: str,
    limit: int | None = None,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> PerplexityResult:
    """Perplexity of the answers in `file` (chat JSONL, see `training.data`) under each model.

    models: called one after the other, so that one at a time is in memory; all of one tokenizer.
    limit: answers to take. report: called with how many answers are done, and of how many.
    Raises MarsError where the file has no answers.
    """
    about, losses = [], []
    for load in models:
        loaded = load()
        limits = Limits(loaded.context_length, limit)
        (examples,) = load_data([Source(file)], loaded.tokenizer, limits).pools
        about.append(conditions(loaded))
        losses.append(list(_losses(loaded, examples, report)))
    tokens = [len(example.ids) - example.start + example.finished for example in examples]
    ratio = None
    if len(losses) == 2:
        changes = [after - before for before, after in zip(*losses, strict=True)]
        ratio = _exp(ratio_interval(changes, tokens))
    return PerplexityResult(
        about=about,
        file=file,
        n=len(tokens),
        tokens=sum(tokens),
        perplexity=[_exp(ratio_interval(each, tokens)) for each in losses],
        ratio=ratio,
    )


def _losses(
    loaded: LoadedModel, examples: Sequence[Example], report: Callable[[int, int], None]
) -> Iterator[float]:
    for done, example in enumerate(examples, 1):
        yield answer_loss(loaded, example)
        report(done, len(examples))


@torch.inference_mode()
def answer_loss(loaded: LoadedModel, example: Example) -> float:
    """Minus the log-likelihood of an answer, in nats; any token that ends a turn is its end."""
    ids = torch.tensor([list(example.ids)], device=loaded.device)
    # the row of position t predicts the token at t + 1
    rows = ids.shape[1] - example.start + 1
    logits = loaded.model(input_ids=ids, logits_to_keep=rows, use_cache=False).logits[0]
    scores = logits.float().log_softmax(-1)
    answer = ids[0, example.start :]
    found = scores[:-1].gather(-1, answer[:, None]).sum()
    if example.finished:
        found = found + scores[-1, sorted(loaded.special.eos_ids)].logsumexp(-1)
    return -float(found)


def _exp(interval: Interval) -> Interval:
    return Interval(*(math.exp(x) for x in (interval.value, interval.low, interval.high)))


def table(result: PerplexityResult) -> str:
    """The result for a terminal, its conditions first."""
    about = result.about[0]
    lines = [
        f"{about['model']['name']}, {about['dtype']}, {about['device']}",
        f"{result.n} answers of {result.file}, {result.tokens} tokens; 95 % intervals by bootstrap "
        "over answers",
    ]
    for each, found in zip(result.about, result.perplexity, strict=True):
        name = each["model"]["adapter"] or "own weights"
        lines.append(f"{name:24} perplexity {spread(found, 1, 3)}")
    if result.ratio:
        lines.append(f"{'second / first':24} {spread(result.ratio, 1, 3)}")
    return "\n".join(lines)
