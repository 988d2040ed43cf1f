"""How fetching and loading report what they are doing. No torch."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import Future, wait
from types import TracebackType
from typing import Any, Literal, Protocol

from tqdm import tqdm

Stage = Literal["wait", "download", "check", "unpack", "convert", "load", "compile"]

WORDS: dict[str, str] = {
    "wait": "waiting for another process that fetches this model",
    "download": "downloading",
    "check": "checking",
    "unpack": "unpacking",
    "convert": "converting (once)",
    "load": "loading",
    "compile": "compiling",
}
LOOK_SECONDS = 0.25
BYTE_STAGES = frozenset({"download", "check", "unpack"})


class Progress(Protocol):
    """Called with how far a stage is.

    done, total: bytes for download, check and unpack, steps otherwise; total None when unknown.
    """

    def __call__(self, stage: Stage, done: int, total: int | None) -> None: ...


def silent(stage: Stage, done: int, total: int | None) -> None:
    """The progress of who does not want any."""


def together(*told: Progress) -> Progress:
    """One progress for several that are shown in different places."""

    def report(stage: Stage, done: int, total: int | None) -> None:
        for progress in told:
            progress(stage, done, total)

    return report


class LatestProgress:
    """Keeps how far the work is, for whoever wants to show it now and then."""

    def __init__(self, text: str = "") -> None:
        self.text = text

    def __call__(self, stage: Stage, done: int, total: int | None) -> None:
        part = f" {done / total:.0%}" if total else ""
        self.text = f"{WORDS[stage]}{part} …"

    def until(self, future: Future[Any]) -> Iterator[str]:
        """What is being done, whenever that changes, until `future` is there; what it raised."""
        said = ""
        while not future.done():
            if self.text != said:
                said = self.text
                yield said
            wait([future], LOOK_SECONDS)
        future.result()


class TerminalProgress:
    """Progress bars on stderr; where that is no terminal, one line for each stage.

    Use as a context manager, so that a bar is cleared when an error ends the work.
    """

    def __init__(self) -> None:
        # held, because the conversion redirects sys.stderr while libraries would draw on it
        self._stream = sys.stderr
        self._stage: str | None = None
        self._bar: tqdm | None = None

    def __call__(self, stage: Stage, done: int, total: int | None) -> None:
        if stage != self._stage:
            self._open(stage, total)
        if self._bar is not None:
            self._bar.total = total
            self._bar.update(done - self._bar.n)

    def _open(self, stage: Stage, total: int | None) -> None:
        self.close()
        self._stage = stage
        if not self._stream.isatty():
            print(f"{WORDS[stage]} ...", file=self._stream, flush=True)
            return
        bytes_ = stage in BYTE_STAGES
        self._bar = tqdm(
            desc=WORDS[stage],
            total=total,
            unit="B" if bytes_ else "step",
            unit_scale=bytes_,
            file=self._stream,
            leave=False,
        )

    def close(self) -> None:
        """Clear the bar, if one is shown."""
        if self._bar is not None:
            self._bar.close()
        self._bar = self._stage = None

    def __enter__(self) -> TerminalProgress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
