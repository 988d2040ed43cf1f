"""Work shared out among the processes of `accelerate launch`; one process does it all by itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import distributed

T = TypeVar("T")
R = TypeVar("R")


def join() -> None:
    """Find the other processes and this one's GPU. To be called before a model is loaded."""
    if processes() > 1 and not distributed.is_initialized():
        distributed.init_process_group("gloo")  # results are no tensors
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))


def processes() -> int:
    """How many there are."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    """Whether this process is the one that tells the result."""
    return os.environ.get("RANK", "0") == "0"


def shared_out(
    items: Sequence[T],
    work: Callable[[T], R],
    report: Callable[[int], None],
    over: Callable[[], bool] = lambda: False,
) -> list[tuple[T, R]]:
    """What `work` makes of the items, in their order, the same in every process.

    report: called with how many this process has done. over: whether it takes no more; it does one
    at least, if there is one for it.
    """
    rank = int(os.environ.get("RANK", "0"))
    mine: list[tuple[int, R]] = []
    for i in range(rank, len(items), processes()):
        mine.append((i, work(items[i])))
        report(len(mine))
        if over():
            break
    parts = [mine]
    if processes() > 1:
        parts = [[] for _ in range(processes())]
        distributed.all_gather_object(parts, mine)
    found = sorted((pair for part in parts for pair in part), key=lambda pair: pair[0])
    return [(items[i], made) for i, made in found]
