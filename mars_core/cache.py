"""What is cached, and the one seam through which the model is called.

Invariant: the cache covers committed tokens only. `Session.forward` writes behind each row's
cursor and `Session.commit` alone moves a cursor, so rows that were fed but not committed (mask
slots, rejected drafts, a forward whose consumer went away) are simply overwritten by the next
forward. A loop that commits before it yields may be closed at any event.

Every sequence has a place in one buffer per layer, and a cursor of its own; a batch of one is the
same code. The places taken are always the first ones: who leaves gives its place to the last, so a
forward works on views and copies nothing. A buffer that is too short grows by doubling; whoever
knows how long it must be says so, and it is allocated once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.cache_utils import CacheLayerMixin

from mars_core.compiled import Compiled
from mars_core.trunk import Lean, Trunk, Whole, can_be_lean

FIRST_CAPACITY = 256
PREFILL_CHUNK = 512


@dataclass(frozen=True, slots=True)
class Fed:
    """What a forward is fed for one sequence.

    ids, positions: (n) token ids and their position ids. visibility: (n, n) bool, which of them
    (first index) may see which; None is causal. All cached tokens are always visible. head: which
    of the n get logits.
    """

    ids: Sequence[int]
    positions: Sequence[int]
    visibility: torch.Tensor | None = None
    head: Sequence[int] = ()


@dataclass(slots=True)
class Cursors:
    """Where the running forward writes: shared by all layers of a cache.

    lengths: committed entries of each place. rows: places there are. capacity: entries of each.
    first: the forward is for this place and all behind it. width: entries it adds to each.
    index: place and entry of each of them, (n, 1) and (n, width); None where they are in line.
    fixed: forwards see whole buffers and always have an index, for code of fixed shapes.
    """

    lengths: list[int]
    rows: int
    capacity: int
    first: int = 0
    width: int = 0
    index: tuple[torch.Tensor, torch.Tensor] | None = None
    fixed: bool = False

    @property
    def starts(self) -> list[int]:
        """The cursors of the running forward's rows."""
        return self.lengths[self.first :]

    @property
    def total(self) -> int:
        """Entries the running forward sees: up to the longest row's end at least."""
        return self.capacity if self.fixed else self.needed

    @property
    def needed(self) -> int:
        """Where the longest row ends."""
        return max(self.starts) + self.width

    def aim(self, first: int, width: int, device: torch.device) -> None:
        """Let the next forward be for `first` and all behind it, `width` entries each."""
        self.first, self.width, self.index = first, width, None
        while self.capacity < self.needed:
            self.capacity *= 2
        if self.fixed or min(self.starts) < max(self.starts):
            places = torch.arange(first, len(self.lengths), device=device)
            starts = torch.tensor(self.starts, device=device)
            entries = starts[:, None] + torch.arange(width, device=device)
            self.index = places[:, None], entries


class CursorLayer(CacheLayerMixin):
    """One layer's keys and values, (places, kv heads, capacity, head size), written at the cursors.

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
            x.new_zeros(self.cursors.rows, x.shape[1], self.cursors.capacity, x.shape[3])
            for x in (key_states, value_states)
        )
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write (rows, kv heads, width, head size) at the cursors; return all that may be seen."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self.grow()
        cursors, total = self.cursors, self.cursors.total
        rows = slice(cursors.first, len(cursors.lengths))
        for buffer, new in ((self.keys, key_states), (self.values, value_states)):
            if cursors.index is None:
                buffer[rows, :, total - cursors.width : total] = new
            else:
                places, entries = cursors.index
                buffer[places, :, entries] = new.transpose(1, 2)
        return self.keys[rows, :, :total], self.values[rows, :, :total]

    def grow(self) -> None:
        """Have buffers as long as the cursors say."""
        capacity = self.cursors.capacity
        if self.keys.shape[2] < capacity:
            self.keys, self.values = (_grown(x, capacity) for x in (self.keys, self.values))

    def move(self, place: int, sources: Sequence[int], target: int) -> None:
        """Copy the entries at `sources` of a place to `target` and behind it."""
        picked = torch.tensor(sources, dtype=torch.long, device=self.device)
        for buffer in (self.keys, self.values):
            buffer[place, :, target : target + len(sources)] = buffer[place, :, picked]

    def copy(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` entries of a place to another."""
        if self.is_initialized:
            for buffer in (self.keys, self.values):
                buffer[target, :, :length] = buffer[source, :, :length]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.cursors.total, 0

    def get_seq_length(self) -> int:
        return max(self.cursors.starts)

    def get_max_length(self) -> int:
        return -1


