"""What the page's listeners call: settings in, the growing text of a trace out."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import count
from typing import Any, Literal, cast

import gradio as gr

from mars_core.config import MAX_SEED, DecodeConfig, Metric, Mode
from mars_core.control import Control
from mars_core.errors import MarsError
from mars_core.race.records import AnyRaceRecord
from mars_core.race.settings import (
    BatchLaneName,
    BatchRaceConfig,
    LaneName,
    RaceConfig,
)
from mars_core.ui import links, view
from mars_core.ui.conversation import conversation, conversation_each, conversations
from mars_core.ui.limits import NO_LIMITS, Limits
from mars_core.ui.line import LOOK_SECONDS, Ahead
from mars_core.ui.live import LiveRuns, Run
from mars_core.ui.model_handlers import ModelHandlers

BROKE_OFF = "The run broke off because of an error in the program; the server's log has it."

log = logging.getLogger(__name__)


class Handlers:
    """What the listeners call; holds the visitors' runs.

    model: the engine, which may come later, and the line in which runs wait for it. limits: of what
    one visitor may ask.
    """

    def __init__(self, model: ModelHandlers, limits: Limits = NO_LIMITS) -> None:
        self.model = model
        self.engine = model.engine
        self.line = model.line
        self.limits = limits
        self.runs = LiveRuns()
        self._numbers = count(1)
        self._transcripts: dict[str, view.Transcript] = {}

    def ask(
        self, request: gr.Request, prompt: str, history: Any, system: str, *settings: Any
    ) -> tuple[str, Any]:
        """Register the run before it queues, so that tau and Stop reach it while it waits.

        Returns the player's line and the prompt box: empty, unless the run was refused, or still
        may be because there is no model yet to judge it.
        """
        try:
            run = Run.of([conversation(prompt, history, system)], _config(*settings))
            line = self._register(request, run)
        except MarsError as error:
            return view.page_line("error", view.sentence(error)), gr.skip()
        return line, "" if self.engine.done() else gr.skip()

    def ask_race(
        self,
        request: gr.Request,
        prompt: str,
        _history: Any,
        system: str,
        *settings: Any,
    ) -> str:
        """Register a race of the prompt alone, likewise; the last settings are those of `_race`.

        The prompt stays in its box: a race is no turn of the conversation.
        """
        *decode, lanes, second_tau, repeats = settings
        try:
            config = _race(_config(*decode), lanes, second_tau, repeats)
            return self._register(request, Run.of([conversation(prompt, None, system)], config))
        except MarsError as error:
            return view.page_line("error", view.sentence(error), "race")

    def ask_batch(self, request: gr.Request, prompts: str, system: str, *settings: Any) -> str:
        """Register a race of batches, likewise; the last settings are those of `_batch_race`."""
        *decode, lanes, rows, cache_block = settings
        try:
            config = _batch_race(_config(*decode), lanes, rows, cache_block)
            return self._register(request, Run.of(conversations(prompts, system), config))
        except MarsError as error:
            return view.page_line("error", view.sentence(error), "race")

    def again(
        self, request: gr.Request, prompt: str, history: Any, system: str, *settings: Any
    ) -> tuple[str, Any]:
        """The last turn once more. Returns the player's line and the seed that is used now.

        When sampling that is the next one, since the same one would give the same answer.
        """
        try:
            config = _config(*settings)
            if config.temperature > 0:
                config = replace(config, seed=(config.seed + 1) % (MAX_SEED + 1))
            line = self._register(request, Run.of([conversation(prompt, history, system)], config))
        except MarsError as error:
            return view.page_line("error", view.sentence(error)), gr.skip()
        return line, config.seed

    def _register(self, request: gr.Request, run: Run) -> str:
        self.limits.check(run, len(self.line))
        if self.engine.done():
            for messages in run.conversations:
                self.engine.result().encode(messages, run.config)
        self.runs.ask(_visitor(request), run)
        return view.page_line("waiting", self._why_waiting(len(self.line)), _view(run))

    def run(self, request: gr.Request) -> Iterator[Any]:
        """The run that `ask` registered, as the player reads it; nothing where it was refused."""
        visitor = _visitor(request)
        run = self.runs.begin(visitor)
        if run is None:
            yield gr.skip()
            return
        name = _view(run)
        try:
            with self.line.join(visitor) as ahead:
                for text in self._waiting(ahead, run.control):
                    yield view.page_line("waiting", text, name)
                if run.control.read().stop:
                    yield view.page_line("idle", "", name)
                    return
                transcript = view.Transcript(next(self._numbers), name)
                self._transcripts[visitor] = transcript
                for batch in self._batches(run):
                    yield transcript.add(batch)
                if run.race is not None and run.control.read().stop:
                    # a lane that had just ended does not say so, nor is there a verdict
                    yield view.page_line("cut", "", name)
        except MarsError as error:
            yield view.page_line("failed", view.sentence(error), name)
        except gr.Error as error:  # ZeroGPU has no GPU to lend, or took it back
            yield view.page_line("failed", str(error.message), name)
        except Exception:
            log.exception("a run broke off")
            yield view.page_line("failed", BROKE_OFF, name)
        finally:
            self.runs.end(visitor, run)

    def generate(
        self,
        request: gr.Request,
        prompt: str,
        mode: Literal["one", "tau", "verified"] = "tau",
        tau: float = 0.9,
        block_size: int = 4,
        max_new_tokens: int = 128,
        temperature: float = 0.0,
        top_p: float = 1.0,
        repetition_penalty: float = 1.0,
        seed: int = 0,
        metric: Literal["probability", "margin", "entropy"] = "probability",
        use_last_mask: bool = False,
        drafts: int = 4,
        system: str = "",
        history: list[dict[str, str]] | None = None,
    ) -> Iterator[str]:
        """Answer a prompt; the result is the run's trace as JSON Lines, streamed as it grows.

        The last line, of type "done", carries text, tokens and forwards. An empty system prompt
        leaves the model its own; history is a list of {"role", "content"}, user and assistant
        in alternation.
        """
        try:
            config = _config(
                mode, tau, block_size, max_new_tokens,
                temperature, top_p, repetition_penalty, seed, metric, use_last_mask, drafts,
            )  # fmt: skip
            run = Run.of([conversation(prompt, history, system)], config)
            yield from self._for_a_client(request, run)
        except MarsError as error:
            raise gr.Error(view.sentence(error), print_exception=False) from None

    def race(
        self,
        request: gr.Request,
        prompt: str,
        tau: float = 0.9,
        block_size: int = 4,
        max_new_tokens: int = 128,
        lanes: list[str] | None = None,
        second_tau: float = 0.7,
        repeats: int = 3,
        use_last_mask: bool = False,
        drafts: int = 4,
        system: str = "",
    ) -> Iterator[str]:
        """Race MARS against one token per forward, greedily; the recording as JSON Lines.

        lanes: more of them ("verified", which is there unless they are named, "second",
        "original", "generate", "lookup"). The last line, of type
        "verdict", has a result for every lane.
        """
        try:
            decode = _greedy(tau, block_size, max_new_tokens, use_last_mask, drafts)
            more = _names(lanes, RaceConfig().lanes[2:])
            config = _race(decode, more, second_tau, repeats)
            run = Run.of([conversation(prompt, None, system)], config)
            yield from self._for_a_client(request, run)
        except MarsError as error:
            raise gr.Error(view.sentence(error), print_exception=False) from None

    def batch(
        self,
        request: gr.Request,
        prompts: list[str],
        tau: float = 0.9,
        block_size: int = 4,
        max_new_tokens: int = 64,
        lanes: list[str] | None = None,
        rows: int = 4,
        cache_block: int = 16,
        use_last_mask: bool = False,
        drafts: int = 4,
        system: str = "",
    ) -> Iterator[str]:
        """Answer prompts many at once with each cache, greedily; the recording as JSON Lines.

        lanes: besides AR ("block" and "cursor" unless they are named, "paced", "verified",
        "none"). rows: sequences at once. cache_block: tokens of a block of the block cache. The
        last line, of type "verdict", has a result for every lane.
        """
        try:
            decode = _greedy(tau, block_size, max_new_tokens, use_last_mask, drafts)
            more = _names(lanes, BatchRaceConfig().lanes[1:])
            config = _batch_race(decode, more, rows, cache_block)
            asked = conversation_each(prompts, system)
            yield from self._for_a_client(request, Run.of(asked, config))
        except MarsError as error:
            raise gr.Error(view.sentence(error), print_exception=False) from None

    def _for_a_client(self, request: gr.Request, run: Run) -> Iterator[str]:
        self.limits.check(run, len(self.line))
        # a program can have any number of sessions, but not of addresses
        with self.line.join(getattr(request.client, "host", "")) as ahead:
            for _ in self._waiting(ahead, run.control):
                yield ""  # a client that went away is noticed
            yield from view.growing_text(self._batches(run, view.CLIENT_BATCH_SECONDS))

    def _waiting(self, ahead: Ahead, control: Control) -> Iterator[str]:
        """Why the run waits, whenever that changes; over when it may begin or was stopped."""
        place, said = None, ""
        while not control.read().stop:
            place = ahead(place, LOOK_SECONDS)
            if place == 0 and self.engine.done():
                return
            if (text := self._why_waiting(place)) != said:
                said = text
                yield text

    def _why_waiting(self, ahead: int) -> str:
        return view.waiting_text(ahead) if self.engine.done() else self.model.why_waiting()

    def _batches(self, run: Run, interval: float = view.BATCH_SECONDS) -> Iterator[list[str]]:
        engine = self.engine.result()
        first, *_ = run.conversations
        records: Iterator[AnyRaceRecord]
        match run.race:
            case None:
                records = engine.generate(first, run.config, run.control)
            case RaceConfig():
                records = engine.race(first, run.race, run.control)
            case BatchRaceConfig():
                records = engine.batches(run.conversations, run.race, run.control)
        # closed explicitly: when the reader goes away the model is free at once
        with closing(cast(Generator[AnyRaceRecord, None, None], records)):
            yield from view.batched_lines(records, time.monotonic, interval)

    def linked(self, request: gr.Request) -> list[Any]:
        """What the address of the page sets: the player's line, prompt, system prompt, settings."""
        try:
            found = links.settings_of_link(dict(request.query_params))
        except MarsError as error:
            complaint = view.page_line("error", f"This link does not work: {error}.")
            return [complaint, *(gr.skip() for _ in links.NAMES)]
        found |= {name: list(found[name]) for name in links.LISTS if name in found}
        return [gr.skip(), *(found.get(name, gr.skip()) for name in links.NAMES)]

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
    drafts: int,
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
        drafts=_whole(drafts),
    )


