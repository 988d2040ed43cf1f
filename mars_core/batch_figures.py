"""Figures of a batch, from its trace alone. No torch."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from mars_core import trace
from mars_core.errors import MarsError


@dataclass(frozen=True, slots=True)
class BatchFigures:
    """What a batch did.

    rows: sequences answered. places: how many at once. tokens, forwards: of all; a forward for
    many rows is one. parts: forwards times the rows that took part in each. idle: share of the
    time that places which were taken waited for others (0 to 1). prefill_ms, decode_ms: of all.
    seen, agreed: tokens from masks of which AR's own choice is known, and those that are it.
    masked: forwards in which masks were fed.
    """

    rows: int
    places: int
    tokens: int
    forwards: int
    parts: int
    idle: float
    prefill_ms: float
    decode_ms: float
    seen: int
    agreed: int
    masked: int

    @property
    def per_forward(self) -> float:
        """Tokens of a row per forward it took part in; 1 is AR."""
        return self.tokens / self.parts if self.parts else 0.0

    @property
    def per_second(self) -> float:
        """Tokens of all rows per second, prefill included."""
        ms = self.prefill_ms + self.decode_ms
        return 1000 * self.tokens / ms if ms else 0.0

    @property
    def line(self) -> str:
        """For a terminal."""
        return (
            f"{self.rows} prompts, {self.places} at once: {self.tokens} tokens in {self.forwards} "
            f"forwards, {self.per_forward:.2f} per forward and row, {self.per_second:.1f} tok/s "
            f"with prefill, places idle {self.idle:.0%} of the time"
        )


def batch_figures(records: Sequence[trace.AnyRecord]) -> BatchFigures:
    """The figures of a whole trace. Raises MarsError where there is no batch in it."""
    ms: dict[int, float] = {}  # of each forward
    busy: dict[int, int] = {}  # rows that took part in it
    tokens, prefill_ms = 0, 0.0
    joined: dict[int, int] = {}
    left: dict[int, int] = {}
    masked: set[int] = set()
    for record in records:
        match record:
            case trace.PrefillRecord():
                prefill_ms += record.ms
            case trace.StepRecord():
                ms[record.forward] = record.ms
                busy[record.forward] = busy.get(record.forward, 0) + 1
                tokens += len(record.tokens)
                if len(record.slots) > 1:
                    masked.add(record.forward)
            case trace.ForwardRecord(role="extend"):
                ms[record.forward] = record.ms
                busy[record.forward] = len(record.rows)
            case trace.JoinRecord():
                joined[record.row] = record.forward
            case trace.LeaveRecord():
                left[record.row] = record.forward
    agreed, seen = agreement(records)
    if not joined:
        raise MarsError("this trace is not one of a batch")
    entered, gone = sorted(joined.values()), sorted(left.values())
    taken = {  # places that are not free in each forward; one is, after the one it is left after
        forward: bisect_right(entered, forward) - bisect_left(gone, forward) for forward in ms
    }
    held = sum(ms[forward] * taken[forward] for forward in ms)
    used = sum(ms[forward] * busy[forward] for forward in ms)
    return BatchFigures(
        rows=len(joined),
        places=max(taken.values(), default=0),
        tokens=tokens,
        forwards=len(ms),
        parts=sum(busy.values()),
        idle=min(1.0, max(0.0, 1 - used / held)) if held > 0 else 0.0,
        prefill_ms=prefill_ms,
        decode_ms=sum(ms.values()),
        seen=seen,
        agreed=agreed,
        masked=len(masked),
    )


def agreement(records: Sequence[trace.AnyRecord]) -> tuple[int, int]:
    """Of the tokens accepted from masks whose AR choice is known: how many are it, and how many.

    Hindsight of a slot whose token is not in the trace (cut at a limit) is not counted.
    """
    steps = [record for record in records if isinstance(record, trace.StepRecord)]
    chosen = {
        (step.row, step.forward, token.slot): token.id
        for step in steps
        for token in step.tokens
        if token.source == "slot"
    }
    known = [
        seen.ar_token == chosen[step.row, seen.forward, seen.slot]
        for step in steps
        for seen in step.hindsight
        if (step.row, seen.forward, seen.slot) in chosen
    ]
    return sum(known), len(known)
