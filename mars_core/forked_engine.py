"""An engine whose runs are made by workers that are forked for them, as on ZeroGPU. No torch.

ZeroGPU lends a Space a GPU for one call of a decorated function, which it makes in a forked worker.
What is sent there and back is pickled; what a visitor changes meanwhile travels through memory that
both share.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, cast

from mars_core.config import DecodeConfig
from mars_core.control import LiveControl
from mars_core.errors import MarsError
from mars_core.model_thread import Generates, Races
from mars_core.race.settings import new_tokens
from mars_core.shared_control import SharedSettings
from mars_core.trace import AnyRecord, Message

Kind = Literal["generate", "race", "batches"]
Task = Callable[..., Generator[Any, None, None]]
# `spaces.GPU`, or what stands in for it: makes a call of a generator function one of a worker
Lend = Callable[..., Callable[[Task], Task]]

# Seconds asked for: to move the weights and measure what forwards cost, and for a forward, most of
# which is launching kernels. Whoever asks for less waits less and uses up less of their day's GPU.
START_SECONDS = 15.0
FORWARD_SECONDS = 0.04
MOST_SECONDS = 120.0


class ForkedEngine:
    """What a page needs of an engine and its races, made by workers on a GPU that is lent.

    lend: called with `duration`, a function of a task's arguments that tells its seconds.
    """

    present = True

    def __init__(self, engine: Generates, racer: Races, lend: Lend) -> None:
        self._engine = engine
        # made here: a worker sees no memory that is made after it
        shared = SharedSettings()
        self._shared = shared

        def task(kind: Kind, asked: Any, config: Any, place: int) -> Generator[Any, None, None]:
            """In the worker; bad input comes back as the exception that it would raise here."""
            start: dict[Kind, Callable[..., Iterator[Any]]] = {
                "generate": engine.generate,
                "race": racer.race,
                "batches": racer.batches,
            }
            try:
                yield from start[kind](asked, config, shared.at(place))
            except MarsError as error:
                yield error

        self._task = lend(duration=seconds)(task)

    @property
    def loaded(self) -> Any:
        """The engine's `LoadedModel`; nothing can be computed with it in this process."""
        return self._engine.loaded

    def encode(self, messages: Sequence[Message], config: DecodeConfig) -> Any:
        """As `Engine.encode`."""
        return self._engine.encode(messages, config)

    def generate(
        self, messages: Sequence[Message], config: DecodeConfig, control: LiveControl
    ) -> Iterator[AnyRecord]:
        """As `Engine.generate`, but bad input raises with the first record."""
        return self._records("generate", messages, config, control)

    def race(self, messages: Sequence[Message], config: Any, control: LiveControl) -> Iterator[Any]:
        """As `Racer.race`, likewise."""
        return self._records("race", messages, config, control)

    def batches(
        self, conversations: Sequence[Sequence[Message]], config: Any, control: LiveControl
    ) -> Iterator[Any]:
        """As `Racer.batches`, likewise."""
        return self._records("batches", conversations, config, control)

    def _records(self, kind: Kind, asked: Any, config: Any, control: LiveControl) -> Iterator[Any]:
        with (
            self._shared.following(control) as place,
            closing(self._task(kind, asked, config, place)) as records,
        ):
            try:
                for record in records:
                    if isinstance(record, MarsError):
                        raise record
                    yield record
            finally:
                # a worker does not learn that nobody reads any more, and closing waits for its end
                control.stop()


def seconds(kind: Kind, asked: Any, config: Any, _place: int) -> float:
    """How long a task may take: what ZeroGPU asks for before it lends a GPU."""
    forwards = new_tokens(config, len(asked) if kind == "batches" else 1)
    return min(START_SECONDS + FORWARD_SECONDS * forwards, MOST_SECONDS)


def zero_gpu() -> Lend | None:
    """`spaces.GPU` in a Space on ZeroGPU, else None. To be called before torch is imported."""
    if os.environ.get("SPACES_ZERO_GPU", "").lower() not in ("1", "t", "true"):
        return None
    # a folder of that name beside this package is enough for an import, so not the import tells
    gpu = getattr(import_module("spaces"), "GPU", None) if find_spec("spaces") else None
    if gpu is None:
        raise MarsError("this is a Space on ZeroGPU without the package `spaces`: install it")
    return cast(Lend, gpu)
