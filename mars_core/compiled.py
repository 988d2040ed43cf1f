"""The forward as compiled code of fixed shapes, for GPUs: torch replays it as CUDA graphs.

A graph is recorded for shapes and addresses, so nothing may change from one forward to the next:
windows are padded to a few widths, attention sees the whole buffer of the cache (what is behind a
cursor is masked), and where keys and values go is told by tensors. Each width is compiled when it
first occurs, for a minute or so (those of one sequence when the model is loaded); a buffer that
grows and another number of sequences mean compiling again. Another session of the same shapes means
recording again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from mars_core.trunk import Lean, hidden_states

WIDTHS = (1, 8, 16, 32)
CAPACITY = 1024  # buffers hold a multiple of it, so that few sizes are compiled
SHAPES = 64  # widths times batches times buffers that a process compiles
GRAPH_RUNS = 3  # torch compiles in the first, warms up, and records a graph


def rounded(capacity: int) -> int:
    """Entries of a buffer that has to hold so many."""
    return -(-capacity // CAPACITY) * CAPACITY


@dataclass(frozen=True, slots=True)
class Fixed:
    """One layer's buffers, and where the running forward writes: nothing but tensors.

    keys, values: (rows, heads, capacity, d). places: (rows, 1). entries: (rows, width).
    """

    keys: Tensor
    values: Tensor
    places: Tensor
    entries: Tensor

    def update(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """See trunk.Growing."""
        self.keys[self.places, :, self.entries] = keys.transpose(1, 2)
        self.values[self.places, :, self.entries] = values.transpose(1, 2)
        return self.keys, self.values


class Compiled(Lean):
    """`Lean`, compiled where the shapes are those of decoding and all places are taken.

    A session's first forward, which makes the buffers, is never compiled. layers:
    `cache.CursorLayer`s whose cursors are `fixed`.
    """

    _layers: Sequence[Any]

    def width(self, needed: int) -> int:
        """See Trunk."""
        return next((width for width in WIDTHS if width >= needed), needed)

    def __call__(self, ids: Tensor, positions: Tensor, visible: Tensor | None) -> Tensor:
        """See Trunk."""
        cursors = self._layers[0].cursors
        ready = self._layers[0].is_initialized and len(self._layers[0].keys) == len(ids)
        shape = (id(self._decoder), *ids.shape, cursors.capacity)
        if not ready or ids.shape[1] not in WIDTHS or not _may_compile(shape):
            return super().__call__(ids, positions, visible)
        places, entries = cursors.index
        for layer in self._layers:
            layer.grow()
            for buffer in (layer.keys, layer.values):
                torch._dynamo.mark_static_address(buffer, guard=False)
        torch.compiler.cudagraph_mark_step_begin()
        found = _compiled()(
            self._decoder,
            [layer.keys for layer in self._layers],
            [layer.values for layer in self._layers],
            places,
            entries,
            ids,
            positions,
            visible,
        )
        return found.clone()  # the next forward writes over it


_shapes: set[tuple[int, ...]] = set()


def _may_compile(shape: tuple[int, ...]) -> bool:
    """Whether this shape is among the first SHAPES of the process: torch refuses any more."""
    if len(_shapes) < SHAPES:
        _shapes.add(shape)
    return shape in _shapes


def _forward(
    decoder: Any,
    keys: Sequence[Tensor],
    values: Sequence[Tensor],
    places: Tensor,
    entries: Tensor,
    ids: Tensor,
    positions: Tensor,
    visible: Tensor,
) -> Tensor:
    layers = [Fixed(k, v, places, entries) for k, v in zip(keys, values, strict=True)]
    return hidden_states(decoder, layers, ids, positions, visible)


@lru_cache
def _compiled() -> Callable[..., Tensor]:
    torch._dynamo.config.recompile_limit = SHAPES
    return torch.compile(_forward, dynamic=False, fullgraph=True, mode="reduce-overhead")
