"""What is to be raced. No torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from mars_core.config import DecodeConfig, check_choice, check_range
from mars_core.errors import MarsError

LaneName = Literal["ar", "mars", "verified", "second", "original", "generate", "lookup"]
BASELINE: LaneName = "ar"
GREEDY_LANES: tuple[LaneName, ...] = ("generate", "lookup")
MAX_REPEATS = 20


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
