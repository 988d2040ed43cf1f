"""What all measurements share: on what they were made, and figures over repeats. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from mars_core.errors import MarsError

PROMPT = "Explain in a few paragraphs how rain forms, from the sea to the clouds and back."


@dataclass(frozen=True, slots=True)
class Timing:
    """A quantity over the repeats: median, and the quartiles as its spread."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Conditions:
    """On what something was measured. versions: of Python and of libraries, by name."""

    model: str
    weights: str
    dtype: str
    device: str
    versions: dict[str, str]

    def lines(self) -> list[str]:
        """For the top of a table."""
        versions = ", ".join(f"{name} {number}" for name, number in self.versions.items())
        return [f"{self.model} ({self.weights}), {self.dtype}, {self.device}", versions]


def check_repeats(repeats: int) -> None:
    """Raise MarsError for fewer repeats than quartiles can be taken of."""
    if repeats < 3:
        raise MarsError(f"repeats is {repeats}; a median with a spread needs at least 3")


def summary(values: Sequence[float]) -> Timing:
    """Median and quartiles."""
    low, _, high = quantiles(values, n=4, method="inclusive")
    return Timing(median(values), low, high)


def spread(timing: Timing) -> str:
    """Median and quartiles in a column of numbers."""
    return f"{timing.median:7.2f} [{timing.low:.2f}, {timing.high:.2f}]"
