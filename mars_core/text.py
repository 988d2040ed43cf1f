"""The only place where token ids become text."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from transformers import PreTrainedTokenizerBase

REPLACEMENT = "�"


class TokenText:
    """Text of single tokens, for labels and alternatives."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._special = special_ids(tokenizer)
        # a token to stand before, since some tokenizers drop a space at the start of a text
        self._anchor = tokenizer.encode("a", add_special_tokens=False)[-1:]
        self.label = lru_cache(maxsize=65536)(self._label)

    def special(self, token: int) -> str | None:
        """The name of a special token, None for an ordinary one."""
        return self.label(token) if token in self._special else None

    def _label(self, token: int) -> str:
        """What a person should read for this token: its text with its space, or its name.

        Part of a character reads as U+FFFD. An id outside the vocabulary gets a name of its own
        (models pad their embeddings).
        """
        name = self._tokenizer.convert_ids_to_tokens(token)
        if name is None:
            return f"<unused {token}>"
        if token in self._special:
            return str(name)
        alone = decode_ids(self._tokenizer, self._anchor)
        return decode_ids(self._tokenizer, [*self._anchor, token])[len(alone) :] or str(name)


class Detokenizer:
    """Turns a growing token sequence into pieces of text whose concatenation is the text.

    A piece is held back while it ends inside a character; the token that completes it carries
    the whole. Special tokens have no text.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._special = special_ids(tokenizer)
        self._ids: list[int] = []
        self._context = 0  # decoding starts here: enough before `_given` to know the spacing
        self._given = 0  # tokens whose text has been given out

    def push(self, token: int) -> str:
        """The text this token adds to the output."""
        if token in self._special:
            return ""
        self._ids.append(token)
        piece = self._new_text()
        if not piece or piece.endswith(REPLACEMENT):
            return ""
        self._context, self._given = self._given, len(self._ids)
        return piece

    def flush(self) -> str:
        """What is still held back, when no more tokens come."""
        piece = self._new_text()
        self._context, self._given = self._given, len(self._ids)
        return piece

    def _new_text(self) -> str:
        known = decode_ids(self._tokenizer, self._ids[self._context : self._given])
        return decode_ids(self._tokenizer, self._ids[self._context :])[len(known) :]


class StopStrings:
    """Finds the first stop string in a row's text as its tokens come (a `decode.StopCheck`)."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, strings: Sequence[str]) -> None:
        self._detokenizer = Detokenizer(tokenizer)
        self._strings = tuple(strings)
        self._keep = max((len(text) for text in strings), default=0) - 1
        self._tail = ""

    def push(self, token: int) -> bool:
        """Take the next token; True when the text now contains a stop string."""
        text = self._tail + self._detokenizer.push(token)
        self._tail = text[-self._keep :] if self._keep > 0 else ""
        return any(string in text for string in self._strings)


def decode_ids(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> str:
    """The text of ids, special tokens left out, spaces as they are."""
    return str(
        tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
    )


def special_ids(tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Ids that stand for something other than text, used by the chat template or not."""
    added = tokenizer.added_tokens_decoder.items()
    return frozenset(tokenizer.all_special_ids) | {i for i, token in added if token.special}
