"""MARS against AR in seconds: the same prompts, weights and machine, one way after the other.

Every prompt is answered in each way in turn, so that a slow moment of the machine hits all of them.
Prefill is in the time; loading, and a first round that is thrown away, are not. The ways give texts
of different lengths, so what is compared is time per token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from mars_core.answers import answer_with, encode_all
from mars_core.baselines import transformers_generate
from mars_core.cache import Session
from mars_core.config import DecodeConfig
from mars_core.engine import forward_costs
from mars_core.evaluation.bootstrap import Interval, ratio_change, spread
from mars_core.evaluation.decoding import questions
from mars_core.evaluation.settings import SpeedConfig
from mars_core.models.hardware import synchronizer
from mars_core.models.load import LoadedModel
from mars_core.stopwatch import Stopwatch
from mars_core.text import decode_ids
from mars_core.training.repetition import is_looping

GENERATE, ONE = AR = ("transformers generate", "mars, mode one")


@dataclass(frozen=True, slots=True)
class Said:
    """An answer. forwards: None where they cannot be counted."""

    text: str
    tokens: int
    forwards: int | None


@dataclass(frozen=True, slots=True)
class Timed:
    """An answer and the milliseconds it took, prefill included."""

    said: Said
    ms: float


Way = Callable[[Sequence[int]], Said]


@dataclass(frozen=True, slots=True)
class SpeedRow:
    """One way of answering the prompts of a set.

    n: prompts; those with a looping answer in any way are left out. speed_up: in time per token,
    over the faster of the two AR ways (None for these two). forwards: tokens per forward.
    """

    set: str
    way: str
    n: int
    ms_per_token: float
    forwards: float | None
    speed_up: Interval | None


def measure(
    loaded: LoadedModel, config: SpeedConfig, report: Callable[[int], None] = lambda done: None
) -> list[SpeedRow]:
    """Answer the prompts in every way. report: called with how many prompts are done."""
    costs = forward_costs(loaded, Stopwatch(synchronize=synchronizer(loaded.device)))
    ways = {GENERATE: partial(_generate, loaded, config.max_new_tokens)} | {
        name: partial(_decode, loaded, decode, costs)
        for name, decode in decode_configs(config).items()
    }
    rows, done = [], 0
    for name in config.sets:
        prompts = encode_all(loaded, [q.messages for q in questions(name, config.limit)])
        answered(loaded, prompts[0], ways)  # warm-up
        found = []
        for prompt in prompts:
            found.append(answered(loaded, prompt, ways))
            done += 1
            report(done)
        rows += rows_of(name, found)
    return rows


def decode_configs(config: SpeedConfig) -> dict[str, DecodeConfig]:
    """Our own ways, by name."""
    plain = DecodeConfig(mode="one", max_new_tokens=config.max_new_tokens, alternatives=0)
    size, last = config.block_size, config.use_last_mask
    verified = replace(
        plain,
        mode="verified",
        drafts=config.drafts,
        layout=config.layout,
        adaptive=config.adaptive,
    )
    return {ONE: plain, "mars, verified": verified} | {
        f"mars, tau {tau:g}": replace(
            plain, mode="tau", tau=tau, block_size=size, use_last_mask=last
        )
        for tau in config.taus
    }


def _generate(loaded: LoadedModel, max_new_tokens: int, prompt: Sequence[int]) -> Said:
    eos = sorted(loaded.special.eos_ids)
    ids = transformers_generate(loaded, prompt, max_new_tokens, eos_ids=eos)
    return Said(decode_ids(loaded.tokenizer, ids), len(ids), None)


def _decode(
    loaded: LoadedModel, config: DecodeConfig, costs: Mapping[int, float], prompt: Sequence[int]
) -> Said:
    session = Session(loaded.model, loaded.context_length)
    answer = answer_with(loaded, session, prompt, config, costs)
    return Said(answer.text, answer.tokens, answer.forwards)


def answered(
    loaded: LoadedModel, prompt: Sequence[int], ways: Mapping[str, Way]
) -> dict[str, Timed]:
    """One prompt in every way, in turn."""
    watch = Stopwatch(synchronize=synchronizer(loaded.device))
    return {name: _timed(watch, way, prompt) for name, way in ways.items()}


def _timed(watch: Stopwatch, way: Way, prompt: Sequence[int]) -> Timed:
    said: list[Said] = []
    ms = watch.run(lambda: said.append(way(prompt)))
    return Timed(said[0], ms)


def rows_of(name: str, found: Sequence[Mapping[str, Timed]]) -> list[SpeedRow]:
    """A row for every way; none where every prompt has a looping answer."""
    good = [
        timed for timed in found if not any(is_looping(one.said.text) for one in timed.values())
    ]
    if not good:
        return []
    ms = {way: [timed[way].ms for timed in good] for way in good[0]}
    tokens = {way: [timed[way].said.tokens for timed in good] for way in good[0]}
    per_token = {way: sum(ms[way]) / sum(tokens[way]) for way in ms}
    base = min((way for way in AR if way in ms), key=per_token.__getitem__)
    rows = []
    for way in ms:
        forwards = [timed[way].said.forwards for timed in good]
        counted = sum(x for x in forwards if x is not None)
        rows.append(
            SpeedRow(
                set=name,
                way=way,
                n=len(good),
                ms_per_token=per_token[way],
                forwards=sum(tokens[way]) / counted if counted else None,
                speed_up=None
                if way in AR
                else ratio_change((ms[way], tokens[way]), (ms[base], tokens[base])),
            )
        )
    return rows


def lines(rows: Sequence[SpeedRow]) -> list[str]:
    """The rows for a terminal."""
    head = f"{'':14}{'':22}   n  ms per token   tok/s  tokens per forward  x faster AR"
    return [
        head,
        *(
            f"{row.set:14}{row.way:22}{row.n:4}{row.ms_per_token:14.1f}"
            f"{1000 / row.ms_per_token:8.1f}"
            f"{'' if row.forwards is None else format(row.forwards, '.2f'):>20}"
            f"  {spread(row.speed_up, 1, 2)}"
            for row in rows
        ),
    ]
