"""What others would use on the same weights, for comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from transformers import DynamicCache, StoppingCriteria

from mars_core.cache import Fed, Session, common_prefix
from mars_core.config import DecodeConfig
from mars_core.events import Committed, Done, Event, Prefill, Reason, Step
from mars_core.models.load import LoadedModel
from mars_core.stopwatch import Stopwatch
from mars_core.trunk import cache_argument


def transformers_generate(
    loaded: LoadedModel,
    prompt: Sequence[int],
    max_new_tokens: int,
    *,
    eos_ids: Sequence[int] = (),
    repetition_penalty: float = 1.0,
    **options: Any,
) -> list[int]:
    """Greedy `generate` of transformers with its default KV cache; the new token ids.

    The mask token is suppressed, as in our own decoding. Without eos_ids the run has exactly
    max_new_tokens tokens. options: more of `generate`'s own.
    """
    (ids,) = generate_batch(
        loaded,
        [prompt],
        max_new_tokens,
        eos_ids=eos_ids,
        repetition_penalty=repetition_penalty,
        **options,
    )
    return ids


@torch.inference_mode()
def generate_batch(
    loaded: LoadedModel,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    *,
    eos_ids: Sequence[int] = (),
    repetition_penalty: float = 1.0,
    **options: Any,
) -> list[list[int]]:
    """The same for prompts that are answered together, padded on the left to one length."""
    longest = max(map(len, prompts))
    padded = [[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts]
    real = [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    mask_id = loaded.special.mask_id
    generate = cast(Any, loaded.model).generate  # a mixin's method that the base type lacks
    output: torch.Tensor = generate(
        torch.tensor(padded, device=loaded.device),
        attention_mask=torch.tensor(real, device=loaded.device),
        do_sample=False,
        max_new_tokens=max_new_tokens,
        repetition_penalty=repetition_penalty,
        suppress_tokens=None if mask_id is None else [mask_id],
        eos_token_id=list(eos_ids) or None,
        pad_token_id=0,
        **options,
    )
    return [up_to_eos(row, eos_ids) for row in output[:, longest:].tolist()]


def up_to_eos(ids: Sequence[int], eos_ids: Sequence[int]) -> list[int]:
    """The ids up to the first EOS, that included."""
    end = next((i for i, token in enumerate(ids, 1) if token in eos_ids), len(ids))
    return list(ids[:end])


@contextmanager
def counted_forwards(loaded: LoadedModel) -> Iterator[list[int]]:
    """The rows of every forward in the block, in a list that grows."""
    fed: list[int] = []

    def count(model: object, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        fed.append(int(named["input_ids"].shape[1]))

    hook = cast(Any, loaded.model).register_forward_pre_hook(count, with_kwargs=True)
    try:
        yield fed
    finally:
        hook.remove()


@torch.inference_mode()
def jacobi(
    loaded: LoadedModel,
    prompt: Sequence[int],
    max_new_tokens: int,
    window: int,
    *,
    eos_ids: Sequence[int] = (),
    session: Session | None = None,
) -> tuple[list[int], int]:
    """Greedy Jacobi decoding (arXiv 2305.10427): the new token ids, and the forwards they took.

    session: one to be used again; what it holds is forgotten.

    The next `window` tokens are guessed, first at random (here: the last token again), and every
    forward replaces each guess by what follows those before it; what agrees is kept. The text is
    that of one token per forward.
    """
    session = session or loaded.session()
    session.forget()
    session.prefill([prompt[:-1]])
    room = min(max_new_tokens, loaded.context_length - len(prompt))
    last, guesses = prompt[-1], [prompt[-1]] * window
    found: list[int] = []
    forwards = 0
    while len(found) < room and not any(token in eos_ids for token in found):
        start = len(session.tokens[0])
        fed = [last, *guesses][: loaded.context_length - start]
        places = range(start, start + len(fed))
        (logits,) = session.forward([Fed(fed, places, head=range(len(fed)))])
        if loaded.special.mask_id is not None:
            logits[:, loaded.special.mask_id] = -torch.inf
        said = logits.argmax(-1).tolist()
        kept = 1 + common_prefix(fed[1:], said)
        session.commit([range(kept)])
        forwards += 1
        found += said[:kept]
        last = said[kept - 1]
        guesses = (said[kept:] + [said[-1]] * window)[:window]
    return up_to_eos(found[:room], eos_ids), forwards


def watched_generate(
    loaded: LoadedModel,
    prompt: Sequence[int],
    config: DecodeConfig,
    stopwatch: Stopwatch,
    *,
    lookup: int | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> list[tuple[Event, float]]:
    """`transformers_generate` as the events of a decode loop, each with its milliseconds.

    lookup: candidates per forward of prompt lookup decoding (`prompt_lookup_num_tokens`). Its first
    forward reads the prompt too; the whole of it counts as prefill then, and its step as no time.
    Otherwise prefill is the prompt but its last token, as in our own loop. stopped: asked after
    every forward. Of `config` everything greedy is followed.
    """
    options: dict[str, Any] = {"prompt_lookup_num_tokens": lookup}
    prefill_ms = 0.0
    if not lookup:
        cache = options[cache_argument(loaded.model)] = DynamicCache(config=loaded.model.config)
        prefill_ms = stopwatch.run(lambda: _prefill(loaded, prompt, cache))
    if config.stop:
        options |= {"stop_strings": list(config.stop), "tokenizer": loaded.tokenizer}
    eos_ids = sorted(loaded.special.eos_ids)
    with counted_forwards(loaded) as fed:
        watch = Watch(fed, stopwatch, len(prompt), stopped)
        ids = transformers_generate(
            loaded,
            prompt,
            config.max_new_tokens,
            eos_ids=eos_ids,
            repetition_penalty=config.repetition_penalty,
            no_repeat_ngram_size=config.no_repeat_ngram_size,
            stopping_criteria=[watch],
            **options,
        )
    if lookup and watch.laps:
        prefill_ms, watch.laps[0].ms = watch.laps[0].ms, 0.0
    steps = list(_steps(watch.laps, ids, len(prompt)))
    end = Done(0, _reason(ids, eos_ids, config, stopped()), len(ids), len(steps))
    begin = Prefill(row=0, tokens=len(prompt) - 1, reused=0)
    return [(begin, prefill_ms), *steps, (end, 0.0)]


@dataclass(slots=True)
class Lap:
    """After a forward: new tokens so far, rows it was fed, its milliseconds."""

    tokens: int
    fed: int
    ms: float


class Watch(StoppingCriteria):
    """Looks on while `generate` runs: what every forward was fed, and what was there after it."""

    def __init__(
        self,
        fed: Sequence[int],
        stopwatch: Stopwatch,
        prompt_tokens: int,
        stopped: Callable[[], bool],
    ) -> None:
        """fed: of every forward so far, see `counted_forwards`."""
        self.laps: list[Lap] = []
        self._fed = fed
        self._lap = stopwatch.laps()
        self._prompt_tokens = prompt_tokens
        self._stopped = stopped

    def __call__(
        self, input_ids: torch.LongTensor, scores: torch.FloatTensor, **options: Any
    ) -> torch.BoolTensor:
        tokens = input_ids.shape[1] - self._prompt_tokens
        self.laps.append(Lap(tokens, self._fed[-1], self._lap()))
        ends = torch.full(input_ids.shape[:1], self._stopped(), device=input_ids.device)
        return cast(torch.BoolTensor, ends)


@torch.inference_mode()
def _prefill(loaded: LoadedModel, prompt: Sequence[int], cache: DynamicCache) -> None:
    if len(prompt) > 1:
        ids = torch.tensor([list(prompt[:-1])], device=loaded.device)
        named: dict[str, Any] = {cache_argument(loaded.model): cache}
        loaded.model(input_ids=ids, use_cache=True, logits_to_keep=1, **named)


def _steps(laps: Sequence[Lap], ids: Sequence[int], position: int) -> Iterator[tuple[Event, float]]:
    """One step per forward that committed something; nothing of what is behind an EOS."""
    done = 0
    for forward, lap in enumerate(laps, 1):
        tokens = tuple(Committed(token, "ar", 0) for token in ids[done : lap.tokens])
        if tokens:
            yield Step(0, forward, "one", 1.0, lap.fed, position + done, (), tokens, ()), lap.ms
        done = lap.tokens


def _reason(
    ids: Sequence[int], eos_ids: Sequence[int], config: DecodeConfig, stopped: bool
) -> Reason:
    if ids and ids[-1] in eos_ids:
        return "eos"
    if len(ids) >= config.max_new_tokens:
        return "length"
    return "stopped" if stopped else "stop"
