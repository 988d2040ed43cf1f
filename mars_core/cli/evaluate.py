"""`mars evaluate`: what a model gets right."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast, get_args

from mars_core.cli.arguments import (
    Commands,
    add_draft_arguments,
    add_greedy_arguments,
    add_model_arguments,
    chosen_adapter,
    config_from,
    load_config_from,
    load_model,
    load_shown,
    settings_from,
)
from mars_core.config import DtypeName, Quantization
from mars_core.evaluation.settings import DecodingConfig, QuantizationConfig, SetName

if TYPE_CHECKING:
    from mars_core.models.load import LoadedModel

SECONDS_BETWEEN_LINES = 30


def add_commands(commands: Commands) -> None:
    evaluate = commands.add_parser("evaluate", help="what a model gets right", allow_abbrev=False)
    kinds = evaluate.add_subparsers(dest="benchmark", required=True)
    add_decoding(kinds)
    add_arithmetic(kinds)
    add_exactness(kinds)
    add_perplexity(kinds)
    add_quantization(kinds)


def add_arithmetic(kinds: Commands) -> None:
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


def add_decoding(kinds: Commands) -> None:
    decoding = kinds.add_parser(
        "decoding",
        help="tokens per forward, AR agreement and right answers by tau",
        allow_abbrev=False,
    )
    default = DecodingConfig()
    add = decoding.add_argument
    add_prompts(decoding, default.sets)
    shown = " ".join(map(str, default.taus))
    add("--taus", nargs="+", type=float, default=default.taus, help=f"besides 1 ({shown})")
    add("--block-size", type=int, help="mask slots B (the model's own)")
    add("--use-last-mask", action="store_true", help="read the B-th mask too")
    add("--verified", action="store_true", help="mode verified too, all drafts fed")
    add_draft_arguments(decoding, adaptive=False)
    add("--max-new-tokens", type=int, default=default.max_new_tokens, help="(%(default)s)")
    shown = "prompts decoded at once (%(default)s)"
    add("--batch-size", type=int, default=default.batch_size, help=shown)
    add("--json", action="store_true", help="print everything as JSON, each answer included")
    add_model_arguments(decoding)
    decoding.set_defaults(run=run_decoding)


def add_prompts(
    parser: argparse.ArgumentParser, sets: tuple[SetName, ...], *, minutes: bool = True
) -> None:
    """What is answered, by default all of `sets`; minutes: with a limit of time."""
    add = parser.add_argument
    shown = " ".join(sets)
    add("--sets", nargs="+", choices=get_args(SetName), default=sets, help=f"prompts ({shown})")
    add("--limit", type=int, help="prompts of each set")
    if minutes:
        add("--minutes", type=float, help="end after so long; the sets take turns")


def add_exactness(kinds: Commands) -> None:
    exactness = kinds.add_parser(
        "exactness",
        help="whether a mode gives the tokens of transformers' greedy generate",
        allow_abbrev=False,
    )
    add = exactness.add_argument
    add_prompts(exactness, ("everyday", "mt-bench", "facts"))
    add("--batch-size", type=int, default=1, help="prompts decoded at once (%(default)s)")
    add("--json", action="store_true", help="print everything as JSON, each difference included")
    add_model_arguments(exactness)
    add_greedy_arguments(exactness)
    exactness.set_defaults(run=run_exactness, mode="verified", adaptive=False)


def add_perplexity(kinds: Commands) -> None:
    perplexity = kinds.add_parser(
        "perplexity",
        help="of given answers, with the adapter and without it",
        allow_abbrev=False,
    )
    add = perplexity.add_argument
    add("file", help="chat .jsonl, such as `mars distill` writes: the last answers count")
    add("--limit", type=int, help="answers to take")
    add("--json", action="store_true", help="print everything as JSON")
    add_model_arguments(perplexity)
    perplexity.set_defaults(run=run_perplexity)


def add_quantization(kinds: Commands) -> None:
    quantization = kinds.add_parser(
        "quantization",
        help="weights in 16, 8 and 4 bits beside float32, on the answers that it gives",
        allow_abbrev=False,
    )
    default, add = QuantizationConfig(), quantization.add_argument
    add_prompts(quantization, default.sets, minutes=False)
    add("--max-new-tokens", type=int, default=default.max_new_tokens, help="(%(default)s)")
    add("--tau", type=float, default=default.tau, help="of the masks (%(default)s)")
    add("--json", action="store_true", help="print everything as JSON")
    add_model_arguments(quantization, quantize=False)
    quantization.set_defaults(run=run_quantization, limit=default.limit, dtype="bfloat16")


def run_decoding(args: argparse.Namespace) -> int:
    """Answer the prompts and print a table, or JSON."""
    from mars_core.evaluation import shares
    from mars_core.evaluation.decoding import measure
    from mars_core.evaluation.decoding_table import table

    config = settings_from(args, DecodingConfig)
    shares.join()
    result = measure(load_model(args), config, Count())
    if shares.is_first():
        show(args, result, table)
    return 0


def run_arithmetic(args: argparse.Namespace) -> int:
    """Answer the problems and print a table, or JSON."""
    from mars_core.evaluation.arithmetic import ArithmeticConfig, measure, table

    decode = config_from(args)
    config = ArithmeticConfig(args.kind, args.n, args.seed, args.batch_size, decode)
    result = measure(load_model(args), config, Count())
    show(args, result, table)
    return 0


def run_exactness(args: argparse.Namespace) -> int:
    """Answer the prompts both ways and print a table, or JSON."""
    from mars_core.evaluation import shares
    from mars_core.evaluation.exactness import ExactnessConfig, measure, table

    prompts = (args.limit, args.minutes, args.batch_size)
    config = ExactnessConfig(tuple(args.sets), config_from(args), *prompts)
    shares.join()
    result = measure(load_model(args), config, Count())
    if shares.is_first():
        show(args, result, table)
    return 0


def run_perplexity(args: argparse.Namespace) -> int:
    """Measure the model's own weights and, if there is one, its adapter; print a table, or JSON."""
    from mars_core.evaluation.perplexity import measure, table

    given = vars(args)
    models = [
        partial(load_model, argparse.Namespace(**{**given, "adapter": adapter or "none"}))
        for adapter in dict.fromkeys((None, chosen_adapter(args)))
    ]
    show(args, measure(models, args.file, args.limit, Count()), table)
    return 0


