"""What the page's listeners call: settings in, the growing text of a trace out."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from itertools import count
from typing import Any, Literal, Protocol, cast

import gradio as gr

from mars_core.config import DecodeConfig, Metric, Mode
from mars_core.control import Control, LiveControl
from mars_core.errors import MarsError
from mars_core.trace import AnyRecord, Message
from mars_core.ui import view
from mars_core.ui.live import LiveRuns

WAITING = "Waiting for the model …"
BROKE_OFF = "The run broke off because of an error in the program; the server's log has it."

log = logging.getLogger(__name__)


class Generates(Protocol):
    """What the page needs of `mars_core.engine.Engine`."""

    loaded: Any

    def generate(
        self,
        messages: Sequence[Message],
        config: DecodeConfig,
        control: Control | None = None,
    ) -> Iterator[AnyRecord]: ...


class Handlers:
    """What the listeners call; holds the engine and the visitors' runs."""

    def __init__(self, engine: Generates) -> None:
        self.engine = engine
        self.runs = LiveRuns()
        self._numbers = count(1)
        self._transcripts: dict[str, view.Transcript] = {}

    def ask(self, request: gr.Request, prompt: str, *settings: Any) -> Any:
        """Register the run before it queues, so that tau and Stop reach it while it waits."""
        try:
            view.user_messages(prompt)
            self.runs.ask(_visitor(request), _config(*settings))
        except MarsError as error:
            return view.page_line("error", view.sentence(error))
        return view.page_line("waiting", WAITING)

    def run(self, request: gr.Request, prompt: str, *settings: Any) -> Iterator[Any]:
        """The run that `ask` registered, as the player reads it; nothing where it was refused."""
        visitor = _visitor(request)
        control = self.runs.begin(visitor)
        if control is None:
            yield gr.skip()
        elif control.read().stop:
            self.runs.end(visitor, control)
            yield view.page_line("idle")
        else:
            try:
                transcript = view.Transcript(next(self._numbers))
                self._transcripts[visitor] = transcript
                for batch in self._batches(prompt, _config(*settings), control):
                    yield transcript.add(batch)
            except MarsError as error:
                yield view.page_line("failed", view.sentence(error))
            except Exception:
                log.exception("a run broke off")
                yield view.page_line("failed", BROKE_OFF)
            finally:
                self.runs.end(visitor, control)

    def generate(
        self,
        prompt: str,
        mode: Literal["one", "tau"] = "tau",
        tau: float = 0.9,
        block_size: int = 4,
        max_new_tokens: int = 128,
        temperature: float = 0.0,
        top_p: float = 1.0,
        repetition_penalty: float = 1.0,
        seed: int = 0,
        metric: Literal["probability", "margin", "entropy"] = "probability",
        use_last_mask: bool = False,
    ) -> Iterator[str]:
        """Answer a prompt; the result is the run's trace as JSON Lines, streamed as it grows.

        The last line, of type "done", carries text, tokens and forwards.
        """
        try:
            config = _config(
                mode, tau, block_size, max_new_tokens,
                temperature, top_p, repetition_penalty, seed, metric, use_last_mask,
            )  # fmt: skip
            yield from view.growing_text(self._batches(prompt, config, LiveControl(config)))
        except MarsError as error:
            raise gr.Error(view.sentence(error), print_exception=False) from None

    def _batches(
        self, prompt: str, config: DecodeConfig, control: LiveControl
    ) -> Iterator[list[str]]:
        records = self.engine.generate(view.user_messages(prompt), config, control)
        # closed explicitly: when the reader goes away the model is free at once
        with closing(cast(Generator[AnyRecord, None, None], records)):
            yield from view.batched_lines(records, time.monotonic)

    def steer(self, request: gr.Request, mode: Mode, tau: float) -> Any:
        """Mode or tau was moved: tell the run that is going on, and explain the position."""
        self.runs.set(_visitor(request), mode, float(tau))
        return view.note_html(mode, float(tau))

    def whole(self, request: gr.Request) -> Any:
        """The visitor's run from its beginning, for a page that missed a part."""
        transcript = self._transcripts.get(_visitor(request))
        return transcript.whole() if transcript else gr.skip()

    def stop(self, request: gr.Request) -> None:
        """Stop: the visitor's run ends before its next forward."""
        self.runs.stop(_visitor(request))

    def leave(self, request: gr.Request) -> None:
        """The page was closed."""
        self.runs.leave(_visitor(request))
        self._transcripts.pop(_visitor(request), None)


def _visitor(request: gr.Request) -> str:
    return request.session_hash or ""


def _config(
    mode: Mode,
    tau: float,
    block_size: int,
    max_new_tokens: int,
    temperature: float,
    top_p: float,
    repetition_penalty: float,
    seed: int,
    metric: Metric,
    use_last_mask: bool,
) -> DecodeConfig:
    """Settings as the page or a client gave them. Raises MarsError where one is out of range."""
    return DecodeConfig(
        mode=mode,
        tau=tau,
        block_size=_whole(block_size),
        max_new_tokens=_whole(max_new_tokens),
        temperature=temperature,
        top_p=top_p,
        repetition_penalty=repetition_penalty,
        seed=_whole(seed),
        metric=metric,
        use_last_mask=use_last_mask,
    )


def _whole(number: float) -> int:
    """4.0 as 4, since number fields and JSON do not tell them apart; the rest is for the config."""
    return int(number) if isinstance(number, float) and number.is_integer() else number  # type: ignore[return-value]
