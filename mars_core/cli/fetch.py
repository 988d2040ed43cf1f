"""`mars fetch`: a model ahead of time."""

from __future__ import annotations

import argparse
import sys

from mars_core.cli.arguments import Commands, add_models_dir
from mars_core.models import catalog


def add_commands(commands: Commands) -> None:
    fetch = commands.add_parser("fetch", help="download a model ahead of time", allow_abbrev=False)
    fetch.add_argument(
        "model", nargs="?", default=catalog.DEFAULT_MODEL, help="catalogue name or hub id"
    )
    add_models_dir(fetch)
    fetch.set_defaults(run=run_fetch)


def run_fetch(args: argparse.Namespace) -> int:
    """Download a model, and convert it where that is needed; print its folder."""
    from mars_core.models.load import resolve
    from mars_core.models.progress import TerminalProgress

    with TerminalProgress() as progress:
        found = resolve(args.model, args.models_dir, progress)
    licence = found.record.get("licence") or "see its page on the hub"
    print(f"{found.name}: licence {licence}", file=sys.stderr)
    print(found.folder)
    return 0
