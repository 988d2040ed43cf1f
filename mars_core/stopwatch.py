"""The one clock: page, command line and benchmark measure with it. No torch."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import TypeVar

T = TypeVar("T")


class Stopwatch:
    """Measures the time an iterator needs for each item, and nothing its consumer does.

    clock: seconds, monotonic. synchronize: waits until the device has finished its work.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        synchronize: Callable[[], None] = lambda: None,
    ) -> None:
        self._clock = clock
        self._synchronize = synchronize

    def run(self, work: Callable[[], object]) -> float:
        """Milliseconds one call of `work` takes."""
        self._synchronize()
        start = self._clock()
        work()
        self._synchronize()
        return (self._clock() - start) * 1000

    def in_turn(self, variants: Mapping[T, Callable[[], object]]) -> dict[T, float]:
        """Milliseconds of each. In rounds of this a slow moment does not hit one of them alone."""
        return {name: self.run(work) for name, work in variants.items()}

    def laps(self) -> Callable[[], float]:
        """A function that gives the milliseconds since it was last called, at first since now."""
        self._synchronize()
        last = self._clock()

        def lap() -> float:
            nonlocal last
            self._synchronize()
            before, last = last, self._clock()
            return (last - before) * 1000

        return lap

    def timed(self, items: Generator[T, None, None] | Iterator[T]) -> Iterator[tuple[T, float]]:
        """Yield (item, milliseconds it took to produce). Closing this closes `items`."""
        try:
            while True:
                self._synchronize()
                start = self._clock()
                try:
                    item = next(items)
                except StopIteration:
                    return
                self._synchronize()
                yield item, (self._clock() - start) * 1000
        finally:
            if isinstance(items, Generator):
                items.close()
