"""MARS Studio: serve the page and load a model."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import threading
from concurrent.futures import Future
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from mars_core.cli.arguments import (
    add_model_arguments,
    load_config_from,
    load_shown,
    threaded_engine,
)
from mars_core.config import check_range
from mars_core.errors import MarsError
from mars_core.forked_engine import ForkedEngine, Lend, zero_gpu
from mars_core.model_thread import ModelThread, PageEngine, settle
from mars_core.models.names import check_known
from mars_core.models.progress import LatestProgress

if TYPE_CHECKING:
    from mars_core.ui.limits import Limits

# flags for where there is no command line, as in a Space
MORE_FLAGS = "MARS_ARGS"


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line, behind the flags in MARS_ARGS; heavy imports come after it, so that --help
    is quick."""
    parser = argparse.ArgumentParser(prog="app.py", description=__doc__, allow_abbrev=False)
    add_model_arguments(parser)
    parser.add_argument(
        "--replay-only", action="store_true", help="show recordings; no model is loaded"
    )
    space = bool(os.environ.get("SPACE_ID"))  # Hugging Face sets it in a Space
    parser.add_argument(
        "--public",
        action=argparse.BooleanOptionalAction,
        default=space,
        help="for strangers: one model, limits on what each may ask (default: in a Space)",
    )
    parser.add_argument(
        "--mcp",
        action=argparse.BooleanOptionalAction,
        default=space and find_spec("mcp") is not None,
        help="serve the endpoints as tools for MCP clients too (default: in a Space)",
    )
    host = "0.0.0.0" if space else "127.0.0.1"
    parser.add_argument("--host", default=host, help="address to bind to (%(default)s)")
    parser.add_argument("--port", type=int, default=7860, help="port to bind to (%(default)s)")
    given = sys.argv[1:] if arguments is None else arguments
    return parser.parse_args([*shlex.split(os.environ.get(MORE_FLAGS, "")), *given])


def main(arguments: list[str] | None = None) -> int:
    """Run the app; the exit code is 2 where the user has to change something."""
    args = parse_arguments(arguments)
    try:
        check_range("port", args.port, 0, 65535, whole=True)
        if args.mcp and find_spec("mcp") is None:
            raise MarsError("--mcp needs the package mcp: pip install 'mars-studio[mcp]'")
        if args.replay_only:
            serve_recordings(args)
        else:
            serve(args)
    except MarsError as error:
        print(f"app.py: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def serve(args: argparse.Namespace) -> None:
    """Open the page first, since that is quick; load the model while it is already there."""
    check_known(args.model)
    lend = zero_gpu()

    from mars_core.export.recording import shipped_recordings
    from mars_core.switching import Switcher
    from mars_core.ui.demo import build_demo

    loading, opened = LatestProgress(), threading.Event()
    switcher = None
    if lend:
        engine = lent_engine(args, lend)
    else:
        thread = ModelThread()
        thread.submit(opened.wait)  # two heavy imports at once would only delay the page
        engine = thread.submit(lambda: threaded_engine(args, thread, loading))
        if not args.public:
            switcher = Switcher(thread, load_config_from(args))
    recording = next(iter(shipped_recordings().values()), "")
    limits = limits_of(args)
    demo = build_demo(engine, args.model, recording, switcher, limits, loading)
    open_page(demo, args, limits)
    opened.set()
    loaded = engine.result().loaded
    print(f"{loaded.name}: {loaded.dtype_name}, {loaded.dtype_reason}", file=sys.stderr)
    demo.block_thread()


def lent_engine(args: argparse.Namespace, lend: Lend) -> Future[PageEngine]:
    """The engine on ZeroGPU, there or failed: it wants the model in place before the page opens,
    and put there in the main thread."""
    from mars_core.race.lanes import open_racer

    engine: Future[PageEngine] = Future()
    settle(lambda: ForkedEngine(*open_racer(load_config_from(args), load_shown), lend), engine)
    return engine


def serve_recordings(args: argparse.Namespace) -> None:
    """The page without a model, and without torch."""
    from mars_core.export.recording import shipped_recordings
    from mars_core.ui.demo import build_replay_demo

    demo = build_replay_demo(shipped_recordings())
    open_page(demo, args, limits_of(args))
    demo.block_thread()


def limits_of(args: argparse.Namespace) -> Limits:
    """Of what one visitor may ask."""
    from mars_core.ui.limits import NO_LIMITS, PUBLIC

    return PUBLIC if args.public else NO_LIMITS


def open_page(demo: Any, args: argparse.Namespace, limits: Limits) -> None:
    """Serve the page in the background, and say where."""
    from mars_core.ui.demo import launch

    address = launch(demo, args.host, args.port, limits, mcp=args.mcp)
    print(f"MARS Studio: {address} (Ctrl-C ends it)", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
