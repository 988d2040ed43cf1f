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
    """What the client process sends back: `last` is the last line of the trace."""

    seconds: float
    updates: int
    last: str


def parse_done(line: str) -> DoneRecord:
    """The record that ends a run. Raises MarsError for anything else."""
    record = parse_record(line)
    if not isinstance(record, DoneRecord):
        raise MarsError(f"the run through the page ended with a {record.type!r} record")
    return record


@contextmanager
def client(address: str) -> Iterator[Callable[..., Run]]:
    """A connected client, to be called with the endpoint's arguments by name.

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

    def ask(**settings: Any) -> Run:
        try:
            ours.send(settings)
        except OSError:
            raise MarsError("the client of the page has ended") from None
        seconds, updates, last = receive()
        return Run("gradio_client", seconds, parse_done(last), updates=updates)

    try:
        receive()
        yield ask
    finally:
        process.terminate()
        process.join()
        ours.close()


def _serve(address: str, pipe: Connection) -> None:
    """The process: connect, then answer every message. An error goes back as one line of text."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # the argument below is not enough
    try:
        from gradio_client import Client  # type: ignore[import-untyped]

        gradio = Client(address, verbose=False, download_files=False, analytics_enabled=False)
        pipe.send(None)
        while True:
            settings = pipe.recv()
            started = time.perf_counter()
            job = gradio.submit(**settings, api_name="/generate")
            text = job.result()
            seconds = time.perf_counter() - started
            pipe.send(Answer(seconds, len(job.outputs()), text.rstrip("\n").rpartition("\n")[2]))
    except EOFError:
        return
    except Exception as error:
        pipe.send(" ".join(str(error).split()) or type(error).__name__)
