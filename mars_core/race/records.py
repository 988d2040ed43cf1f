"""The recording of a race: JSON Lines, as a trace is, with the lanes' traces inside. No torch.

`TRACE.md` documents the format. The first line is a `race`; each lane's trace follows its `lane`
line; `timing` lines are the later repeats, of which only the times are kept; the last line is the
`verdict`, which readers work out again instead of trusting it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from mars_core import trace
from mars_core.trace import Count, Milliseconds, Record, TraceError

VERSION: Literal[1] = 1
MAX_LANES = 8

Factor = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]


class LaneInfo(Record):
    """A lane by its name, and a sentence on what decodes there."""

    name: str
    about: str


class BatchInfo(Record):
    """What a race of batches answers: so many prompts, so many at once."""

    prompts: Annotated[int, Field(ge=1, le=10_000)]
    rows: Annotated[int, Field(ge=1, le=10_000)]


class RaceRecord(Record):
    """First line of every race.

    repeats: how often each lane was to be measured. batch: where every lane's trace is a batch.
    """

    type: Literal["race"]
    format: Literal["mars-race"]
    version: Literal[1]
    created: str
    lanes: Annotated[tuple[LaneInfo, ...], Field(min_length=1, max_length=MAX_LANES)]
    repeats: Annotated[int, Field(ge=1, le=1000)]
    batch: BatchInfo | None = None


class LaneRecord(Record):
    """The trace that follows is this lane's."""

    type: Literal["lane"]
    lane: Count


class TimingRecord(Record):
    """A later repeat of a lane."""

    type: Literal["timing"]
    lane: Count
    repeat: Annotated[int, Field(ge=1, le=1000)]
    tokens: Count
    forwards: Count
    prefill_ms: Milliseconds
    decode_ms: Milliseconds


class Spread(Record):
    """A figure over the repeats: median, lowest and highest."""

    median: Factor
    low: Factor
    high: Factor


class Parting(Record):
    """Where a lane's text parts from that of the first lane.

    token: how many tokens are the same. before: the end of the text they share. theirs, ours: how
    the first lane and this one go on.
    """

    token: Count
    before: str
    theirs: str
    ours: str


class LaneResult(Record):
    """What a lane came to. Times are medians over the repeats, of decoding but for `prefill_ms`.

    speed_up: tokens per second over the first lane's in the same repeat. agreement, seen: of so
    many tokens accepted from masks whose AR choice is known, the share that is that choice.
    parts: null where the text is the first lane's to the end. Of a batch all figures are of all
    rows together but for tokens_per_forward, which is per row and the forwards it took part in;
    parts is null, and idle the share of the time for which places of the batch waited.
    """

    lane: Count
    seconds: Factor
    prefill_ms: Milliseconds
    tokens: Count
    forwards: Count
    tokens_per_second: Factor
    tokens_per_forward: Factor
    ms_per_forward: Milliseconds
    speed_up: Spread
    agreement: Annotated[float, Field(ge=0, le=1)] | None
    seen: Count
    parts: Parting | None
    idle: Annotated[float, Field(ge=0, le=1)] | None = None
    says: str


class VerdictRecord(Record):
    """The last line: a result for each lane that was measured."""

    type: Literal["verdict"]
    repeats: Count
    lanes: tuple[LaneResult, ...]


OwnRecord = RaceRecord | LaneRecord | TimingRecord | VerdictRecord
AnyRaceRecord = OwnRecord | trace.AnyRecord
_ADAPTER: TypeAdapter[AnyRaceRecord] = TypeAdapter(
    Annotated[AnyRaceRecord, Field(discriminator="type")]
)


@dataclass(slots=True)
class Lane:
    """What is known of one lane: the trace of its first repeat, and the times of all."""

    info: LaneInfo
    records: list[trace.AnyRecord] = field(default_factory=list)
    timings: list[TimingRecord] = field(default_factory=list)

    @property
    def done(self) -> trace.DoneRecord | None:
        """How the shown run ended; None while it goes on, or where it was cut off."""
        last = self.records[-1] if self.records else None
        return last if isinstance(last, trace.DoneRecord) else None


@dataclass(slots=True)
class Race:
    """A race as far as it went."""

    header: RaceRecord
    lanes: list[Lane]

    @classmethod
    def of(cls, header: RaceRecord) -> Race:
        return cls(header, [Lane(info) for info in header.lanes])


def collect(records: Iterable[AnyRaceRecord]) -> Race:
    """The race that records tell of. Raises TraceError, naming the line, where they are not one."""
    race: Race | None = None
    lane: Lane | None = None
    for number, record in enumerate(records, 1):
        if isinstance(record, RaceRecord) != (number == 1):
            raise TraceError(f"trace line {number}: the race belongs on line 1, and only there")
        match record:
            case RaceRecord():
                race = Race.of(record)
            case LaneRecord():
                lane = _lane(race, record.lane, number)
                if lane.records:
                    raise TraceError(f"trace line {number}: lane {record.lane} is there already")
            case TimingRecord():
                _lane(race, record.lane, number).timings.append(record)
            case VerdictRecord():
                pass  # worked out again
            case _:
                if lane is None:
                    raise TraceError(f"trace line {number}: a lane is missing before it")
                if isinstance(record, trace.Header) == bool(lane.records):
                    raise TraceError(f"trace line {number}: a lane's first record is its header")
                lane.records.append(record)
    if race is None:
        raise TraceError("the trace is empty: line 1 must be its header")
    return race


def _lane(race: Race | None, index: int, number: int) -> Lane:
    assert race is not None  # it is on line 1
    if index >= len(race.lanes):
        raise TraceError(f"trace line {number}: there is no lane {index}")
    return race.lanes[index]


def is_race(first_line: bytes) -> bool:
    """Whether a file that begins so is meant to be a race, rather than a trace."""
    return b'"mars-race"' in first_line


def read_race(source: Path | bytes) -> Race:
    """Read the recording of a race that may come from anybody. Raises TraceError."""
    return collect(trace.read_records(source, _ADAPTER))


def lines_of(race: Race, verdict: VerdictRecord | None) -> Iterator[AnyRaceRecord]:
    """The records of a race that was read, in the order of the format."""
    yield race.header
    for index, lane in enumerate(race.lanes):
        if lane.records:
            yield LaneRecord(type="lane", lane=index)
            yield from lane.records
    timings: Sequence[TimingRecord] = [t for lane in race.lanes for t in lane.timings]
    yield from sorted(timings, key=lambda timing: (timing.repeat, timing.lane))
    if verdict is not None:
        yield verdict
