"""Ways to answer the prompts of an evaluation: in batches with one token per forward, or by tau.

Evaluations take a function from conversations to answers, so that they can be tested without a
model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from mars_core.answers import Answer, answer_batch, answer_with, encode_all, longest_first
from mars_core.chat import ChatTurn
from mars_core.config import DecodeConfig
from mars_core.models.load import LoadedModel

Conversation = Sequence[ChatTurn]
# the answers, each with the index of its conversation, in any order
Answerer = Callable[[Sequence[Conversation]], Iterator[tuple[int, Answer]]]


def answerer(loaded: LoadedModel, config: DecodeConfig, batch_size: int) -> Answerer:
    """The way that fits the mode: batches in mode "one", one by one in mode "tau"."""
    if config.mode == "one":
        return in_batches(loaded, config, batch_size)
    return one_by_one(loaded, config)


def in_batches(loaded: LoadedModel, config: DecodeConfig, batch_size: int) -> Answerer:
    """One token per forward and row, `batch_size` rows at a time."""

    def answer(conversations: Sequence[Conversation]) -> Iterator[tuple[int, Answer]]:
        prompts = encode_all(loaded, conversations)
        order = longest_first(prompts)
        answers = answer_batch(loaded, [prompts[i] for i in order], config, batch_size)
        yield from zip(order, answers, strict=True)

    return answer


def one_by_one(loaded: LoadedModel, config: DecodeConfig) -> Answerer:
    """Whatever `config` says, one conversation after the other."""
    config = replace(config, alternatives=0)

    def answer(conversations: Sequence[Conversation]) -> Iterator[tuple[int, Answer]]:
        session = loaded.session()
        for index, prompt in enumerate(encode_all(loaded, conversations)):
            yield index, answer_with(loaded, session, prompt, config)

    return answer
