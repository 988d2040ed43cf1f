"""Answers to many conversations, for distillation and benchmarks, where nothing is streamed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from mars_core.batch import batch_session
from mars_core.cache import Session
from mars_core.chat import ChatTurn, encode_chat
from mars_core.config import DecodeConfig
from mars_core.decode import decode, decode_batch
from mars_core.events import Done, Event, Step
from mars_core.models.hush import quiet
from mars_core.models.load import LoadedModel
from mars_core.row import Request
from mars_core.text import REPLACEMENT, decode_ids


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model said.

    tokens: produced, EOS counted. forwards: it took. finished: the model ended it itself, rather
    than a limit.
    """

    text: str
    tokens: int
    forwards: int
    finished: bool


def answer_batch(
    loaded: LoadedModel, prompts: Sequence[Sequence[int]], config: DecodeConfig, rows: int
) -> list[Answer]:
    """Answer all prompts (token ids), `rows` at once, one token per forward; in their order.

    Prompts of similar length are best kept together: all rows of a forward see as far as the
    longest. Raises MarsError for an empty or too long prompt.
    """
    config = replace(config, mode="one", alternatives=0)
    requests = [Request(prompt, config) for prompt in prompts]
    session = batch_session(loaded, requests, rows)
    return answers_of(loaded, decode_batch(session, requests, loaded.special), len(prompts))


def answer_with(
    loaded: LoadedModel,
    session: Session,
    prompt: Sequence[int],
    config: DecodeConfig,
    costs: Mapping[int, float] | None = None,
) -> Answer:
    """Answer one prompt (token ids) in the way `config` says; `session` may serve many in turn.

    costs: as `decode` takes them.
    """
    events = decode(session, prompt, config, loaded.special, costs=costs)
    (answer,) = answers_of(loaded, events, 1)
    return answer


def answers_of(loaded: LoadedModel, events: Iterable[Event], rows: int) -> list[Answer]:
    """The answers of all rows from the events of a decode loop."""
    return [answer_of_row(loaded, *row) for row in by_row(events, rows)]


def by_row(events: Iterable[Event], rows: int) -> list[tuple[list[Step], Done]]:
    """The steps of each row of a decode loop, and how it ended."""
    steps: list[list[Step]] = [[] for _ in range(rows)]
    ends: dict[int, Done] = {}
    for event in events:
        match event:
            case Step():
                steps[event.row].append(event)
            case Done():
                ends[event.row] = event
    return [(taken, ends[row]) for row, taken in enumerate(steps)]


def ids_of(steps: Iterable[Step]) -> list[int]:
    """The tokens that the steps of a row committed."""
    return [token.token for step in steps for token in step.tokens]


def answer_of_row(loaded: LoadedModel, steps: Iterable[Step], end: Done) -> Answer:
    """The Answer of one row from its steps and how it ended."""
    ids = ids_of(steps)
    text = decode_ids(loaded.tokenizer, ids)
    finished = end.reason in ("eos", "stop")
    # a limit may cut a character in half
    return Answer(
        text if finished else text.rstrip(REPLACEMENT), end.tokens, end.forwards, finished
    )


def encode_all(loaded: LoadedModel, conversations: Sequence[Sequence[ChatTurn]]) -> list[list[int]]:
    """Token ids of each conversation, ready for the assistant's turn."""
    with quiet():  # a prompt that is too long is refused in our own words, by the decoder
        return [encode_chat(loaded.tokenizer, messages)[0] for messages in conversations]


def longest_first(prompts: Sequence[Sequence[int]]) -> list[int]:
    """The indices of `prompts` by their length: what does not fit into memory fails at once."""
    return sorted(range(len(prompts)), key=lambda i: -len(prompts[i]))
