"""Model, decoder, text and stopwatch together: the one door for page, command line, benchmarks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from statistics import median
from typing import Any

from mars_core import trace
from mars_core.about import describe_device, library_versions, model_facts
from mars_core.cache import Session
from mars_core.chat import ChatTurn, encode_chat
from mars_core.composition import ModelDrafter
from mars_core.config import DecodeConfig, Mode
from mars_core.control import Control, LiveControl
from mars_core.decode import check_prompt, decode, mask_token
from mars_core.errors import MarsError
from mars_core.events import ControlChanged, Done, Drafted, Event, Prefill, Slot, Step
from mars_core.models.hardware import synchronizer
from mars_core.models.hush import quiet
from mars_core.models.load import LoadedModel
from mars_core.stopwatch import Stopwatch
from mars_core.text import Detokenizer, StopStrings, TokenText

SHOWN_DIGITS = 6
# of the table that verified decoding plans by
COST_ROWS = (1, 4, 9, 16, 25)
COST_REPEATS = 5


class Engine:
    """A loaded model that answers conversations with trace records.

    One run at a time: a second waits for the first to end or to be closed, so one thread must not
    take two in turn. The KV cache is kept between runs: a conversation that goes on prefills only
    what is new.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        clock: Callable[[], float] = time.perf_counter,
        *,
        draft: LoadedModel | None = None,
        draft_mode: Mode = "one",
    ) -> None:
        """draft: a second model that drafts for the first, decoding in `draft_mode`."""
        if draft is not None:
            check_same_tokens(loaded, draft)
            if draft_mode != "one":
                mask_token(draft.special)
        self.loaded = loaded
        self._draft, self._draft_mode = draft, draft_mode
        self._draft_session = Session(draft.model, draft.context_length) if draft else None
        self.stopwatch = Stopwatch(clock, synchronizer(loaded.device))
        self._tokens = TokenText(loaded.tokenizer)
        self._session = Session(loaded.model, loaded.context_length)
        self._turn = threading.Lock()
        self._warm: set[int] = set()
        self._costs: dict[int, float] = {}

    def generate(
        self,
        messages: Sequence[ChatTurn],
        config: DecodeConfig,
        control: Control | None = None,
    ) -> Iterator[trace.AnyRecord]:
        """Decode the assistant's answer; the trace: header, prefill, steps, done.

        Milliseconds are those of the decoder's steps alone, after a warm-up. Closing the generator
        ends the run at once and leaves the engine ready. Raises MarsError for bad input, at once.
        """
        ids, prompt = self.encode(messages, config)
        return self._run(ids, prompt, config, control or LiveControl(config))

    def forget(self) -> None:
        """Empty the KV cache, so that the next prompt is computed as if it were the first."""
        with self._turn:
            self._session.rewind(0, 0)

    def encode(
        self, messages: Sequence[ChatTurn], config: DecodeConfig
    ) -> tuple[list[int], trace.Prompt]:
        """Token ids of the conversation, and what a trace says of it.

        Raises MarsError for whatever could not be decoded under `config`; costs no forward.
        """
        with quiet():  # a prompt that is too long gets our own words below
            ids, text = encode_chat(self.loaded.tokenizer, messages)
        check_prompt(ids, self.loaded.context_length)
        if config.mode == "verified" or (config.mode == "tau" and config.slots > 1):
            mask_token(self.loaded.special)
        said = tuple(trace.Message(role=m.role, content=m.content) for m in messages)
        return ids, trace.Prompt(messages=said, text=text, tokens=len(ids))

    def _run(
        self, ids: list[int], prompt: trace.Prompt, config: DecodeConfig, control: Control
    ) -> Iterator[trace.AnyRecord]:
        stop = StopStrings(self.loaded.tokenizer, config.stop) if config.stop else None
        with self._turn:
            self.warm_up(config)
            recorder = Recorder(self._tokens, Detokenizer(self.loaded.tokenizer))
            yield header(self.loaded, prompt, config, self._costs, self._draft)
            special, costs, drafter = self.loaded.special, self._costs, self._drafter(config)
            events = decode(self._session, ids, config, special, control, stop, costs, drafter)
            for event, ms in self.stopwatch.timed(events):
                yield recorder.record(event, ms)

    def _drafter(self, config: DecodeConfig) -> ModelDrafter | None:
        """What drafts for a run, with its sampling and its tau."""
        if self._draft is None or self._draft_session is None:
            return None
        size = self._draft.block_size or config.block_size
        own = replace(config, mode=self._draft_mode, block_size=size, alternatives=0, stop=())
        return ModelDrafter(self._draft_session, own, self._draft.special)

    def warm_up(self, config: DecodeConfig) -> None:
        """Run the forwards this configuration will run, once, so that none is timed cold."""
        if config.mode == "verified" and not self._costs:
            self._costs = forward_costs(self.loaded, self.stopwatch)
        if config.slots not in self._warm:
            for width in (1, config.slots, 2 * config.slots):
                for loaded in filter(None, (self.loaded, self._draft)):
                    forward = forward_of(loaded, width)
                    forward()
                    forward()
            self._warm.add(config.slots)


def forward_of(loaded: LoadedModel, rows: int) -> Callable[[], object]:
    """A forward of so many rows, as far as the context goes, to be called again and again."""
    session = Session(loaded.model, loaded.context_length)
    places = range(min(rows, loaded.context_length))
    return partial(session.forward, [[0] * len(places)], [places], None, places)


