"""The runs of every visitor, so that a slider or a Stop button reaches the right one. No torch."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from mars_core.config import DecodeConfig, Mode
from mars_core.control import LiveControl
from mars_core.race.settings import BatchRaceConfig, RaceConfig
from mars_core.trace import Message


@dataclass(frozen=True, slots=True)
class Run:
    """What was asked for, as it stood when it was asked, and the control that steers it.

    conversations: one, but for a race of batches. race: the race that was asked for, if it was one.
    """

    conversations: Sequence[Sequence[Message]]
    config: DecodeConfig
    control: LiveControl
    race: RaceConfig | BatchRaceConfig | None = None

    @classmethod
    def of(
        cls,
        conversations: Sequence[Sequence[Message]],
        config: DecodeConfig | RaceConfig | BatchRaceConfig,
    ) -> Run:
        if isinstance(config, DecodeConfig):
            return cls(conversations, config, LiveControl(config))
        return cls(conversations, config.decode, LiveControl(config.decode), config)


@dataclass(slots=True)
class _Visitor:
    """latest: the newest run. waiting: those that have not begun, oldest first."""

    latest: Run
    waiting: deque[Run] = field(default_factory=deque)


class LiveRuns:
    """Runs by visitor, from the moment one is asked for until it ends.

    A run may have to wait for the model; what its visitor does meanwhile (move tau, stop, ask
    again) counts as well, which is why it is known before it begins. Any thread may call any
    method.
    """

    def __init__(self) -> None:
        self._visitors: dict[str, _Visitor] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._visitors)

    def ask(self, visitor: str, run: Run) -> None:
        """Register a new run of `visitor` and stop the earlier ones."""
        with self._lock:
            if known := self._visitors.get(visitor):
                known.latest.control.stop()
                known.latest = run
            else:
                known = self._visitors[visitor] = _Visitor(run)
            known.waiting.append(run)

    def begin(self, visitor: str) -> Run | None:
        """The visitor's oldest run that has not begun; None if there is none."""
        with self._lock:
            known = self._visitors.get(visitor)
            return known.waiting.popleft() if known and known.waiting else None

    def end(self, visitor: str, run: Run) -> None:
        """Forget a run that ended; one that was asked for since stays."""
        with self._lock:
            known = self._visitors.get(visitor)
            if known and known.latest is run:
                del self._visitors[visitor]

    def set(self, visitor: str, mode: Mode, tau: float) -> None:
        """Steer the visitor's newest run, if one is going on or waiting."""
        if run := self._latest(visitor):
            run.control.set(mode=mode, tau=tau)

    def stop(self, visitor: str) -> None:
        """Stop the visitor's run before its next forward."""
        if run := self._latest(visitor):
            run.control.stop()

    def leave(self, visitor: str) -> None:
        """The visitor closed the page: stop everything of theirs."""
        with self._lock:
            known = self._visitors.pop(visitor, None)
        if known:
            for run in (known.latest, *known.waiting):
                run.control.stop()

    def _latest(self, visitor: str) -> Run | None:
        with self._lock:
            known = self._visitors.get(visitor)
            return known.latest if known else None