def run_quantization(args: argparse.Namespace) -> int:
    """Answer the prompts in every format and print a table, or JSON."""
    from mars_core.evaluation.quantization import measure, table
    from mars_core.models.plan import formats

    config = settings_from(args, QuantizationConfig)
    base = load_config_from(args)

    def load(dtype: str, quantize: Quantization) -> LoadedModel:
        return load_shown(replace(base, dtype=cast(DtypeName, dtype), quantize=quantize))

    show(args, measure(load, formats(args.dtype), config, Count()), table)
    return 0


class Count:
    """Says how much is done: on a terminal in place, elsewhere a line every half minute."""

    def __init__(self, what: str = "prompts") -> None:
        self._what = what
        self._told = time.monotonic()

    def __call__(self, done: int, total: int | None = None) -> None:
        shown = f"{done} {self._what}" if total is None else f"{done} of {total} {self._what}"
        if sys.stderr.isatty():
            print(f"\r{shown}", end="", file=sys.stderr, flush=True)
        elif time.monotonic() - self._told > SECONDS_BETWEEN_LINES:
            self._told = time.monotonic()
            print(shown, file=sys.stderr, flush=True)


def show(args: argparse.Namespace, result: Any, table: Callable[[Any], str]) -> None:
    """A result on stdout, as a table or as JSON, behind the count."""
    if sys.stderr.isatty():
        print("", file=sys.stderr)
    print(json.dumps(asdict(result), indent=1) if args.json else table(result))
