"""What evaluations and benchmarks are told: checked where it is made. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from mars_core.config import Caching, DecodeConfig, Layout, Strategy, check_choice, check_range
from mars_core.errors import MarsError

SetName = Literal[
    "everyday",
    "development",
    "facts",
    "mt-bench",
    "humaneval",
    "gsm8k-100",
    "arithmetic",
    "templates",
]
# what quantised weights can compute in
QuantisedIn = Literal["bfloat16", "float16", "float32"]
# of the word problems, as many as of the largest set of prompts
PROBLEMS = 512


def check_prompts(sets: Sequence[str], limit: int | None) -> None:
    """Raise MarsError for a set that does not exist, or too few or many prompts of each."""
    for name in sets:
        check_choice("prompt set", name, SetName)
    if limit is not None:
        check_range("limit", limit, 1, 10**6, whole=True)


@dataclass(frozen=True, slots=True)
class DecodingConfig:
    """What to answer, and at which taus.

    sets: "arithmetic" has the templates of training with unseen numbers, "templates" unseen
    templates; the others are those of `prompts.py`. taus: besides 1, which always comes first.
    verified: mode verified too, with all `drafts` and masks of the `layout` whatever they cost, so
    that its tokens per forward do not depend on the machine. block_size: None takes the model's
    own. limit: prompts of each set. minutes: the sets take turns until they are over.
    """

    sets: tuple[SetName, ...] = ("everyday", "arithmetic")
    taus: tuple[float, ...] = (0.95, 0.9, 0.8)
    verified: bool = False
    drafts: int = 2
    layout: Layout = "grouped"
    block_size: int | None = None
    use_last_mask: bool = False
    max_new_tokens: int = 128
    limit: int | None = None
    minutes: float | None = None

    def __post_init__(self) -> None:
        if not self.sets:
            raise MarsError("no prompts are named")
        check_prompts(self.sets, self.limit)
        for tau in self.taus:
            check_range("tau", tau, 0, 1)
        if self.minutes is not None:
            check_range("minutes", self.minutes, 0, 10**6)

    def decode_configs(self, trained_size: int | None) -> list[DecodeConfig]:
        """Tau 1, the others in their order, verified. trained_size: the model's own B, if any."""
        plain = DecodeConfig(
            block_size=self.block_size or trained_size or DecodeConfig().block_size,
            use_last_mask=self.use_last_mask,
            drafts=self.drafts,
            layout=self.layout,
            adaptive=False,
            max_new_tokens=self.max_new_tokens,
            alternatives=0,
        )
        found = [replace(plain, tau=tau) for tau in dict.fromkeys((1.0, *self.taus))]
        return [*found, replace(plain, mode="verified")] if self.verified else found


@dataclass(frozen=True, slots=True)
class BatchConfig:
    """What `mars bench-batch` answers, how many at once, and with which caches.

    set, limit: as in DecodingConfig, `limit` prompts of one set. batch_sizes: sequences at once.
    strategies, cache_blocks: see `Caching`; every block size is a way of its own. The others: as in
    DecodeConfig.
    """

    set: SetName = "gsm8k-100"
    limit: int = 32
    batch_sizes: tuple[int, ...] = (1, 4, 8, 16)
    strategies: tuple[Strategy, ...] = ("block", "cursor")
    cache_blocks: tuple[int, ...] = (4, 8, 16, 32)
    tau: float = 0.95
    block_size: int = 4
    use_last_mask: bool = False
    drafts: int = 2
    layout: Layout = "grouped"
    max_new_tokens: int = 128
    repeats: int = 3

    def __post_init__(self) -> None:
        check_prompts([self.set], self.limit)
        check_range("repeats", self.repeats, 1, 10**6, whole=True)
        for size in self.batch_sizes:
            check_range("batch size", size, 1, 4096, whole=True)
        for strategy in self.strategies:
            for block in self.cache_blocks:
                Caching(strategy, block)

    def ways(self) -> dict[str, tuple[DecodeConfig, Caching]]:
        """What is measured beside each other, by name; AR comes first."""
        one = DecodeConfig(mode="one", max_new_tokens=self.max_new_tokens, alternatives=0)
        tau = replace(
            one,
            mode="tau",
            tau=self.tau,
            block_size=self.block_size,
            use_last_mask=self.use_last_mask,
        )
        found = {"AR, cursor": (one, Caching())}
        if "none" in self.strategies:
            found["tau, no cache"] = (tau, Caching("none"))
        if "block" in self.strategies:
            for block in self.cache_blocks:
                found[f"tau, block {block}"] = (tau, Caching("block", block))
        if "cursor" in self.strategies:
            found["tau, cursor"] = (tau, Caching())
            found["tau, cursor, paced"] = (replace(tau, adaptive_masks=True), Caching())
            verified = replace(one, mode="verified", drafts=self.drafts, layout=self.layout)
            found["verified, cursor"] = (verified, Caching())
        return found


@dataclass(frozen=True, slots=True)
class SpeedConfig:
    """What `mars bench` answers in each way: one token per forward, and at these taus.

    sets, limit: as in DecodingConfig. The others: as in DecodeConfig.
    """

    sets: tuple[SetName, ...] = ("everyday", "arithmetic")
    taus: tuple[float, ...] = (0.95, 0.9, 0.8)
    block_size: int = 4
    use_last_mask: bool = False
    drafts: int = 2
    layout: Layout = "grouped"
    adaptive: bool = True
    max_new_tokens: int = 128
    limit: int = 6

    def __post_init__(self) -> None:
        check_prompts(self.sets, self.limit)
        for tau in self.taus:
            check_range("tau", tau, 0, 1)


@dataclass(frozen=True, slots=True)
class QuantizationConfig:
    """sets, limit: prompts, each answered with at most max_new_tokens, greedily. tau: of the masks.
    dtype: what quantised weights compute in."""

    sets: tuple[SetName, ...] = ("everyday",)
    limit: int | None = 20
    max_new_tokens: int = 64
    tau: float = 0.9
    dtype: str = "bfloat16"

    def __post_init__(self) -> None:
        check_prompts(self.sets, self.limit)
        check_choice("dtype", self.dtype, QuantisedIn)
        self.decode("tau")

    def decode(self, mode: str) -> DecodeConfig:
        """How both modes decode."""
        return DecodeConfig(
            mode="one" if mode == "one" else "tau",
            tau=self.tau,
            max_new_tokens=self.max_new_tokens,
            alternatives=0,
        )
