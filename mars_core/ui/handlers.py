"""What the page's listeners call: settings in, the growing text of a trace out."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, Literal, cast

import gradio as gr

from mars_core.config import MAX_SEED, DecodeConfig, Metric, Mode, Quantization
from mars_core.control import Control
from mars_core.errors import MarsError
from mars_core.model_thread import ThreadedEngine, in_background
from mars_core.models.progress import LatestProgress
from mars_core.race.records import AnyRaceRecord
from mars_core.race.settings import (
    BatchLaneName,
    BatchRaceConfig,
    LaneName,
    RaceConfig,
    check_prompts,
)
from mars_core.switching import Switcher, label
from mars_core.trace import Message
from mars_core.ui import links, view
from mars_core.ui.conversation import conversation
from mars_core.ui.limits import NO_LIMITS, Limits
from mars_core.ui.line import Ahead, Line
from mars_core.ui.live import LiveRuns, Run

BROKE_OFF = "The run broke off because of an error in the program; the server's log has it."
# how often a waiting run looks whether it was stopped meanwhile
LOOK_SECONDS = 0.25

log = logging.getLogger(__name__)


class Handlers:
    """What the listeners call; holds the visitors' runs, and the engine, which may come later.

    switcher: what puts another model in the engine's place; None where nobody may. limits: of what
    one visitor may ask.
    """

    def __init__(
        self,
        engine: Future[ThreadedEngine],
        switcher: Switcher | None = None,
        limits: Limits = NO_LIMITS,
    ) -> None:
        self.engine = engine
        self.switcher = switcher
        self.limits = limits
        self.runs = LiveRuns()
        self.line = Line()
        self._numbers = count(1)
        self._transcripts: dict[str, view.Transcript] = {}

    def model(self) -> tuple[str, str]:
        """Head and notices of the page, once the model is there."""
        try:
            facts = model_facts(self.engine.result().loaded)
        except MarsError as error:
            return view.head_html("no model"), view.notices_html([view.sentence(error)])
        head = view.head_html(view.model_line(facts), view.model_details(facts))
        return head, view.notices_html(view.notices(facts))

    def chosen(self) -> tuple[str, str, Quantization]:
        """Which model is the present one, or will be, as it is chosen."""
        assert self.switcher is not None
        return self.switcher.chosen()

    def details(self) -> str:
        """What the present model takes, once it is there."""
        try:
            told = f"{view.model_details(model_facts(self.engine.result().loaded))}."
        except MarsError as error:
            told = view.sentence(error)
        return view.choice_html(f"{told} {view.FOR_EVERYBODY}")

    def weigh(self, model: str, adapter: str, quantize: Quantization) -> str:
        """What the model that is chosen would take, a sentence."""
        assert self.switcher is not None
        if not self.engine.done():
            return view.choice_html(view.LOADING)
        try:
            wanted = self.switcher.wanted(model, adapter, quantize)
            return view.choice_html(self.switcher.weigh(wanted, self._held()).text)
        except MarsError as error:
            return view.choice_html(view.sentence(error))

    def switch(
        self, model: str, adapter: str, quantize: Quantization
    ) -> Iterator[tuple[Any, Any, str]]:
        """Let the chosen model take the place of the present one, for everybody.

        Yields head, notices and a sentence about how far it is. Its files are fetched while runs go
        on; then it waits its turn. What cannot be had leaves the present model where it is.
        """
        assert self.switcher is not None
        same = gr.skip(), gr.skip()
        try:
            for text in LatestProgress(view.LOADING).until(self.engine):
                yield *same, view.choice_html(text)
            steps = LatestProgress()
            wanted = self.switcher.wanted(model, adapter, quantize)
            self.switcher.check(wanted, self._held())
            for text in steps.until(in_background(partial(self.switcher.fetch, wanted, steps))):
                yield *same, view.choice_html(text)
            with self.line.join() as ahead:
                place = ahead(None, LOOK_SECONDS)
                while place:
                    yield *same, view.choice_html(view.waiting_text(place))
                    place = ahead(place, LOOK_SECONDS)
                room = self.switcher.check(wanted, self._held())
                loading = self.switcher.switch(self.engine.result(), wanted, room, steps)
                for text in steps.until(loading):
                    head = view.head_html(f"{label(wanted)} · {text}")
                    yield head, gr.skip(), view.choice_html(text)
        except MarsError as error:
            yield *self.model(), view.choice_html(view.sentence(error))
        except Exception:
            log.exception("a model could not be loaded")
            yield *self.model(), view.choice_html(BROKE_OFF)
        else:
            yield *self.model(), view.choice_html(f"{label(wanted)} is loaded.")

    def _held(self) -> int:
        """Bytes that are free once the present model is gone."""
        if not self.engine.done() or self.engine.exception() or not self.engine.result().present:
            return 0
        return int(self.engine.result().loaded.weight_bytes)

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
            return self._register(request, Run.of(_conversations(prompts, system), config))
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
            with self.line.join() as ahead:
                for text in self._waiting(ahead, run.control):
                    yield view.page_line("waiting", text, name)
                if run.control.read().stop:
                    yield view.page_line("idle", "", name)
                    return
                transcript = view.Transcript(next(self._numbers), name)
                self._transcripts[visitor] = transcript
                for batch in self._batches(run):
                    yield transcript.add(batch)
        except MarsError as error:
            yield view.page_line("failed", view.sentence(error), name)
        except Exception:
            log.exception("a run broke off")
            yield view.page_line("failed", BROKE_OFF, name)
        finally:
            self.runs.end(visitor, run)

    def generate(
        self,
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
        drafts: int = 2,
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
            yield from self._for_a_client(Run.of([conversation(prompt, history, system)], config))
        except MarsError as error:
            raise gr.Error(view.sentence(error), print_exception=False) from None

    def race(
        self,
        prompt: str,
        tau: float = 0.9,
        block_size: int = 4,
        max_new_tokens: int = 128,
        lanes: list[str] | None = None,
        second_tau: float = 0.7,
        repeats: int = 3,
        use_last_mask: bool = False,
        drafts: int = 2,
        system: str = "",
    ) -> Iterator[str]:
        """Race MARS against one token per forward, greedily; the recording as JSON Lines.

        lanes: more of them ("verified", which is there unless they are named, "second",
        "original", "generate", "lookup"). The last line, of type
        "verdict", has a result for every lane.
        """
        try:
            decode = _greedy(tau, block_size, max_new_tokens, use_last_mask, drafts)
            more = RaceConfig().lanes[2:] if lanes is None else lanes
            config = _race(decode, more, second_tau, repeats)
            yield from self._for_a_client(Run.of([conversation(prompt, None, system)], config))
        except MarsError as error:
            raise gr.Error(view.sentence(error), print_exception=False) from None

    def batch(
        self,
        prompts: list[str],
        tau: float = 0.9,
        block_size: int = 4,
        max_new_tokens: int = 64,
        lanes: list[str] | None = None,
        rows: int = 4,
        cache_block: int = 16,
        use_last_mask: bool = False,
        drafts: int = 2,
        system: str = "",
    ) -> Iterator[str]:
        """Answer prompts many at once with each cache, greedily; the recording as JSON Lines.

        lanes: besides AR ("block" and "cursor" unless they are named, "paced", "verified",
        "none"). rows: sequences at once. cache_block: tokens of a block of the block cache. The
        last line, of type "verdict", has a result for every lane.
        """
        try:
            decode = _greedy(tau, block_size, max_new_tokens, use_last_mask, drafts)
            more = BatchRaceConfig().lanes[1:] if lanes is None else lanes
            config = _batch_race(decode, more, rows, cache_block)
            asked = _conversations("\n".join(prompts), system)
            yield from self._for_a_client(Run.of(asked, config))
        except MarsError as error:
            raise gr.Error(view.sentence(error), print_exception=False) from None

    def _for_a_client(self, run: Run) -> Iterator[str]:
        self.limits.check(run, len(self.line))
        with self.line.join() as ahead:
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
        return view.waiting_text(ahead) if self.engine.done() else view.LOADING

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
        if "lanes" in found:
            found["lanes"] = list(found["lanes"])
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


def model_facts(loaded: Any) -> view.ModelFacts:
    """What the page tells of a `LoadedModel`."""
    return view.ModelFacts(
        name=loaded.name,
        trained=loaded.trained,
        block_size=loaded.block_size,
        dtype=loaded.dtype_name,
        device=str(getattr(loaded.device, "type", loaded.device)),
        parameters=loaded.parameters,
        dtype_reason=loaded.dtype_reason,
        quantization=loaded.quantization,
        quantization_note=loaded.quantization_note,
        weight_bytes=loaded.weight_bytes,
        entry_bytes=loaded.entry_bytes,
        licence=loaded.licence,
    )


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


def _conversations(prompts: str, system: str) -> list[list[Message]]:
    """One for each line that is not empty."""
    asked = [line for line in prompts.splitlines() if line.strip()]
    check_prompts(asked)
    return [conversation(prompt, None, system) for prompt in asked]


def _view(run: Run) -> view.ViewName:
    return "chat" if run.race is None else "race"


def _whole(number: float) -> int:
    """4.0 as 4, since number fields and JSON do not tell them apart; the rest is for the config."""
    return int(number) if isinstance(number, float) and number.is_integer() else number  # type: ignore[return-value]
