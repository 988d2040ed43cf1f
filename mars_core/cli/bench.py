"""`mars bench`, `bench-batch`, `bench-page`: what forwards, batches and the page cost."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import get_args

from mars_core.cli.arguments import (
    Commands,
    add_draft_arguments,
    add_model_arguments,
    load_model,
    settings_from,
    threaded_engine,
)
from mars_core.cli.evaluate import report_count, show
from mars_core.config import Strategy
from mars_core.evaluation.settings import BatchConfig, SetName, SpeedConfig


def add_commands(commands: Commands) -> None:
    bench = commands.add_parser(
        "bench",
        help="time forwards, AR against transformers, and MARS against AR",
        allow_abbrev=False,
    )
    add_model_arguments(bench)
    bench.add_argument("--repeats", type=int, default=7, help="interleaved repeats (%(default)s)")
    bench.add_argument("--max-new-tokens", type=int, default=128, help="tokens of each AR run")
    add_prompts(bench, SpeedConfig())
    bench.add_argument("--json", action="store_true", help="print JSON instead of tables")
    bench.set_defaults(run=run_bench)

    batch = commands.add_parser(
        "bench-batch", help="time batches: caches against each other and AR", allow_abbrev=False
    )
    add_model_arguments(batch)
    add_batches(batch, BatchConfig())
    batch.add_argument("--json", action="store_true", help="print JSON instead of a table")
    batch.set_defaults(run=run_bench_batch)

    page = commands.add_parser(
        "bench-page", help="time decoding through the page against headless", allow_abbrev=False
    )
    add_model_arguments(page)
    page.add_argument("--repeats", type=int, default=5, help="interleaved pairs (%(default)s)")
    page.add_argument("--max-new-tokens", type=int, default=128, help="tokens of each run")
    page.add_argument(
        "--no-browser", dest="browser", action="store_false", help="without the real Chromium"
    )
    page.add_argument("--race", action="store_true", help="races instead of runs, lane by lane")
    page.add_argument("--json", action="store_true", help="print JSON instead of tables")
    page.set_defaults(run=run_bench_page)


def add_prompts(parser: argparse.ArgumentParser, default: SpeedConfig) -> None:
    """What is answered with masks, and how."""
    add = parser.add_argument
    sets, taus = " ".join(default.sets), " ".join(map(str, default.taus))
    add("--sets", nargs="*", choices=get_args(SetName), default=default.sets, help=f"({sets})")
    add("--limit", type=int, default=default.limit, help="prompts of each set (%(default)s)")
    add("--taus", nargs="+", type=float, default=default.taus, help=f"({taus})")
    add("--block-size", type=int, default=default.block_size, help="mask slots B (%(default)s)")
    add("--use-last-mask", action="store_true", help="read the B-th mask too")
    add_draft_arguments(parser)


def add_batches(parser: argparse.ArgumentParser, default: BatchConfig) -> None:
    """What is answered, how many at once, and with which caches."""
    add = parser.add_argument
    add("--set", choices=get_args(SetName), default=default.set, help="(%(default)s)")
    add("--limit", type=int, default=default.limit, help="prompts (%(default)s)")
    sizes, blocks = (" ".join(map(str, x)) for x in (default.batch_sizes, default.cache_blocks))
    add("--batch-sizes", nargs="+", type=int, default=default.batch_sizes, help=f"({sizes})")
    add("--strategies", nargs="+", choices=get_args(Strategy), default=default.strategies)
    add("--cache-blocks", nargs="+", type=int, default=default.cache_blocks, help=f"({blocks})")
    add("--tau", type=float, default=default.tau, help="(%(default)s)")
    add("--block-size", type=int, default=default.block_size, help="mask slots B (%(default)s)")
    add("--use-last-mask", action="store_true", help="read the B-th mask too")
    add_draft_arguments(parser, adaptive=False)
    add("--max-new-tokens", type=int, default=default.max_new_tokens, help="(%(default)s)")
    add("--repeats", type=int, default=default.repeats, help="interleaved repeats (%(default)s)")


def run_bench_batch(args: argparse.Namespace) -> int:
    """Measure and print a table, or JSON."""
    config = settings_from(args, BatchConfig)
    loaded = load_model(args)

    from mars_core.evaluation.batches import measure, table

    show(args, measure(loaded, config, report_count), table)
    return 0


def run_bench(args: argparse.Namespace) -> int:
    """Measure and print tables, or JSON."""
    prompts = settings_from(args, SpeedConfig)
    loaded = load_model(args)

    from mars_core.evaluation.bench import bench, table

    result = bench(loaded, args.repeats, args.max_new_tokens, prompts, report_count)
    show(args, result, table)
    return 0


def run_bench_page(args: argparse.Namespace) -> int:
    """Serve the page, measure it from outside, and print a table, or JSON."""
    from mars_core.model_thread import ModelThread

    thread = ModelThread()
    engine = thread.submit(lambda: threaded_engine(args, thread))
    ready = engine.result()

    from mars_core.evaluation import page, page_race
    from mars_core.ui.demo import build_demo, launch

    @contextmanager
    def serve() -> Iterator[str]:
        demo = build_demo(engine)
        try:
            yield launch(demo, "127.0.0.1", None)
        finally:
            demo.close(verbose=False)

    measured = (ready, serve, args.repeats, args.max_new_tokens)
    if args.race:
        show(args, page_race.race_cost(*measured, with_browser=args.browser), page_race.table)
    else:
        show(args, page.page_cost(*measured, with_browser=args.browser), page.table)
    return 0