def _greedy(
    tau: float, block_size: float, max_new_tokens: float, use_last_mask: bool, drafts: float
) -> DecodeConfig:
    """What a client can set of a race."""
    return DecodeConfig(
        tau=tau,
        block_size=_whole(block_size),
        max_new_tokens=_whole(max_new_tokens),
        use_last_mask=use_last_mask,
        drafts=_whole(drafts),
    )


def _race(
    decode: DecodeConfig, lanes: Iterable[str], second_tau: float, repeats: int
) -> RaceConfig:
    """A race of AR, MARS and more lanes, as the page or a client asked for it."""
    more = cast("tuple[LaneName, ...]", tuple(lanes))
    return RaceConfig(decode, ("ar", "mars", *more), second_tau, _whole(repeats))


def _batch_race(
    decode: DecodeConfig, lanes: Iterable[str], rows: float, cache_block: float
) -> BatchRaceConfig:
    """A race of batches: AR and more lanes, as the page or a client asked for it."""
    more = cast("tuple[BatchLaneName, ...]", tuple(lanes))
    return BatchRaceConfig(decode, _whole(rows), _whole(cache_block), ("ar", *more))


def _names(lanes: Any, default: Sequence[str]) -> Sequence[str]:
    """The lanes as a client named them, or the usual ones. Raises MarsError for what is no list."""
    if lanes is None:
        return default
    if not isinstance(lanes, list) or not all(isinstance(lane, str) for lane in lanes):
        raise MarsError('lanes must be a list of names, such as ["verified"]')
    return lanes


def _view(run: Run) -> view.ViewName:
    return "chat" if run.race is None else "race"


def _whole(number: float) -> int:
    """4.0 as 4, since number fields and JSON do not tell them apart; the rest is for the config."""
    return int(number) if isinstance(number, float) and number.is_integer() else number  # type: ignore[return-value]
