"""Prompt files: what `mars distill` answers. No torch.

Plain text has one prompt a line. JSON Lines (`.jsonl`) have one object a line with

* `prompt`: a question, or
* `turns`: several user turns, to be answered one after the other, or
* `messages`: a conversation, whose last user turn is to be answered (an answer that is there is
  left out: so the rows of one data set can be answered again by another model),

and optionally `system`; other fields are passed on to the answer. Both may be gzipped (`.gz`).
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mars_core.chat import Turn
from mars_core.errors import MarsError
from mars_core.models.words import expanded, one_line

ROLES = ("system", "user", "assistant")
KINDS = ("prompt", "turns", "messages")
# what an answer says of itself is not passed on
OF_THE_ANSWER = ("id", "finished", "looping", "tokens", "dropped", "response")


@dataclass(frozen=True, slots=True)
class Task:
    """One conversation to be answered.

    opening: what is said before the first open turn: a system message, earlier turns.
    turns: user turns, each of which gets an answer. extra: further fields of its line.
    line: where it stands in its file.
    """

    opening: tuple[Turn, ...]
    turns: tuple[str, ...]
    extra: dict[str, Any] = field(default_factory=dict)
    line: int = 0

    @property
    def first(self) -> list[Turn]:
        """The conversation up to its first open turn."""
        return [*self.opening, Turn(role="user", content=self.turns[0])]

    @property
    def key(self) -> str:
        """Names what is asked; the same for questions that differ in case and white space only."""
        parts = [f"{m.role}:{m.content}" for m in self.opening]
        parts += [f"user:{turn}" for turn in self.turns]
        normal = "\n".join(" ".join(part.casefold().split()) for part in parts)
        return hashlib.sha256(normal.encode()).hexdigest()[:16]


def read_tasks(path: Path, system: str | None = None) -> tuple[list[Task], int]:
    """The tasks of a prompt file without duplicates, and how many duplicates were left out.

    system: the system prompt of lines that have none of their own. Raises MarsError, naming the
    line, for what is no prompt.
    """
    tasks: dict[str, Task] = {}
    count = 0
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        task = parse_line(line, number, is_json_lines(path), path.name, system)
        tasks.setdefault(task.key, task)
        count += 1
    if not tasks:
        raise MarsError(f"{path.name} has no prompts")
    return list(tasks.values()), count - len(tasks)


def is_json_lines(path: Path) -> bool:
    return path.name.removesuffix(".gz").endswith(".jsonl")


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a text file, gzipped or not; MarsError where it cannot be read."""
    path = expanded(path)
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            for line in file:
                yield line.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise MarsError(f"{path.name} is not text in UTF-8") from None
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise MarsError(f"{path.name} cannot be read: it is no gzip file, or cut") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise MarsError(f"{path.name or path} cannot be read: {one_line(reason, 80)}") from None


def parse_line(line: str, number: int, is_json: bool, name: str, system: str | None) -> Task:
    """The task of one line; MarsError, naming file and line, if it is none."""
    try:
        data = json_object(line) if is_json else {"prompt": line.strip()}
        return parse_task(data, number, system)
    except ValueError as error:
        raise MarsError(f"{name}, line {number}: {one_line(error)}") from None


def json_object(line: str) -> dict[str, Any]:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("this is not JSON") from None
    if not isinstance(data, dict):
        raise ValueError("a JSON object is wanted")
    return data


def parse_task(data: dict[str, Any], number: int, system: str | None) -> Task:
    """The task that a line's fields describe; ValueError if they describe none."""
    present = [kind for kind in KINDS if kind in data]
    if len(present) != 1:
        raise ValueError("exactly one of prompt, turns and messages is wanted")
    messages, turns = parse_conversation(present[0], data[present[0]])
    if not messages or messages[0].role != "system":
        own = data.get("system", system)
        if own is not None:
            messages.insert(0, Turn(role="system", content=text_of(own, "system")))
    elif "system" in data:
        raise ValueError("the system prompt is there twice")
    own_fields = (*KINDS, *OF_THE_ANSWER, "system")
    extra = {name: value for name, value in data.items() if name not in own_fields}
    return Task(tuple(messages), tuple(turns), extra, number)


def parse_conversation(kind: str, value: object) -> tuple[list[Turn], list[str]]:
    """What was said before the first open turn, and the open user turns."""
    if kind == "prompt":
        return [], [turn_of(value)]
    if not isinstance(value, list) or not value:
        raise ValueError(f"{kind} must be a list that is not empty")
    if kind == "turns":
        return [], [turn_of(turn) for turn in value]
    messages = [message_of(entry) for entry in value]
    if messages[-1].role == "assistant":
        messages.pop()
    if not messages or messages[-1].role != "user":
        raise ValueError("the last of messages must be a user turn, or its answer")
    return messages[:-1], [turn_of(messages[-1].content)]


def message_of(entry: object) -> Turn:
    if not isinstance(entry, dict) or entry.get("role") not in ROLES:
        raise ValueError(f"a message needs a content and a role of {', '.join(ROLES)}")
    return Turn(role=entry["role"], content=text_of(entry.get("content"), "content"))


def turn_of(value: object) -> str:
    text = text_of(value, "a prompt")
    if not text.strip():
        raise ValueError("a prompt is empty")
    return text


def text_of(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name} must be text")
    if any(0xD800 <= ord(character) < 0xE000 for character in value):
        raise ValueError(f"{name} contains half of a surrogate pair, which is no character")
    return value
