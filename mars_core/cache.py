"""What is cached, and the one seam through which the model is called.

Invariant: the cache covers committed tokens only. `Session.forward` writes behind each row's
cursor and `Session.commit` alone moves a cursor, so rows that were fed but not committed (mask
slots, rejected drafts, a forward whose consumer went away) are simply overwritten by the next
forward. A loop that commits before it yields may be closed at any event.

Every row of a batch has its own cursor into one buffer per layer; a batch of one is the same
code. The buffer grows by doubling: no concatenation per step.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin

FIRST_CAPACITY = 256
PREFILL_CHUNK = 512


@dataclass(slots=True)
class Cursors:
    """Where the next forward writes: shared by all layers of a cache.

    lengths: committed entries of each row. width: entries the running forward adds to each.
    """

    lengths: list[int]
    width: int = 0

    @property
    def total(self) -> int:
        """Entries the running forward must be able to see: up to the longest row's end."""
        return max(self.lengths) + self.width

    @property
    def aligned(self) -> bool:
        return min(self.lengths) == max(self.lengths)


class CursorLayer(CacheLayerMixin):
    """One layer's keys and values, (rows, kv heads, capacity, head size), written at the cursors.

    Entries behind a cursor are stale or zero, never uninitialised: a masked NaN would still
    poison the weighted sum.
    """

    is_sliding = False
    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, cursors: Cursors) -> None:
        super().__init__()
        self.cursors = cursors

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.device = key_states.device
        self.keys, self.values = (
            x.new_zeros(*x.shape[:2], FIRST_CAPACITY, x.shape[3])
            for x in (key_states, value_states)
        )
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write (rows, kv heads, width, head size) at the cursors; return all that may be seen."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        total = self.cursors.total
        if total > self.keys.shape[2]:
            self.keys, self.values = (_grown(x, total) for x in (self.keys, self.values))
        for buffer, new in ((self.keys, key_states), (self.values, value_states)):
            if self.cursors.aligned:
                buffer[:, :, total - new.shape[2] : total] = new
            else:
                for row, start in enumerate(self.cursors.lengths):
                    buffer[row, :, start : start + new.shape[2]] = new[row]
        return self.keys[:, :, :total], self.values[:, :, :total]

    def move(self, row: int, sources: Sequence[int], target: int) -> None:
        """Copy the entries at `sources` of `row` to `target` and the places after it."""
        picked = torch.tensor(sources, dtype=torch.long, device=self.device)
        for buffer in (self.keys, self.values):
            buffer[row, :, target : target + len(sources)] = buffer[row, :, picked]

    def select(self, rows: Sequence[int]) -> None:
        """Keep only `rows` of the batch, in that order."""
        if self.is_initialized:
            picked = torch.tensor(rows, dtype=torch.long, device=self.device)
            self.keys, self.values = self.keys[picked], self.values[picked]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.cursors.total, 0

    def get_seq_length(self) -> int:
        return max(self.cursors.lengths)

    def get_max_length(self) -> int:
        return -1


def _grown(buffer: torch.Tensor, needed: int) -> torch.Tensor:
    """A copy of the buffer whose capacity is doubled until it holds `needed` entries."""
    capacity = buffer.shape[2]
    while capacity < needed:
        capacity *= 2
    grown = buffer.new_zeros(*buffer.shape[:2], capacity, buffer.shape[3])
    grown[:, :, : buffer.shape[2]] = buffer
    return grown


