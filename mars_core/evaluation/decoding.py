"""What masks gain and what they cost: prompts answered at several taus, side by side.

Every prompt is first decoded with one token per forward, masks fed all the same. That run is the
AR answer, and it tells how often each mask guesses AR's own continuation. The other taus answer the
same prompts, so that settings are compared on equal terms however many prompts there is time for.
Several prompts are decoded at once, each as it would be alone (up to rounding).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, islice, zip_longest
from typing import Any

from mars_core.about import conditions
from mars_core.answers import answer_of_row, by_row, encode_all, ids_of
from mars_core.batch import batch_session
from mars_core.chat import ChatTurn, Turn
from mars_core.config import DecodeConfig
from mars_core.decode import decode_batch
from mars_core.evaluation.arithmetic import Kind, benchmark_problems
from mars_core.evaluation.bootstrap import Interval, mean_interval, ratio_interval
from mars_core.evaluation.prompts import load_prompts
from mars_core.evaluation.settings import PROBLEMS, DecodingConfig, SetName
from mars_core.evaluation.shares import shared_out
from mars_core.events import Done, Step
from mars_core.models.load import LoadedModel
from mars_core.row import Request
from mars_core.training.arithmetic import is_right
from mars_core.training.repetition import is_looping


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt. check: whether a text answers it rightly, where that can be told."""

    set: str
    id: str
    messages: Sequence[ChatTurn]
    check: Callable[[str], bool] | None = None


@dataclass(frozen=True, slots=True)
class Given:
    """An answer. guessed: tokens taken from masks that AR has seen since; agreed: those that AR
    would have chosen too. masks: per mask, (guesses, right ones) against the text that followed.
    """

    text: str
    tokens: int
    forwards: int
    guessed: int
    agreed: int
    masks: tuple[tuple[int, int], ...]
    right: bool | None
    looping: bool


@dataclass(frozen=True, slots=True)
class Row:
    """One set in one way: at a tau, or (None) verified.

    n: prompts. looping: share of answers that got stuck; ar_looping: of the AR answers. Prompts
    with either are left out of tokens_per_forward, agreement, same and masks.
    agreement: share of the tokens from masks that AR would have chosen too (same prefix).
    same: share of answers equal to AR's. masks: per mask, share of its guesses along the AR answer
    that are AR's own continuation (at tau 1 alone).
    right: share of right answers of all; gain: that minus the same at tau 1, paired.
    """

    set: str
    tau: float | None
    n: int
    looping: float
    ar_looping: float
    tokens_per_forward: Interval | None
    agreement: Interval | None
    same: float | None
    masks: tuple[float, ...]
    right: Interval | None
    gain: Interval | None


@dataclass(frozen=True, slots=True)
class DecodingResult:
    """What was measured, and everything its numbers depend on."""

    about: dict[str, Any]
    rows: list[Row]
    answers: list[dict[str, Any]]


def questions(name: SetName, limit: int | None) -> Iterator[Question]:
    """The prompts of a set, in their order."""
    if name == "arithmetic" or name == "templates":
        kind: Kind = "numbers" if name == "arithmetic" else "templates"
        for i, problem in enumerate(benchmark_problems(kind, limit or PROBLEMS)):
            asked = [Turn("user", problem.question)]
            yield Question(name, str(i), asked, _number_check(problem.answer))
        return
    for prompt in islice(load_prompts(name), limit):
        check: Callable[[str], bool] | None = prompt.is_right if prompt.expected else None
        if name == "gsm8k-100":  # a number, rather than a word that stands somewhere
            check = _number_check(prompt.expected[0])
        yield Question(name, prompt.id, prompt.first, check)


def _number_check(expected: str) -> Callable[[str], bool]:
    return lambda text: is_right(text, expected)


def measure(
    loaded: LoadedModel,
    config: DecodingConfig,
    report: Callable[[int], None] = lambda done: None,
    clock: Callable[[], float] = time.monotonic,
) -> DecodingResult:
    """Answer the prompts; at least one. report: called with how many this process has done."""
    configs = config.decode_configs(loaded.block_size)
    size = config.batch_size

    def answer(together: Sequence[Question]) -> list[tuple[Given, ...]]:
        by_config = [watched(loaded, together, one) for one in configs]
        return list(zip(*by_config, strict=True))

    over = after(config.minutes, clock)
    batches = in_batches(asked(config.sets, config.limit), size)
    done = shared_out(batches, answer, lambda count: report(count * size), over)
    found = [pair for batch, given in done for pair in zip(batch, given, strict=True)]
    about = {
        **conditions(loaded),
        "settings": asdict(config),
        "slots": configs[0].slots,
    }
    taus = [c.tau if c.mode == "tau" else None for c in configs]
    return DecodingResult(about, summary(found, taus), [_as_json(q, g, taus) for q, g in found])


def asked(sets: Sequence[SetName], limit: int | None) -> list[Question]:
    """The questions of all sets: one of each, then the next of each, until all are through."""
    in_turn = zip_longest(*(questions(name, limit) for name in sets))
    return [question for question in chain.from_iterable(in_turn) if question is not None]