def _grown(buffer: torch.Tensor, capacity: int) -> torch.Tensor:
    """A copy of the buffer with more room."""
    grown = buffer.new_zeros(*buffer.shape[:2], capacity, buffer.shape[3])
    grown[:, :, : buffer.shape[2]] = buffer
    return grown


class Session:
    """A model, a KV cache with places for `rows` sequences, and the token ids that are in it.

    tokens: for each place that is taken, the committed ids whose keys and values are cached.
    max_length: positions the model has. capacity: entries of each place to begin with.
    compiled: forwards are compiled, see `mars_core.compiled`; for models that `can_be_lean`.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        max_length: int,
        rows: int = 1,
        capacity: int = FIRST_CAPACITY,
        *,
        compiled: bool = False,
    ) -> None:
        self.model = model
        self.max_length = max_length
        self.rows = rows
        self.tokens: list[list[int]] = []
        self._head = model.get_output_embeddings()
        self._cursors = Cursors([], rows, capacity, fixed=compiled)
        self._layers = [CursorLayer(self._cursors) for _ in range(model.config.num_hidden_layers)]
        self._trunk = trunk_of(model, self._layers, compiled)
        self._fed: Sequence[Fed] = ()

    @property
    def capacity(self) -> int:
        """Entries of each place, now."""
        return self._cursors.capacity

    @property
    def bytes(self) -> int:
        """What all places take, taken or not."""
        return self.rows * self.capacity * entry_bytes(self.model)

    @torch.inference_mode()
    def forward(self, fed: Sequence[Fed], first: int = 0) -> list[torch.Tensor]:
        """One call of the model on top of the cache, for all places from `first` on.

        Returns for each of them logits (len(head), vocabulary). Nothing is committed. Rows may be
        fed differently much: the shorter ones are padded, and what is behind their end means
        nothing.
        """
        self._take_places(first + len(fed))
        device = self.model.device
        self._fed = fed
        width = self._trunk.width(max(len(one.ids) for one in fed))
        self._cursors.aim(first, width, device)
        hidden = self._trunk(
            torch.tensor([padded(one.ids, width) for one in fed], device=device),
            torch.tensor([padded(one.positions, width) for one in fed], device=device),
            self._visible(),
        )
        # the head on the rows that are read alone: it is a fifth of a small model
        wanted = [(row, i) for row, one in enumerate(fed) for i in one.head]
        rows, picked = torch.tensor(wanted, dtype=torch.long, device=device).view(-1, 2).T
        return list(self._head(hidden[rows, picked]).split([len(one.head) for one in fed]))

    @torch.inference_mode()
    def commit(self, kept: Sequence[Sequence[int]]) -> None:
        """Keep, of each row of the last forward, what was fed at `kept`; drop the rest."""
        for place, (picked, fed) in enumerate(
            zip(kept, self._fed, strict=True), self._cursors.first
        ):
            start = self._cursors.lengths[place]
            if list(picked) != list(range(len(picked))):
                for layer in self._layers:
                    layer.move(place, [start + i for i in picked], start)
            self.tokens[place] += [fed.ids[i] for i in picked]
            self._cursors.lengths[place] += len(picked)
        self._fed = ()

    def rewind(self, place: int, length: int) -> None:
        """Forget everything at `place` behind its first `length` tokens."""
        del self.tokens[place][length:]
        self._cursors.lengths[place] = len(self.tokens[place])

    @torch.inference_mode()
    def leave(self, place: int) -> None:
        """Free a place; the last one moves to it."""
        last = len(self.tokens) - 1
        if place != last:
            for layer in self._layers:
                layer.copy(last, place, self._cursors.lengths[last])
        self.tokens[place] = self.tokens[last]
        self._cursors.lengths[place] = self._cursors.lengths[last]
        self.tokens.pop()
        self._cursors.lengths.pop()

    def forget(self) -> None:
        """Free all places."""
        self.tokens.clear()
        self._cursors.lengths.clear()

    def prefill(self, prompts: Sequence[Sequence[int]], first: int = 0) -> list[int]:
        """Make the places from `first` on hold exactly `prompts`, as many as there are.

        Returns how many tokens of each they had already.
        """
        while len(self.tokens) > first + len(prompts):
            self.leave(len(self.tokens) - 1)
        self._take_places(first + len(prompts))
        reused = []
        for place, prompt in enumerate(prompts, first):
            reused.append(common_prefix(prompt, self.tokens[place]))
            self.rewind(place, reused[-1])
        while any(todo := self._remaining(prompts, first)):
            starts = self._cursors.lengths[first:]
            self.forward(
                [
                    Fed(ids, range(start, start + len(ids)))
                    for ids, start in zip(todo, starts, strict=True)
                ],
                first,
            )
            self.commit([range(len(ids)) for ids in todo])
        return reused

    def assume(self, prompts: Sequence[Sequence[int]]) -> None:
        """Count prompts as cached that were never computed: for forwards that are only timed."""
        self._take_places(len(prompts))
        for place, prompt in enumerate(prompts):
            self.tokens[place] = list(prompt)
            self._cursors.lengths[place] = len(prompt)

    def _take_places(self, count: int) -> None:
        """Have so many places taken, at least."""
        while len(self.tokens) < count:
            self.tokens.append([])
            self._cursors.lengths.append(0)

    def _remaining(self, prompts: Sequence[Sequence[int]], first: int) -> list[list[int]]:
        """The next chunk of each prompt that is not cached yet."""
        return [
            list(prompt[len(cached) : len(cached) + PREFILL_CHUNK])
            for prompt, cached in zip(prompts, self.tokens[first:], strict=True)
        ]

    def _visible(self) -> torch.Tensor | None:
        """(rows, 1, width, total) bool: what each fed token may see; None: everything."""
        device = self.model.device
        width, total, starts = self._cursors.width, self._cursors.total, self._cursors.starts
        if width == 1 and self._cursors.index is None:
            return None
        ends = torch.tensor(starts, device=device)[:, None] + torch.arange(width, device=device)
        mask = torch.arange(total, device=device) <= ends[:, None, :, None]
        for row, (fed, start) in enumerate(zip(self._fed, starts, strict=True)):
            if fed.visibility is not None:
                window = slice(start, start + len(fed.ids))
                mask[row, 0, : len(fed.ids), window] = fed.visibility.to(device)
        return mask


def trunk_of(model: PreTrainedModel, layers: Sequence[CursorLayer], compiled: bool) -> Trunk:
    """The fastest trunk that does what the model does, on top of these layers."""
    if not can_be_lean(model):
        return Whole(model, layers)
    return Compiled(model, layers) if compiled else Lean(model, layers)


def entry_numbers(config: PreTrainedConfig) -> int:
    """How many numbers the keys and values of one token are, over all layers."""
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return 2 * int(config.num_hidden_layers * heads * size)


def entry_bytes(model: PreTrainedModel) -> int:
    """Bytes that the keys and values of one token take, over all layers."""
    return entry_numbers(model.config) * model.dtype.itemsize


def padded(values: Sequence[int], width: int) -> list[int]:
    """The values, then zeros: ids and positions that every model has."""
    return [*values, *repeat(0, width - len(values))]


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the longest common prefix."""
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return i
    return min(len(a), len(b))
