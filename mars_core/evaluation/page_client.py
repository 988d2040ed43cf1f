"""A client of the page's endpoint in a process of its own, as clients are. No torch.

Its interpreter and its threads must not count as the page's: it connects before anything is
timed, and its own clock says how long an answer took.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from mars_core.errors import MarsError
from mars_core.race.records import Race, read_race
from mars_core.trace import DoneRecord, parse_record


@dataclass(frozen=True, slots=True)
class Run:
    """One answer as its reader got it: the seconds from asking to its end, and that end.

    reader: "headless", or who read the page. updates: how often a client was sent a longer text.
    longest_task_ms: the longest time that a browser's main thread was taken; 0 below the 50 ms
    from which browsers report it.
    """

    reader: str
    seconds: float
    done: DoneRecord
    updates: int = 0
    longest_task_ms: float = 0.0


class Answer(NamedTuple):
    """What the client process sends back; `text` is the endpoint's result."""

    seconds: float
    updates: int
    text: str


@dataclass(frozen=True, slots=True)
class Client:
    """A connected client. Its methods take the endpoints' arguments by name."""

    name = "gradio_client"
    _ask: Callable[[str, dict[str, Any]], Answer]

    def run(self, **settings: Any) -> Run:
        """A run as this client got it."""
        seconds, updates, text = self._ask("/generate", settings)
        last = text.rstrip("\n").rpartition("\n")[2]
        return Run(self.name, seconds, parse_done(last), updates=updates)

    def race(self, **settings: Any) -> Race:
        """A race, as recorded."""
        return read_race(self._ask("/race", settings).text.encode("utf-8"))


def parse_done(line: str) -> DoneRecord:
    """The record that ends a run. Raises MarsError for anything else."""
    record = parse_record(line)
    if not isinstance(record, DoneRecord):
        raise MarsError(f"the run through the page ended with a {record.type!r} record")
    return record


@contextmanager
def client(address: str) -> Iterator[Client]:
    """A client that is connected to the page.

    Raises MarsError, from here or from a call, where the client or the page fails.
    """
    spawn = multiprocessing.get_context("spawn")  # a fork would take the model along
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_serve, args=(address, theirs), daemon=True)
    process.start()
    theirs.close()  # so that the end of the process is the end of the pipe

    def receive() -> Any:
        try:
            reply = ours.recv()
        except (EOFError, OSError):
            raise MarsError("the client of the page ended without an answer") from None
        if isinstance(reply, str):
            raise MarsError(f"the client of the page failed: {reply}")
        return reply

    def ask(endpoint: str, settings: dict[str, Any]) -> Answer:
        try:
            ours.send((endpoint, settings))
        except OSError:
            raise MarsError("the client of the page has ended") from None
        return Answer(*receive())

    try:
        receive()
        yield Client(ask)
    finally:
        process.terminate()
        process.join()
        ours.close()


def _serve(address: str, pipe: Connection) -> None:
    """The process: connect, then answer every message. An error goes back as one line of text."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # the argument below is not enough
    try:
        import gradio_client  # type: ignore[import-untyped]

        gradio = gradio_client.Client(
            address, verbose=False, download_files=False, analytics_enabled=False
        )
        pipe.send(None)
        while True:
            endpoint, settings = pipe.recv()
            started = time.perf_counter()
            job = gradio.submit(**settings, api_name=endpoint)
            text = job.result()
            seconds = time.perf_counter() - started
            pipe.send(Answer(seconds, len(job.outputs()), text))
    except EOFError:
        return
    except Exception as error:
        pipe.send(" ".join(str(error).split()) or type(error).__name__)
