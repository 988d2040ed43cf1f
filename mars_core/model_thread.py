"""One thread for everything a model computes. No torch.

OpenMP, with which torch computes on a CPU, keeps a team of threads for every thread that calls it.
Only while there are no more of them than cores does a team wait for its next task awake; beyond
that it falls asleep between any two tasks, of which a forward has hundreds. On two cores that made
a forward 1.7 times as long. So where several threads take turns with a model, as in a server, all
of them do it in this one.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar, cast

from mars_core.config import DecodeConfig
from mars_core.control import Control, LiveControl
from mars_core.errors import MarsError
from mars_core.trace import AnyRecord, Message

T = TypeVar("T")
NO_MODEL = "no model is loaded; choose one under Model"


class Generates(Protocol):
    """What a page needs of `mars_core.engine.Engine`."""

    @property
    def loaded(self) -> Any: ...

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


class PageEngine(Protocol):
    """What a page runs on: a `ThreadedEngine`, or a `mars_core.forked_engine.ForkedEngine`."""

    @property
    def present(self) -> bool: ...

    @property
    def loaded(self) -> Any: ...

    def encode(self, messages: Sequence[Message], config: DecodeConfig) -> Any: ...

    def generate(
        self, messages: Sequence[Message], config: DecodeConfig, control: LiveControl
    ) -> Iterator[AnyRecord]: ...

    def race(
        self, messages: Sequence[Message], config: Any, control: LiveControl
    ) -> Iterator[Any]: ...

    def batches(
        self, conversations: Sequence[Sequence[Message]], config: Any, control: LiveControl
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
            settle(*self._work.get())


def settle(work: Callable[[], T], result: Future[T]) -> None:
    """Do the work, and let its result, or what it raised, be that of the future."""
    try:
        result.set_result(work())
    except BaseException as error:
        result.set_exception(error)


def in_background(work: Callable[[], T]) -> Future[T]:
    """The coming result of `work()`, done in a thread of its own that ends with the program."""
    result: Future[T] = Future()
    threading.Thread(target=settle, args=(work, result), daemon=True).start()
    return result


Opened = tuple[Generates, Races]


class ThreadedEngine:
    """An engine whose forwards all run in one thread, whoever reads its records; and its races.

    reopen: how it came about, for when another took its place in vain.
    """

    def __init__(
        self,
        engine: Generates,
        racer: Races,
        thread: ModelThread,
        reopen: Callable[[], Opened] | None = None,
    ) -> None:
        self._opened: Opened | None = (engine, racer)
        self._thread = thread
        self._reopen = reopen

    @property
    def present(self) -> bool:
        """Whether there is a model: there is none while one takes another's place."""
        return self._opened is not None

    @property
    def loaded(self) -> Any:
        """The engine's `LoadedModel`; waits for one that takes another's place."""
        opened = self._opened or self._thread.submit(self._there).result()
        return opened[0].loaded

    def encode(self, messages: Sequence[Message], config: DecodeConfig) -> Any:
        """As `Engine.encode`; while another model takes its place there is none to ask."""
        return self._opened[0].encode(messages, config) if self._opened else None

    def switch(self, open_other: Callable[[], Opened], *, beside: bool) -> Future[None]:
        """Let another engine take this one's place, when no run is going on.

        beside: both have room, so the present one stays until the other is there; else it is freed
        first. If the other cannot be had, the present one is there again, and the future raises.
        """
        return self._thread.submit(lambda: self._switch(open_other, beside))

    def _switch(self, open_other: Callable[[], Opened], beside: bool) -> None:
        if not beside:
            self._opened = None
            gc.collect()
        try:
            self._opened = open_other()
        except BaseException:
            if self._opened is None and self._reopen is not None:
                with suppress(Exception):  # the first problem is the one to tell
                    self._opened = self._reopen()
            raise
        self._reopen = open_other
        gc.collect()

    def _there(self) -> Opened:
        if self._opened is None:
            raise MarsError(NO_MODEL)
        return self._opened

    def generate(
        self,
        messages: Sequence[Message],
        config: DecodeConfig,
        control: Control | None = None,
    ) -> Iterator[AnyRecord]:
        """As `Engine.generate`: bad input raises at once, closing ends the run at once."""
        return self._read(lambda: self._there()[0].generate(messages, config, control))

    def race(self, messages: Sequence[Message], config: Any, control: Control) -> Iterator[Any]:
        """As `Racer.race`, likewise."""
        return self._read(lambda: self._there()[1].race(messages, config, control))

    def batches(
        self, conversations: Sequence[Sequence[Message]], config: Any, control: Control
    ) -> Iterator[Any]:
        """As `Racer.batches`, likewise."""
        return self._read(lambda: self._there()[1].batches(conversations, config, control))

    def _read(self, start: Callable[[], Iterator[T]]) -> Iterator[T]:
        """What `start` gives, which is asked in the thread: behind a model that is being loaded."""
        return self._records(self._thread.submit(start).result())

    def _records(self, records: Iterator[T]) -> Iterator[T]:
        def close() -> None:
            cast(Generator[T, None, None], records).close()

        try:
            while record := self._thread.submit(lambda: next(records, None)).result():
                yield record
        finally:
            self._thread.submit(close).result()
