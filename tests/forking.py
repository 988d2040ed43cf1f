"""What stands in for ZeroGPU: a decorator whose generators really run in a forked worker.

As there: arguments and results are pickled, an exception arrives without its words, and closing
waits until the worker has come to its end, which nothing tells it to.
"""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Callable, Generator
from typing import Any

import torch

CONTEXT = multiprocessing.get_context("fork")
JOIN_SECONDS = 60


class Lender:
    """The decorator; asked: the seconds that each call asked for."""

    def __init__(self) -> None:
        self.asked: list[float] = []

    def __call__(self, *, duration: Callable[..., float]) -> Callable[..., Any]:
        def decorate(task: Callable[..., Generator[Any, None, None]]) -> Any:
            def call(*args: Any) -> Generator[Any, None, None]:
                self.asked.append(duration(*args))
                yield from self._in_worker(task, pickle.dumps(args))

            return call

        return decorate

    def _in_worker(self, task: Any, args: bytes) -> Generator[Any, None, None]:
        results = CONTEXT.SimpleQueue()
        worker = CONTEXT.Process(target=work, args=(task, args, results), daemon=True)
        worker.start()
        over = False
        try:
            while not over:
                kind, value = results.get()
                over = kind != "value"
                if kind == "error":
                    raise RuntimeError(value)
                if kind == "value":
                    yield value
        finally:
            while not over:
                over = results.get()[0] != "value"
            worker.join(JOIN_SECONDS)
            assert worker.exitcode == 0


def work(task: Any, args: bytes, results: Any) -> None:
    """In the worker."""
    torch.set_num_threads(1)  # OpenMP's threads do not survive a fork
    try:
        for value in task(*pickle.loads(args)):
            results.put(("value", value))
    except Exception as error:
        results.put(("error", type(error).__name__))
    else:
        results.put(("end", None))
