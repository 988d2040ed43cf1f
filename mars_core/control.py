"""Live control: what may change while a run is going on. No torch.

The loop reads it at every step, so whoever implements `Control` (a thread, another process
through shared memory) steers the run without touching it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from mars_core.config import DecodeConfig, Mode, check_choice, check_range


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """One consistent reading: the mode, tau, and whether to stop before the next forward."""

    mode: Mode
    tau: float
    stop: bool = False


class Control(Protocol):
    """Anything that answers `read()` with the settings for the next forward."""

    def read(self) -> LiveSettings: ...


Listener = Callable[[LiveSettings], None]


class LiveControl:
    """Control for threads of one process.

    The settings are one immutable object that is swapped whole, so a reader never sees half a
    change; writers take turns, so none undoes another's. Setters validate and raise MarsError.
    """

    def __init__(self, config: DecodeConfig) -> None:
        self._settings = LiveSettings(config.mode, config.tau)
        self._listeners: list[Listener] = []
        self._writing = threading.Lock()

    def read(self) -> LiveSettings:
        return self._settings

    def set(self, *, mode: Mode | None = None, tau: float | None = None) -> None:
        """Change mode, tau, or both at once."""
        changes: dict[str, Any] = {}
        if mode is not None:
            check_choice("mode", mode, Mode)
            changes["mode"] = mode
        if tau is not None:
            check_range("tau", tau, 0, 1)
            changes["tau"] = float(tau)
        self._replace(changes)

    def stop(self) -> None:
        """Ask the run to end before its next forward; there is no way back."""
        self._replace({"stop": True})

    @contextmanager
    def told(self, listener: Listener) -> Iterator[None]:
        """Call `listener` with the settings now, and whenever they change in the block."""
        with self._writing:
            self._listeners.append(listener)
            listener(self._settings)
        try:
            yield
        finally:
            with self._writing:
                self._listeners.remove(listener)

    def _replace(self, changes: dict[str, Any]) -> None:
        with self._writing:
            self._settings = replace(self._settings, **changes)
            for listener in self._listeners:
                listener(self._settings)
