"""How many drafts a forward is fed, and how many masks for the next: worth against time. No torch.

A forward with drafts gains one token for each that AR agrees with, up to the first it does not;
masks gain nothing now, and drafts for the forward after. Both cost rows. What a row costs is the
machine's (a table of milliseconds by rows), what it is worth is the text's: how often drafts were
kept so far, and how sure the model was of those at hand.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from operator import mul
from typing import Protocol

from mars_core.config import DecodeConfig
from mars_core.events import Drafted

# what is thought of drafts before any was judged: each kept with this chance, as if seen so often
PRIOR_KEPT, PRIOR_SEEN = 0.5, 4.0


@dataclass(frozen=True, slots=True)
class Proposal:
    """A token to be fed as a draft.

    origin: (forward, slot) of the mask that predicts it; None where a model drafts.
    """

    token: int
    origin: tuple[int, int] | None
    prob: float
    confidence: float


class Drafter(Protocol):
    """Another model that drafts (`mars_core.composition`)."""

    def __call__(
        self, ids: Sequence[int], count: int, forward: int
    ) -> Generator[Drafted, None, list[Proposal]]:
        """At most `count` tokens behind `ids`; yields an event per forward of its own."""
        ...


@dataclass(slots=True)
class Planner:
    """Plans one run. costs: milliseconds of a forward by its rows; None: feed all there is."""

    config: DecodeConfig
    costs: Mapping[int, float] | None = None
    kept: list[float] = field(init=False)
    reached: list[float] = field(init=False)
    # kept drafts against their summed confidence: how far that is to be believed
    said: list[float] = field(default_factory=lambda: [2.0, 2.0])
    tokens: float = 1.0
    ms: float = 0.0

    def __post_init__(self) -> None:
        self.reached = [PRIOR_SEEN] * self.config.drafts
        self.kept = [PRIOR_KEPT * PRIOR_SEEN] * self.config.drafts
        if self.costs is not None and not self.config.adaptive:
            self.costs = None
        if self.costs:
            self.ms = cost_of(self.costs, 1)

    def plan(self, proposals: Sequence[Proposal], pending: int, room: int) -> tuple[int, ...]:
        """The groups of the next forward: one more than there are drafts to feed.

        pending: committed tokens to feed. room: tokens that may still be produced, of which AR's
        own takes one.
        """
        most = min(len(proposals), self.config.drafts, room - 1)
        if self.costs is None:
            return self._groups(most, room, [self.config.drafts] * (most + 1))
        plans = [self._worthwhile(proposals[:count], room) for count in range(most + 1)]
        return max(plans, key=lambda groups: self._gain(proposals, groups, pending))

    def learn(self, fed: Sequence[Proposal], kept: int, tokens: int, rows: int) -> None:
        """Take in a forward of `rows` that committed `tokens`, with the first `kept` drafts."""
        for depth, proposal in enumerate(fed[: kept + 1]):
            self.reached[depth] += 1
            self.kept[depth] += depth < kept
            self.said[0] += depth < kept
            self.said[1] += proposal.confidence
        if self.costs:
            self.tokens += tokens
            self.ms += cost_of(self.costs, rows)

    def _groups(self, drafts: int, room: int, wanted: Sequence[int]) -> tuple[int, ...]:
        """So many masks behind each draft as are wanted and there is room to use."""
        linear = self.config.layout == "linear"
        return tuple(
            0 if linear and group < drafts else max(0, min(masks, room - group - 2))
            for group, masks in enumerate(wanted)
        )

    def _chances(self, proposals: Sequence[Proposal]) -> list[float]:
        """That at least so many of the drafts at hand are kept: from 0, so first 1."""
        believed = self.said[0] / self.said[1]
        each = (min(1.0, proposal.confidence * believed) for proposal in proposals)
        return [1.0, *accumulate(each, mul)]

    @property
    def _price(self) -> float:
        """What a millisecond is worth: tokens per millisecond so far."""
        return self.tokens / self.ms if self.ms else 0.0

    @property
    def _row(self) -> float:
        """What the time of one row is worth."""
        return self._price * dearest_row(self.costs) if self.costs else 0.0

    def _worth(self, masks: int) -> float:
        """Tokens that the drafts of `masks` masks gain in the next forward, less their rows."""
        rates = (kept / reached for kept, reached in zip(self.kept, self.reached, strict=True))
        return sum(list(accumulate(rates, mul))[:masks]) - self._row * masks

    def _worthwhile(self, drafts: Sequence[Proposal], room: int) -> tuple[int, ...]:
        """Groups behind these drafts, each as long as its masks are worth the rows they take."""
        worth = [self._worth(masks) for masks in range(self.config.drafts + 1)]
        wanted = [
            max(range(len(worth)), key=lambda n: chance * worth[n] - self._row * n)
            for chance in _exactly(self._chances(drafts))
        ]
        return self._groups(len(drafts), room, wanted)

    def _gain(self, proposals: Sequence[Proposal], groups: tuple[int, ...], pending: int) -> float:
        """Tokens a forward with these groups brings, now and next, less what its time is worth."""
        assert self.costs is not None
        drafts = len(groups) - 1
        chances = self._chances(proposals[:drafts])
        afterwards = sum(
            chance * self._worth(masks)
            for chance, masks in zip(_exactly(chances), groups, strict=True)
        )
        rows = pending + drafts + sum(groups)
        return sum(chances) + afterwards - self._price * cost_of(self.costs, rows)


def _exactly(chances: Sequence[float]) -> list[float]:
    """Of the chances of at least 0, 1, 2, ... those of just so many."""
    return [at_least - more for at_least, more in pairwise([*chances, 0.0])]


def cost_of(costs: Mapping[int, float], rows: int) -> float:
    """Milliseconds of a forward of `rows`: between the measured counts along a straight line."""
    counts = sorted(costs)
    above = next((count for count in counts if count >= rows), counts[-1])
    below = max((count for count in counts if count <= rows), default=counts[0])
    if above == below:
        return costs[above] + slope_of(costs) * (rows - above)
    share = (rows - below) / (above - below)
    return costs[below] + share * (costs[above] - costs[below])


def per_row(costs: Mapping[int, Mapping[int, float]], sequences: int) -> dict[int, float]:
    """One sequence's share of a forward of so many, by the rows each is fed.

    costs: milliseconds by sequences (of the counts measured the next larger one is taken) and rows.
    """
    measured = min((n for n in costs if n >= sequences), default=max(costs))
    return {rows: ms / measured for rows, ms in costs[measured].items()}


def dearest_row(costs: Mapping[int, float]) -> float:
    """The most milliseconds that each row beyond the first costs, up to any measured count.

    Where the first rows are dearer than those behind them, it is the first that a plan is about.
    Not up to two rows: the step from one row to several is paid once, however many they are.
    """
    first = min(costs)
    several = (slope_of({first: costs[first], n: ms}) for n, ms in costs.items() if n > first + 1)
    return max(several, default=slope_of(costs))


def slope_of(costs: Mapping[int, float]) -> float:
    """Milliseconds that one more row costs, over the whole table."""
    first, last = min(costs), max(costs)
    return max(0.0, (costs[last] - costs[first]) / (last - first)) if last > first else 0.0
