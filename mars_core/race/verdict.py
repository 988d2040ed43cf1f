"""What a race came to: pure, from its lanes' traces and times. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from statistics import median

from mars_core import trace
from mars_core.race.records import Lane, LaneResult, Parting, Race, Spread, VerdictRecord

SHOWN_CHARACTERS = 40
LEAST_MS = 1e-3  # what a run without a forward is taken to last
# a difference of speed within this share is called none
EVEN = 0.03


def verdict_of(race: Race) -> VerdictRecord | None:
    """The results of all lanes that ran to an end; None before two have, the first among them.

    Of the repeats those count that every one of them has.
    """
    ended = [index for index, lane in enumerate(race.lanes) if ran(lane)]
    if ended[:1] != [0] or len(ended) < 2:
        return None
    repeats = 1 + min(len(race.lanes[index].timings) for index in ended)
    results = tuple(_result(race, index, repeats) for index in ended)
    return VerdictRecord(type="verdict", repeats=repeats, lanes=results)


def ran(lane: Lane) -> bool:
    """Whether the lane's shown run came to an end of its own."""
    done = lane.done
    return done is not None and done.reason != "stopped" and done.forwards > 0


def _result(race: Race, index: int, repeats: int) -> LaneResult:
    lane, first = race.lanes[index], race.lanes[0]
    done = _done(lane)
    decode = _times(lane)[:repeats]
    seconds = max(LEAST_MS, median(decode)) / 1000
    rates = [done.tokens / max(LEAST_MS, ms) for ms in decode]
    theirs = [_done(first).tokens / max(LEAST_MS, ms) for ms in _times(first)[:repeats]]
    ratios = [ours / base for ours, base in zip(rates, theirs, strict=True)]
    agreed, seen = agreement(lane.records)
    result = LaneResult(
        lane=index,
        seconds=seconds,
        prefill_ms=median([done.prefill_ms, *(t.prefill_ms for t in lane.timings)][:repeats]),
        tokens=done.tokens,
        forwards=done.forwards,
        tokens_per_second=done.tokens / seconds,
        tokens_per_forward=done.tokens / done.forwards,
        ms_per_forward=1000 * seconds / done.forwards,
        speed_up=Spread(median=median(ratios), low=min(ratios), high=max(ratios)),
        agreement=agreed / seen if seen else None,
        seen=seen,
        parts=parting(first.records, lane.records) if index else None,
        says="",
    )
    return result if index == 0 else result.model_copy(update={"says": says(race, result)})


def _done(lane: Lane) -> trace.DoneRecord:
    assert lane.done is not None
    return lane.done


def _times(lane: Lane) -> list[float]:
    return [_done(lane).decode_ms, *(timing.decode_ms for timing in lane.timings)]


def agreement(records: Sequence[trace.AnyRecord]) -> tuple[int, int]:
    """Of the tokens accepted from masks whose AR choice is known: how many are it, and how many.

    Hindsight of a slot whose token is not in the trace (cut at a limit) is not counted.
    """
    steps = [record for record in records if isinstance(record, trace.StepRecord)]
    chosen = {
        (step.forward, token.slot): token.id
        for step in steps
        for token in step.tokens
        if token.source == "slot"
    }
    known = [
        seen.ar_token == chosen[seen.forward, seen.slot]
        for step in steps
        for seen in step.hindsight
        if (seen.forward, seen.slot) in chosen
    ]
    return sum(known), len(known)


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


def says(race: Race, result: LaneResult) -> str:
    """The result in words: how fast, why, and whether the text is the same."""
    name, first = race.lanes[result.lane].info.name, race.lanes[0]
    base_ms = max(LEAST_MS, median(_times(first))) / _done(first).forwards
    dearer = result.ms_per_forward / base_ms
    speed, per_forward = result.speed_up.median, result.tokens_per_forward
    why = (
        f"{per_forward:.2f} tokens per forward, each forward {dearer:.2f} times as long "
        f"as one of {first.info.name}"
    )
    if speed > 1 + EVEN:
        text = f"{name} is {speed:.2f} times as fast: {why}."
    elif speed >= 1 - EVEN:
        text = f"{name} is as fast as {first.info.name}: {why}."
    else:
        text = f"{name} is slower, {speed:.2f} times as fast: {why}."
        if per_forward < dearer and dearer > 1:
            text += f" It would need more than {dearer:.2f} tokens per forward to win."
    parts = result.parts
    if parts is None:
        return f"{text} The text is the same, token for token."
    return f"{text} The texts part after {parts.token} tokens."
