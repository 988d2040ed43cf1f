"""What is to be raced. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from mars_core.config import Caching, DecodeConfig, check_choice, check_range
from mars_core.errors import MarsError

LaneName = Literal["ar", "mars", "verified", "second", "original", "generate", "lookup"]
BASELINE: LaneName = "ar"
GREEDY_LANES: tuple[LaneName, ...] = ("generate", "lookup")
MAX_REPEATS = 20
BatchLaneName = Literal["ar", "none", "block", "cursor", "paced", "verified"]
MAX_PROMPTS, MAX_ROWS = 64, 32


@dataclass(frozen=True, slots=True)
class RaceConfig:
    """A race.

    decode: how the lane "mars" decodes; the others follow it in everything they can. Its mode does
        not matter: every lane has its own.
    lanes: ar (one token per forward, same weights; always first, what the others are compared
        with), mars (by tau), verified (drafts from masks that AR checks), second (mars at
        `second_tau`), original (one token per forward, weights without the adapter), generate
        (transformers' `generate`), lookup (the same with prompt lookup).
    repeats: how often each lane is measured, all in turn; the first time is what is shown.
    """

    decode: DecodeConfig = field(default_factory=DecodeConfig)
    lanes: tuple[LaneName, ...] = ("ar", "mars", "verified")
    second_tau: float = 0.7
    repeats: int = 3

    def __post_init__(self) -> None:
        for lane in self.lanes:
            check_choice("lane", lane, LaneName)
        if self.lanes[:1] != (BASELINE,):
            raise MarsError("the first lane of a race is ar: the others are compared with it")
        if len(set(self.lanes)) < len(self.lanes):
            raise MarsError("a lane is named twice")
        if len(self.lanes) < 2:
            raise MarsError(f"a race wants two lanes at least: {', '.join(get_args(LaneName))}")
        check_range("second tau", self.second_tau, 0, 1)
        check_range("repeats", self.repeats, 1, MAX_REPEATS, whole=True)
        for name in GREEDY_LANES:
            if name in self.lanes and self.decode.temperature > 0:
                raise MarsError(f"the lane {name} is greedy: set the temperature to 0")


@dataclass(frozen=True, slots=True)
class BatchRaceConfig:
    """A race of batches: the same prompts, answered many at once.

    decode: how the MARS lanes decode; as in RaceConfig its mode does not matter.
    rows: sequences at once. cache_block: tokens of a block of the lane block.
    lanes: ar (one token per forward; always first), block, cursor, none (mode tau with that cache,
        see `config.Caching`), paced (cursor, masks by their worth), verified (cursor).
    repeats: how often each lane is measured.
    """

    decode: DecodeConfig = field(default_factory=DecodeConfig)
    rows: int = 4
    cache_block: int = 16
    lanes: tuple[BatchLaneName, ...] = ("ar", "block", "cursor")
    repeats: int = 1

    def __post_init__(self) -> None:
        for lane in self.lanes:
            check_choice("lane", lane, BatchLaneName)
        if self.lanes[:1] != (BASELINE,):
            raise MarsError("the first lane of a race is ar: the others are compared with it")
        if len(set(self.lanes)) < len(self.lanes):
            raise MarsError("a lane is named twice")
        if len(self.lanes) < 2:
            raise MarsError("a race wants two lanes at least: choose a cache besides AR")
        check_range("rows", self.rows, 1, MAX_ROWS, whole=True)
        check_range("repeats", self.repeats, 1, MAX_REPEATS, whole=True)
        self.caching("block")

    def caching(self, lane: BatchLaneName) -> Caching:
        """The cache of a lane."""
        if lane == "none" or lane == "block":
            return Caching(lane, self.cache_block)
        return Caching()


def check_prompts(prompts: Sequence[str]) -> None:
    """Raise MarsError unless there are some prompts for a batch, and not too many."""
    if not prompts:
        raise MarsError("a batch needs prompts: write one a line")
    if len(prompts) > MAX_PROMPTS:
        raise MarsError(
            f"{len(prompts)} prompts are too many for a batch here: {MAX_PROMPTS} at most"
        )


def new_tokens(config: DecodeConfig | RaceConfig | BatchRaceConfig, prompts: int = 1) -> int:
    """Tokens that a run or a race decodes, at most: also its forwards, at most."""
    if isinstance(config, DecodeConfig):
        return config.max_new_tokens * prompts
    return config.decode.max_new_tokens * len(config.lanes) * config.repeats * prompts
