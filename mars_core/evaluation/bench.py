"""`mars bench`: what a forward costs by rows, our AR against transformers' `generate`, and MARS on
prompts against the faster of the two.

Everything is measured in one process, the variants in turn within each repeat, so that a slow
moment of the machine hits all of them; medians and the middle half of the repeats are given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from mars_core.about import describe_device, library_versions
from mars_core.baselines import transformers_generate
from mars_core.cache import Fed, Session
from mars_core.chat import Turn, encode_chat
from mars_core.config import DecodeConfig, SpecialTokens
from mars_core.decode import decode
from mars_core.errors import MarsError
from mars_core.evaluation import speed
from mars_core.evaluation.measure import (
    PROMPT,
    Conditions,
    Timing,
    check_repeats,
    spread,
    summary,
)
from mars_core.evaluation.settings import SpeedConfig
from mars_core.events import Step
from mars_core.models.hardware import synchronizer
from mars_core.models.load import LoadedModel
from mars_core.stopwatch import Stopwatch

Name = TypeVar("Name")

ROWS = (1, 2, 4, 5, 8, 16)
CACHED_TOKENS = 128


@dataclass(frozen=True, slots=True)
class BenchResult:
    """What was measured, and everything needed to measure it again.

    forward_ms: rows fed -> Timing of one forward. generate_ms, ours_ms: Timing per new token of
    AR decoding, prefill included in both. speed_up: `generate` over ours, repeat by repeat, so
    that the machine's slow moments do not count against one of them; above 1 we are faster.
    prompts: MARS against AR, see `speed`; empty where the model has no mask token.
    """

    conditions: Conditions
    repeats: int
    cached_tokens: int
    prompt: str
    prompt_tokens: int
    new_tokens: int
    same_text: bool
    forward_ms: dict[int, Timing]
    generate_ms: Timing
    ours_ms: Timing
    speed_up: Timing
    prompts: list[speed.SpeedRow]


def bench(
    loaded: LoadedModel,
    repeats: int,
    new_tokens: int,
    prompts: SpeedConfig,
    report: Callable[[int], None] = lambda done: None,
) -> BenchResult:
    """Measure `loaded`. repeats: at least 3. new_tokens: length of the AR runs. prompts: to answer
    with masks. report: called with how many of these are done."""
    check_repeats(repeats)
    prompt, _ = encode_chat(loaded.tokenizer, [Turn(role="user", content=PROMPT)])
    room = loaded.context_length - max(len(prompt) + new_tokens, CACHED_TOKENS + max(ROWS))
    if room < 0:
        raise MarsError(
            f"{loaded.name} has a context of {loaded.context_length} tokens, {-room} too few to "
            "measure; ask for fewer with --max-new-tokens"
        )
    generate, ours, same_text = time_ar(loaded, prompt, new_tokens, repeats)
    return BenchResult(
        conditions=Conditions(
            model=loaded.name,
            weights=loaded.weights,
            dtype=loaded.dtype_name,
            device=describe_device(loaded),
            versions=library_versions(),
        ),
        repeats=repeats,
        cached_tokens=CACHED_TOKENS,
        prompt=PROMPT,
        prompt_tokens=len(prompt),
        new_tokens=new_tokens,
        same_text=same_text,
        forward_ms=time_forwards(loaded, 3 * repeats),
        generate_ms=summary(generate),
        ours_ms=summary(ours),
        speed_up=summary([theirs / mine for theirs, mine in zip(generate, ours, strict=True)]),
        prompts=[] if loaded.special.mask_id is None else speed.measure(loaded, prompts, report),
    )


def time_forwards(loaded: LoadedModel, repeats: int) -> dict[int, Timing]:
    """Milliseconds of one forward for each of ROWS, on top of CACHED_TOKENS cached tokens."""
    session = Session(loaded.model, loaded.context_length)
    session.prefill([[i % 100 for i in range(CACHED_TOKENS)]])

    def forward(rows: int) -> None:
        places = range(CACHED_TOKENS, CACHED_TOKENS + rows)
        session.forward([Fed([i % 100 for i in places], places, head=range(rows))])

    times = interleave(loaded, {rows: partial(forward, rows) for rows in ROWS}, repeats)
    return {rows: summary(samples) for rows, samples in times.items()}


def time_ar(
    loaded: LoadedModel, prompt: Sequence[int], new_tokens: int, repeats: int
) -> tuple[list[float], list[float], bool]:
    """Milliseconds per token of `generate` and of our mode one, by repeat; whether texts agree.

    Prefill is inside both. Both run to exactly `new_tokens`, EOS or not.
    """
    endless = SpecialTokens(loaded.special.mask_id, frozenset())
    config = DecodeConfig(mode="one", max_new_tokens=new_tokens)
    texts: dict[str, list[int]] = {}

    def ours() -> None:
        session = Session(loaded.model, loaded.context_length)
        events = decode(session, prompt, config, endless)
        steps = [event for event in events if isinstance(event, Step)]
        texts["ours"] = [token.token for step in steps for token in step.tokens]

    def theirs() -> None:
        texts["generate"] = transformers_generate(loaded, prompt, new_tokens)

    times = interleave(loaded, {"generate": theirs, "ours": ours}, repeats)
    per_token = {name: [ms / new_tokens for ms in samples] for name, samples in times.items()}
    return per_token["generate"], per_token["ours"], texts["ours"] == texts["generate"]


def interleave(
    loaded: LoadedModel, variants: Mapping[Name, Callable[[], object]], repeats: int
) -> dict[Name, list[float]]:
    """Run all variants once untimed, then in turn `repeats` times; their milliseconds."""
    watch = Stopwatch(synchronize=synchronizer(loaded.device))
    samples: dict[Name, list[float]] = {name: [] for name in variants}
    for repeat in range(repeats + 1):
        for name, run in variants.items():
            ms = watch.run(run)
            if repeat:
                samples[name].append(ms)
    return samples


def table(result: BenchResult) -> str:
    """The result for a terminal, its conditions first."""
    one = result.forward_ms[1].median
    lines = [
        *result.conditions.lines(),
        "medians of interleaved repeats, quartiles in brackets",
        "",
        f"one forward after {result.cached_tokens} cached tokens ({3 * result.repeats} repeats)",
        "rows        ms                     x one row",
    ]
    lines += [
        f"{rows:4}  {spread(t):28} {t.median / one:8.2f}" for rows, t in result.forward_ms.items()
    ]
    lines += [
        "",
        f"AR, {result.prompt_tokens} prompt tokens + {result.new_tokens} new, "
        f"prefill included ({result.repeats} repeats)",
        "                        ms per token                tok/s",
        f"transformers generate   {spread(result.generate_ms):26} "
        f"{1000 / result.generate_ms.median:6.1f}",
        f"mars, mode one          {spread(result.ours_ms):26} {1000 / result.ours_ms.median:6.1f}",
        f"mars over generate, by repeat: {spread(result.speed_up).strip()} x, "
        + ("same tokens" if result.same_text else "tokens differ (rounding; see float32)"),
    ]
    if result.prompts:
        lines += ["", *speed.lines(result.prompts)]
    return "\n".join(lines)
