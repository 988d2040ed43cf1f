"""`mars bench-batch`: many prompts at once, with each cache, against AR with the same batch.

Every way answers all prompts, as many at once as the batch has places: whoever ends makes room for
the next. The ways take turns within each repeat, so that a slow moment of the machine hits all of
them; what is compared is time per token, since texts differ in length. Prefill is in it; loading,
warm-up and the table of costs are not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from mars_core import trace
from mars_core.about import conditions
from mars_core.batch_figures import BatchFigures, batch_figures
from mars_core.engine import Engine
from mars_core.evaluation.decoding import questions
from mars_core.evaluation.settings import BatchConfig
from mars_core.models.load import LoadedModel


@dataclass(frozen=True, slots=True)
class BatchRow:
    """One way at one batch size, over the repeats.

    per_second: median tokens per second of all rows. speed_up: median over the repeats of time per
    token of AR over this way's, and the smallest and largest. figures: of the first repeat.
    """

    batch_size: int
    way: str
    per_second: float
    speed_up: tuple[float, float, float]
    cache_bytes: int
    figures: BatchFigures


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What was measured, and everything its numbers depend on."""

    about: dict[str, Any]
    rows: list[BatchRow]


def measure(
    loaded: LoadedModel, config: BatchConfig, report: Callable[[int], None] = lambda done: None
) -> BatchResult:
    """Answer the prompts in every way. report: called with how many times all were answered."""
    engine = Engine(loaded)
    conversations = [question.messages for question in questions(config.set, config.limit)]
    rows: list[BatchRow] = []
    done = 0
    for size in config.batch_sizes:
        found: dict[str, list[tuple[BatchFigures, int]]] = {way: [] for way in config.ways()}
        for _ in range(config.repeats):
            for way, (decode, caching) in config.ways().items():
                header, *records = engine.generate_batch(conversations, decode, size, caching)
                assert isinstance(header, trace.Header)
                found[way].append((batch_figures(records), header.settings["cache_bytes"]))
                done += 1
                report(done)
        rows += [row_of(size, way, found[way], next(iter(found.values()))) for way in found]
    return BatchResult({**conditions(loaded), "settings": asdict(config)}, rows)


def row_of(
    size: int,
    way: str,
    found: Sequence[tuple[BatchFigures, int]],
    base: Sequence[tuple[BatchFigures, int]],
) -> BatchRow:
    """A way beside AR, repeat by repeat."""
    ratios = sorted(
        one.per_second / other.per_second for (one, _), (other, _) in zip(found, base, strict=True)
    )
    figures, held = found[0]
    return BatchRow(
        batch_size=size,
        way=way,
        per_second=median(one.per_second for one, _ in found),
        speed_up=(median(ratios), ratios[0], ratios[-1]),
        cache_bytes=held,
        figures=figures,
    )


def table(result: BatchResult) -> str:
    """The rows for a terminal, their conditions first."""
    about, config = result.about, result.about["settings"]
    lines = [
        f"{about['model']['name']} ({about['model']['weights']}), {about['dtype']}, "
        f"{about['device']}",
        f"{config['limit']} prompts of {config['set']}, tau {config['tau']:g}, B = "
        f"{config['block_size']}{' and the last mask' if config['use_last_mask'] else ''}, at most "
        f"{config['max_new_tokens']} tokens, {config['repeats']} interleaved repeats: medians, "
        "smallest and largest",
        "",
        "batch  way                    tok/s  x AR of this batch    tokens per  ms per   with  "
        " idle   AR agree-  cache",
        "                                                         row, forward  forward  masks  "
        "places     ment     MB",
    ]
    for row in result.rows:
        middle, low, high = row.speed_up
        figures = row.figures
        per_forward = figures.decode_ms / figures.forwards if figures.forwards else 0.0
        masked = figures.masked / figures.forwards if figures.forwards else 0.0
        agreement = f"{figures.agreed / figures.seen:.1%}" if figures.seen else ""
        ratio = f"{middle:.2f} [{low:.2f}, {high:.2f}]"
        lines.append(
            f"{row.batch_size:5}  {row.way:20}{row.per_second:8.1f}  {ratio:20}"
            f"{figures.per_forward:12.2f}{per_forward:9.1f}{masked:7.0%}{figures.idle:8.0%}{agreement:>11}"
            f"{row.cache_bytes / 1e6:7.0f}"
        )
    return "\n".join(lines)