def in_batches(questions: Sequence[Question], size: int) -> list[Sequence[Question]]:
    """The questions in their order, so many at a time."""
    return [questions[first : first + size] for first in range(0, len(questions), size)]


def after(minutes: float | None, clock: Callable[[], float]) -> Callable[[], bool]:
    """Whether so many minutes are over, from now on; never, without a limit."""
    end = math.inf if minutes is None else clock() + 60 * minutes
    return lambda: clock() >= end


def watched(loaded: LoadedModel, together: Sequence[Question], config: DecodeConfig) -> list[Given]:
    """Decode the prompts of all these questions at once, and watch their masks."""
    prompts = encode_all(loaded, [question.messages for question in together])
    return [
        as_given(loaded, question, config, len(prompt), *row)
        for question, prompt, row in zip(
            together, prompts, decoded(loaded, prompts, config), strict=True
        )
    ]


def decoded(
    loaded: LoadedModel, prompts: Sequence[Sequence[int]], config: DecodeConfig
) -> list[tuple[list[Step], Done]]:
    """The forwards of each prompt, all of them decoded at once, and how it ended."""
    requests = [Request(prompt, config) for prompt in prompts]
    session = batch_session(loaded, requests, len(requests))
    return by_row(decode_batch(session, requests, loaded.special), len(prompts))


def as_given(
    loaded: LoadedModel,
    question: Question,
    config: DecodeConfig,
    start: int,
    forwards: Sequence[Step],
    done: Done,
) -> Given:
    """What one question's forwards make. start: tokens of its prompt."""
    ids = ids_of(forwards)
    answer = answer_of_row(loaded, forwards, done)
    taken = {(s.forward, token.slot): token.token for s in forwards for token in s.tokens}
    seen = [h.ar_token == taken[h.forward, h.slot] for s in forwards for h in s.hindsight]
    return Given(
        text=answer.text,
        tokens=done.tokens,
        forwards=done.forwards,
        guessed=len(seen),
        agreed=sum(seen),
        masks=tuple(mask_guesses(forwards, ids, start, config.slots)),
        right=None if question.check is None else question.check(answer.text),
        looping=is_looping(answer.text),
    )


def mask_guesses(
    steps: Sequence[Step], ids: Sequence[int], start: int, slots: int
) -> Iterator[tuple[int, int]]:
    """Per mask, how often it guessed a token of the text, and how often rightly.

    ids: the text, whose first token is at position `start`.
    """
    for mask in range(1, slots):
        pairs = [
            (slot.token, ids[place])
            for step in steps
            for slot in step.slots
            if slot.slot == mask
            and (place := step.position - start + (step.group or 0) + mask) < len(ids)
        ]
        yield len(pairs), sum(guess == token for guess, token in pairs)


def summary(
    found: Sequence[tuple[Question, Sequence[Given]]], taus: Sequence[float | None]
) -> list[Row]:
    """A row for every set and tau; the first of the taus is 1."""
    names = dict.fromkeys(question.set for question, _ in found)
    return [
        row_of(name, tau, [(given[0], given[i]) for q, given in found if q.set == name])
        for name in names
        for i, tau in enumerate(taus)
    ]


def row_of(name: str, tau: float | None, pairs: Sequence[tuple[Given, Given]]) -> Row:
    """The row of one set at one tau, from each prompt's AR answer and the answer at this tau."""
    good = [(ar, given) for ar, given in pairs if not (ar.looping or given.looping)]
    guessing = [given for _, given in good if given.guessed]
    graded = [(ar.right, given.right) for ar, given in pairs if given.right is not None]
    return Row(
        set=name,
        tau=tau,
        n=len(pairs),
        looping=sum(given.looping for _, given in pairs) / len(pairs),
        ar_looping=sum(ar.looping for ar, _ in pairs) / len(pairs),
        tokens_per_forward=ratio_interval(
            [given.tokens for _, given in good], [given.forwards for _, given in good]
        )
        if good
        else None,
        agreement=ratio_interval([g.agreed for g in guessing], [g.guessed for g in guessing])
        if guessing
        else None,
        same=sum(ar.text == given.text for ar, given in good) / len(good) if good else None,
        masks=_mask_shares([given for _, given in good]) if tau == 1 else (),
        right=mean_interval([bool(given) for _, given in graded]) if graded else None,
        gain=mean_interval([bool(given) - bool(ar) for ar, given in graded]) if graded else None,
    )


def _mask_shares(given: Sequence[Given]) -> tuple[float, ...]:
    """Per mask, the share of right guesses; of a mask that never guessed, 0."""
    by_mask = zip(*(one.masks for one in given), strict=True)
    totals = [[sum(column) for column in zip(*mask, strict=True)] for mask in by_mask]
    return tuple(right / guesses if guesses else 0.0 for guesses, right in totals)


def _as_json(
    question: Question, given: Sequence[Given], taus: Sequence[float | None]
) -> dict[str, Any]:
    """One prompt with all its answers, for whoever wants to read them."""
    return {
        "set": question.set,
        "id": question.id,
        "prompt": question.messages[-1].content,
        "answers": [{"tau": tau, **asdict(one)} for tau, one in zip(taus, given, strict=True)],
    }
