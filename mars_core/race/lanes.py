"""What can take part in a race: our decoder in its modes, and others on the same weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from mars_core import trace
from mars_core.baselines import watched_generate
from mars_core.chat import ChatTurn
from mars_core.config import DecodeConfig, LoadConfig, Mode
from mars_core.control import Control, LiveSettings
from mars_core.engine import Engine, header
from mars_core.errors import MarsError
from mars_core.models import catalog
from mars_core.models.load import LoadedModel
from mars_core.race.measure import Entrant, race
from mars_core.race.records import AnyRaceRecord, BatchInfo
from mars_core.race.settings import BatchLaneName, BatchRaceConfig, LaneName, RaceConfig
from mars_core.recorder import Recorder
from mars_core.text import Detokenizer, TokenText

LOOKUP_TOKENS = 10  # candidates per forward, what transformers' own documentation uses


@dataclass(frozen=True, slots=True)
class Fixed:
    """The control of one lane: its own settings, and the race's stop."""

    config: DecodeConfig
    control: Control

    def read(self) -> LiveSettings:
        return LiveSettings(self.config.mode, self.config.tau, self.control.read().stop)


def open_racer(
    config: LoadConfig, load: Callable[[LoadConfig], LoadedModel]
) -> tuple[Engine, Racer]:
    """An engine for a model, and what races it against the same without its MARS training.

    load: how models are loaded, and their progress shown.
    """
    loaded, entry = load(config), catalog.find(config.model)
    original = None
    if loaded.adapter is not None:
        original = replace(config, adapter=None)
    elif entry is not None and entry.baseline is not None:
        original = replace(config, model=entry.baseline)
    engine = Engine(loaded)
    return engine, Racer(engine, None if original is None else lambda: Engine(load(original)))


class Racer:
    """Runs races with one engine, and with another for the weights before their MARS training.

    original: loads that other engine, when a race first wants it; None where there are none.
    """

    def __init__(self, engine: Engine, original: Callable[[], Engine] | None) -> None:
        self._engine = engine
        self._load_original = original
        self._original: Engine | None = None

    def race(
        self, messages: Sequence[ChatTurn], config: RaceConfig, control: Control
    ) -> Iterator[AnyRaceRecord]:
        """Race as `config` says; the records as they come. Raises MarsError at once."""
        for lane in config.lanes:
            self._engine.encode(messages, self._settings(lane, config))
        if "original" in config.lanes and self._load_original is None:
            raise MarsError(
                "these weights have no adapter or baseline: the lane original would be ar again"
            )
        return self._race(messages, config, control)

    def _race(
        self, messages: Sequence[ChatTurn], config: RaceConfig, control: Control
    ) -> Iterator[AnyRaceRecord]:
        entrants = [self._entrant(name, messages, config) for name in config.lanes]
        yield from race(entrants, config.repeats, control)

    def batches(
        self, conversations: Sequence[Sequence[ChatTurn]], config: BatchRaceConfig, control: Control
    ) -> Iterator[AnyRaceRecord]:
        """Race batches likewise: the same conversations with each cache."""
        for messages in conversations:
            for lane in config.lanes:
                self._engine.encode(messages, batch_settings(lane, config))
        return self._batches(conversations, config, control)

    def _batches(
        self, conversations: Sequence[Sequence[ChatTurn]], config: BatchRaceConfig, control: Control
    ) -> Iterator[AnyRaceRecord]:
        def entrant(lane: BatchLaneName) -> Entrant:
            settings, caching = batch_settings(lane, config), config.caching(lane)

            def run(control: Control) -> Iterator[trace.AnyRecord]:
                controls = [Fixed(settings, control)] * len(conversations)
                return self._engine.generate_batch(
                    conversations, settings, config.rows, caching, controls
                )

            return Entrant(*batch_described(lane, settings, config.cache_block), run)

        info = BatchInfo(prompts=len(conversations), rows=min(config.rows, len(conversations)))
        yield from race([entrant(lane) for lane in config.lanes], config.repeats, control, info)

    def _settings(self, lane: LaneName, config: RaceConfig) -> DecodeConfig:
        if lane == "second":
            return replace(config.decode, mode="tau", tau=config.second_tau)
        modes: dict[LaneName, Mode] = {"mars": "tau", "verified": "verified"}
        return replace(config.decode, mode=modes.get(lane, "one"))

    def _entrant(self, lane: LaneName, messages: Sequence[ChatTurn], config: RaceConfig) -> Entrant:
        settings = self._settings(lane, config)
        engine = self._engine
        if lane == "original" and self._load_original is not None:
            engine = self._original = self._original or self._load_original()
        name, about = described(lane, settings)
        if lane in ("generate", "lookup"):
            lookup = LOOKUP_TOKENS if lane == "lookup" else None
            return Entrant(
                name,
                about,
                lambda control: baseline_trace(engine, messages, settings, control, lookup),
            )

        def run(control: Control) -> Iterator[trace.AnyRecord]:
            engine.forget()
            return engine.generate(messages, settings, Fixed(settings, control))

        return Entrant(name, about, run)


