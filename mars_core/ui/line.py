"""Who is next: runs take the model one at a time, and nobody keeps it from the others. No torch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

Ahead = Callable[[int | None, float], int]
# how often who waits looks whether they were stopped meanwhile
LOOK_SECONDS = 0.25


@dataclass(eq=False, slots=True)
class _Place:
    """who: whose run it is. turn: how many of theirs were in the line before it."""

    who: str
    turn: int


class Line:
    """The runs that want the model; the first of them has it.

    First come, first served, by turns: the second run of one visitor waits behind the first runs of
    all others, so that whoever asks for many things at once delays only themselves. Unlike a lock
    it can tell a place, so that whoever waits can be shown theirs. Any thread may join.
    """

    def __init__(self) -> None:
        self._waiting: list[_Place] = []
        self._moved = threading.Condition()

    def __len__(self) -> int:
        return len(self._waiting)

    @contextmanager
    def join(self, who: str = "") -> Iterator[Ahead]:
        """Stand in the line until the block is left.

        Yields `ahead(known, timeout)`: how many are before, 0 when it is this one's turn. The
        answer comes at once if it is not `known`, else when it changes, or after `timeout` seconds.
        """
        place = self._stand(who)

        def ahead(known: int | None, timeout: float) -> int:
            with self._moved:
                self._moved.wait_for(lambda: self._waiting.index(place) != known, timeout)
                return self._waiting.index(place)

        try:
            yield ahead
        finally:
            with self._moved:
                self._waiting.remove(place)
                self._moved.notify_all()

    def _stand(self, who: str) -> _Place:
        with self._moved:
            place = _Place(who, sum(other.who == who for other in self._waiting))
            # the first of the line has the model already, whoever comes
            later = (i for i, other in enumerate(self._waiting) if i and other.turn > place.turn)
            self._waiting.insert(next(later, len(self._waiting)), place)
            self._moved.notify_all()
            return place
