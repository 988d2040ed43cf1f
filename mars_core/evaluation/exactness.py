"""Whether a way of decoding gives the tokens of transformers' greedy `generate`, and where not.

Two kernels round differently, so where the two best tokens are as good as equal either may come
out. Such a near-tie is listed with its gap and the comparison goes on behind it, from the
reference's text; any other parting is an error of ours.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from mars_core.about import conditions
from mars_core.answers import encode_all, ids_of
from mars_core.baselines import generate_batch
from mars_core.cache import common_prefix
from mars_core.config import DecodeConfig, check_range
from mars_core.errors import MarsError
from mars_core.evaluation.decoding import Question, after, asked, decoded, in_batches
from mars_core.evaluation.settings import SetName, check_prompts
from mars_core.evaluation.shares import shared_out
from mars_core.models.load import LoadedModel

NEAR_TIE = 1e-4  # of logits, as far apart as float32 may round them


@dataclass(frozen=True, slots=True)
class ExactnessConfig:
    """decode: the way that is compared, greedy. The others: as in DecodingConfig."""

    sets: tuple[SetName, ...]
    decode: DecodeConfig
    limit: int | None = None
    minutes: float | None = None
    batch_size: int = 1

    def __post_init__(self) -> None:
        check_prompts(self.sets, self.limit)
        check_range("batch size", self.batch_size, 1, 4096, whole=True)
        if self.decode.temperature > 0:
            raise MarsError("exactness is measured greedily: set the temperature to 0")


@dataclass(frozen=True, slots=True)
class Difference:
    """Where the texts part: behind `token` tokens of the answer to prompt `id`.

    gap: between the logits of the two tokens in a forward of the whole text so far.
    """

    set: str
    id: str
    token: int
    gap: float
    theirs: str
    ours: str

    @property
    def near_tie(self) -> bool:
        return self.gap < NEAR_TIE


@dataclass(frozen=True, slots=True)
class Compared:
    """One prompt: where the answers part, tokens that were compared, our forwards."""

    differences: list[Difference]
    tokens: int
    forwards: int


Said = tuple[list[int], int]  # tokens, and the forwards they took


@dataclass(frozen=True, slots=True)
class ExactnessResult:
    """prompts, tokens: compared. forwards: ours."""

    about: dict[str, Any]
    prompts: int
    tokens: int
    forwards: int
    differences: list[Difference]


def measure(
    loaded: LoadedModel,
    config: ExactnessConfig,
    report: Callable[[int], None] = lambda done: None,
    clock: Callable[[], float] = time.monotonic,
) -> ExactnessResult:
    """Answer the prompts both ways. report: called with how many this process has done."""
    size = config.batch_size

    def compare(together: Sequence[Question]) -> list[Compared]:
        return compared_with_generate(loaded, together, config.decode)

    over = after(config.minutes, clock)
    batches = in_batches(asked(config.sets, config.limit), size)
    done = shared_out(batches, compare, lambda count: report(count * size), over)
    found = [one for _, batch in done for one in batch]
    return ExactnessResult(
        about={**conditions(loaded), "settings": asdict(config)},
        prompts=len(found),
        tokens=sum(one.tokens for one in found),
        forwards=sum(one.forwards for one in found),
        differences=[difference for one in found for difference in one.differences],
    )


def compared_with_generate(
    loaded: LoadedModel, together: Sequence[Question], config: DecodeConfig
) -> list[Compared]:
    """Each prompt, all of them decoded at once, by `generate` and by us."""
    prompts = encode_all(loaded, [question.messages for question in together])
    eos = sorted(loaded.special.eos_ids)
    references = generate_batch(loaded, prompts, config.max_new_tokens, eos_ids=eos)
    said = _said(loaded, prompts, config)
    return [
        _compared(loaded, question, prompt, reference, ours, config)
        for question, prompt, reference, ours in zip(
            together, prompts, references, said, strict=True
        )
    ]


def _compared(
    loaded: LoadedModel,
    question: Question,
    prompt: Sequence[int],
    reference: list[int],
    first: Said,
    config: DecodeConfig,
) -> Compared:
    """One prompt; where the texts part, we go on from the reference's. first: what we say."""
    differences: list[Difference] = []
    place = forwards = 0
    while place < len(reference):
        if place:
            rest = replace(config, max_new_tokens=config.max_new_tokens - place)
            (first,) = _said(loaded, [[*prompt, *reference[:place]]], rest)
        said, steps = first
        forwards += steps
        same = common_prefix(said, reference[place:])
        place += same
        if same == len(said) and place == len(reference):
            break
        theirs, ours = reference[place : place + 1], said[same : same + 1]
        differences.append(
            Difference(
                set=question.set,
                id=question.id,
                token=place,
                gap=_gap(loaded, [*prompt, *reference[:place]], [*theirs, *ours]),
                theirs=str(loaded.tokenizer.decode(theirs)),
                ours=str(loaded.tokenizer.decode(ours)),
            )
        )
        place += 1
    return Compared(differences, len(reference), forwards)


def _said(
    loaded: LoadedModel, prompts: Sequence[Sequence[int]], config: DecodeConfig
) -> list[Said]:
    """What we say behind each prompt."""
    return [(ids_of(steps), len(steps)) for steps, _ in decoded(loaded, prompts, config)]


@torch.inference_mode()
def _gap(loaded: LoadedModel, ids: Sequence[int], tokens: Sequence[int]) -> float:
    """Between the logits of two tokens behind `ids`; infinite where there are not two."""
    if len(tokens) < 2:
        return float("inf")
    model: Any = loaded.model
    logits = model(torch.tensor([list(ids)], device=loaded.device)).logits[0, -1].float()
    first, second = logits[list(tokens)].tolist()
    return abs(first - second)


def table(result: ExactnessResult) -> str:
    """The result for a terminal, its conditions first."""
    about, decode_settings = result.about, result.about["settings"]["decode"]
    near = [difference for difference in result.differences if difference.near_tie]
    others = len(result.differences) - len(near)
    lines = [
        f"{about['model']['name']} (adapter {about['model']['adapter']}), {about['dtype']}, "
        f"{about['device']}",
        f"mode {decode_settings['mode']} against transformers' greedy generate, at most "
        f"{decode_settings['max_new_tokens']} tokens",
        f"{result.prompts} prompts, {result.tokens} tokens in {result.forwards} forwards: "
        f"{others} differ, {len(near)} more at a near-tie (logits within {NEAR_TIE:g})",
    ]
    lines += [
        f"{d.set} {d.id}, after {d.token} tokens: {d.theirs!r}, ours {d.ours!r}, gap {d.gap:.1e}"
        for d in result.differences
    ]
    return "\n".join(lines)
