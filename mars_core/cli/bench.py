"""`mars bench` and `mars bench-page`: what forwards and the page cost."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

from mars_core.cli.arguments import Commands, add_model_arguments, load_model, threaded_engine


def add_commands(commands: Commands) -> None:
    bench = commands.add_parser(
        "bench", help="time forwards, and AR against transformers", allow_abbrev=False
    )
    add_model_arguments(bench)
    bench.add_argument("--repeats", type=int, default=7, help="interleaved repeats (%(default)s)")
    bench.add_argument("--max-new-tokens", type=int, default=128, help="tokens of each AR run")
    bench.add_argument("--json", action="store_true", help="print JSON instead of tables")
    bench.set_defaults(run=run_bench)

    page = commands.add_parser(
        "bench-page", help="time decoding through the page against headless", allow_abbrev=False
    )
    add_model_arguments(page)
    page.add_argument("--repeats", type=int, default=5, help="interleaved pairs (%(default)s)")
    page.add_argument("--max-new-tokens", type=int, default=128, help="tokens of each run")
    page.add_argument(
        "--no-browser", dest="browser", action="store_false", help="without the real Chromium"
    )
    page.add_argument("--json", action="store_true", help="print JSON instead of tables")
    page.set_defaults(run=run_bench_page)


def run_bench(args: argparse.Namespace) -> int:
    """Measure and print tables, or JSON."""
    loaded = load_model(args)

    from mars_core.evaluation.bench import bench, table

    result = bench(loaded, args.repeats, args.max_new_tokens)
    print(json.dumps(asdict(result), indent=1) if args.json else table(result))
    return 0


def run_bench_page(args: argparse.Namespace) -> int:
    """Serve the page, measure it from outside, and print a table, or JSON."""
    from mars_core.model_thread import ModelThread

    thread = ModelThread()
    engine = thread.submit(lambda: threaded_engine(args, thread))
    ready = engine.result()

    from mars_core.evaluation.page import page_cost, table
    from mars_core.ui.demo import build_demo, launch

    @contextmanager
    def serve() -> Iterator[str]:
        demo = build_demo(engine)
        try:
            yield launch(demo, "127.0.0.1", None)
        finally:
            demo.close(verbose=False)

    result = page_cost(ready, serve, args.repeats, args.max_new_tokens, with_browser=args.browser)
    print(json.dumps(asdict(result), indent=1) if args.json else table(result))
    return 0
