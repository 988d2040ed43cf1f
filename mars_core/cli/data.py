"""`mars make` and `mars distill`: training data."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, get_args

from mars_core.cli.arguments import Commands, add_base_arguments
from mars_core.config import DecodeConfig
from mars_core.training.make import MakeConfig, What

if TYPE_CHECKING:
    from mars_core.training.distill import DistillState


def add_commands(commands: Commands) -> None:
    make = commands.add_parser(
        "make", help="make training data: prompts, solved word problems, sums", allow_abbrev=False
    )
    make.add_argument(
        "what", choices=get_args(What), help="prompts to be answered, or what is solved"
    )
    make.add_argument("out", type=Path, help="the .jsonl or .jsonl.gz file to write")
    make.add_argument("--n", type=int, default=4000, help="rows (%(default)s)")
    make.add_argument("--seed", type=int, default=0, help="(%(default)s)")
    make.set_defaults(run=run_make)

    distill = commands.add_parser(
        "distill", help="a model's own answers, as training data", allow_abbrev=False
    )
    distill.add_argument(
        "prompts", type=Path, help="a text file, a prompt a line, or .jsonl (see the README)"
    )
    distill.add_argument(
        "out", type=Path, help="the .jsonl to write, or to go on with after an interruption"
    )
    distill.add_argument("--system", help="system prompt of prompts without one of their own")
    add_base_arguments(distill)
    distill.add_argument(
        "--adapter", help="PEFT adapter to merge: folder or hub id (the model's own weights)"
    )
    add = distill.add_argument
    add("--max-new-tokens", type=int, default=256, help="per answer (%(default)s)")
    add("--temperature", type=float, default=0.0, help="0 is greedy (%(default)s)")
    add("--top-p", type=float, default=1.0, help="nucleus when sampling (%(default)s)")
    add("--repetition-penalty", type=float, default=1.0, help="1.1 keeps from looping (1.0)")
    add("--no-repeat-ngram-size", type=int, default=0, help="6: no loops, more gently (0)")
    add("--seed", type=int, default=0, help="of the sampling noise (%(default)s)")
    add("--batch-size", type=int, default=48, help="answered together (%(default)s)")
    add("--processes", type=int, default=0, help="on a CPU; 0 takes one per core, up to 8")
    add("--limit", type=int, help="stop after about so many prompts")
    add("--minutes", type=float, help="begin no further batch after so long")
    distill.set_defaults(run=run_distill)


def run_make(args: argparse.Namespace) -> int:
    """Write the rows."""
    from mars_core.training.make import make

    rows = make(MakeConfig(args.what, args.out, args.n, args.seed))
    print(f"{rows} rows in {args.out}", file=sys.stderr)
    return 0


def run_distill(args: argparse.Namespace) -> int:
    """Answer the prompts; how far it is goes to stderr."""
    from mars_core.models.progress import TerminalProgress
    from mars_core.training.distill import DistillConfig, distill

    shared = ("model", "adapter", "device", "dtype", "mask_token", "models_dir", "system")
    own = ("batch_size", "processes", "limit", "minutes")
    decode = DecodeConfig(
        max_new_tokens=args.max_new_tokens,
        temperature=args.temperature,
        top_p=args.top_p,
        repetition_penalty=args.repetition_penalty,
        no_repeat_ngram_size=args.no_repeat_ngram_size,
        seed=args.seed,
    )
    values = {name: getattr(args, name) for name in (*shared, *own)}
    config = DistillConfig(prompts=args.prompts, out=args.out, decode=decode, **values)
    report = Report(sys.stderr)
    with TerminalProgress() as progress:
        state = distill(config, progress, report)
    report(state)
    if sys.stderr.isatty():
        print("", file=sys.stderr)
    return 0


class Report:
    """Shows how far a distillation is: on a terminal each state in the place of the last."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._answered: int | None = None

    def __call__(self, state: DistillState) -> None:
        if self._stream.isatty():
            print(f"\r\033[K{state.line}", end="", file=self._stream, flush=True)
        elif state.tally.answered != self._answered:
            print(state.line, file=self._stream, flush=True)
        self._answered = state.tally.answered
