"""Recordings from anybody, checked: a trace, or a race."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from mars_core import trace
from mars_core.errors import MarsError
from mars_core.paths import assets_dir
from mars_core.race.records import (
    AnyRaceRecord,
    Race,
    is_race,
    lines_of,
    read_race,
)
from mars_core.race.verdict import verdict_of

Recording = Race | list[trace.AnyRecord]


def read_recording(source: Path | bytes) -> Recording:
    """What the file holds. Raises TraceError, naming the line, for anything else."""
    try:
        data = source if isinstance(source, bytes) else source.read_bytes()
    except (OSError, ValueError) as error:
        raise MarsError(f"cannot read {source!s:.200}: {error}") from None
    if is_race(data[: data.find(b"\n") + 1]):
        return read_race(data)
    return trace.read_trace(data)


def records_of(recording: Recording) -> Iterator[AnyRaceRecord]:
    """Its records in the order of the format; of a race with a verdict that is worked out again."""
    if isinstance(recording, Race):
        yield from lines_of(recording, verdict_of(recording))
    else:
        yield from recording


def lines(recording: Recording) -> str:
    """It as JSON Lines."""
    return "".join(trace.dump_record(record) + "\n" for record in records_of(recording))


def lanes_of(recording: Recording) -> Sequence[tuple[str, Sequence[trace.AnyRecord]]]:
    """The runs in it, by the names of their lanes (one without a name if it is no race)."""
    if isinstance(recording, Race):
        return [(lane.info.name, lane.records) for lane in recording.lanes if lane.records]
    return [("", recording)]


def shipped_recordings() -> dict[str, str]:
    """Those of `assets/traces` as JSON Lines, by name, the one to begin with first."""
    paths = sorted((assets_dir() / "traces").glob("*.jsonl"))
    named = {path.stem.partition("-")[2].replace("-", " "): path for path in paths}
    return {name: lines(read_recording(path)) for name, path in named.items()}
