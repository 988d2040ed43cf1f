"""How much of a run is spent, in steps and minutes, and the learning rate that follows. No torch.

A run may be given steps, minutes or both. Its progress is the larger of the two shares that are
spent. The seconds spent are read once a step, agreed on by all processes, and saved with every
checkpoint, so that a run that is resumed goes on where it was.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

# a run of minutes has no number of steps; more than any could make
UNBOUNDED_STEPS = 10**7
# the first steps would be lost if the warm-up began at nothing
FIRST_LR = 0.1


class Budget:
    """What is spent of `steps` and `minutes`, either of which may be None.

    clock: seconds, monotonic. agree: makes the first process's number that of all.
    """

    def __init__(
        self,
        steps: int | None,
        minutes: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        agree: Callable[[float], float] = lambda seconds: seconds,
    ) -> None:
        self._steps, self._minutes = steps, minutes
        self._clock, self._agree = clock, agree
        self._start = clock()
        self.seconds = 0.0

    @property
    def max_steps(self) -> int:
        return self._steps or UNBOUNDED_STEPS

    def start(self, spent: float = 0.0) -> None:
        """Begin to count, with `spent` seconds already gone."""
        self._start = self._clock() - spent
        self.seconds = spent

    def read(self) -> float:
        """Seconds spent by now; what `seconds` says until it is read again."""
        self.seconds = self._agree(self._clock() - self._start)
        return self.seconds

    def progress(self, step: int) -> float:
        """The share of the run that is spent after `step` steps, in [0, 1]."""
        by_steps = step / self._steps if self._steps else 0.0
        by_time = self.seconds / (60 * self._minutes) if self._minutes else 0.0
        return min(1.0, max(by_steps, by_time))


def lr_share(progress: float, warmup: float, floor: float) -> float:
    """The learning rate at `progress`, as a share of its peak: a rise, then a cosine to `floor`."""
    if progress < warmup:
        return FIRST_LR + (1 - FIRST_LR) * progress / warmup
    rest = (progress - warmup) / (1 - warmup) if warmup < 1 else 1.0
    return floor + (1 - floor) * (1 + math.cos(math.pi * rest)) / 2
