"""Intervals by resampling: how far a measured share could be off because of its sample. No torch.

The percentile bootstrap with a fixed seed, so that the same outcomes give the same interval.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

RESAMPLES = 2000
AT_ONCE = 100  # bounds the memory of many items
LEVEL = 0.95

Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Interval:
    """A measured value and its 95 % interval."""

    value: float
    low: float
    high: float


def spread(interval: Interval | None, scale: float, digits: int) -> str:
    """For a table, e.g. "1.24 [1.20, 1.29]"; nothing where there is none."""
    if interval is None:
        return ""
    value, low, high = (scale * x for x in (interval.value, interval.low, interval.high))
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def mean_interval(values: Sequence[float], seed: int = 0) -> Interval:
    """Of the mean of one value per item: a share of right answers, a paired difference."""
    return _interval([values], lambda x: x[0].mean(-1), seed)


def ratio_interval(tops: Sequence[float], bottoms: Sequence[float], seed: int = 0) -> Interval:
    """Of sum over sum, two values per item: tokens per forward."""
    return _interval([tops, bottoms], lambda x: x[0].sum(-1) / x[1].sum(-1), seed)


def ratio_change(
    first: tuple[Sequence[float], Sequence[float]], second: tuple[Sequence[float], Sequence[float]]
) -> Interval:
    """Of the second ratio of sums over the first, items paired: a speed-up in time per token."""
    return _interval(
        [*first, *second],
        lambda x: (x[2].sum(-1) / x[3].sum(-1)) / (x[0].sum(-1) / x[1].sum(-1)),
        seed=0,
    )


def _interval(
    columns: Sequence[Sequence[float]], statistic: Callable[[Values], Values], seed: int
) -> Interval:
    """statistic: from (columns, ..., items) to (...)."""
    data = np.asarray(columns, dtype=np.float64)
    items = data.shape[1]
    if not items:
        raise ValueError("no items to resample")
    rng = np.random.default_rng(seed)
    resampled = [
        statistic(data[:, rng.integers(items, size=(AT_ONCE, items))])
        for _ in range(RESAMPLES // AT_ONCE)
    ]
    low, high = np.quantile(np.concatenate(resampled), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(statistic(data)), float(low), float(high))
