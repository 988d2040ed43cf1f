"""`mars bench-page --race`: a race through the page beside the same race headless.

Both time their lanes with the one stopwatch, outside of which the page does its work. What is left
of a difference is the page's share of the cores while it shows a lane that is being measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from mars_core.config import DecodeConfig
from mars_core.control import LiveControl
from mars_core.errors import MarsError
from mars_core.evaluation.measure import PROMPT, Conditions, Timing, check_repeats, spread, summary
from mars_core.evaluation.page import (
    MESSAGES,
    Serve,
    conditions_of,
    header_of,
    in_pairs,
)
from mars_core.evaluation.page_browser import browser
from mars_core.evaluation.page_client import client
from mars_core.model_thread import ThreadedEngine
from mars_core.race.records import Lane, Race, VerdictRecord, collect
from mars_core.race.settings import RaceConfig
from mars_core.race.verdict import verdict_of


@dataclass(frozen=True, slots=True)
class LaneCost:
    """Seconds of decoding of one lane; ratio: page over headless, pair by pair."""

    name: str
    headless: Timing
    page: Timing
    ratio: Timing


@dataclass(frozen=True, slots=True)
class RaceCost:
    """What was measured, and everything needed to measure it again.

    reader: who read the page; browser_missing: why it was no browser. headless_speed_up,
    page_speed_up: of the second lane over the first, as the verdicts say.
    """

    conditions: Conditions
    settings: dict[str, Any]
    repeats: int
    prompt: str
    new_tokens: int
    reader: str
    browser_missing: str
    lanes: tuple[LaneCost, ...]
    headless_speed_up: Timing
    page_speed_up: Timing
    same_text: bool


def race_cost(
    engine: ThreadedEngine,
    serve: Serve,
    repeats: int,
    new_tokens: int,
    *,
    with_browser: bool = True,
) -> RaceCost:
    """Race headless and through the page that `serve` serves for `engine`, in this process."""
    check_repeats(repeats)
    decode = DecodeConfig(max_new_tokens=new_tokens)
    header = header_of(engine, decode)
    alone = partial(race_headless, engine, RaceConfig(decode, repeats=1))
    reader, missing = "gradio_client", "not asked for"
    pairs = None
    if with_browser:
        try:
            pairs = in_pairs(alone, partial(race_in_browser, serve, new_tokens), repeats)
            reader, missing = "Chromium", ""
        except MarsError as error:
            missing = str(error)
    pairs = pairs or in_pairs(alone, partial(race_of_client, serve, new_tokens), repeats)
    headless, through = zip(*pairs, strict=True)
    names = [lane.name for lane in headless[0].header.lanes]
    return RaceCost(
        conditions=conditions_of(header),
        settings=header.settings,
        repeats=repeats,
        prompt=PROMPT,
        new_tokens=new_tokens,
        reader=reader,
        browser_missing=missing,
        lanes=tuple(_lane_cost(name, index, pairs) for index, name in enumerate(names)),
        headless_speed_up=summary([speed_up(race) for race in headless]),
        page_speed_up=summary([speed_up(race) for race in through]),
        same_text=len({texts(race) for race in (*headless, *through)}) == 1,
    )


def race_headless(engine: ThreadedEngine, config: RaceConfig) -> Race:
    """A race without a page."""
    return collect(engine.race(MESSAGES, config, LiveControl(config.decode)))


def race_of_client(serve: Serve, new_tokens: int) -> Race:
    """A race at the page's endpoint, asked for by another process."""
    with serve() as address, client(address) as ask:
        ask.run(prompt=PROMPT, max_new_tokens=1)  # what only a first request costs is not counted
        return ask.race(prompt=PROMPT, max_new_tokens=new_tokens, repeats=1)


def race_in_browser(serve: Serve, new_tokens: int) -> Race:
    """A race in the page itself, just opened in a real browser."""
    with serve() as address, browser(address) as ask:
        return ask.race(PROMPT, new_tokens)


def _lane_cost(name: str, index: int, pairs: list[tuple[Race, Race]]) -> LaneCost:
    times = [(seconds(alone.lanes[index]), seconds(page.lanes[index])) for alone, page in pairs]
    headless, page = zip(*times, strict=True)
    ratio = summary([through / alone for alone, through in times])
    return LaneCost(name, summary(headless), summary(page), ratio)


def seconds(lane: Lane) -> float:
    """What the decoder's steps of a lane took, prefill not included."""
    if lane.done is None:
        raise MarsError(f"the lane {lane.info.name} did not come to its end")
    return lane.done.decode_ms / 1000


def speed_up(race: Race) -> float:
    """Of the second lane over the first."""
    return cast(VerdictRecord, verdict_of(race)).lanes[1].speed_up.median


def texts(race: Race) -> tuple[str, ...]:
    """What the lanes came to say."""
    return tuple(lane.done.text for lane in race.lanes if lane.done)


def table(cost: RaceCost) -> str:
    """The result for a terminal, its conditions first."""
    settings = cost.settings
    through = f"page ({cost.reader})"
    lines = [
        *cost.conditions.lines(),
        f"{cost.new_tokens} new tokens at most, tau {settings['tau']:g}, "
        f"B {settings['block_size']}; medians of {cost.repeats} interleaved pairs of races, "
        "quartiles in brackets",
        "",
        f"{'seconds of decoding':26}{'headless':28}{through:28}page over headless",
    ]
    for lane in cost.lanes:
        columns = (f"{spread(timing):28}" for timing in (lane.headless, lane.page))
        lines.append(f"{lane.name:26}{''.join(columns)}{spread(lane.ratio)}")
    ups = (f"{spread(timing):28}" for timing in (cost.headless_speed_up, cost.page_speed_up))
    lines += [
        f"{'speed-up':26}{''.join(ups)}".rstrip(),
        "same texts" if cost.same_text else "TEXTS DIFFER",
    ]
    if cost.browser_missing:
        lines.append(f"browser: left out, {cost.browser_missing}")
    return "\n".join(lines)
