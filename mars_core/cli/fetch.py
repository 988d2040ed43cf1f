"""`mars fetch`: a model ahead of time."""

from __future__ import annotations

import argparse
import sys

from mars_core.cli.arguments import Commands, add_models_dir
from mars_core.errors import MarsError
from mars_core.models import catalog


def add_commands(commands: Commands) -> None:
    fetch = commands.add_parser("fetch", help="download a model ahead of time", allow_abbrev=False)
    fetch.add_argument(
        "model", nargs="?", default=catalog.DEFAULT_MODEL, help="name from the catalogue"
    )
    add_models_dir(fetch)
    fetch.set_defaults(run=run_fetch)


def run_fetch(args: argparse.Namespace) -> int:
    """Download and convert a catalogue model."""
    from mars_core.models import fetch
    from mars_core.models.progress import TerminalProgress

    entry = catalog.find(args.model)
    if entry is None:
        raise MarsError(f"unknown model {args.model!r}: known are {', '.join(catalog.names())}")
    with TerminalProgress() as progress:
        folder = fetch.fetch(entry, fetch.models_dir(args.models_dir), progress)
    print(f"{entry.name}: licence {entry.licence}", file=sys.stderr)
    print(folder)
    return 0
