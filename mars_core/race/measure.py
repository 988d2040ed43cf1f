"""The race itself: one lane after the other, each alone on the machine. No torch.

Together they would slow each other, so nothing is to be seen of a race while it is run but one
lane at a time; side by side they are only shown afterwards, by the times measured here. Repeats go
round all lanes, so that a slow moment of the machine does not hit one lane alone.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from mars_core import trace
from mars_core.control import Control
from mars_core.race.records import (
    AnyRaceRecord,
    BatchInfo,
    Lane,
    LaneInfo,
    LaneRecord,
    Race,
    RaceRecord,
    TimingRecord,
)
from mars_core.race.verdict import ran, totals_of, verdict_of


@dataclass(frozen=True, slots=True)
class Entrant:
    """A lane to be measured: its name, a sentence about it, and where its trace comes from.

    run: starts it anew, nothing cached, and gives its trace; `control` can stop it.
    """

    name: str
    about: str
    run: Callable[[Control], Iterator[trace.AnyRecord]]


def race(
    entrants: Sequence[Entrant], repeats: int, control: Control, batch: BatchInfo | None = None
) -> Iterator[AnyRaceRecord]:
    """Measure every entrant `repeats` times; the records of the race as they come.

    batch: what they answer, where their traces are batches.

    Where it is stopped it ends with what there is: with a verdict if one can be given.
    """
    header = RaceRecord(
        type="race",
        format="mars-race",
        version=1,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        lanes=tuple(LaneInfo(name=e.name, about=e.about) for e in entrants),
        repeats=repeats,
        **({"batch": batch} if batch else {}),
    )
    result = Race.of(header)
    yield header
    for repeat in range(repeats):
        for index, entrant in enumerate(entrants):
            if control.read().stop:
                break
            if repeat == 0:
                yield LaneRecord(type="lane", lane=index)
                for record in _closing(entrant.run(control)):
                    result.lanes[index].records.append(record)
                    yield record
            elif timing := _timing(entrant, index, repeat, control, batch):
                result.lanes[index].timings.append(timing)
                yield timing
    verdict = verdict_of(result)
    if verdict is not None:
        yield verdict


def _closing(records: Iterator[trace.AnyRecord]) -> Iterator[trace.AnyRecord]:
    """The records; when their reader goes away, so does the run, at once."""
    try:
        yield from records
    finally:
        if isinstance(records, Generator):
            records.close()


def _timing(
    entrant: Entrant, index: int, repeat: int, control: Control, batch: BatchInfo | None
) -> TimingRecord | None:
    """The times of one more run; None where it was stopped."""
    lane = Lane(LaneInfo(name=entrant.name, about=entrant.about))
    lane.records += _closing(entrant.run(control))
    if not ran(lane, batch):
        return None
    totals = totals_of(lane, batch)
    return TimingRecord(
        type="timing",
        lane=index,
        repeat=repeat,
        tokens=totals.tokens,
        forwards=totals.forwards,
        prefill_ms=totals.prefill_ms,
        decode_ms=totals.decode_ms,
    )
