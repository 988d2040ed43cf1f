"""`mars bench-page`: what the page costs, as decoding through it over headless decoding.

Runs are compared in pairs, one headless and one through the page, so that a slow moment of the
machine hits both; which of the two is first takes turns. The page is served only while it is
read: a Gradio server wakes up also while it waits, and that is a cost of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any, TypeVar, cast

from mars_core.config import DecodeConfig
from mars_core.errors import MarsError
from mars_core.evaluation.measure import (
    PROMPT,
    Conditions,
    Timing,
    check_repeats,
    spread,
    summary,
)
from mars_core.evaluation.page_browser import browser
from mars_core.evaluation.page_client import Run, client
from mars_core.model_thread import Generates
from mars_core.trace import DoneRecord, Header, Message, Prompt

MESSAGES = (Message(role="user", content=PROMPT),)
T = TypeVar("T")
Pairs = Sequence[tuple[Run, Run]]
# serves the page, at the address that it gives, for as long as the context is open
Serve = Callable[[], AbstractContextManager[str]]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Runs through the page (`reader` says how) against headless ones, by pairs.

    headless, page: seconds as their reader saw them. ratio: page over headless, pair by pair.
    headless_decoder, page_decoder: the part of the seconds that was spent in the decoder's own
    steps; where it grows, the page competes for the cores, and the rest is waiting around them.
    updates: how often the client was sent a longer text. longest_task_ms: the longest time that
    the browser's main thread was taken in any run; 0 below 50, which browsers do not report.
    """

    reader: str
    headless: Timing
    page: Timing
    ratio: Timing
    headless_decoder: Timing
    page_decoder: Timing
    same_text: bool
    updates: int
    longest_task_ms: float


@dataclass(frozen=True, slots=True)
class PageCost:
    """What was measured, and everything needed to measure it again.

    browser: None where it was left out, and then `browser_missing` says why.
    """

    conditions: Conditions
    settings: dict[str, Any]
    repeats: int
    prompt: str
    prompt_tokens: int
    new_tokens: int
    endpoint: Comparison
    browser: Comparison | None
    browser_missing: str


def page_cost(
    engine: Generates, serve: Serve, repeats: int, new_tokens: int, *, with_browser: bool = True
) -> PageCost:
    """Measure the page that `serve` serves for `engine`, in this process."""
    check_repeats(repeats)
    config = DecodeConfig(max_new_tokens=new_tokens)
    header = header_of(engine, config)
    alone = partial(run_headless, engine, config)
    pairs = in_pairs(alone, partial(run_client, serve, new_tokens), repeats)
    in_browser, missing = None, "not asked for"
    if with_browser:
        try:
            in_page = partial(run_browser, serve, new_tokens)
            in_browser, missing = compare(in_pairs(alone, in_page, repeats)), ""
        except MarsError as error:
            missing = str(error)
    return PageCost(
        conditions=conditions_of(header),
        settings=header.settings,
        repeats=repeats,
        prompt=PROMPT,
        prompt_tokens=cast(Prompt, header.prompt).tokens,
        new_tokens=pairs[0][0].done.tokens,
        endpoint=compare(pairs),
        browser=in_browser,
        browser_missing=missing,
    )


def header_of(engine: Generates, config: DecodeConfig) -> Header:
    """The header of a run that goes no further: it describes what is going to be measured."""
    with closing(cast(Any, engine.generate(MESSAGES, config))) as records:
        return cast(Header, next(records))


def conditions_of(header: Header) -> Conditions:
    """On what a run so described is measured, with the server's version."""
    return Conditions(
        model=header.model.name,
        weights=header.model.weights,
        dtype=header.dtype,
        device=header.device,
        versions={**header.versions, "gradio": version("gradio")},
    )


def run_headless(engine: Generates, config: DecodeConfig) -> Run:
    """Drain a run without a page."""
    started = time.perf_counter()
    *_, done = engine.generate(MESSAGES, config)
    return Run("headless", time.perf_counter() - started, cast(DoneRecord, done))


def run_client(serve: Serve, new_tokens: int) -> Run:
    """Ask the page's endpoint, with its default settings, from another process."""
    with serve() as address, client(address) as ask:
        ask.run(prompt=PROMPT, max_new_tokens=1)  # what only a first request costs is not counted
        return ask.run(prompt=PROMPT, max_new_tokens=new_tokens)


def run_browser(serve: Serve, new_tokens: int) -> Run:
    """Ask in the page itself, just opened in a real browser."""
    with serve() as address, browser(address) as ask:
        return ask.run(PROMPT, new_tokens)


def in_pairs(alone: Callable[[], T], ask: Callable[[], T], repeats: int) -> list[tuple[T, T]]:
    """Runs (headless, through the page), after one of each that does not count."""
    alone()
    ask()
    pairs = []
    for number in range(repeats):
        if number % 2:
            through = ask()
            headless = alone()
        else:
            headless = alone()
            through = ask()
        pairs.append((headless, through))
    return pairs


def compare(pairs: Pairs) -> Comparison:
    """Sum the pairs up."""
    headless, page = zip(*pairs, strict=True)
    return Comparison(
        reader=page[0].reader,
        headless=summary([run.seconds for run in headless]),
        page=summary([run.seconds for run in page]),
        ratio=summary([through.seconds / alone.seconds for alone, through in pairs]),
        headless_decoder=summary(list(map(decoder_seconds, headless))),
        page_decoder=summary(list(map(decoder_seconds, page))),
        same_text=len({run.done.text for run in (*headless, *page)}) == 1,
        updates=max(run.updates for run in page),
        longest_task_ms=max(run.longest_task_ms for run in page),
    )


def decoder_seconds(run: Run) -> float:
    """The time of the decoder's own steps, prefill included."""
    return (run.done.prefill_ms + run.done.decode_ms) / 1000


def table(cost: PageCost) -> str:
    """The result for a terminal, its conditions first."""
    settings = cost.settings
    lines = [
        *cost.conditions.lines(),
        f"{cost.prompt_tokens} prompt tokens + {cost.new_tokens} new, mode {settings['mode']}, "
        f"tau {settings['tau']:g}, B {settings['block_size']}, seed {settings['seed']}",
        f"medians of {cost.repeats} interleaved pairs, quartiles in brackets; one run of each kind "
        "came before,",
        "so the prompt is in the KV cache",
        "",
        *_rows(cost.endpoint, f"{cost.endpoint.updates} updates"),
        "",
    ]
    if cost.browser is None:
        lines.append(f"browser: left out, {cost.browser_missing}")
    else:
        longest = cost.browser.longest_task_ms
        blocked = f"{longest:.0f} ms" if longest else "under 50 ms"
        lines += _rows(cost.browser, f"its main thread was blocked for {blocked} at most")
    return "\n".join(lines)


def _rows(comparison: Comparison, remark: str) -> list[str]:
    """One comparison, and what else there is to say of it."""
    reader = comparison.reader
    text = "same text" if comparison.same_text else "TEXTS DIFFER"
    return [
        f"{'seconds':>33}{'of them in the decoder':>40}",
        f"{'headless':26}{spread(comparison.headless):28}{spread(comparison.headless_decoder)}",
        f"{reader:26}{spread(comparison.page):28}{spread(comparison.page_decoder)}",
        f"{reader} over headless, by pair: {spread(comparison.ratio).strip()} x, {text}; {remark}",
    ]
