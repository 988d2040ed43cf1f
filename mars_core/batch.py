"""A cache for many sequences at once: how large it must be, and whether there is room for it."""

from __future__ import annotations

from collections.abc import Sequence

from mars_core.cache import Session
from mars_core.config import Caching, DecodeConfig
from mars_core.decode import CURSOR
from mars_core.errors import MarsError
from mars_core.models.load import LoadedModel
from mars_core.models.memory import free_bytes
from mars_core.row import Request

# of the free memory, what a cache may take: a forward needs some too
SHARE_OF_FREE = 0.8


def batch_session(
    loaded: LoadedModel,
    requests: Sequence[Request],
    rows: int,
    caching: Caching = CURSOR,
    kept: Session | None = None,
) -> Session:
    """A session with places for `rows` of the requests, allocated once for the longest.

    kept: an earlier one, returned as it is if it has just these places. Raises MarsError, saying
    what would fit, where there is not enough memory.
    """
    rows = max(1, min(rows, len(requests)))
    tokens = max(
        (entries_of(one, caching, loaded.context_length) for one in requests),
        default=1,
    )
    tokens = loaded.capacity(tokens)
    if kept is not None and (kept.rows, kept.capacity) == (rows, tokens):
        return kept
    check_room(rows, tokens, loaded.entry_bytes, free_bytes(loaded.device))
    return loaded.session(rows, tokens)


def entries_of(request: Request, caching: Caching, context: int) -> int:
    """Entries that a place needs for a request: its text, and what a forward writes behind it."""
    text = min(len(request.prompt) + request.config.max_new_tokens, context)
    block = caching.cache_block if caching.strategy == "block" else 0
    return text + block + widest(request.config)


def widest(config: DecodeConfig) -> int:
    """Rows of the largest forward: what the last one accepted, and drafts or masks."""
    drafts = config.drafts
    return max(2 * config.slots, 1 + drafts + (drafts + 1) * drafts)


def check_room(rows: int, tokens: int, entry: int, free: int) -> None:
    """Raise MarsError unless a cache of `rows` x `tokens` entries of `entry` bytes fits."""
    usable = int(SHARE_OF_FREE * free)
    needed = rows * tokens * entry
    if needed <= usable:
        return
    fit = usable // (tokens * entry)
    instead = (
        f"{fit} rows of {tokens} tokens would fit"
        if fit
        else f"one row of {usable // entry} tokens would fit"
    )
    raise MarsError(
        f"a cache for {rows} rows of {tokens} tokens takes {needed / 1e9:.1f} GB, and "
        f"{usable / 1e9:.1f} GB are free: {instead}"
    )
