"""What evaluations and benchmarks are told: checked where it is made. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from mars_core.config import Caching, DecodeConfig, Layout, Strategy, check_choice, check_range
from mars_core.errors import MarsError
from mars_core.evaluation.measure import check_repeats

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
Section = Literal["forwards", "prompts"]
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
    own. limit: prompts of each set. batch_size: prompts decoded at once. minutes: the sets take
    turns until they are over; no batch is begun then.
    """

    sets: tuple[SetName, ...] = ("everyday", "arithmetic")
    taus: tuple[float, ...] = (0.95, 0.9, 0.8)
    verified: bool = False
    drafts: int = 4
    layout: Layout = "grouped"
    block_size: int | None = None
    use_last_mask: bool = False
    max_new_tokens: int = 128
    limit: int | None = None
    batch_size: int = 8
    minutes: float | None = None

    def __post_init__(self) -> None:
        if not self.sets:
            raise MarsError("no prompts are named")
        check_prompts(self.sets, self.limit)
        for tau in self.taus:
            check_range("tau", tau, 0, 1)
        check_range("batch size", self.batch_size, 1, 4096, whole=True)
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
class BenchConfig:
    """What `mars bench` answers, in which ways, and how many prompts at once.

    sections: forwards by their rows, prompts in all ways. sets: as in DecodingConfig. limit:
    prompts of each set, and as many as a batch at least. batch_sizes: sequences at once; with one,
    taus are compared with each other and with what others offer, with more, ways to cache at
    `batch_tau`. windows: other B than block_size, for one sequence at `batch_tau`, to compare with
    masks paced by their worth. strategies, cache_blocks: see `Caching`; every block size is a way
    of its own. repeats: timed rounds, the ways in turn. The others: as in DecodeConfig.
    """

    sections: tuple[Section, ...] = get_args(Section)
    sets: tuple[SetName, ...] = ("everyday", "gsm8k-100")
    limit: int = 6
    batch_sizes: tuple[int, ...] = (1, 4)
    taus: tuple[float, ...] = (1.0, 0.95, 0.9, 0.8, 0.7)
    batch_tau: float = 0.95
    windows: tuple[int, ...] = ()
    strategies: tuple[Strategy, ...] = ("block", "cursor")
    cache_blocks: tuple[int, ...] = (4, 16)
    block_size: int = 4
    use_last_mask: bool = False
    drafts: int = 4
    layout: Layout = "grouped"
    adaptive: bool = True
    max_new_tokens: int = 128
    repeats: int = 3

    def __post_init__(self) -> None:
        for section in self.sections:
            check_choice("section", section, Section)
        check_prompts(self.sets, self.limit)
        check_repeats(self.repeats)
        for tau in (*self.taus, self.batch_tau):
            check_range("tau", tau, 0, 1)
        for size in self.batch_sizes:
            check_range("batch size", size, 1, 4096, whole=True)
        for strategy in self.strategies:
            for block in self.cache_blocks:
                Caching(strategy, block)
        self.of_one()

    @property
    def one(self) -> DecodeConfig:
        """One token per forward."""
        return DecodeConfig(mode="one", max_new_tokens=self.max_new_tokens, alternatives=0)

    @property
    def verified(self) -> DecodeConfig:
        return replace(
            self.one,
            mode="verified",
            drafts=self.drafts,
            layout=self.layout,
            adaptive=self.adaptive,
        )

    def by_tau(self, tau: float) -> DecodeConfig:
        size, last = self.block_size, self.use_last_mask
        return replace(self.one, mode="tau", tau=tau, block_size=size, use_last_mask=last)

    def of_one(self) -> dict[str, tuple[DecodeConfig, Caching]]:
        """Our ways for one sequence besides AR, by name."""
        found = {"verified": self.verified} | {f"tau {t:g}": self.by_tau(t) for t in self.taus}
        tau, name = self.by_tau(self.batch_tau), f"tau {self.batch_tau:g}"
        found |= {f"{name}, B = {size}": replace(tau, block_size=size) for size in self.windows}
        found[f"{name}, paced"] = replace(tau, adaptive_masks=True)
        return {name: (decode, Caching()) for name, decode in found.items()}

    def of_many(self) -> dict[str, tuple[DecodeConfig, Caching]]:
        """Our ways for several sequences besides AR, by name."""
        tau, found = self.by_tau(self.batch_tau), {}
        name = f"tau {self.batch_tau:g}"
        if "none" in self.strategies:
            found[f"{name}, no cache"] = (tau, Caching("none"))
        if "block" in self.strategies:
            for block in self.cache_blocks:
                found[f"{name}, block {block}"] = (tau, Caching("block", block))
        if "cursor" in self.strategies:
            found[f"{name}, cursor"] = (tau, Caching())
            found[f"{name}, paced"] = (replace(tau, adaptive_masks=True), Caching())
            found["verified"] = (self.verified, Caching())
        return found


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
