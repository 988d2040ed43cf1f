"""What fewer bits cost: weights in other formats beside float32, on the answers that it gives."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from mars_core.about import conditions
from mars_core.answers import encode_all
from mars_core.cache import Session
from mars_core.config import DecodeConfig, Quantization
from mars_core.decode import decode
from mars_core.evaluation.bootstrap import Interval, mean_interval, ratio_interval, spread
from mars_core.evaluation.decoding import Question, asked
from mars_core.evaluation.settings import QuantizationConfig
from mars_core.events import Step
from mars_core.models.hardware import synchronizer
from mars_core.models.load import LoadedModel
from mars_core.models.memory import give_back
from mars_core.models.plan import Format, size_text
from mars_core.stopwatch import Stopwatch

Load = Callable[[str, Quantization], LoadedModel]


@dataclass(frozen=True, slots=True)
class Run:
    """An answer. ids: what was produced; ms: of all forwards but the prefill."""

    ids: tuple[int, ...]
    forwards: int
    ms: float


@dataclass(frozen=True, slots=True)
class FormatRow:
    """A format on all prompts.

    weight_bytes: what the weights take. agreement: share of float32's tokens that are this format's
    choice too, given the same text before them; same: share of prompts with the same answer.
    perplexity: of float32's answers. ms: per forward with one token; per_forward: tokens, with
    masks. note: why the weights are not in this format.
    """

    form: Format
    weight_bytes: int
    agreement: Interval
    same: float
    perplexity: float
    ms: float
    per_forward: Interval
    note: str | None


@dataclass(frozen=True, slots=True)
class QuantizationResult:
    """about: of the reference, float32. tokens: of its answers."""

    about: dict[str, Any]
    prompts: int
    tokens: int
    rows: list[FormatRow]


def measure(
    load: Load,
    forms: Sequence[Format],
    config: QuantizationConfig,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> QuantizationResult:
    """Each format on the same prompts; the first is what the others are compared with.

    load: a model by number format and quantisation, one at a time in memory. report: called with
    how many answers are done, and of how many.
    """
    questions = asked(config.sets, config.limit)
    rows: list[FormatRow] = []
    reference: list[tuple[int, ...]] = []
    about: dict[str, Any] = {}
    for number, form in enumerate(forms):
        loaded = load(form.dtype, form.quantization)
        about = about or {**conditions(loaded), "settings": asdict(config)}
        runs: list[tuple[Run, Run]] = []
        for pair in answered(loaded, questions, config):
            runs.append(pair)
            report(number * len(questions) + len(runs), len(forms) * len(questions))
        reference = reference or [one.ids for one, _ in runs]
        rows.append(row_of(loaded, form, questions, runs, reference))
        del loaded
        give_back()
    return QuantizationResult(about, len(questions), sum(map(len, reference)), rows)


def answered(
    loaded: LoadedModel, questions: Sequence[Question], config: QuantizationConfig
) -> Iterator[tuple[Run, Run]]:
    """Each prompt with one token per forward, and with masks."""
    session = loaded.session()
    watch = Stopwatch(synchronize=synchronizer(loaded.device))
    for prompt in encode_all(loaded, [question.messages for question in questions]):
        one, tau = (
            run(loaded, session, prompt, config.decode(mode), watch) for mode in ("one", "tau")
        )
        yield one, tau


def run(
    loaded: LoadedModel,
    session: Session,
    prompt: Sequence[int],
    config: DecodeConfig,
    watch: Stopwatch,
) -> Run:
    """Decode one prompt."""
    events = watch.timed(decode(session, prompt, config, loaded.special))
    steps = [(event, ms) for event, ms in events if isinstance(event, Step)]
    ids = tuple(token.token for step, _ in steps for token in step.tokens)
    return Run(ids, len(steps), sum(ms for _, ms in steps))


def row_of(
    loaded: LoadedModel,
    form: Format,
    questions: Sequence[Question],
    runs: Sequence[tuple[Run, Run]],
    reference: Sequence[tuple[int, ...]],
) -> FormatRow:
    """A format's figures beside the reference's answers."""
    prompts = encode_all(loaded, [question.messages for question in questions])
    judged = [judge(loaded, p, ids) for p, ids in zip(prompts, reference, strict=True)]
    tokens = [len(ids) for ids in reference]
    ones, taus = zip(*runs, strict=True)
    return FormatRow(
        form=form,
        weight_bytes=loaded.weight_bytes,
        agreement=ratio_interval([chosen for chosen, _ in judged], tokens),
        same=mean_interval([float(r.ids == i) for r, i in zip(ones, reference, strict=True)]).value,
        perplexity=math.exp(sum(loss for _, loss in judged) / sum(tokens)),
        ms=sum(r.ms for r in ones) / sum(r.forwards for r in ones),
        per_forward=ratio_interval([len(r.ids) for r in taus], [r.forwards for r in taus]),
        note=loaded.quantization_note,
    )


@torch.inference_mode()
def judge(loaded: LoadedModel, prompt: Sequence[int], answer: Sequence[int]) -> tuple[int, float]:
    """How many tokens of an answer are this model's choice, and their loss in nats."""
    ids = torch.tensor([[*prompt, *answer]], device=loaded.device)
    logits = loaded.model(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1].float()
    if loaded.special.mask_id is not None:
        logits[:, loaded.special.mask_id] = -math.inf  # as in decoding
    told = ids[0, len(prompt) :]
    losses = torch.nn.functional.cross_entropy(logits, told, reduction="sum")
    return int((logits.argmax(-1) == told).sum()), float(losses)


def table(result: QuantizationResult) -> str:
    """The rows for a terminal, their conditions first."""
    about, settings = result.about, result.about["settings"]
    lines = [
        f"{about['model']['name']} ({about['model']['weights']}), {about['device']}",
        f"{result.prompts} prompts of {', '.join(settings['sets'])}, {result.tokens} tokens of "
        "float32's greedy answers; 95 % intervals by bootstrap over prompts",
        "",
        f"{'':17}{'weights':>9}{'ms per':>9}  {'float32 token chosen':24}{'same':>6}"
        f"{'perplexity':>12}  tokens per forward",
        f"{'':26}{'forward':>9}  {'%':24}{'text':>6}{'':12}  at tau {settings['tau']:g}",
    ]
    for row in result.rows:
        lines.append(
            f"{row.form.name:17}{size_text(row.weight_bytes):>9}{row.ms:>9.1f}  "
            f"{spread(row.agreement, 100, 1):24}{row.same:>6.0%}{row.perplexity:>12.3f}  "
            f"{spread(row.per_forward, 1, 2)}{'  ' + row.note if row.note else ''}"
        )
    return "\n".join(lines)
