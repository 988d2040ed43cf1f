"""`mars generate`: one answer in a terminal."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from mars_core.chat import Turn, check_messages
from mars_core.cli.arguments import (
    Commands,
    add_decode_arguments,
    add_model_arguments,
    config_from,
    load_model,
)

R = TypeVar("R")

if TYPE_CHECKING:
    from mars_core import trace
    from mars_core.models.load import LoadedModel


def add_commands(commands: Commands) -> None:
    generate = commands.add_parser("generate", help="answer a prompt", allow_abbrev=False)
    add_prompt(generate)
    add_model_arguments(generate)
    add_decode_arguments(generate)
    add_draft_model(generate)
    generate.add_argument("--json", action="store_true", help="print the trace as JSON Lines")
    generate.set_defaults(run=run_generate)


def add_draft_model(parser: argparse.ArgumentParser) -> None:
    """A second model, which drafts --drafts tokens for every forward of the first."""
    add = parser.add_argument
    add("--draft-model", help="a smaller model with the same tokens, to draft for --model")
    add("--draft-adapter", default="auto", help="as --adapter, of the draft model")
    add(
        "--draft-mode",
        choices=("one", "tau"),
        default="one",
        help="how the draft model decodes (%(default)s)",
    )


def add_prompt(parser: argparse.ArgumentParser) -> None:
    """What is to be answered."""
    parser.add_argument("prompt", help="the user's message")
    parser.add_argument("--system", help="system prompt (default: the model's own)")


def messages_from(args: argparse.Namespace) -> list[Turn]:
    """The conversation of `add_prompt`. Raises MarsError for what cannot be one."""
    messages = [Turn(role="user", content=args.prompt)]
    if args.system is not None:
        messages.insert(0, Turn(role="system", content=args.system))
    check_messages(messages)
    return messages


def run_generate(args: argparse.Namespace) -> int:
    """Stream one answer, coloured, or its trace."""
    config = config_from(args)
    messages = messages_from(args)  # before the model is loaded for nothing
    loaded = load_model(args)
    draft = load_draft(args)

    from mars_core.engine import Engine

    engine = Engine(loaded, draft=draft, draft_mode=args.draft_mode)
    records = engine.generate(messages, config)
    if args.json:
        print_json(records)
    else:
        print_stream(records)
    return 0


def load_draft(args: argparse.Namespace) -> LoadedModel | None:
    """The model of `add_draft_model`, on the same device; None where none is asked for."""
    if args.draft_model is None:
        return None
    own = {"model": args.draft_model, "adapter": args.draft_adapter}
    return load_model(argparse.Namespace(**{**vars(args), **own}))


def keeping(records: Iterable[R], kept: list[R]) -> Iterator[R]:
    """The records as they come, and each of them in `kept` too."""
    for record in records:
        kept.append(record)
        yield record


def print_json(records: Iterable[trace.Record]) -> None:
    """The records on stdout as they come, as JSON Lines."""
    from mars_core.trace import dump_record

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    for record in records:
        print(dump_record(record), flush=True)


def print_stream(records: Iterator[trace.AnyRecord]) -> None:
    """The answer on stdout as it comes, tinted by forward on a terminal; figures on stderr."""
    from mars_core import terminal, trace

    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    for record in records:
        match record:
            case trace.Header():
                trained = "MARS-trained" if record.model.trained else "not trained for MARS"
                dtype = f"{record.dtype} ({record.dtype_reason})"
                about = (record.model.name, trained, record.model.weights, dtype, record.device)
                print(terminal.printable(", ".join(about)), file=sys.stderr)
            case trace.StepRecord():
                print(terminal.step_text(record, colour=colour), end="", flush=True)
            case trace.DoneRecord():
                print(terminal.printable(record.tail), flush=True)
                print(terminal.summary_line(record), file=sys.stderr)
