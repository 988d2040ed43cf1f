"""The runs of every visitor, so that a slider or a Stop button reaches the right one. No torch."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field

from mars_core.config import DecodeConfig, Mode
from mars_core.control import LiveControl


@dataclass(slots=True)
class _Visitor:
    """waiting: controls of runs asked for, oldest first. latest: that of the newest run."""

    latest: LiveControl
    waiting: deque[LiveControl] = field(default_factory=deque)


class LiveRuns:
    """Controls by visitor, from the moment a run is asked for until it ends.

    A run may have to wait for the model; what its visitor does meanwhile (move tau, stop, ask
    again) counts as well, which is why the control exists before the run begins. Any thread may
    call any method.
    """

    def __init__(self) -> None:
        self._visitors: dict[str, _Visitor] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._visitors)

    def ask(self, visitor: str, config: DecodeConfig) -> LiveControl:
        """Register a new run of `visitor` and stop the earlier ones."""
        control = LiveControl(config)
        with self._lock:
            if known := self._visitors.get(visitor):
                known.latest.stop()
                known.latest = control
            else:
                known = self._visitors[visitor] = _Visitor(control)
            known.waiting.append(control)
        return control

    def begin(self, visitor: str) -> LiveControl | None:
        """The control of the visitor's oldest run that has not begun; None if there is none."""
        with self._lock:
            known = self._visitors.get(visitor)
            return known.waiting.popleft() if known and known.waiting else None

    def end(self, visitor: str, control: LiveControl) -> None:
        """Forget a run that ended; one that was asked for since stays."""
        with self._lock:
            known = self._visitors.get(visitor)
            if known and known.latest is control:
                del self._visitors[visitor]

    def set(self, visitor: str, mode: Mode, tau: float) -> None:
        """Steer the visitor's newest run, if one is going on or waiting."""
        if control := self._latest(visitor):
            control.set(mode=mode, tau=tau)

    def stop(self, visitor: str) -> None:
        """Stop the visitor's run before its next forward."""
        if control := self._latest(visitor):
            control.stop()

    def leave(self, visitor: str) -> None:
        """The visitor closed the page: stop everything of theirs."""
        with self._lock:
            known = self._visitors.pop(visitor, None)
        if known:
            for control in (known.latest, *known.waiting):
                control.stop()

    def _latest(self, visitor: str) -> LiveControl | None:
        with self._lock:
            known = self._visitors.get(visitor)
            return known.latest if known else None