def forward_costs(loaded: LoadedModel, watch: Stopwatch) -> dict[int, float]:
    """Milliseconds of a forward by its rows, for whoever weighs rows against tokens."""
    costs = {}
    for rows in COST_ROWS:
        forward = forward_of(loaded, rows)
        forward()
        costs[rows] = round(median(watch.run(forward) for _ in range(COST_REPEATS)), 3)
    return costs


class Recorder:
    """Adds text and milliseconds to the events of one row, which makes them trace records."""

    def __init__(self, tokens: TokenText, detokenizer: Detokenizer) -> None:
        self._tokens = tokens
        self._detokenizer = detokenizer
        self._pieces: list[str] = []
        self._prefill_ms = 0.0
        self._decode_ms = 0.0

    def record(self, event: Event, ms: float) -> trace.AnyRecord:
        """The record of `event`, which took `ms` milliseconds."""
        ms = round(ms, 3)
        match event:
            case Prefill():
                self._prefill_ms += ms
                return trace.PrefillRecord(
                    type="prefill",
                    row=event.row,
                    tokens=event.tokens,
                    reused=event.reused,
                    ms=ms,
                )
            case Step():
                self._decode_ms += ms
                return self._step(event, ms)
            case ControlChanged():
                return trace.ControlRecord(
                    type="control",
                    row=event.row,
                    forward=event.forward,
                    mode=event.mode,
                    tau=event.tau,
                )
            case Drafted():
                self._decode_ms += ms
                return trace.ForwardRecord(
                    type="forward",
                    role="draft",
                    rows=(event.row,),
                    forward=event.forward,
                    fed=event.fed,
                    ms=ms,
                )
            case Done():
                return self._done(event)

    def _step(self, step: Step, ms: float) -> trace.StepRecord:
        label = self._tokens.label
        return trace.StepRecord(
            type="step",
            row=step.row,
            forward=step.forward,
            mode=step.mode,
            tau=step.tau,
            fed=step.fed,
            position=step.position,
            ms=ms,
            slots=tuple(map(self._slot, step.slots)),
            tokens=tuple(
                self._token(token.token, token.source, token.slot) for token in step.tokens
            ),
            **self._drafts(step),
            hindsight=tuple(
                trace.HindsightRecord(
                    forward=h.forward,
                    slot=h.slot,
                    ar_token=h.ar_token,
                    ar_text=label(h.ar_token),
                    ar_prob=round(h.ar_prob, SHOWN_DIGITS),
                )
                for h in step.hindsight
            ),
        )

    def _drafts(self, step: Step) -> dict[str, Any]:
        """What there is to record where drafts were verified."""
        if step.group is None:
            return {}
        drafts = tuple(
            trace.DraftRecord(
                id=draft.token,
                text=self._tokens.label(draft.token),
                verdict=draft.verdict,
                origin=None
                if draft.origin is None
                else trace.Address(forward=draft.origin[0], slot=draft.origin[1]),
                prob=draft.prob,
            )
            for draft in step.drafts
        )
        return {"drafts": drafts, "group": step.group}

    def _slot(self, slot: Slot) -> trace.SlotRecord:
        """Alternatives are for the eye and rounded; what is compared with tau is exact."""
        label = self._tokens.label
        return trace.SlotRecord(
            slot=slot.slot,
            id=slot.token,
            text=label(slot.token),
            prob=slot.prob,
            confidence=slot.confidence,
            accepted=slot.accepted,
            alternatives=tuple(
                trace.AlternativeRecord(id=i, text=label(i), prob=round(p, SHOWN_DIGITS))
                for i, p in slot.alternatives
            ),
        )

    def _token(self, token: int, source: trace.TokenSource, slot: int) -> trace.TokenRecord:
        text = self._detokenizer.push(token)
        self._pieces.append(text)
        name = self._tokens.special(token)
        named = {} if name is None else {"special": name}
        return trace.TokenRecord(id=token, text=text, source=source, slot=slot, **named)

    def _done(self, done: Done) -> trace.DoneRecord:
        tail = self._detokenizer.flush()
        return trace.DoneRecord(
            type="done",
            row=done.row,
            reason=done.reason,
            text="".join(self._pieces) + tail,
            tail=tail,
            tokens=done.tokens,
            forwards=done.forwards,
            prefill_ms=round(self._prefill_ms, 3),
            decode_ms=round(self._decode_ms, 3),
        )


def check_same_tokens(loaded: LoadedModel, draft: LoadedModel) -> None:
    """Raise MarsError unless both models mean the same by every token id."""
    if loaded.tokenizer.get_vocab() != draft.tokenizer.get_vocab():
        raise MarsError(
            f"{draft.name} cannot draft for {loaded.name}: they do not have the same tokens"
        )


def header(
    loaded: LoadedModel,
    prompt: trace.Prompt,
    config: DecodeConfig,
    costs: Mapping[int, float] | None = None,
    draft: LoadedModel | None = None,
) -> trace.Header:
    """The first record of a run: everything needed to say how its numbers came about."""
    return trace.Header(
        type="header",
        format="mars-trace",
        version=trace.VERSION,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        model=trace.ModelInfo(**model_facts(loaded)),
        draft_model=None if draft is None else trace.ModelInfo(**model_facts(draft)),
        dtype=loaded.dtype_name,
        dtype_reason=loaded.dtype_reason,
        device=describe_device(loaded),
        versions=library_versions(),
        prompt=prompt,
        settings={**asdict(config), "stop": list(config.stop)},  # as JSON gives it back
        seed=config.seed,
        costs={str(rows): ms for rows, ms in costs.items()} if costs else None,
    )
