"""Ids with a meaning: which token is [MASK], who says so, and which tokens end a text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeGuard

from transformers import PreTrainedModel, PreTrainedTokenizerFast

from mars_core.config import MAX_BLOCK_SIZE
from mars_core.errors import MarsError
from mars_core.models.words import one_line

MASK_TOKEN = "<|mask|>"


@dataclass(frozen=True, slots=True)
class Declared:
    """What adapter, checkpoint or catalogue say about the mask, strongest first."""

    mask_id: int | None
    trained: bool
    block_size: int | None


def declaration(
    tokenizer: PreTrainedTokenizerFast,
    config: dict[str, Any],
    record: dict[str, Any],
    adapter_record: dict[str, Any],
) -> Declared:
    """What is said about the mask: by the adapter, the checkpoint, its tokenizer, the catalogue.

    Whether it was trained for MARS, and with which B, is for the catalogue to say of a model that
    is in it; elsewhere only the first three count, and the id of a record is a stand-in.
    """
    known = _recorded(record, "model", trained=record.get("trained") is True)
    own = _declared_by_checkpoint(tokenizer, config) or known
    if "trained" in record:
        own = Declared(own.mask_id, known.trained, known.block_size)
    theirs = _recorded(adapter_record, "adapter", trained=True)
    if theirs.mask_id is None and theirs.block_size is None:
        return own
    mask_id = own.mask_id if theirs.mask_id is None else theirs.mask_id
    return Declared(mask_id, True, theirs.block_size or own.block_size)


def _declared_by_checkpoint(
    tokenizer: PreTrainedTokenizerFast, config: dict[str, Any]
) -> Declared | None:
    mask_id = config.get("mask_token_id")
    if not _is_whole(mask_id):
        mask_id = tokenizer.get_vocab().get(MASK_TOKEN)
    if mask_id is None:
        return None
    # other architectures use the plain name for other things, often far larger
    size = config.get("mars_block_size", config.get("block_size"))
    return Declared(mask_id, True, size if _is_block_size(size) else None)


def _recorded(record: dict[str, Any], owner: str, *, trained: bool) -> Declared:
    mask_id, size = record.get("mask_token_id"), record.get("block_size")
    if mask_id is not None and not _is_whole(mask_id):
        raise MarsError(f"mars.json of the {owner}: mask_token_id must be a whole number")
    if size is not None and not _is_block_size(size):
        raise MarsError(f"mars.json of the {owner}: block_size must be from 1 to {MAX_BLOCK_SIZE}")
    return Declared(mask_id, trained, size if trained else None)


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_block_size(value: object) -> TypeGuard[int]:
    return _is_whole(value) and 1 <= value <= MAX_BLOCK_SIZE


def chosen_mask(
    wanted: str | None, tokenizer: PreTrainedTokenizerFast, declared: Declared
) -> int | None:
    """The mask's id: `wanted` (a token or a decimal id), else the declared one."""
    if wanted is None:
        return declared.mask_id
    if wanted.isdecimal() and len(wanted) < 12:
        return int(wanted)
    found = tokenizer.get_vocab().get(wanted)
    if found is None:
        raise MarsError(f"the tokenizer has no token {one_line(wanted, 40)!r} to use as mask")
    return int(found)


def check_mask(mask_id: int | None, rows: int, eos: frozenset[int]) -> None:
    """Raise MarsError unless the mask is None or one of `rows` embeddings and no end token."""
    if mask_id is None:
        return
    if not 0 <= mask_id < rows:
        raise MarsError(f"mask id {mask_id} is outside the model's {rows} token embeddings")
    if mask_id in eos:
        raise MarsError(f"mask id {mask_id} ends a text in this model; choose another token")


def eos_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> frozenset[int]:
    """All ids that end a sequence, as generation config, config and tokenizer name them."""
    named = [
        getattr(model.generation_config, "eos_token_id", None),
        getattr(model.config, "eos_token_id", None),
        tokenizer.eos_token_id,
    ]
    lists: list[Iterable[Any]] = [x if isinstance(x, (list, tuple)) else [x] for x in named]
    return frozenset(int(x) for ids in lists for x in ids if x is not None)


def token_text(tokenizer: PreTrainedTokenizerFast, token_id: int | None) -> str | None:
    """The token of an id; None for no id and for an id of the padded vocabulary."""
    if token_id is None:
        return None
    text = tokenizer.convert_ids_to_tokens(token_id)
    return text if isinstance(text, str) else None
