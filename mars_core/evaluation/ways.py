"""The ways of answering prompts that `mars bench` compares, ours and what others offer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from mars_core import trace
from mars_core.answers import encode_all
from mars_core.baselines import counted_forwards, generate_batch, jacobi
from mars_core.batch_figures import batch_figures
from mars_core.chat import ChatTurn
from mars_core.config import Caching, DecodeConfig
from mars_core.engine import Engine
from mars_core.evaluation.settings import BenchConfig
from mars_core.models.hardware import synchronizer
from mars_core.models.load import LoadedModel
from mars_core.race.lanes import LOOKUP_TOKENS
from mars_core.stopwatch import Stopwatch

AR, GENERATE = BASELINES = ("AR", "generate")

Conversations = Sequence[Sequence[ChatTurn]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Some prompts, answered. Outcomes of more prompts are added up.

    answers: token ids, by prompt. ms: prefill included. forwards: the prompt's own left out where
    it gives no token; for many rows one is one. parts: forwards times the rows that took part in
    each. seen, agreed: tokens from masks whose AR choice is known, and those that are it. masked:
    forwards with masks. idle_ms: that places waited. cache_bytes: of all places.
    """

    answers: tuple[tuple[int, ...], ...]
    ms: float
    forwards: int
    parts: int
    seen: int = 0
    agreed: int = 0
    masked: int = 0
    idle_ms: float = 0.0
    cache_bytes: int | None = None

    @property
    def tokens(self) -> int:
        return sum(map(len, self.answers))

    def __add__(self, other: Outcome) -> Outcome:
        held = (self.cache_bytes, other.cache_bytes)
        return Outcome(
            self.answers + other.answers,
            self.ms + other.ms,
            self.forwards + other.forwards,
            self.parts + other.parts,
            self.seen + other.seen,
            self.agreed + other.agreed,
            self.masked + other.masked,
            self.idle_ms + other.idle_ms,
            max((size for size in held if size is not None), default=None),
        )


Way = Callable[[Conversations], Outcome]


def ways_of(
    loaded: LoadedModel,
    config: BenchConfig,
    size: int,
    draft: LoadedModel | None = None,
    plain: LoadedModel | None = None,
) -> dict[str, Way]:
    """Every way of answering `size` prompts at once, by name; the two of one token each first.

    draft: a second model, with which transformers' assisted generation is a way too. plain: the
    same model with plain linear layers, so that `generate` as anybody has it is one too.
    """
    engine = Engine(loaded)
    ours = config.of_one() if size == 1 else config.of_many()
    found: dict[str, Way] = {
        AR: _decoded(engine, config.one, Caching(), size),
        GENERATE: _generated(loaded, config, size),
    }
    if plain is not None:
        found[f"{GENERATE}, unpacked"] = _generated(plain, config, size)
    if loaded.special.mask_id is not None:
        found |= {name: _decoded(engine, *way, size) for name, way in ours.items()}
    if size == 1:
        found["prompt lookup"] = _generated(
            loaded, config, 1, prompt_lookup_num_tokens=LOOKUP_TOKENS
        )
        found["Jacobi"] = _jacobi(loaded, config)
        if draft is not None:
            found["assisted"] = _generated(loaded, config, 1, assistant_model=draft.model)
    return found


def _decoded(engine: Engine, decode: DecodeConfig, caching: Caching, size: int) -> Way:
    def answer(conversations: Conversations) -> Outcome:
        header, *records = engine.generate_batch(conversations, decode, size, caching)
        assert isinstance(header, trace.Header)
        figures = batch_figures(records)
        answers: list[list[int]] = [[] for _ in conversations]
        for record in records:
            if isinstance(record, trace.StepRecord):
                answers[record.row] += [token.id for token in record.tokens]
        return Outcome(
            answers=tuple(map(tuple, answers)),
            ms=figures.prefill_ms + figures.decode_ms,
            forwards=figures.forwards,
            parts=figures.parts,
            seen=figures.seen,
            agreed=figures.agreed,
            masked=figures.masked,
            idle_ms=figures.idle * figures.decode_ms,
            cache_bytes=header.settings["cache_bytes"],
        )

    return answer


def _generated(loaded: LoadedModel, config: BenchConfig, size: int, **options: Any) -> Way:
    """transformers' `generate`, as many at once as there are places; all wait for the longest."""
    eos = sorted(loaded.special.eos_ids)
    watch = Stopwatch(synchronize=synchronizer(loaded.device))

    def answer(conversations: Conversations) -> Outcome:
        prompts = encode_all(loaded, conversations)
        found: list[tuple[int, ...]] = []
        ms, parts = 0.0, 0
        with counted_forwards(loaded) as fed:
            for start in range(0, len(prompts), size):
                some = prompts[start : start + size]

                def run(some: Sequence[Sequence[int]] = some) -> None:
                    limit = config.max_new_tokens
                    answers = generate_batch(loaded, some, limit, eos_ids=eos, **options)
                    found.extend(map(tuple, answers))

                before = len(fed)
                ms += watch.run(run)
                parts += (len(fed) - before) * len(some)
        return Outcome(tuple(found), ms, len(fed), parts)

    return answer


def _jacobi(loaded: LoadedModel, config: BenchConfig) -> Way:
    """With a window as wide as the masks'."""
    eos = sorted(loaded.special.eos_ids)
    watch = Stopwatch(synchronize=synchronizer(loaded.device))
    session = loaded.session()

    def answer(conversations: Conversations) -> Outcome:
        found: list[tuple[int, ...]] = []
        forwards, ms = 0, 0.0

        def run(prompt: Sequence[int]) -> None:
            nonlocal forwards
            limit, window = config.max_new_tokens, config.block_size
            ids, count = jacobi(loaded, prompt, limit, window, eos_ids=eos, session=session)
            found.append(tuple(ids))
            forwards += count

        for prompt in encode_all(loaded, conversations):
            ms += watch.run(partial(run, prompt))
        return Outcome(tuple(found), ms, forwards, forwards)

    return answer
