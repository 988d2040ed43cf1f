"""How many masks the rows of a batch are fed in mode tau: those that are worth it. No torch.

A forward is as wide as its widest row, so one width is chosen for all; a row fills it with the
tokens it has to be fed and then with masks. What a width costs is the machine's (a table), what
masks bring is the text's: how many were accepted lately, by the row and by all rows of its tau.
Where no masks are worth it they are tried again now and then, since nothing is learned without.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mars_core.drafting import PRIOR_KEPT, PRIOR_SEEN, cost_of, slope_of
from mars_core.events import Step

TRY_AGAIN = 0.01  # of the time, for one mask of each row
# tokens of a row that masks must bring beyond their cost: neither cost nor worth is known exactly
MARGIN = 0.03
# what was seen counts so much less with all that is seen after it, of a row and of all rows
FADE = 0.97
# so many acceptances of all rows weigh as much as a row's own
TRUST = 2.0


@dataclass(slots=True)
class Counts:
    """By depth (from the first mask): masks that were read, all before them accepted; accepted."""

    reached: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    accepted: dict[int, float] = field(default_factory=lambda: defaultdict(float))

    def learn(self, fed: int, accepted: int) -> None:
        """A row was fed `fed` masks, of which the first `accepted` became text."""
        if not fed:
            return
        for counts in (self.reached, self.accepted):
            for depth in counts:
                counts[depth] *= FADE
        for depth in range(min(fed, accepted + 1)):
            self.reached[depth] += 1
            self.accepted[depth] += depth < accepted


@dataclass(frozen=True, slots=True)
class Wish:
    """What a row could be fed. row: its number. real: tokens it must be fed. masks: at most."""

    row: int
    tau: float
    real: int
    masks: int


@dataclass(slots=True)
class Pacer:
    """Paces one batch. costs: milliseconds of a forward, by sequences and by rows of each."""

    costs: Mapping[int, Mapping[int, float]]
    rows: dict[int, tuple[float, Counts]] = field(default_factory=dict)  # with their tau
    taus: dict[float, Counts] = field(default_factory=lambda: defaultdict(Counts))
    tokens: float = 0.0
    ms: float = 0.0
    without: float = 0.0  # milliseconds since masks were fed

    def masks(self, wishes: Sequence[Wish], width: int, sequences: int) -> dict[int, int]:
        """Masks for each row that may choose.

        width: what the others need anyway. sequences: places of the forward, idle ones too.
        """
        least = max([width, *(wish.real for wish in wishes)])
        most = max([least, *(wish.real + wish.masks for wish in wishes)])
        gains = {w: self._gain(wishes, w, sequences) for w in range(least, most + 1)}
        best = max(gains, key=gains.__getitem__)
        if gains[best] < gains[least] + MARGIN * sequences:
            best = least
        dearer = self._cost(sequences, least + 1) - self._cost(sequences, least)
        if best == least < most and self.without * TRY_AGAIN > dearer:
            best += 1
        return {wish.row: max(0, min(wish.masks, best - wish.real)) for wish in wishes}

    def learn(self, steps: Sequence[Step], width: int, sequences: int) -> None:
        """Take in a forward: `width` rows of each of `sequences` places."""
        fed = 0
        for step in steps:
            masks = len(step.slots) - 1
            fed += masks
            self._of(step.row, step.tau).learn(masks, len(step.tokens) - 1)
            self.taus[step.tau].learn(masks, len(step.tokens) - 1)
        ms = self._cost(sequences, width)
        self.without = 0.0 if fed else self.without + ms
        self.tokens = FADE * self.tokens + sum(len(step.tokens) for step in steps)
        self.ms = FADE * self.ms + ms

    def _of(self, row: int, tau: float) -> Counts:
        """A row's own counts, new ones where its tau was moved."""
        known = self.rows.get(row)
        if known is None or known[0] != tau:
            known = self.rows[row] = (tau, Counts())
        return known[1]

    def _cost(self, sequences: int, width: int) -> float:
        """Milliseconds of a forward, between the measured ones along straight lines."""
        return cost_of({n: cost_of(table, width) for n, table in self.costs.items()}, sequences)

    def _slope(self, sequences: int) -> float:
        """Milliseconds that one more row of every sequence costs."""
        return cost_of({n: slope_of(table) for n, table in self.costs.items()}, sequences)

    def _accepted(self, wish: Wish, masks: int) -> float:
        """How many of so many masks a row is expected to accept."""
        own, all_rows = self._of(wish.row, wish.tau), self.taus[wish.tau]
        chance, expected = 1.0, 0.0
        for depth in range(masks):
            common = (all_rows.accepted[depth] + PRIOR_KEPT * PRIOR_SEEN) / (
                all_rows.reached[depth] + PRIOR_SEEN
            )
            chance *= (own.accepted[depth] + TRUST * common) / (own.reached[depth] + TRUST)
            expected += chance
        return expected

    def _gain(self, wishes: Sequence[Wish], width: int, sequences: int) -> float:
        """Tokens that masks up to this width bring, less what its time is worth in tokens."""
        price = self.tokens / self.ms if self.ms else sequences / self._cost(sequences, 1)
        # an accepted token is a row of the next forward
        share = 1 - price * self._slope(sequences) / sequences
        accepted = sum(
            self._accepted(wish, max(0, min(wish.masks, width - wish.real))) for wish in wishes
        )
        return share * accepted - price * self._cost(sequences, width)
