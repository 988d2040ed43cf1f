"""An engine without a model: it plays passes written down in a test, as real trace records."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import asdict
from functools import partial
from types import SimpleNamespace
from typing import Any

from mars_core import trace
from mars_core.config import DecodeConfig
from mars_core.control import Control, LiveControl
from mars_core.errors import MarsError
from mars_core.race.measure import Entrant, race
from mars_core.race.settings import RaceConfig
from mars_core.ui.handlers import Handlers
from mars_core.ui.line import Line
from mars_core.ui.model_handlers import ModelHandlers

EOS = "<|im_end|>"
Passes = Sequence[Sequence[str]]


def loaded(**changes: object) -> SimpleNamespace:
    """The fields of a LoadedModel that the page reads."""
    facts = {
        "name": "scripted",
        "trained": False,
        "block_size": None,
        "dtype_name": "float32",
        "dtype_reason": "asked for",
        "device": SimpleNamespace(type="cpu"),
        "parameters": 134_515_008,
        "quantization": "none",
        "quantization_note": None,
        "weight_bytes": 269_000_000,
        "entry_bytes": 23_040,
        "licence": "Apache-2.0",
    }
    return SimpleNamespace(**{**facts, **changes})


def ready(engine: object) -> Future[Any]:
    """The engine as the page takes it: here it is there at once."""
    future: Future[Any] = Future()
    future.set_result(engine)
    return future


def handlers_for(engine: Future[Any]) -> Handlers:
    """The page's handlers, without the page."""
    return Handlers(ModelHandlers(engine, Line()))


def token_id(text: str) -> int:
    return sum(ord(character) * 31**i for i, character in enumerate(text)) % 50_000


class ScriptedEngine:
    """Plays `passes` (texts by forward); the last token is EOS when it is named so.

    disagree: (forward, slot) where AR would have chosen another token. pause: seconds per pass.
    """

    def __init__(
        self,
        passes: Passes,
        *,
        pause: float = 0.0,
        disagree: frozenset[tuple[int, int]] = frozenset(),
        error: str | None = None,
    ) -> None:
        self.loaded = loaded()
        self.passes = passes
        self.pause = pause
        self.disagree = disagree
        self.error = error
        self.running = 0
        self.most_running = 0

    def encode(self, messages: Sequence[trace.Message], config: DecodeConfig) -> None:
        if self.error:
            raise MarsError(self.error)

    def generate(
        self,
        messages: Sequence[trace.Message],
        config: DecodeConfig,
        control: Control | None = None,
    ) -> Iterator[trace.AnyRecord]:
        self.encode(messages, config)
        self.running += 1
        self.most_running = max(self.running, self.most_running)
        try:
            yield from self._records(messages, config, control or LiveControl(config))
        finally:
            self.running -= 1

    def race(
        self, messages: Sequence[trace.Message], config: RaceConfig, control: Control
    ) -> Iterator[Any]:
        """The same words one by one, then in passes."""
        one_by_one = ScriptedEngine([[word] for words in self.passes for word in words])
        one_by_one.pause = self.pause
        lanes = {"AR": one_by_one, "MARS": self}
        entrants = [
            Entrant(name, f"{name} of a test.", partial(engine.generate, messages, config.decode))
            for name, engine in lanes.items()
        ]
        return race(entrants, config.repeats, control)

    def _records(
        self, messages: Sequence[trace.Message], config: DecodeConfig, control: Control
    ) -> Iterator[trace.AnyRecord]:
        yield header(messages, config)
        yield trace.PrefillRecord(type="prefill", row=0, tokens=7, reused=0, ms=12.5)
        mode, tau = config.mode, config.tau
        shown: list[str] = []
        count = forward = 0
        reason = "length"
        for forward, texts in enumerate(self.passes, 1):
            now = control.read()
            if now.stop:
                reason, forward = "stopped", forward - 1
                break
            if (now.mode, now.tau) != (mode, tau):
                mode, tau = now.mode, now.tau
                yield trace.ControlRecord(
                    type="control", row=0, forward=forward, mode=mode, tau=tau
                )
            time.sleep(self.pause)
            yield self._step(forward, texts, mode, tau, 7 + count)
            count += len(texts)
            shown += (text for text in texts if text != EOS)
            if texts[-1] == EOS:
                reason = "eos"
        yield trace.DoneRecord(
            type="done",
            row=0,
            reason=reason,
            text="".join(shown),
            tokens=count,
            forwards=forward,
            prefill_ms=12.5,
            decode_ms=10.0 * forward,
        )

    def _step(
        self, forward: int, texts: Sequence[str], mode: str, tau: float, position: int
    ) -> trace.StepRecord:
        before = self.passes[forward - 2] if forward > 1 else ()
        return trace.StepRecord(
            type="step",
            row=0,
            forward=forward,
            mode=mode,
            tau=tau,
            fed=4,
            position=position,
            ms=10.0,
            slots=tuple(
                trace.SlotRecord(
                    slot=i,
                    id=token_id(text),
                    text=text,
                    prob=0.95,
                    confidence=0.95,
                    accepted=True,
                    alternatives=(trace.AlternativeRecord(id=1, text=text, prob=0.95),),
                )
                for i, text in enumerate(texts)
            ),
            tokens=tuple(committed(i, text) for i, text in enumerate(texts)),
            hindsight=tuple(
                trace.HindsightRecord(
                    forward=forward - 1,
                    slot=i,
                    ar_token=token_id(text) + ((forward - 1, i) in self.disagree),
                    ar_text="other",
                    ar_prob=0.5,
                )
                for i, text in enumerate(before)
                if i
            ),
        )


def committed(slot: int, text: str) -> trace.TokenRecord:
    source = "slot" if slot else "ar"
    if text == EOS:
        return trace.TokenRecord(id=2, text="", source=source, slot=slot, special=EOS)
    return trace.TokenRecord(id=token_id(text), text=text, source=source, slot=slot)


def header(messages: Sequence[trace.Message], config: DecodeConfig) -> trace.Header:
    return trace.Header(
        type="header",
        format="mars-trace",
        version=1,
        created="2026-01-01T00:00:00+00:00",
        model=trace.ModelInfo(
            name="scripted",
            source="a test",
            weights="none",
            architecture="none",
            parameters=0,
            trained=False,
            context_length=100,
        ),
        dtype="float32",
        device="cpu",
        versions={},
        prompt=trace.Prompt(messages=tuple(messages), text=messages[-1].content, tokens=8),
        settings={**asdict(config), "stop": list(config.stop)},
        seed=config.seed,
    )
