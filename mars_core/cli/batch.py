"""`mars batch`: a file of prompts, answered many at once."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from mars_core.chat import Turn
from mars_core.cli.arguments import (
    Commands,
    add_caching_arguments,
    add_decode_arguments,
    add_model_arguments,
    config_from,
    load_model,
    settings_from,
)
from mars_core.cli.generate import keeping, print_json
from mars_core.config import Caching, check_range

if TYPE_CHECKING:
    from mars_core import trace


def add_commands(commands: Commands) -> None:
    batch = commands.add_parser(
        "batch", help="answer a file of prompts, many at once", allow_abbrev=False
    )
    batch.add_argument("prompts", type=Path, help="as of mars distill; the first turn of each")
    add_model_arguments(batch)
    add_decode_arguments(batch)
    add_caching_arguments(batch)
    batch.add_argument("--limit", type=int, help="the first prompts only")
    batch.add_argument("--json", action="store_true", help="print the trace, not the answers")
    batch.set_defaults(run=run_batch)


def run_batch(args: argparse.Namespace) -> int:
    """Print an answer per line of JSON as they are done, or the trace; figures on stderr."""
    config, caching = config_from(args), settings_from(args, Caching)
    check_range("rows", args.rows, 1, 4096, whole=True)
    conversations = read_conversations(args.prompts, args.limit)
    loaded = load_model(args)

    from mars_core.batch_figures import batch_figures
    from mars_core.engine import Engine

    records = Engine(loaded).generate_batch(conversations, config, args.rows, caching)
    told: list[trace.AnyRecord] = []
    recorded = keeping(records, told)
    if args.json:
        print_json(recorded)
    else:
        print_answers(recorded, conversations)
    print(batch_figures(told).line, file=sys.stderr)
    return 0


def read_conversations(path: Path, limit: int | None) -> list[list[Turn]]:
    """The conversations of a prompt file, each up to its first open turn."""
    from mars_core.training.prompt_file import read_tasks

    if limit is not None:
        check_range("limit", limit, 1, 10**6, whole=True)
    tasks, _ = read_tasks(path)
    return [task.first for task in tasks[:limit]]


def print_answers(records: Iterable[trace.AnyRecord], conversations: list[list[Turn]]) -> None:
    """A line of JSON for every row that ends."""
    from mars_core import terminal, trace

    for record in records:
        match record:
            case trace.Header():
                held, at_once = record.settings["cache_bytes"], record.settings["rows"]
                cache = f"{record.settings['cache']} cache, {at_once} rows, {held / 1e6:.0f} MB"
                about = (record.model.name, record.model.weights, record.dtype, cache)
                print(terminal.printable(", ".join(about)), file=sys.stderr)
            case trace.DoneRecord():
                line = {
                    "row": record.row,
                    "prompt": conversations[record.row][-1].content,
                    "answer": record.text,
                    "tokens": record.tokens,
                    "forwards": record.forwards,
                    "reason": record.reason,
                }
                print(json.dumps(line, ensure_ascii=False), flush=True)
