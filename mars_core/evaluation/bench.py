"""`mars bench`: what a forward costs, and every way of decoding against ordinary AR, by the clock.

All ways answer the same prompts in one process, in turn within each repeat (with one prompt at a
time, prompt by prompt), so that a slow moment of the machine hits all of them. The ways give texts
of different lengths, so what is compared is time per token. Prefill is in it; loading, a first
round that is thrown away, and the tables of costs that some ways plan by are not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from itertools import groupby
from operator import add
from statistics import fmean, median
from typing import Any

from mars_core.about import conditions
from mars_core.chat import ChatTurn
from mars_core.engine import CACHED_TOKENS
from mars_core.evaluation.decoding import questions
from mars_core.evaluation.forwards import Floor, ForwardCost, floor, forwards_by_rows
from mars_core.evaluation.measure import Timing, spread, summary
from mars_core.evaluation.settings import BenchConfig, SetName
from mars_core.evaluation.ways import AR, BASELINES, Conversations, Outcome, Way, ways_of
from mars_core.models.load import LoadedModel
from mars_core.models.memory import Peak, give_back
from mars_core.text import decode_ids
from mars_core.training.repetition import is_looping

FORMAT = "mars-bench"
FORWARD_REPEATS = 21
Report = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class BenchRow:
    """One way of answering the prompts of a set, `batch` at once.

    n: prompts; those with a looping answer in any way are left out. per_second: tokens of all
    rows. speed_up: in time per token over the faster AR way of this batch, repeat by repeat.
    per_forward: tokens of a row per forward it took part in. ms: per forward, prefill included, the
    median of the repeats. agreement: share of the tokens from masks that AR would have chosen too
    (None without masks); match: share of answers that are AR's. peak_bytes: that the process (on a
    GPU: tensors) held at most; cache_bytes: of all places. masked: share of forwards with masks;
    idle: share of the time that places waited for others, the median likewise.
    """

    set: str
    batch: int
    way: str
    n: int
    per_second: Timing
    speed_up: Timing
    per_forward: float
    ms: float
    agreement: float | None
    match: float
    peak_bytes: int
    cache_bytes: int | None
    masked: float
    idle: float


@dataclass(frozen=True, slots=True)
class BenchResult:
    """What was measured, and everything its numbers depend on. forwards: empty if left out."""

    format: str
    about: dict[str, Any]
    floor: Floor | None
    forwards: list[ForwardCost]
    rows: list[BenchRow]


def bench(
    loaded: LoadedModel,
    config: BenchConfig,
    draft: LoadedModel | None = None,
    plain: LoadedModel | None = None,
    report: Report = lambda done: None,
) -> BenchResult:
    """Measure. draft, plain: see `ways_of`. report: called with how many rounds are done."""
    wanted = config.sections
    forwards = forwards_by_rows(loaded, FORWARD_REPEATS) if "forwards" in wanted else []
    rows: list[BenchRow] = []
    done = 0

    def round_done() -> None:
        nonlocal done
        done += 1
        report(done)

    for name in config.sets if "prompts" in wanted else ():
        for size in config.batch_sizes:
            asked = questions(name, max(config.limit, size))
            conversations = [question.messages for question in asked]
            ways = ways_of(loaded, config, size, draft, plain)
            rows += measure(loaded, ways, name, size, conversations, config.repeats, round_done)
    return BenchResult(
        format=FORMAT,
        about={
            **conditions(loaded),
            "settings": asdict(config),
            "draft": draft and draft.name,
            "cached_tokens": CACHED_TOKENS,
        },
        floor=floor(loaded) if forwards else None,
        forwards=forwards,
        rows=rows,
    )


def measure(
    loaded: LoadedModel,
    ways: Mapping[str, Way],
    name: SetName,
    size: int,
    conversations: Conversations,
    repeats: int,
    round_done: Callable[[], None],
) -> list[BenchRow]:
    """The rows of one set and batch size; none where every prompt has a looping answer."""
    peaks: dict[str, int] = {}

    def watched(way: str, some: Conversations) -> Outcome:
        give_back()  # else what another way freed is in its peak
        with Peak(loaded.device).watching() as peak:
            outcome = ways[way](some)
        peaks[way] = max(peaks.get(way, 0), peak.bytes)
        return outcome

    first = one_round(ways, conversations, size, watched)
    round_done()
    loops = {
        i
        for outcome in first.values()
        for i, ids in enumerate(outcome.answers)
        if is_looping(decode_ids(loaded.tokenizer, ids))
    }
    kept = [said for i, said in enumerate(conversations) if i not in loops]
    rounds = []
    for _ in range(repeats if kept else 0):
        rounds.append(one_round(ways, kept, size, lambda way, some: ways[way](some)))
        round_done()
    return rows_of(name, size, rounds, peaks)


def one_round(
    ways: Mapping[str, Way],
    conversations: Sequence[Sequence[ChatTurn]],
    size: int,
    answer: Callable[[str, Conversations], Outcome],
) -> dict[str, Outcome]:
    """All prompts in every way: one by one, or, where several are answered at once, together."""
    chunks = [[said] for said in conversations] if size == 1 else [conversations]
    found: dict[str, list[Outcome]] = {way: [] for way in ways}
    for chunk in chunks:
        for way in ways:
            found[way].append(answer(way, chunk))
    return {way: reduce(add, outcomes) for way, outcomes in found.items()}


def rows_of(
    name: str, size: int, rounds: Sequence[Mapping[str, Outcome]], peaks: Mapping[str, int]
) -> list[BenchRow]:
    """A row for every way, from its outcomes in every repeat."""
    if not rounds:
        return []
    per_token = {way: [r[way].ms / r[way].tokens for r in rounds] for way in rounds[0]}
    base = min(BASELINES, key=lambda way: summary(per_token[way]).median)
    said = rounds[0][AR].answers
    return [
        BenchRow(
            set=name,
            batch=min(size, len(said)),
            way=way,
            n=len(outcome.answers),
            per_second=summary([1000 / ms for ms in per_token[way]]),
            speed_up=summary(
                [slow / ms for slow, ms in zip(per_token[base], per_token[way], strict=True)]
            ),
            per_forward=outcome.tokens / outcome.parts,
            ms=median(r[way].ms / r[way].forwards for r in rounds),
            agreement=outcome.agreed / outcome.seen if outcome.seen else None,
            match=fmean(x == y for x, y in zip(outcome.answers, said, strict=True)),
            peak_bytes=peaks[way],
            cache_bytes=outcome.cache_bytes,
            masked=outcome.masked / outcome.forwards,
            idle=median(r[way].idle_ms / r[way].ms for r in rounds),
        )
        for way, outcome in rounds[0].items()
    ]


def table(*results: BenchResult) -> str:
    """Results for a terminal, under one another; conditions like those above are not repeated."""
    above: list[list[str]] = [[], [], []]
    lines: list[str] = []
    for result in results:
        parts = [caption(result), forward_lines(result), settings_lines(result)]
        for part, last in zip(parts, above, strict=True):
            lines += part if part != last else []
        lines += row_lines(result)
        above = parts
    return "\n".join(lines)


def caption(result: BenchResult) -> list[str]:
    """What the numbers depend on."""
    about = result.about
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    model = about["model"]
    adapter = f" + {model['adapter']}" if model["adapter"] else ""
    commit = f", commit {about['commit']}" if about["commit"] else ""
    return [
        f"{model['name']}{adapter} ({model['weights']}), {about['dtype']}, {about['device']}",
        versions + commit,
    ]


def forward_lines(result: BenchResult) -> list[str]:
    """The costs of forwards and their floor."""
    if not result.forwards or result.floor is None:
        return []
    one, least = result.forwards[0].ms.median, result.floor
    return [
        "",
        f"one forward after {result.about['cached_tokens']} cached tokens ({FORWARD_REPEATS} "
        f"interleaved repeats); floor {least.ms:.1f} ms: {least.read_bytes / 1e6:.0f} MB at "
        f"{least.bandwidth / 1e9:.1f} GB/s",
        "rows        ms                     x one row   x floor",
        *(
            f"{cost.rows:4}  {spread(cost.ms):28} {cost.ms.median / one:8.2f}"
            f"{cost.ms.median / least.ms:10.2f}"
            for cost in result.forwards
        ),
    ]


def settings_lines(result: BenchResult) -> list[str]:
    """How all prompts of the result were answered."""
    config = result.about["settings"]
    if not result.rows:
        return []
    return [
        "",
        f"greedy, B = {config['block_size']}{' and the last mask' * config['use_last_mask']}, "
        f"{config['drafts']} drafts, at most {config['max_new_tokens']} tokens, prefill "
        f"included; medians of {config['repeats']} interleaved repeats, quartiles in brackets",
    ]


def row_lines(result: BenchResult) -> list[str]:
    """The ways, a block for every set and batch."""
    lines = []
    for (name, batch), rows in groupby(result.rows, key=lambda row: (row.set, row.batch)):
        found = list(rows)
        lines += [
            "",
            f"{found[0].n} prompts of {name}, {batch} at once",
            f"{'':24}{'tok/s':>7}  {'x faster AR':20}{'tokens per':>11}{'ms per':>9}"
            f"{'AR agree-':>11}{'same':>6}{'memory':>9}{'with':>7}{'idle':>8}",
            f"{'':24}{'':7}  {'':20}{'forward':>11}{'forward':>9}{'ment':>11}{'text':>6}"
            f"{'peak MB':>9}{'masks':>7}{'places':>8}",
            *map(row_line, found),
        ]
    return lines


def row_line(row: BenchRow) -> str:
    agreement = "" if row.agreement is None else f"{row.agreement:.1%}"
    return (
        f"{row.way:24}{row.per_second.median:7.1f}  {spread(row.speed_up).strip():20}"
        f"{row.per_forward:11.2f}{row.ms:9.1f}{agreement:>11}{row.match:6.0%}"
        f"{row.peak_bytes / 1e6:9.0f}{row.masked:7.0%}{row.idle:8.0%}"
    )