def batch_settings(lane: BatchLaneName, config: BatchRaceConfig) -> DecodeConfig:
    """How a lane of a race of batches decodes; slots are told without their alternatives."""
    modes: dict[BatchLaneName, Mode] = {"ar": "one", "verified": "verified"}
    return replace(
        config.decode,
        mode=modes.get(lane, "tau"),
        adaptive_masks=lane == "paced",
        alternatives=0,
    )


def batch_described(
    lane: BatchLaneName, settings: DecodeConfig, cache_block: int
) -> tuple[str, str]:
    """A lane's name and a sentence about it."""
    return {
        "ar": ("AR", "One token per forward and row, the same weights; whoever ends makes room."),
        "none": (
            "MARS, no cache",
            f"tau {settings.tau:g}; everything, prompts too, is computed anew in each forward.",
        ),
        "block": (
            f"MARS, block cache of {cache_block}",
            f"tau {settings.tau:g}; rows fill a block in step: who is done waits, and a forward "
            "of its own takes the block in.",
        ),
        "cursor": (
            "MARS, cursor cache",
            f"tau {settings.tau:g}; each row at its own pace, and who ends makes room at once.",
        ),
        "paced": (
            "MARS, paced",
            f"tau {settings.tau:g}, cursor cache; only masks that are worth their time here.",
        ),
        "verified": (
            "Verified, cursor cache",
            f"Up to {settings.drafts} drafts per forward and row, kept where AR agrees.",
        ),
    }[lane]


def described(lane: LaneName, settings: DecodeConfig) -> tuple[str, str]:
    """A lane's name and a sentence about it."""
    slots = f"{settings.slots} slots per forward"
    return {
        "ar": ("AR", "One token per forward, the same weights."),
        "mars": (f"MARS, tau {settings.tau:g}", f"The same weights, {slots}."),
        "second": (f"MARS, tau {settings.tau:g}", f"The same weights, {slots}."),
        "verified": (
            "Verified",
            f"The same weights, up to {settings.drafts} drafts per forward from masks, kept where "
            "AR agrees: its text.",
        ),
        "original": ("Original AR", "One token per forward, the weights before MARS training."),
        "generate": (
            "transformers",
            "`generate` of transformers with its KV cache, the same weights.",
        ),
        "lookup": (
            "Prompt lookup",
            "`generate` of transformers, which looks for what comes next in what was said before. "
            "Its first forward also reads the prompt, and is counted as prefill.",
        ),
    }[lane]


def baseline_trace(
    engine: Engine,
    messages: Sequence[ChatTurn],
    config: DecodeConfig,
    control: Control,
    lookup: int | None,
) -> Iterator[trace.AnyRecord]:
    """The trace of transformers' greedy `generate`; all of it at once, when it is done.

    lookup: candidates per forward of prompt lookup decoding; None: one token per forward.
    """
    loaded = engine.loaded
    ids, prompt = engine.encode(messages, config)
    engine.warm_up(config)
    recorder = Recorder(TokenText(loaded.tokenizer), Detokenizer(loaded.tokenizer))
    yield header(loaded, prompt, config)
    events = watched_generate(
        loaded,
        ids,
        config,
        engine.stopwatch,
        lookup=lookup,
        stopped=lambda: control.read().stop,
    )
    for event, ms in events:
        yield recorder.record(event, ms)
