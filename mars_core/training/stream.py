"""Which examples a step sees, cut into which blocks: a function of seed and place alone.

Nothing here has a state, so a run that is resumed, or shared by several processes, sees what an
unbroken one sees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from torch.utils.data import Dataset

from mars_core.training.objective import Blocks, Example

# so many batches are made from examples sorted by length together
BUCKET_BATCHES = 32


@dataclass(frozen=True, slots=True)
class Cutting:
    """How noisy copies are cut. Terms as in `TrainConfig`."""

    block_sizes: tuple[int, ...]
    random_phase: bool
    copies: int

    def draw(self, seed: int, place: int) -> list[Blocks]:
        """The blocks of each copy of the example at `place`: one size, phases that differ."""
        random = np.random.default_rng([seed, 1, place])
        size = int(random.choice(self.block_sizes))
        phases = random.permutation(size) if self.random_phase else range(size)
        return [Blocks(size, int(phases[copy % len(phases)])) for copy in range(self.copies)]


class Mix:
    """An endless sequence of examples drawn from pools.

    Every pool is gone through in a new order each time. The sequence comes in chunks of
    BUCKET_BATCHES batches, each with every pool's part, whose batches hold examples of similar
    length. weights: the pools' parts; None makes one pool of all.
    """

    def __init__(
        self,
        pools: Sequence[Sequence[Example]],
        weights: Sequence[float] | None,
        batch_size: int,
        seed: int,
    ) -> None:
        self._pools = list(pools) if weights else [[x for pool in pools for x in pool]]
        self._batch_size, self._seed = batch_size, seed
        self._quotas = quotas(weights or [1.0], batch_size * BUCKET_BATCHES)
        self._chunk = lru_cache(maxsize=2)(self._make_chunk)
        self._order = lru_cache(maxsize=2 * len(self._pools))(self._make_order)

    def __getitem__(self, place: int) -> Example:
        chunk, within = divmod(place, self._batch_size * BUCKET_BATCHES)
        return self._chunk(chunk)[within]

    def _make_chunk(self, chunk: int) -> list[Example]:
        picked = [
            self._nth(pool, chunk * quota + i)
            for pool, quota in enumerate(self._quotas)
            for i in range(quota)
        ]
        random = np.random.default_rng([self._seed, 2, chunk])
        # shuffled first, so that examples of one length are not sorted by pool
        shuffled = [picked[i] for i in random.permutation(len(picked))]
        ordered = sorted(shuffled, key=lambda example: len(example.ids))
        batches = np.arange(len(ordered)).reshape(BUCKET_BATCHES, self._batch_size)
        return [ordered[i] for i in random.permutation(batches).flatten()]

    def _nth(self, pool: int, count: int) -> Example:
        """The example that a pool gives as its `count`-th."""
        size = len(self._pools[pool])
        return self._pools[pool][self._order(pool, count // size)[count % size]]

    def _make_order(self, pool: int, turn: int) -> list[int]:
        random = np.random.default_rng([self._seed, 3, pool, turn])
        return [int(i) for i in random.permutation(len(self._pools[pool]))]


def quotas(weights: Sequence[float], total: int) -> list[int]:
    """`total` shared out in proportion to the weights, at least 1 each."""
    shares = [max(1.0, total * weight / sum(weights)) for weight in weights]
    counts = [int(share) for share in shares]
    by_remainder = sorted(range(len(shares)), key=lambda i: counts[i] - shares[i])
    for i in by_remainder[: max(0, total - sum(counts))]:
        counts[i] += 1
    counts[counts.index(max(counts))] -= sum(counts) - total
    return counts


class Stream(Dataset[tuple[Example, list[Blocks]]]):
    """What the trainer's loader reads: item i is the i-th sequence of the run, with its blocks."""

    def __init__(self, mix: Mix, cutting: Cutting, length: int, seed: int) -> None:
        self._mix, self._cutting = mix, cutting
        self._length, self._seed = length, seed

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, place: int) -> tuple[Example, list[Blocks]]:
        example = self._mix[place]
        return example, [] if example.unwanted else self._cutting.draw(self._seed, place)