class Session:
    """A model, a KV cache for `rows` sequences, and the token ids that are in it.

    tokens: per row, the committed ids whose keys and values are cached.
    max_length: positions the model has.
    """

    def __init__(self, model: PreTrainedModel, max_length: int, rows: int = 1) -> None:
        self.model = model
        self.max_length = max_length
        self.tokens: list[list[int]] = [[] for _ in range(rows)]
        self._cursors = Cursors([0] * rows)
        self._layers = [CursorLayer(self._cursors) for _ in range(model.config.num_hidden_layers)]
        self._cache = Cache(layers=list(self._layers))
        self._fed: Sequence[Sequence[int]] = ()
        self._cache_argument = cache_argument(model)

    @torch.inference_mode()
    def forward(
        self,
        ids: Sequence[Sequence[int]],
        positions: Sequence[Sequence[int]],
        visibility: torch.Tensor | None,
        head_rows: Sequence[int],
    ) -> torch.Tensor:
        """One call of the model on top of the cache.

        ids, positions: (rows, n) token ids and their position ids.
        visibility: (n, n) bool, which fed row (first index) may see which; None is causal.
            All cached tokens are always visible.
        head_rows: which of the n fed rows get logits.
        Returns logits (rows, len(head_rows), vocabulary). Nothing is committed.
        """
        device = self.model.device
        self._fed = ids
        self._cursors.width = len(ids[0])
        every = len(head_rows) == len(ids[0])
        output = self.model(
            input_ids=torch.tensor(ids, device=device),
            position_ids=torch.tensor(positions, device=device),
            attention_mask=self._attention_mask(visibility),
            logits_to_keep=0 if every else torch.tensor(head_rows, dtype=torch.long, device=device),
            use_cache=True,
            **{self._cache_argument: self._cache},
        )
        return output.logits

    @torch.inference_mode()
    def commit(self, kept: Sequence[Sequence[int]]) -> None:
        """Keep, per batch row, the fed rows `kept` of the last forward; drop the others."""
        for row, (picked, fed) in enumerate(zip(kept, self._fed, strict=True)):
            start = self._cursors.lengths[row]
            if list(picked) != list(range(len(picked))):
                for layer in self._layers:
                    layer.move(row, [start + i for i in picked], start)
            self.tokens[row] += [fed[i] for i in picked]
            self._cursors.lengths[row] += len(picked)
        self._fed = ()

    def rewind(self, row: int, length: int) -> None:
        """Forget everything of `row` behind its first `length` tokens."""
        del self.tokens[row][length:]
        self._cursors.lengths[row] = len(self.tokens[row])

    def select(self, rows: Sequence[int]) -> None:
        """Keep only these rows of the batch, in that order."""
        for layer in self._layers:
            layer.select(rows)
        self._cursors.lengths = [self._cursors.lengths[row] for row in rows]
        self.tokens = [self.tokens[row] for row in rows]

    def prefill(self, prompts: Sequence[Sequence[int]]) -> list[int]:
        """Make the cache hold exactly `prompts`; return how many tokens of each it had already."""
        reused = []
        for row, (prompt, cached) in enumerate(zip(prompts, self.tokens, strict=True)):
            reused.append(common_prefix(prompt, cached))
            self.rewind(row, reused[-1])
        while any(todo := self._remaining(prompts)):
            width = max(map(len, todo))
            starts = self._cursors.lengths
            self.forward(
                [ids + [0] * (width - len(ids)) for ids in todo],
                [range(start, start + width) for start in starts],
                visibility=None,
                head_rows=(),
            )
            self.commit([range(len(ids)) for ids in todo])
        return reused

    def _remaining(self, prompts: Sequence[Sequence[int]]) -> list[list[int]]:
        """The next chunk of each prompt that is not cached yet."""
        return [
            list(prompt[len(cached) : len(cached) + PREFILL_CHUNK])
            for prompt, cached in zip(prompts, self.tokens, strict=True)
        ]

    def _attention_mask(self, visibility: torch.Tensor | None) -> torch.Tensor | None:
        """(rows, 1, n, total) for transformers: bool for SDPA, additive for other attention.

        None where everything is visible and attention without a mask is the cheaper one. For
        several rows on a CPU it is not: with a mask, transformers (5.24) lets query heads that
        share keys go together; without, it repeats the keys for each (48 rows after 200 tokens:
        393 ms, not 170).
        """
        device = self.model.device
        cheaper = device.type != "cpu" or len(self.tokens) == 1
        if self._cursors.width == 1 and self._cursors.aligned and cheaper:
            return None
        width, total = self._cursors.width, self._cursors.total
        if visibility is None:
            visibility = torch.ones(width, width, dtype=torch.bool, device=device).tril()
        mask = torch.zeros(len(self.tokens), 1, width, total, dtype=torch.bool, device=device)
        for row, start in enumerate(self._cursors.lengths):
            mask[row, :, :, :start] = True
            mask[row, :, :, start : start + width] = visibility
        if self.model.config._attn_implementation == "sdpa":
            return mask
        lowest = torch.finfo(self.model.dtype).min
        return torch.zeros_like(mask, dtype=self.model.dtype).masked_fill_(~mask, lowest)


def cache_argument(model: PreTrainedModel) -> str:
    """What the model's forward calls its cache: transformers 5.24 renamed the argument."""
    parameters = inspect.signature(type(model).forward).parameters
    return "cache" if "cache" in parameters else "past_key_values"


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the longest common prefix."""
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return i
    return min(len(a), len(b))
