"""Training data: from files and data sets of chats to examples of token ids.

A row is one JSON object with

* `messages`: a conversation whose last turn is the assistant's, or
* `prompt` and `response`, and optionally `system`,

and optionally `finished` (false: a limit cut the answer) and `looping` (true: left out, or learned
as what not to say). The token ids in front of the answer are exactly those that decoding would
feed; only the last answer is learned.
"""

from __future__ import annotations

import hashlib
import random
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from mars_core.chat import Turn, encode_chat, encode_plain
from mars_core.errors import MarsError
from mars_core.models.hub import is_hub_id
from mars_core.models.hush import quiet
from mars_core.models.words import expanded, one_line
from mars_core.training.objective import Example
from mars_core.training.overlap import HeldOut
from mars_core.training.prompt_file import ROLES, json_object, message_of, read_lines, text_of
from mars_core.training.repetition import repeating_tokens
from mars_core.training.settings import Source

# a name that ends so is never a data set's
FILE_ENDINGS = (".jsonl", ".gz", ".json", ".txt")
# stands for an answer while the template is rendered: no tokenizer has it, no template strips it
STAND_IN = "\U000f0000"


@dataclass(frozen=True, slots=True)
class Chat:
    """A conversation up to the answer, the answer, whether it ended by itself or got stuck."""

    messages: tuple[Turn, ...]
    answer: str
    finished: bool
    looping: bool = False


@dataclass(slots=True)
class Data:
    """Examples to learn from, one list per source, and those held out.

    left_out: how many rows were not used, by reason. cut: answers shortened to the limit.
    """

    pools: list[list[Example]] = field(default_factory=list)
    validation: list[Example] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    cut: int = 0

    @property
    def fingerprint(self) -> str:
        """Names the examples: a run that goes on must find the same ones."""
        digest = hashlib.sha256()
        for example in (*(x for pool in self.pools for x in pool), *self.validation):
            digest.update(f"{example.start},{example.finished},{len(example.ids)};".encode())
            digest.update(array("q", [*example.ids, *example.unwanted]).tobytes())
        return digest.hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Limits:
    """max_length: tokens of prompt and answer. limit: examples from each source at most.
    loops: take looping answers too, for what they repeat.
    """

    max_length: int
    limit: int | None = None
    loops: bool = False


def load_data(
    sources: Sequence[Source],
    tokenizer: PreTrainedTokenizerBase,
    limits: Limits,
    held_out: HeldOut | None = None,
) -> Data:
    """All examples of the sources. Raises MarsError where there is nothing to learn from."""
    if not tokenizer.chat_template:
        raise MarsError("this model has no chat template, so there is no telling what to train on")
    data = Data()
    with quiet():
        for source in sources:
            _add_source(data, source, tokenizer, limits, held_out or HeldOut(()))
    return data


def _add_source(
    data: Data,
    source: Source,
    tokenizer: PreTrainedTokenizerBase,
    limits: Limits,
    held_out: HeldOut,
) -> None:
    """Read a source into a pool of its own."""
    pool: list[Example] = []
    left_out: Counter[str] = Counter()
    for chat in _chats(source, left_out):
        if limits.limit is not None and len(pool) >= limits.limit:
            break
        if chat.looping and not limits.loops:
            left_out["looping"] += 1
            continue
        if any(held_out.overlaps(m.content) for m in chat.messages) or held_out.overlaps(
            chat.answer
        ):
            left_out["overlap an evaluation prompt"] += 1
            continue
        try:
            example = tokenise(tokenizer, chat, limits.max_length)
        except MarsError:  # system prompts, say, or two questions in a row
            left_out["refused by the chat template"] += 1
            continue
        if example is None:
            left_out["with a prompt that is too long"] += 1
            continue
        if chat.looping and not example.unwanted:
            left_out["looping"] += 1
            continue
        data.cut += chat.finished and not example.finished
        pool.append(example)
    if not pool:
        reasons = [f"{count} {reason}" for reason, count in sorted(left_out.items())]
        why = f" ({', '.join(reasons)})" if reasons else ": it is empty"
        raise MarsError(f"{one_line(source.name, 80)} has nothing to learn from{why}")
    data.pools.append(pool)
    data.left_out += left_out


def _chats(source: Source, left_out: Counter[str]) -> Iterator[Chat]:
    """The usable conversations of a source; `left_out` counts the others."""
    for number, row in _rows(source.name):
        try:
            chat = parse_row(row)
        except ValueError as error:
            where = f"{one_line(source.name, 80)}, row {number}"
            raise MarsError(f"{where}: {one_line(error, 100)}") from None
        if isinstance(chat, str):
            left_out[chat] += 1
        else:
            yield chat


