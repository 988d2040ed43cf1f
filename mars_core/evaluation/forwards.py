"""What a forward costs by its rows, and the least it could: the time to read the weights once.

A forward of few rows reads every weight and computes little with it, so memory sets its floor: the
bytes that it reads over the bandwidth that this machine reads with. What is above the floor is
arithmetic, elementwise passes, attention and Python.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import torch

from mars_core.cache import Fed
from mars_core.engine import CACHED_TOKENS
from mars_core.errors import MarsError
from mars_core.evaluation.measure import Timing, summary
from mars_core.models.hardware import synchronizer
from mars_core.models.load import LoadedModel
from mars_core.models.memory import weight_bytes
from mars_core.stopwatch import Stopwatch

Name = TypeVar("Name")

ROWS = (1, 2, 4, 5, 9, 16)
# more than any cache holds; the best of some rounds, since whatever else runs only takes away
BANDWIDTH_BYTES, BANDWIDTH_ROUNDS = 512 * 2**20, 7


@dataclass(frozen=True, slots=True)
class ForwardCost:
    """Milliseconds of a forward of `rows` on top of CACHED_TOKENS cached tokens."""

    rows: int
    ms: Timing


@dataclass(frozen=True, slots=True)
class Floor:
    """read_bytes: of a forward of one row. bandwidth: bytes per second."""

    read_bytes: int
    bandwidth: float

    @property
    def ms(self) -> float:
        return 1000 * self.read_bytes / self.bandwidth


def floor(loaded: LoadedModel) -> Floor:
    """The least that a forward can take here, if it reads its weights and the cache once."""
    model = loaded.model
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    read = weight_bytes(model) + CACHED_TOKENS * loaded.entry_bytes
    if getattr(head, "weight", None) is not getattr(embedding, "weight", None):
        read -= weight_bytes(embedding)  # of which a forward reads a line per row
    return Floor(read, read_bandwidth(loaded.device))


def read_bandwidth(device: torch.device) -> float:
    """Bytes per second that a sum over a large tensor reads, with all of torch's threads."""
    numbers = torch.ones(BANDWIDTH_BYTES // 4, device=device)
    watch = Stopwatch(synchronize=synchronizer(device))
    best = min(watch.run(numbers.sum) for _ in range(BANDWIDTH_ROUNDS))
    return 1000 * BANDWIDTH_BYTES / best


def forwards_by_rows(loaded: LoadedModel, repeats: int) -> list[ForwardCost]:
    """One for each of ROWS, in turn within every repeat.

    Raises MarsError for a context that is too short.
    """
    if loaded.context_length < CACHED_TOKENS + max(ROWS):
        raise MarsError(
            f"{loaded.name} has a context of {loaded.context_length} tokens, and forwards are "
            f"measured after {CACHED_TOKENS}: leave them out with --sections prompts"
        )
    session = loaded.session()
    session.prefill([[i % 100 for i in range(CACHED_TOKENS)]])

    def forward(rows: int) -> None:
        places = range(CACHED_TOKENS, CACHED_TOKENS + rows)
        session.forward([Fed([i % 100 for i in places], places, head=range(rows))])

    times = interleave(loaded, {rows: partial(forward, rows) for rows in ROWS}, repeats)
    return [ForwardCost(rows, summary(samples)) for rows, samples in times.items()]


def interleave(
    loaded: LoadedModel, variants: Mapping[Name, Callable[[], object]], repeats: int
) -> dict[Name, list[float]]:
    """Run all variants, untimed until they are warm, then in turn `repeats` times; their ms."""
    watch = Stopwatch(synchronize=synchronizer(loaded.device))
    rounds = [watch.in_turn(variants) for _ in range(loaded.first_runs + repeats)]
    return {name: [one[name] for one in rounds[loaded.first_runs :]] for name in variants}
