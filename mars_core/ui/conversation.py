"""From what a visitor typed, and what was said before, to the messages of a run. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import Any

from mars_core.errors import MarsError
from mars_core.race.settings import check_prompts
from mars_core.trace import Message

MAX_CHARACTERS = 200_000


def conversation(prompt: Any, history: Any = None, system: Any = "") -> list[Message]:
    """The messages of a run: the system prompt if there is one, the turns before, the prompt.

    history: {"role", "content"} of every turn before, "user" and "assistant" in alternation, or
    None. An empty system prompt leaves the model its own. Nothing is taken on trust: raises
    MarsError for what is no conversation, says nothing or is beyond reason.
    """
    if not isinstance(prompt, str) or not prompt.strip():
        raise MarsError("Write a prompt first, or choose one of the examples.")
    if not isinstance(system or "", str):
        raise MarsError("the system prompt must be text")
    turns = _turns(history or [])
    messages = [Message(role="system", content=system)] if system and system.strip() else []
    messages += [*turns, Message(role="user", content=prompt)]
    _check_size(messages)
    return messages


def conversations(lines: str, system: Any = "") -> list[list[Message]]:
    """Those of a batch: one for each line that is not empty. Raises MarsError, likewise."""
    return conversation_each([line for line in lines.splitlines() if line.strip()], system)


def conversation_each(prompts: Any, system: Any = "") -> list[list[Message]]:
    """One for each of a list of prompts. Raises MarsError, likewise."""
    if not isinstance(prompts, list):
        raise MarsError("prompts must be a list of texts")
    check_prompts(prompts)
    return [conversation(prompt, None, system) for prompt in prompts]


def _turns(history: Any) -> Sequence[Message]:
    if not isinstance(history, list) or len(history) % 2:
        raise MarsError("history must be a list that ends with the assistant's turn")
    return [_turn(entry, role) for entry, role in zip(history, cycle(("user", "assistant")))]


def _turn(entry: Any, role: Any) -> Message:
    if not isinstance(entry, dict) or entry.get("role") != role:
        raise MarsError(
            'history must be {"role", "content"} entries, "user" and "assistant" in alternation'
        )
    content = entry.get("content")
    if not isinstance(content, str) or not content.strip():
        raise MarsError("every turn in history needs some text as its content")
    return Message(role=role, content=content)


def _check_size(messages: Sequence[Message]) -> None:
    size = sum(len(message.content) for message in messages)
    if size <= MAX_CHARACTERS:
        return
    what = "prompt" if len(messages) == 1 else "conversation"
    raise MarsError(
        f"The {what} has {size:,} characters; the page takes {MAX_CHARACTERS:,} at most."
    )
