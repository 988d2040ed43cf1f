"""`mars evaluate`: what a model gets right."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict

from mars_core.cli.arguments import (
    Commands,
    add_greedy_arguments,
    add_model_arguments,
    config_from,
    load_model,
)


def add_commands(commands: Commands) -> None:
    evaluate = commands.add_parser("evaluate", help="what a model gets right", allow_abbrev=False)
    kinds = evaluate.add_subparsers(dest="benchmark", required=True)
    arithmetic = kinds.add_parser(
        "arithmetic", help="word problems that training has never seen", allow_abbrev=False
    )
    add = arithmetic.add_argument
    add(
        "--kind",
        choices=("numbers", "templates"),
        default="numbers",
        help="what is unseen: the numbers, or whole templates (%(default)s)",
    )
    add("--n", type=int, default=512, help="problems (%(default)s)")
    add("--batch-size", type=int, default=48, help="answered together, in mode one (%(default)s)")
    add("--seed", type=int, default=0, help="of the problems (%(default)s)")
    add("--json", action="store_true", help="print everything as JSON, each problem included")
    add_model_arguments(arithmetic)
    add_greedy_arguments(arithmetic)
    arithmetic.set_defaults(run=run_arithmetic, mode="one", max_new_tokens=256)


def run_arithmetic(args: argparse.Namespace) -> int:
    """Answer the problems and print a table, or JSON."""
    from mars_core.evaluation.arithmetic import ArithmeticConfig, measure, table

    decode = config_from(args)
    config = ArithmeticConfig(args.kind, args.n, args.seed, args.batch_size, decode)
    result = measure(load_model(args), config, report_count)
    if sys.stderr.isatty():
        print("", file=sys.stderr)
    print(json.dumps(asdict(result), indent=1) if args.json else table(result))
    return 0


def report_count(done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{done} of {total}", end="", file=sys.stderr, flush=True)
