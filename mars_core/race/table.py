"""The verdict of a race for a terminal. Pure. No torch."""

from __future__ import annotations

from mars_core.race.records import LaneResult, RaceRecord, VerdictRecord
from mars_core.terminal import plural, printable

COLUMNS = "seconds   tok/s  forwards  tok/forward  ms/forward  AR agrees  speed-up"


def table(race: RaceRecord, verdict: VerdictRecord) -> str:
    """A row for each lane, a sentence for each but the first, and where texts part."""
    width = max(len(lane.name) for lane in race.lanes)
    about = "decoding alone, without prefill"
    if race.batch:
        about += (
            f"; {race.batch.prompts} prompts, {race.batch.rows} at once; tokens per forward and row"
        )
    if verdict.repeats > 1:
        about = f"medians of {plural(verdict.repeats, 'repeat')} in turn, {about}"
    lines = [about, f"{'':{width}}  {COLUMNS}"]
    lines += [f"{race.lanes[r.lane].name:{width}}  {_row(r, verdict)}" for r in verdict.lanes]
    for result in verdict.lanes[1:]:
        lines += ["", result.says, *_parting(race, result)]
    return printable("\n".join(lines))


def _row(result: LaneResult, verdict: VerdictRecord) -> str:
    agreed = "" if result.agreement is None else f"{100 * result.agreement:.1f} %"
    speed = result.speed_up
    ratio = ""
    if result.lane:
        ratio = f"{speed.median:.2f} x"
        if verdict.repeats > 1:
            ratio += f" [{speed.low:.2f}, {speed.high:.2f}]"
    row = (
        f"{result.seconds:7.2f} {result.tokens_per_second:7.1f} {result.forwards:9} "
        f"{result.tokens_per_forward:12.2f} {result.ms_per_forward:11.1f} {agreed:>10}  {ratio}"
    )
    return row.rstrip()


def _parting(race: RaceRecord, result: LaneResult) -> list[str]:
    if result.parts is None:
        return []
    parts = result.parts
    names = (race.lanes[0].name, race.lanes[result.lane].name)
    width = max(map(len, names))
    # one line each: a newline of the text is shown as one
    shown = [" ".join(text.split("\n")) for text in (parts.theirs, parts.ours)]
    before = " ".join(parts.before.split("\n"))
    return [f"  {name:{width}}  …{before}|{text}" for name, text in zip(names, shown, strict=True)]
