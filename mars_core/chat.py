"""From chat messages to token ids.

Text typed by a person stays text: a special-token string in a message is encoded as ordinary
characters, so nobody can end a turn or speak as the system from inside a message.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from jinja2 import TemplateError

from mars_core.errors import MarsError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Role = Literal["system", "user", "assistant"]
# private-use characters stand in for special-token strings while the template is rendered
FIRST_STAND_IN = 0xF0000


class ChatTurn(Protocol):
    """What one side said: a `Turn`, or the `Message` of a trace."""

    @property
    def role(self) -> Role: ...

    @property
    def content(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Turn:
    """What one side said, where no trace is kept."""

    role: Role
    content: str


def encode_chat(
    tokenizer: PreTrainedTokenizerBase, messages: Sequence[ChatTurn]
) -> tuple[list[int], str]:
    """Token ids of a conversation, ready for the assistant's turn, and the text they stand for.

    Without a chat template a single user message is continued as it is. Raises MarsError for an
    empty message, text that is not valid Unicode, and turns the template refuses.
    """
    check_messages(messages)
    if not tokenizer.chat_template:
        if len(messages) > 1:
            raise MarsError("this model has no chat template: send one user message, no history")
        text = messages[0].content
        return encode_plain(tokenizer, text), text
    stand_ins = choose_stand_ins(tokenizer, (message.content for message in messages))
    turns = [{"role": m.role, "content": replace_all(m.content, stand_ins)} for m in messages]
    try:
        rendered = str(
            tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        )
    except TemplateError as error:
        line = " ".join(str(error).split())
        raise MarsError(f"the model's chat template refused the conversation: {line}") from None
    names = {stand_in: name for name, stand_in in stand_ins.items()}
    ids: list[int] = []
    for part in split_keeping(rendered, names):
        if part in names:
            ids += encode_plain(tokenizer, names[part])
        elif part:
            ids += tokenizer.encode(part, add_special_tokens=False)
    return ids, replace_all(rendered, names)


def check_messages(messages: Sequence[ChatTurn]) -> None:
    """Raise MarsError unless there is something valid to answer."""
    if not messages or messages[-1].role != "user":
        raise MarsError("the conversation must end with a user message")
    if not messages[-1].content.strip():
        raise MarsError("the prompt is empty; type something first")
    for message in messages:
        try:
            message.content.encode("utf-8")
        except UnicodeEncodeError:
            raise MarsError(
                f"the {message.role} message contains half of a surrogate pair, which is no "
                "character; remove it"
            ) from None


def choose_stand_ins(tokenizer: PreTrainedTokenizerBase, contents: Iterable[str]) -> dict[str, str]:
    """For every special-token string in `contents`, longest first, a character not in them."""
    text = "\n".join(contents)
    names = sorted(tokenizer.get_added_vocab(), key=len, reverse=True)
    free = (chr(code) for code in range(FIRST_STAND_IN, 0x110000) if chr(code) not in text)
    return {name: next(free) for name in names if name in text}


def replace_all(text: str, changes: dict[str, str]) -> str:
    """`text` with every key of `changes` replaced; the first key that matches at a place wins."""
    if not changes:
        return text
    return re.sub(alternation(changes), lambda match: changes[match[0]], text)


def split_keeping(text: str, separators: Iterable[str]) -> list[str]:
    """`text` cut at the separators, which stay as parts of their own."""
    pattern = alternation(separators)
    return re.split(f"({pattern})", text) if pattern else [text]


def alternation(strings: Iterable[str]) -> str:
    return "|".join(map(re.escape, strings))


def encode_plain(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Ids of `text` with every special-token string in it kept as ordinary characters.

    Such a string is encoded in two parts, neither of which is a token of its own name.
    """
    name = re.compile(alternation(tokenizer.get_added_vocab()) or "(?!)")
    ids: list[int] = []
    while found := name.search(text):
        head, text = text[: found.start() + 1], text[found.start() + 1 :]
        ids += tokenizer.encode(head, add_special_tokens=False)
    return ids + (list(tokenizer.encode(text, add_special_tokens=False)) if text else [])
