"""What a race came to: pure, from its lanes' traces and times. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from itertools import takewhile
from statistics import median

from mars_core import trace
from mars_core.batch_figures import agreement, batch_figures
from mars_core.race.records import (
    BatchInfo,
    Lane,
    LaneResult,
    Parting,
    Race,
    Spread,
    VerdictRecord,
)

SHOWN_CHARACTERS = 40
LEAST_MS = 1e-3  # what a run without a forward is taken to last
MOST_MS = 1e12  # what a record may hold
# a difference of speed within this share is called none
EVEN = 0.03


def verdict_of(race: Race) -> VerdictRecord | None:
    """The results of all lanes that ran to an end; None before two have, the first among them.

    Of the repeats those count that every one of them has.
    """
    ended = [index for index, lane in enumerate(race.lanes) if ran(lane, race.header.batch)]
    if ended[:1] != [0] or len(ended) < 2:
        return None
    repeats = 1 + min(len(race.lanes[index].timings) for index in ended)
    base = totals_of(race.lanes[0], race.header.batch)
    results = tuple(_result(race, index, base, repeats) for index in ended)
    return VerdictRecord(type="verdict", repeats=repeats, lanes=results)


@dataclass(frozen=True, slots=True)
class Totals:
    """What a lane's shown run came to; parts, idle: see `BatchFigures`."""

    tokens: int
    forwards: int
    parts: int
    prefill_ms: float
    decode_ms: float
    idle: float | None


def ran(lane: Lane, batch: BatchInfo | None) -> bool:
    """Whether the lane's shown run came to an end of its own."""
    ends = [lane.done]
    if batch:
        ends = [record for record in lane.records if isinstance(record, trace.DoneRecord)]
        joined = {record.row for record in lane.records if isinstance(record, trace.JoinRecord)}
        stepped = any(isinstance(record, trace.StepRecord) for record in lane.records)
        if len(ends) < batch.prompts or not joined or not stepped:
            return False
    return all(end and end.reason != "stopped" and end.forwards > 0 for end in ends)


def totals_of(lane: Lane, batch: BatchInfo | None) -> Totals:
    """Of a run that ended."""
    if batch:
        of = batch_figures(lane.records)
        ms = (min(MOST_MS, of.prefill_ms), min(MOST_MS, of.decode_ms))
        return Totals(of.tokens, of.forwards, of.parts, *ms, of.idle)
    done = lane.done
    assert done is not None
    return Totals(done.tokens, done.forwards, done.forwards, done.prefill_ms, done.decode_ms, None)


def _result(race: Race, index: int, base: Totals, repeats: int) -> LaneResult:
    """base: of the first lane."""
    lane, first = race.lanes[index], race.lanes[0]
    batch = race.header.batch
    totals = totals_of(lane, batch) if index else base
    decode = _times(lane, totals)[:repeats]
    seconds = max(LEAST_MS, median(decode)) / 1000
    rates = [totals.tokens / max(LEAST_MS, ms) for ms in decode]
    theirs = [base.tokens / max(LEAST_MS, ms) for ms in _times(first, base)[:repeats]]
    ratios = [ours / base for ours, base in zip(rates, theirs, strict=True)]
    agreed, seen = agreement(lane.records)
    result = LaneResult(
        lane=index,
        seconds=seconds,
        prefill_ms=median([totals.prefill_ms, *(t.prefill_ms for t in lane.timings)][:repeats]),
        tokens=totals.tokens,
        forwards=totals.forwards,
        tokens_per_second=totals.tokens / seconds,
        tokens_per_forward=totals.tokens / totals.parts,
        ms_per_forward=1000 * seconds / totals.forwards,
        speed_up=Spread(median=median(ratios), low=min(ratios), high=max(ratios)),
        agreement=agreed / seen if seen else None,
        seen=seen,
        parts=parting(first.records, lane.records) if index and not batch else None,
        says="",
    )
    if batch:
        result = result.model_copy(update={"idle": totals.idle})
    return result if index == 0 else result.model_copy(update={"says": says(race, result, base)})


def _times(lane: Lane, totals: Totals) -> list[float]:
    return [totals.decode_ms, *(timing.decode_ms for timing in lane.timings)]


def parting(theirs: Sequence[trace.AnyRecord], ours: Sequence[trace.AnyRecord]) -> Parting | None:
    """Where two traces part; None where their tokens are the same to the end.

    One that was cut by its limit while the other goes on has parted from it there.
    """
    left, right = _tokens(theirs), _tokens(ours)
    if [token.id for token in left] == [token.id for token in right]:
        return None
    same = len(
        list(takewhile(lambda pair: pair[0].id == pair[1].id, zip(left, right, strict=False)))
    )
    return Parting(
        token=same,
        before=_text(left[:same])[-SHOWN_CHARACTERS:],
        theirs=_text(left[same:])[:SHOWN_CHARACTERS],
        ours=_text(right[same:])[:SHOWN_CHARACTERS],
    )


def _tokens(records: Sequence[trace.AnyRecord]) -> list[trace.TokenRecord]:
    steps = (record for record in records if isinstance(record, trace.StepRecord))
    return [token for step in steps for token in step.tokens]


def _text(tokens: Sequence[trace.TokenRecord]) -> str:
    return "".join(token.special or token.text for token in tokens)


def _two(number: float) -> str:
    """Two decimals, halves upwards, as the page's own `toFixed` rounds: 3.125 is 3.13 in both."""
    return str(Decimal(number).quantize(Decimal("0.01"), ROUND_HALF_UP))


def says(race: Race, result: LaneResult, base: Totals) -> str:
    """The result in words: how fast, why, whether the text is the same. base: of the first lane."""
    name, first = race.lanes[result.lane].info.name, race.lanes[0]
    base_ms = max(LEAST_MS, median(_times(first, base))) / base.forwards
    dearer = result.ms_per_forward / base_ms
    speed, per_forward = result.speed_up.median, result.tokens_per_forward
    per_row = " and row" if race.header.batch else ""
    why = (
        f"{_two(per_forward)} tokens per forward{per_row}, each forward {_two(dearer)} times "
        f"as long as one of {first.info.name}"
    )
    if speed > 1 + EVEN:
        text = f"{name} is {_two(speed)} times as fast: {why}."
    elif speed >= 1 - EVEN:
        text = f"{name} is as fast as {first.info.name}: {why}."
    else:
        text = f"{name} is slower, {_two(speed)} times as fast: {why}."
        if per_forward < dearer and dearer > 1 and not race.header.batch:
            text += f" It would need more than {_two(dearer)} tokens per forward to win."
    if race.header.batch:
        return f"{text} {_idle_words(result.idle)}{_same_words(first, race.lanes[result.lane])}"
    parts = result.parts
    if parts is None:
        return f"{text} The text is the same, token for token."
    return f"{text} The texts part after {parts.token} tokens."


def _idle_words(idle: float | None) -> str:
    return f"Rows waited for others {idle:.0%} of the time. " if idle else ""


def _same_words(first: Lane, lane: Lane) -> str:
    """How many texts of a batch are those of the first lane's."""
    theirs, ours = (
        {done.row: done.text for done in one.records if isinstance(done, trace.DoneRecord)}
        for one in (first, lane)
    )
    same = sum(theirs.get(row) == text for row, text in ours.items())
    return f"{same} of {len(ours)} texts are those of {first.info.name}."
