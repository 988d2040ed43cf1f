"""The `mars` command. Every module here adds its commands to the parser.

Results on stdout, everything else on stderr. Heavy imports wait until a command runs, so that
--help is quick.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence

from mars_core import __version__
from mars_core.cli import batch, bench, data, evaluate, export, fetch, generate, plan, race, train
from mars_core.errors import MarsError


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code. 2 means bad input, said in one line on stderr."""
    args = build_parser().parse_args(argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # a terminal that cannot show a character is no error
            stream.reconfigure(errors="replace")
    try:
        code = int(args.run(args))
        sys.stdout.flush()
        return code
    except MarsError as error:
        print(f"mars: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("", file=sys.stderr)
        return 130
    except OSError as error:
        if error.filename is not None:
            print(f"mars: {error.filename}: {error.strerror}", file=sys.stderr)
            return 2
        # about no file: writing the output
        discard_output()
        if isinstance(error, BrokenPipeError):  # the reader has enough: `mars ... | head`
            return 0
        print(f"mars: the output cannot be written: {error.strerror}", file=sys.stderr)
        return 2


def discard_output() -> None:
    """Let nothing more be written, or the interpreter would fail again when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="mars", description="Multi-token decoding made visible.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"mars-studio {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    for module in (generate, batch, race, export, fetch, plan, bench, data, train, evaluate):
        module.add_commands(commands)
    return parser