def _rows(name: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    path = expanded(name)
    if is_file(path):
        for number, line in enumerate(read_lines(path), 1):
            if line.strip():
                yield number, _parsed(line, path, number)
    elif path.suffix not in FILE_ENDINGS and is_hub_id(name.partition(":")[0]):
        yield from enumerate(_hub_rows(*name.partition(":")[::2]), 1)
    else:
        raise MarsError(
            f"training data {one_line(name, 80)!r} is neither a file here nor a data set (org/name)"
        )


def is_file(path: Path) -> bool:
    """Whether a file is there; a name that no file can have is none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _parsed(line: str, path: Path, number: int) -> dict[str, Any]:
    try:
        return json_object(line)
    except ValueError as error:
        raise MarsError(f"{path.name}, row {number}: {error}") from None


def _hub_rows(name: str, split: str) -> Iterator[Mapping[str, Any]]:
    """The rows of a Hugging Face data set, as they come over the line."""
    try:
        import datasets
    except ImportError:
        raise MarsError(
            f"{name} is a Hugging Face data set: pip install datasets to read it"
        ) from None
    try:
        yield from datasets.load_dataset(name, split=split or "train", streaming=True)
    except Exception as error:
        # the library, the hub and the connection each have their own errors
        raise MarsError(f"data set {name} cannot be read: {one_line(error, 120)}") from error


def parse_row(row: Mapping[str, Any]) -> Chat | str:
    """The conversation of a row, or in words why it is not used; ValueError if it is none."""
    dropped = row.get("dropped")  # by `mars distill`, with the reason
    finished, looping = row.get("finished", True), row.get("looping", dropped == "looping")
    for name, value in (("finished", finished), ("looping", looping)):
        if not isinstance(value, bool):
            raise ValueError(f"{name} must be true or false")
    if dropped and not looping:
        return "dropped"
    if "messages" in row:
        turns = row["messages"]
        if not isinstance(turns, list) or not turns:
            raise ValueError("messages must be a list that is not empty")
        if any(map(_is_foreign, turns)):
            return "with tools or other speakers"
        messages = [message_of(turn) for turn in turns]
    else:
        messages = [
            Turn(role="user", content=text_of(row.get("prompt"), "prompt")),
            Turn(role="assistant", content=text_of(row.get("response"), "response")),
        ]
        if row.get("system") is not None:
            system = text_of(row["system"], "system")
            messages.insert(0, Turn(role="system", content=system))
    return _chat(messages, finished, looping)


def _is_foreign(turn: object) -> bool:
    """Whether it is a tool's or its call, a developer's, ...: common in data sets, unknown here."""
    if not isinstance(turn, dict) or not isinstance(turn.get("role"), str):
        return False
    return turn["role"] not in ROLES or turn.get("content", "") is None


def _chat(messages: list[Turn], finished: bool, looping: bool) -> Chat | str:
    *before, last = messages
    if last.role != "assistant" or not last.content.strip():
        return "without an answer"
    if not before or before[-1].role != "user" or not before[-1].content.strip():
        return "without a question"
    return Chat(tuple(before), last.content, finished, looping)


def tokenise(tokenizer: PreTrainedTokenizerBase, chat: Chat, max_length: int) -> Example | None:
    """The example of a chat, its answer cut to fit; None if there is no room for an answer.

    Special-token strings in the texts stay text. The token that ends the turn is added by the
    objective and counted here. Of a looping answer the tokens that repeat are unwanted.
    """
    prompt, _ = encode_chat(tokenizer, chat.messages)
    answer = encode_plain(tokenizer, chat.answer)
    if len(prompt) >= max_length:
        return None
    room = max_length - len(prompt)
    finished = chat.finished and len(answer) < room
    answer = answer[:room]
    repeating = repeating_tokens(answer) if chat.looping else []
    unwanted = [len(prompt) + place for place in repeating]
    return Example(array("i", [*prompt, *answer]), len(prompt), finished, unwanted)


def end_of_turn(tokenizer: PreTrainedTokenizerBase, eos_ids: frozenset[int]) -> int:
    """The token that the chat template puts behind an answer, of those that end a text."""
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": STAND_IN}]
    rendered = str(tokenizer.apply_chat_template(turns, tokenize=False))
    behind = tokenizer.encode(rendered.rpartition(STAND_IN)[2], add_special_tokens=False)
    found = [token for token in behind if token in eos_ids]
    if not found and tokenizer.eos_token_id in eos_ids:
        found = [int(tokenizer.eos_token_id)]
    if not found:
        raise MarsError("this model has no token that ends an answer")
    return found[0]


def hold_out(data: Data, share: float, most: int, seed: int) -> None:
    """Move about `share` of the prompts, and at most `most` examples, to the validation set.

    All examples of a prompt go together, from whichever source. A source is never emptied. What
    looping answers teach is not validated.
    """
    groups: dict[bytes, list[tuple[int, int]]] = {}
    for p, pool in enumerate(data.pools):
        for i, example in enumerate(pool):
            prompt = array("i", example.ids[: example.start]).tobytes()
            groups.setdefault(prompt, []).append((p, i))
    left = [len(pool) for pool in data.pools]
    order = list(groups.values())
    random.Random(seed).shuffle(order)
    wanted = min(most, round(share * sum(left)))
    taken: set[tuple[int, int]] = set()
    for group in order:
        needed = Counter(p for p, _ in group)
        if len(taken) + len(group) > wanted or any(left[p] <= n for p, n in needed.items()):
            continue
        taken.update(group)
        for p, n in needed.items():
            left[p] -= n
    held = [data.pools[p][i] for p, i in sorted(taken)]
    data.validation = [example for example in held if not example.unwanted]
    data.pools = [
        [example for i, example in enumerate(pool) if (p, i) not in taken]
        for p, pool in enumerate(data.pools)
    ]
