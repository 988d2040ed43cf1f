"""The rows of one forward: committed tokens, drafts, and groups of masks.

Group j stands behind the first j drafts, so that there are masks to read wherever AR stops to
agree. With the last committed token at position p, drafts are at p + 1, p + 2, ...; mask i (from
0) of group j is at p + 1 + j + i, sees what is committed, the first j drafts and its own group up
to itself, and is seen by nobody else. This is Figure 5 of arXiv 2604.07023 with one model. Masks
behind committed tokens alone, as in mode tau, are group 0 of no drafts, and plainly causal.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch

from mars_core.cache import Fed


@dataclass(frozen=True, slots=True)
class Window:
    """What one forward is fed behind the cache.

    pending: committed tokens that are not cached, at least one. drafts: tokens to be verified.
    groups: masks in each group, one group more than there are drafts. start: the position of the
    first pending token. mask_id: needed where there are masks.
    """

    pending: tuple[int, ...]
    drafts: tuple[int, ...]
    groups: tuple[int, ...]
    start: int
    mask_id: int | None

    @property
    def real(self) -> int:
        """Rows that hold tokens; the masks come behind them."""
        return len(self.pending) + len(self.drafts)

    @property
    def ids(self) -> list[int]:
        """Token id of each row."""
        masks = [self.mask_id] * sum(self.groups) if self.mask_id is not None else []
        return [*self.pending, *self.drafts, *masks]

    @property
    def positions(self) -> list[int]:
        """Position id of each row."""
        first = self.start + len(self.pending)
        places = list(range(self.start, self.start + self.real))
        for group, masks in enumerate(self.groups):
            places += range(first + group, first + group + masks)
        return places

    @property
    def visibility(self) -> torch.Tensor | None:
        """(n, n) bool: which row (dim 0) sees which; None where rows see all before them."""
        if not any(self.groups[:-1]):
            return None
        return _visibility(len(self.pending), self.groups)

    def fed(self, first: int = 0) -> Fed:
        """What the model is given; logits are wanted from row `first` on."""
        ids = self.ids
        return Fed(ids, self.positions, self.visibility, range(first, len(ids)))

    def rows_of(self, group: int) -> slice:
        """Where the masks of a group are."""
        first = self.real + sum(self.groups[:group])
        return slice(first, first + self.groups[group])


@lru_cache(maxsize=64)
def _visibility(pending: int, groups: tuple[int, ...]) -> torch.Tensor:
    real = pending + len(groups) - 1
    width = real + sum(groups)
    seen = torch.ones(width, width, dtype=torch.bool).tril()
    seen[real:] = False
    first = real
    for group, masks in enumerate(groups):
        rows = slice(first, first + masks)
        seen[rows, : pending + group] = True
        seen[rows, rows] = torch.ones(masks, masks, dtype=torch.bool).tril()
        first += masks
    return seen
