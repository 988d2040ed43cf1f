"""Who is next: runs take the model one at a time, first come, first served. No torch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Ahead = Callable[[int | None, float], int]


class Line:
    """The runs that want the model, in the order they came; the first of them has it.

    Unlike a lock it can tell a place, so that whoever waits can be shown theirs. Any thread may
    join.
    """

    def __init__(self) -> None:
        self._waiting: list[object] = []
        self._moved = threading.Condition()

    def __len__(self) -> int:
        return len(self._waiting)

    @contextmanager
    def join(self) -> Iterator[Ahead]:
        """Stand at the end of the line until the block is left.

        Yields `ahead(known, timeout)`: how many are before, 0 when it is this one's turn. The
        answer comes at once if it is not `known`, else when it changes, or after `timeout` seconds.
        """
        place = object()

        def ahead(known: int | None, timeout: float) -> int:
            with self._moved:
                self._moved.wait_for(lambda: self._waiting.index(place) != known, timeout)
                return self._waiting.index(place)

        with self._moved:
            self._waiting.append(place)
        try:
            yield ahead
        finally:
            with self._moved:
                self._waiting.remove(place)
                self._moved.notify_all()
