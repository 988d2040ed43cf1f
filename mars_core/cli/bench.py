"""`mars bench`, `bench-page`, `report`: what decoding and the page cost, and where that stands."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast, get_args

from mars_core.cli.arguments import (
    Commands,
    add_draft_arguments,
    add_model_arguments,
    load_config_from,
    load_model,
    load_shown,
    settings_from,
    threaded_engine,
)
from mars_core.cli.evaluate import Count, show
from mars_core.config import DtypeName, Strategy
from mars_core.evaluation.settings import BenchConfig, Section, SetName


def add_commands(commands: Commands) -> None:
    bench = commands.add_parser(
        "bench",
        help="time forwards, and every way of decoding against AR, one or many at once",
        allow_abbrev=False,
    )
    add_model_arguments(bench)
    add_bench(bench, BenchConfig())
    bench.add_argument("--json", action="store_true", help="print JSON, as `mars report` reads it")
    bench.set_defaults(run=run_bench)

    report = commands.add_parser(
        "report", help="write tables and figures of results into documents", allow_abbrev=False
    )
    report.add_argument(
        "documents", type=Path, nargs="*", default=[Path("README.md")], help="(README.md)"
    )
    report.add_argument("--check", action="store_true", help="write nothing; 1 if it would differ")
    report.set_defaults(run=run_report)

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


def add_bench(parser: argparse.ArgumentParser, default: BenchConfig) -> None:
    """What is answered, in which ways, and how many at once."""
    add = parser.add_argument

    def several(flag: str, values: tuple[object, ...], **more: object) -> None:
        shown = " ".join(map(str, values))
        add(flag, nargs="+", default=values, help=f"({shown})", **more)  # type: ignore[arg-type]

    several("--sections", default.sections, choices=get_args(Section))
    several("--sets", default.sets, choices=get_args(SetName))
    add(
        "--limit",
        type=int,
        default=default.limit,
        help="prompts of each set, at least as many as are answered at once (%(default)s)",
    )
    several("--batch-sizes", default.batch_sizes, type=int)
    several("--taus", default.taus, type=float)
    add(
        "--batch-tau",
        type=float,
        default=default.batch_tau,
        help="of many, and paced (%(default)s)",
    )
    add("--windows", nargs="*", type=int, default=default.windows, help="of one: other B's (none)")
    several("--strategies", default.strategies, choices=get_args(Strategy))
    several("--cache-blocks", default.cache_blocks, type=int)
    add("--block-size", type=int, default=default.block_size, help="mask slots B (%(default)s)")
    add("--use-last-mask", action="store_true", help="read the B-th mask too")
    add_draft_arguments(parser)
    add("--max-new-tokens", type=int, default=default.max_new_tokens, help="(%(default)s)")
    add("--repeats", type=int, default=default.repeats, help="interleaved repeats (%(default)s)")
    add("--draft-model", help="for assisted generation: a smaller model with the same tokens")
    add(
        "--unpacked",
        action="store_true",
        help="`generate` with plain linear layers too, neither packed nor quantised, as "
        "transformers has them (a second copy of the weights)",
    )


def run_bench(args: argparse.Namespace) -> int:
    """Measure and print tables, or JSON."""
    config = settings_from(args, BenchConfig)
    loaded = load_model(args)
    draft = plain = None
    # others are there for `generate`, which compiles nothing
    how = replace(load_config_from(args), compiled=False)
    prompts = "prompts" in config.sections
    if args.draft_model and prompts:
        draft = load_shown(replace(how, model=args.draft_model, adapter="auto"))
    if args.unpacked and prompts:
        plain = load_shown(
            replace(how, dtype=cast(DtypeName, loaded.dtype_name), packing=False, quantize="none")
        )

    from mars_core.engine import check_same_tokens
    from mars_core.evaluation.bench import bench, table

    if draft is not None:
        check_same_tokens(loaded, draft)
    show(args, bench(loaded, config, draft, plain, Count("rounds")), table)
    return 0


def run_report(args: argparse.Namespace) -> int:
    """Write what the results say into the documents and figures, or look whether it stands."""
    from mars_core.evaluation.report import written

    differs = False
    texts = {path: text for one in args.documents for path, text in written(one).items()}
    for path, text in texts.items():
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        differs = True
        if not args.check:
            path.write_text(text, encoding="utf-8")
        print(f"{path}: {'differs' if args.check else 'written'}", file=sys.stderr)
    return int(args.check and differs)


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
