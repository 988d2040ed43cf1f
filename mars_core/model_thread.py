"""One thread for everything a model computes. No torch.

OpenMP, with which torch computes on a CPU, keeps a team of threads for every thread that calls it.
Only while there are no more of them than cores does a team wait for its next task awake; beyond
that it falls asleep between any two tasks, of which a forward has hundreds. On two cores that made
a forward 1.7 times as long. So where several threads take turns with a model, as in a server, all
of them do it in this one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar, cast

from mars_core.config import DecodeConfig
from mars_core.control import Control
from mars_core.trace import AnyRecord, Message

T = TypeVar("T")


class Generates(Protocol):
    """What a page needs of `mars_core.engine.Engine`."""

    loaded: Any

    def encode(self, messages: Sequence[Message], config: DecodeConfig) -> Any: ...

    def generate(
        self,
        messages: Sequence[Message],
        config: DecodeConfig,
        control: Control | None = None,
    ) -> Iterator[AnyRecord]: ...


class Races(Protocol):
    """What a page needs of `mars_core.race.lanes.Racer`."""

    def race(self, messages: Sequence[Message], config: Any, control: Control) -> Iterator[Any]: ...

    def batches(
        self, conversations: Sequence[Sequence[Message]], config: Any, control: Control
    ) -> Iterator[Any]: ...


class ModelThread:
    """Does what it is given, one thing after the other; ends with the program, also in mid-work."""

    def __init__(self) -> None:
        self._work: SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = SimpleQueue()
        threading.Thread(target=self._run, name="model", daemon=True).start()

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """The coming result of `work()`, or what it raised."""
        result: Future[T] = Future()
        self._work.put((work, result))
        return result

    def _run(self) -> None:
        while True:
            work, result = self._work.get()
            try:
                result.set_result(work())
            except BaseException as error:
                result.set_exception(error)


class ThreadedEngine:
    """An engine whose forwards all run in one thread, whoever reads its records; and its races."""

    def __init__(self, engine: Generates, racer: Races, thread: ModelThread) -> None:
        self.loaded = engine.loaded
        self.encode = engine.encode
        self._engine = engine
        self._racer = racer
        self._thread = thread

    def generate(
        self,
        messages: Sequence[Message],
        config: DecodeConfig,
        control: Control | None = None,
    ) -> Iterator[AnyRecord]:
        """As `Engine.generate`: bad input raises at once, closing ends the run at once."""
        return self._read(self._engine.generate(messages, config, control))

    def race(self, messages: Sequence[Message], config: Any, control: Control) -> Iterator[Any]:
        """As `Racer.race`, likewise."""
        return self._read(self._racer.race(messages, config, control))

    def batches(
        self, conversations: Sequence[Sequence[Message]], config: Any, control: Control
    ) -> Iterator[Any]:
        """As `Racer.batches`, likewise."""
        return self._read(self._racer.batches(conversations, config, control))

    def _read(self, records: Iterator[T]) -> Iterator[T]:
        def close() -> None:
            cast(Generator[T, None, None], records).close()

        try:
            while record := self._thread.submit(lambda: next(records, None)).result():
                yield record
        finally:
            self._thread.submit(close).result()
