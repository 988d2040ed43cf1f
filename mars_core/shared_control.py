"""Live control across processes: settings in memory that a worker shares with who forked it."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from typing import get_args

from mars_core.config import Mode
from mars_core.control import LiveControl, LiveSettings

MODES: tuple[Mode, ...] = get_args(Mode)
# how often a place was written; then the settings of even and of odd writings: mode, stop, tau
COUNT = struct.Struct("=Q")
SETTINGS = struct.Struct("=BBd")
PLACE_BYTES = 64  # a cache line each
PLACES = 64


class SharedSettings:
    """Places for the settings of runs, in memory that processes forked later share.

    Each has one writer, this process, and any readers. A writing goes to the half that is not read
    at that time and counts afterwards, so a reader never sees half a change, and no lock can be
    left held by a worker that is killed.
    """

    def __init__(self, places: int = PLACES) -> None:
        self._memory = mmap.mmap(-1, places * PLACE_BYTES)
        self._free: SimpleQueue[int] = SimpleQueue()
        for place in range(places):
            self._free.put(place)

    @contextmanager
    def following(self, control: LiveControl) -> Iterator[int]:
        """A place that has the settings of `control`, whatever becomes of them in the block.

        Waits until one is free.
        """
        place = self._free.get()
        try:
            with control.told(lambda settings: self._write(place, settings)):
                yield place
        finally:
            self._free.put(place)

    def at(self, place: int) -> SharedControl:
        """What a worker reads there."""
        return SharedControl(self, place)

    def _write(self, place: int, settings: LiveSettings) -> None:
        base = place * PLACE_BYTES
        (count,) = COUNT.unpack_from(self._memory, base)
        values = MODES.index(settings.mode), settings.stop, settings.tau
        SETTINGS.pack_into(self._memory, _half(base, count + 1), *values)
        COUNT.pack_into(self._memory, base, count + 1)

    def read(self, place: int) -> LiveSettings:
        """The settings that were written there last."""
        base = place * PLACE_BYTES
        while True:
            (count,) = COUNT.unpack_from(self._memory, base)
            mode, stop, tau = SETTINGS.unpack_from(self._memory, _half(base, count))
            if COUNT.unpack_from(self._memory, base) == (count,):
                return LiveSettings(MODES[mode], tau, bool(stop))


def _half(base: int, count: int) -> int:
    return base + COUNT.size + (count % 2) * SETTINGS.size


@dataclass(frozen=True, slots=True)
class SharedControl:
    """The control of a run in a worker."""

    shared: SharedSettings
    place: int

    def read(self) -> LiveSettings:
        return self.shared.read(self.place)
